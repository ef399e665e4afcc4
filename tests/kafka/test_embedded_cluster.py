"""The embedded cluster is three real brokers that go on without any one of them, and leave nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import EmbeddedKafkaCluster
from eos_client.testing import embedded_cluster as embedded_cluster_module
from eos_client.testing.free_ports import free_ports
from eos_client.testing.readiness import serves_clients
from tests.kafka.round_trips import read_committed, write_in_transaction
from tests.support.brokers import CLUSTER_PROPERTIES
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.answers import settled

STARTS_A_CLUSTER = """
import json, time
from eos_client.testing import EmbeddedKafkaCluster
cluster = EmbeddedKafkaCluster(brokers=2).start()
print(json.dumps([[broker.pid, str(broker.log_path.parent)] for broker in cluster.brokers.values()]), flush=True)
time.sleep(600)
"""


pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def shared(brokers):
    return brokers.cluster()


@pytest.fixture(scope="module")
def cluster(shared):
    return shared.running


def metadata(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return settled(lambda: admin.list_topics(timeout=WAIT_S))


def partitions_of(cluster, topic):
    """The partitions as the brokers tell them, of which one may hear of a new topic later than another."""

    def found():
        known = metadata(cluster).topics.get(topic)
        return known and all(each.leader >= 0 for each in known.partitions.values()) and list(known.partitions.values())

    return wait_for(found, f"{topic} to be known and led")


def leader_of(cluster, topic):
    return partitions_of(cluster, topic)[0].leader


@pytest.fixture
def replicated_topic(cluster, unique_name):
    """A topic as the cluster makes it when nothing is asked for."""
    name = unique_name("replicated")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    settled(lambda: admin.create_topics([NewTopic(name, 1)])[name].result(WAIT_S))
    return name


def test_ready_means_that_every_broker_serves_clients_of_one_cluster(cluster):
    found = metadata(cluster)
    assert {str(node) for node in found.brokers.values()} == {
        f"{broker.bootstrap_servers}/{number}" for number, broker in cluster.brokers.items()
    }
    assert sorted(cluster.brokers) == [1, 2, 3]
    assert cluster.running
    for number, broker in cluster.brokers.items():
        assert serves_clients("127.0.0.1", broker.port, found.cluster_id, node_id=number, timeout_s=30)
        assert not serves_clients("127.0.0.1", broker.port, found.cluster_id, node_id=4, timeout_s=30)


def test_ready_means_that_every_groups_offsets_can_be_asked_for_at_once(shared):
    loaded = re.findall(r"Finished loading of metadata from __consumer_offsets-(\d+) ", shared.said_until_ready)
    assert {int(partition) for partition in loaded} == set(range(4))


def test_topics_and_coordinators_have_three_replicas_of_which_two_must_be_in_sync(cluster, replicated_topic):
    write_in_transaction(cluster.bootstrap_servers, replicated_topic, b"once")
    assert read_committed(cluster.bootstrap_servers, replicated_topic, group_protocol="consumer") == [b"once"]
    for name in ("__transaction_state", "__consumer_offsets", replicated_topic):
        assert {tuple(sorted(p.replicas)) for p in partitions_of(cluster, name)} == {(1, 2, 3)}
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert config["min.insync.replicas"].value == "2"


def test_further_properties_reach_every_broker(cluster):
    expected = CLUSTER_PROPERTIES["log.retention.hours"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for number in cluster.brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        assert admin.describe_configs([resource])[resource].result(WAIT_S)["log.retention.hours"].value == expected


@pytest.mark.soak
def test_goes_on_without_one_broker_and_takes_it_back(cluster, replicated_topic, alive):
    write_in_transaction(cluster.bootstrap_servers, replicated_topic, b"before")
    leader = leader_of(cluster, replicated_topic)
    broker = cluster.brokers[leader]
    pid = broker.pid
    for end in (broker.kill, lambda: broker.shut_down(60)):  # later it would be ended by force
        end()
        assert not alive(pid)
        assert not cluster.running
        write_in_transaction(cluster.bootstrap_servers, replicated_topic, b"without")
        broker.restart()
        assert cluster.running
        assert broker.pid != pid
        pid = broker.pid
    assert "shut down completed" in broker.log_path.read_text()
    assert read_committed(cluster.bootstrap_servers, replicated_topic, count=3) == [b"before", b"without", b"without"]


def test_the_end_of_every_log_is_shown_below_the_name_of_its_broker(cluster):
    lines = cluster.log_tail(2).splitlines()
    assert lines[::3] == ["-- broker 1", "-- broker 2", "-- broker 3"]
    for broker, tail in zip(cluster.brokers.values(), (lines[1:3], lines[4:6], lines[7:9]), strict=True):
        assert "\n".join(tail) in broker.log_path.read_text()  # it goes on, so that its end may be another by now


def test_a_started_cluster_is_not_started_again(cluster):
    with pytest.raises(EmbeddedKafkaError, match="started already"):
        cluster.start()


@pytest.mark.soak
def test_stop_leaves_no_process_and_no_file_and_the_logs_can_still_be_asked_for(tmp_path, monkeypatch, alive):
    """Nor does a start that met a port which was taken at the last moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    choices = [free_ports(6)]
    monkeypatch.setattr(
        embedded_cluster_module, "free_ports", lambda count: choices.pop() if choices else free_ports(count)
    )
    occupant = socket.create_server(("127.0.0.1", choices[0][0]))
    # Longer than any test may take: a broker alone is never ready, and nobody must wait for it.
    with occupant, EmbeddedKafkaCluster(brokers=2, start_timeout_s=600) as cluster:
        assert not choices
        assert cluster.running
        assert len(list(tmp_path.iterdir())) == 2
        pids = [broker.pid for broker in cluster.brokers.values()]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))
    assert not cluster.running
    assert "-- broker 2" in cluster.log_tail()
    assert not list(tmp_path.iterdir())
    cluster.stop()


