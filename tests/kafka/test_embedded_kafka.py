"""The embedded broker is a real Kafka that is quickly ready, survives what it should, and leaves nothing behind."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import EmbeddedKafka
from eos_client.testing import embedded_kafka as embedded_kafka_module
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.free_ports import free_ports
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
from eos_client.testing.readiness import serve_groups, serves_clients
from tests.kafka.round_trips import read_committed, write_in_transaction
from tests.support.protocols import BY_COORDINATOR
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

# The newest is what all other tests run on, and the conformance suite runs on 4.1.2, too.
OTHER_VERSIONS = [pytest.param(version, marks=pytest.mark.soak) for version in ("4.2.1", "4.0.0")]
PROPERTIES = {"group.initial.rebalance.delay.ms": "250", "log.retention.hours": "7"}
CLEAN_SHUTDOWN_S = 60.0  # what is not over by then is ended by force
ANSWER_S = 30.0
LONGER_THAN_BETWEEN_TWO_RECORDS_S = 1.2

STARTS_A_BROKER = """
import json, os, signal, sys, time
from eos_client.testing import EmbeddedKafka
broker = EmbeddedKafka().start()
print(json.dumps([broker.pid, broker.bootstrap_servers, str(broker.log_path.parent)]), flush=True)
"""


THEN_WAITS = "time.sleep(600)"
THEN_EXITS_WHEN_TOLD = "sys.stdin.readline(); os._exit(3)"
THEN_HEARS_INTERRUPTS = """
own = os.getpid()
signal.signal(signal.SIGINT, lambda *_: os.getpid() == own and os.write(1, b"interrupted\\n"))
"""
THEN_FORKS_A_CHILD = """
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
while True:
    time.sleep(0.1)  # a signal that comes just before a sleep does not interrupt it
"""


@pytest.fixture(scope="module")
def broker():
    """A broker with properties of its own, started by a thread that has ended."""
    running = EmbeddedKafka(properties=PROPERTIES)
    starting = threading.Thread(target=running.start)
    starting.start()
    starting.join()
    yield running
    running.stop()


def run_in_another_process(then):
    """A process that starts a broker, says where it is, and then runs `then`."""
    command = [sys.executable, "-c", STARTS_A_BROKER + then]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def start_in_another_process(then):
    """Such a process; with the broker's pid, address and directory."""
    starter = run_in_another_process(then)
    pid, bootstrap_servers, directory = json.loads(next_line(starter))
    return starter, pid, bootstrap_servers, Path(directory)


@pytest.fixture(scope="module")
def starters():
    """Processes that started their brokers at the same time, by what they do then."""
    running = {then: run_in_another_process(then) for then in (THEN_WAITS, THEN_EXITS_WHEN_TOLD)}
    yield {then: (starter, *json.loads(next_line(starter))) for then, starter in running.items()}
    for starter in running.values():
        starter.kill()
        starter.communicate()


def next_line(process):
    return process.stdout.readline()


def cluster_id_of(bootstrap_servers):
    return AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=ANSWER_S).cluster_id


def commands_with(text):
    """The command lines of all running processes in which `text` stands."""
    running = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in running.splitlines() if text in line)


def keeper_of(pid):
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_runs_transactions_and_both_group_protocols_on_every_supported_version(version, create_topic):
    with EmbeddedKafka(version=version) as broker:
        topic = create_topic(broker, partitions=1)  # at once: that is what ready means
        write_in_transaction(broker.bootstrap_servers, topic, b"exactly once")
        for group_protocol in BY_COORDINATOR:
            assert read_committed(broker.bootstrap_servers, topic, group_protocol=group_protocol) == [b"exactly once"]
        assert version in "".join(broker.log_path.read_text().splitlines()[:2000])