@pytest.mark.soak
def test_ends_with_its_starter_and_leaves_nothing(alive):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_CLUSTER], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert starter.stdout is not None
    started = json.loads(starter.stdout.readline())
    assert len(started) == 2
    assert all(alive(pid) for pid, _ in started)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    wait_for(lambda: not any(alive(pid) for pid, _ in started), "the brokers have ended")
    wait_for(lambda: not any(Path(directory).exists() for _, directory in started), "their directories are removed")


@pytest.mark.timeout(250)  # of those that are still being made ready nobody is waited for
def test_settings_that_kafka_does_not_accept_are_shown_with_kafkas_words(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = EmbeddedKafkaCluster(brokers=2, properties={"log.retention.hours": "a-week"}, start_timeout_s=600)
    with pytest.raises(EmbeddedKafkaError, match=r"does not accept its settings[\s\S]*Invalid value a-week"):
        cluster.start()
    assert not cluster.running
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_a_cluster_that_cannot_serve_groups_is_not_ready(tmp_path, monkeypatch, asked_in_vain):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked_in_vain(embedded_cluster_module)
    cluster = EmbeddedKafkaCluster(brokers=1, properties={"offsets.topic.replication.factor": "3"}, start_timeout_s=600)
    with pytest.raises(EmbeddedKafkaError, match=r"no group had a coordinator after 600 s[\s\S]*__consumer_offsets"):
        cluster.start()
    assert not cluster.running
    assert not list(tmp_path.iterdir())


def test_what_only_a_started_cluster_has_is_refused_before():
    for attribute in ("brokers", "bootstrap_servers"):
        with pytest.raises(EmbeddedKafkaError, match=r"call start\(\) first"):
            getattr(EmbeddedKafkaCluster(), attribute)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokers": 0}, "brokers=0 is no cluster"),
        ({"properties": {"controller.quorum.voters": "x"}}, "set by the embedded broker itself"),
    ],
)
def test_what_can_be_no_cluster_is_refused(options, message):
    with pytest.raises(EmbeddedKafkaError, match=message):
        EmbeddedKafkaCluster(**options)