@pytest.mark.soak
def test_ready_means_that_every_groups_offsets_can_be_asked_for_at_once_and_after_a_clean_restart(create_topic):
    """Else the first to ask may hear NOT_COORDINATOR from the broker that was named as the coordinator."""
    with EmbeddedKafka(properties={"offsets.topic.num.partitions": "50"}) as broker:
        loaded = re.findall(r"Finished loading of metadata from __consumer_offsets-(\d+) ", broker.log_path.read_text())
        assert sorted(map(int, loaded)) == list(range(50))
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"before")
        broker.restart(CLEAN_SHUTDOWN_S)
        assert serve_groups({1: ("127.0.0.1", broker.port)}, timeout_s=ANSWER_S)
        assert "shut down completed" in broker.log_path.read_text()
        assert read_committed(broker.bootstrap_servers, topic) == [b"before"]


def test_another_cluster_at_the_port_is_not_taken_for_ours(broker):
    cluster_id = cluster_id_of(broker.bootstrap_servers)
    assert serves_clients("127.0.0.1", broker.port, cluster_id, timeout_s=ANSWER_S)
    assert not serves_clients("127.0.0.1", broker.port, "AAAAAAAAAAAAAAAAAAAAAQ", timeout_s=ANSWER_S)


def test_what_kept_it_from_starting_may_go_and_its_stop_leaves_no_process_and_no_file(alive):
    broker = EmbeddedKafka(port=free_ports(1)[0])
    with socket.create_server(("127.0.0.1", broker._port)), pytest.raises(EmbeddedKafkaError, match="is in use"):
        broker.start()
    broker.start()
    with pytest.raises(EmbeddedKafkaError, match="started already"):
        broker.start()
    pid, keeper_pid, directory = broker.pid, keeper_of(broker.pid), broker.log_path.parent
    assert alive(pid)
    assert alive(keeper_pid)
    broker.stop(CLEAN_SHUTDOWN_S)
    assert not alive(pid)
    wait_for(lambda: not alive(keeper_pid), "the keeper has ended")
    assert not directory.exists()
    assert not broker.running
    assert "App info kafka.server for 1 unregistered" in broker.log_tail(1)
    broker.stop()


@pytest.mark.soak
def test_brokers_started_by_several_processes_at_once_do_not_meet(starters):
    addresses = {address for _, _, address, _ in starters.values()}
    cluster_ids = {cluster_id_of(address) for address in addresses}
    assert len(addresses) == len(cluster_ids) == len(starters)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("then", "end"),
    [
        (THEN_WAITS, lambda starter: starter.terminate()),
        (THEN_EXITS_WHEN_TOLD, lambda starter: print(file=starter.stdin, flush=True)),
    ],
    ids=["SIGTERM", "exit without stop"],
)
def test_ends_with_its_starter_and_leaves_nothing(starters, then, end, alive):
    starter, pid, _, directory = starters[then]
    assert alive(pid)
    end(starter)
    starter.wait()
    wait_for(lambda: not alive(pid), "the broker has ended")
    wait_for(lambda: not Path(directory).exists(), "its directory is removed")


def test_outlives_an_interrupt_and_ends_with_its_killed_starter_though_a_forked_child_holds_the_same_files(alive):
    """An interrupt from the terminal is for the application alone."""
    starter, pid, bootstrap_servers, directory = start_in_another_process(THEN_HEARS_INTERRUPTS + THEN_FORKS_A_CHILD)
    child_pid = int(next_line(starter))
    try:
        os.killpg(starter.pid, signal.SIGINT)
        assert next_line(starter) == "interrupted\n"
        assert cluster_id_of(bootstrap_servers)
        assert alive(pid)
        starter.kill()
        wait_for(lambda: not alive(pid), "the broker has ended")
        wait_for(lambda: not Path(directory).exists(), "its directory is removed")
        assert alive(child_pid)
    finally:
        os.kill(child_pid, signal.SIGKILL)
        starter.kill()
        starter.wait()


def test_a_starter_killed_while_it_starts_a_broker_leaves_nothing(tmp_path):
    starter = subprocess.Popen([sys.executable, "-c", STARTS_A_BROKER], env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_for(lambda: commands_with(str(tmp_path)), "it starts")
    starter.kill()
    starter.wait()
    wait_for(lambda: not list(tmp_path.iterdir()), "the directory is removed")
    wait_for(lambda: not commands_with(str(tmp_path)), "no process is left")


@pytest.mark.soak
def test_a_dead_brokers_directory_goes_with_its_starter_too(alive):
    starter, pid, _, directory = start_in_another_process("broker.kill(); print('killed', flush=True); time.sleep(600)")
    assert next_line(starter) == "killed\n"
    assert not alive(pid)
    assert directory.exists()
    starter.kill()
    starter.wait()
    wait_for(lambda: not directory.exists(), "its directory is removed")


@pytest.mark.soak
def test_ends_when_the_process_that_keeps_it_is_killed(alive):
    with EmbeddedKafka() as broker:
        os.kill(keeper_of(broker.pid), signal.SIGKILL)
        wait_for(lambda: not alive(broker.pid), "the broker has ended")
        wait_for(lambda: not broker.running, "its starter knows")


def test_outlives_the_thread_that_started_it(broker, alive):
    assert alive(broker.pid)
    assert broker.running
    assert cluster_id_of(broker.bootstrap_servers)


def test_stop_in_a_forked_child_leaves_the_broker_to_its_starter(broker):
    child = multiprocessing.get_context("fork").Process(target=broker.stop)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert broker.running
    assert broker.log_path.exists()


@pytest.mark.soak  # many tests go on with the data of a broker that was killed
def test_killed_and_restarted_it_has_its_data_on_the_same_port(broker, create_topic):
    topic = create_topic(broker, partitions=1)
    address, pid = broker.bootstrap_servers, broker.pid
    write_in_transaction(address, topic, b"before")
    assert read_committed(address, topic) == [b"before"]
    broker.kill()
    assert not broker.running
    broker.restart()
    assert broker.bootstrap_servers == address
    assert broker.pid != pid
    write_in_transaction(address, topic, b"after")
    assert read_committed(address, topic, count=2) == [b"before", b"after"]


@pytest.mark.soak
def test_a_clean_stop_archives_the_loaded_classes_and_later_starts_map_them(tmp_path, monkeypatch):
    cached = kafka_jars(DEFAULT_VERSION, find_java(), print)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jars = tmp_path / "eos-client" / cached.name
    shutil.copytree(cached, jars, copy_function=os.symlink, ignore=shutil.ignore_patterns("*.jsa"))
    with EmbeddedKafka() as broker:
        broker.shut_down(CLEAN_SHUTDOWN_S)
        [archive] = jars.glob("*.jsa")
        broker.restart()
        assert str(archive) in Path(f"/proc/{broker.pid}/maps").read_text()


@pytest.mark.soak
def test_a_kept_directory_serves_the_next_broker(tmp_path, create_topic):
    with EmbeddedKafka(directory=tmp_path / "kept", keep_directory=True) as broker:
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"kept")
    with EmbeddedKafka(directory=tmp_path / "kept", keep_directory=True) as broker:
        assert read_committed(broker.bootstrap_servers, topic) == [b"kept"]


@pytest.mark.soak
def test_of_a_directory_that_was_there_only_the_brokers_files_are_removed(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with EmbeddedKafka(directory=tmp_path) as broker:
        assert broker.log_path.parent == tmp_path
        assert (tmp_path / "data").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_further_properties_reach_the_broker_and_win_over_ours(broker):
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = admin.describe_configs([resource])[resource].result(ANSWER_S)
    assert {name: config[name].value for name in PROPERTIES} == PROPERTIES


def test_it_writes_nothing_while_it_is_idle(broker):
    """Kafka's default is a record every half second."""
    (log,) = (broker.log_path.parent / "data" / "__cluster_metadata-0").glob("*.log")

    def stays_as_it_is():
        size = log.stat().st_size
        time.sleep(LONGER_THAN_BETWEEN_TWO_RECORDS_S)
        return log.stat().st_size == size

    wait_for(stays_as_it_is, "the log of the controller to stay as it is")


@pytest.mark.soak
def test_a_port_taken_at_the_last_moment_is_exchanged_for_another(broker, monkeypatch):
    choices = [[broker.port, *free_ports(2)]]
    monkeypatch.setattr(
        embedded_kafka_module, "free_ports", lambda count: choices.pop() if choices else free_ports(count)
    )
    with EmbeddedKafka() as second:
        assert not choices
        assert second.port != broker.port
        assert second.running
