"""The embedded broker is a real Kafka that is quickly ready, survives what it should, and leaves nothing behind."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from eos_client.testing import EmbeddedKafka
from eos_client.testing import embedded_kafka as embedded_kafka_module
from eos_client.testing.free_ports import free_ports, is_free
from eos_client.testing.readiness import serve_groups, serves_clients
from tests.kafka.round_trips import read_committed, write_in_transaction
from tests.support.waiting import wait_for

VERSIONS = ["4.3.1", "4.2.1", "4.1.2", "4.0.0"]
CLEAN_SHUTDOWN_S = 60.0  # what is not over by then is ended by force
ANSWER_S = 30.0

STARTS_A_BROKER = """
import json, os, sys, time
from eos_client.testing import EmbeddedKafka
broker = EmbeddedKafka().start()
print(json.dumps([broker.pid, broker.bootstrap_servers, str(broker.log_path.parent)]), flush=True)
"""


@pytest.fixture(scope="module")
def broker():
    with EmbeddedKafka() as running:
        yield running


def start_in_another_process(then):
    """A process that starts a broker and then runs `then`; with the broker's pid, address and directory."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER + then], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pid, bootstrap_servers, directory = json.loads(next_line(starter))
    return starter, pid, bootstrap_servers, Path(directory)


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


@pytest.mark.parametrize("version", VERSIONS)
def test_runs_transactions_and_both_group_protocols_on_every_supported_version(version, create_topic):
    with EmbeddedKafka(version=version) as broker:
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"exactly once")
        for group_protocol in ("consumer", "classic"):
            assert read_committed(broker.bootstrap_servers, topic, group_protocol=group_protocol) == [b"exactly once"]
        assert version in "".join(broker.log_path.read_text().splitlines()[:2000])


def test_ready_means_that_a_topic_can_be_created_at_once(create_topic):
    with EmbeddedKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = create_topic(broker, partitions=3)
        # Another client was answered by the controller; the broker applies what it decided a moment later.
        wait_for(
            lambda: len(admin.list_topics(topic, ANSWER_S).topics[topic].partitions) == 3, "its partitions are known"
        )


def test_ready_means_that_every_groups_offsets_can_be_asked_for_at_once():
    """Else the first to ask may hear NOT_COORDINATOR from the broker that was named as the coordinator."""
    with EmbeddedKafka(properties={"offsets.topic.num.partitions": "50"}) as broker:
        loaded = re.findall(r"Finished loading of metadata from __consumer_offsets-(\d+) ", broker.log_path.read_text())
        assert sorted(map(int, loaded)) == list(range(50))
        broker.restart()
        assert serve_groups({1: ("127.0.0.1", broker.port)}, timeout_s=ANSWER_S)


def test_another_cluster_at_the_port_is_not_taken_for_ours(broker):
    cluster_id = cluster_id_of(broker.bootstrap_servers)
    assert serves_clients("127.0.0.1", broker.port, cluster_id, timeout_s=ANSWER_S)
    assert not serves_clients("127.0.0.1", broker.port, "AAAAAAAAAAAAAAAAAAAAAQ", timeout_s=ANSWER_S)


def test_stop_leaves_no_process_and_no_file(alive):
    broker = EmbeddedKafka().start()
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


@pytest.mark.parametrize(
    ("then", "signum"),
    [("time.sleep(600)", signal.SIGKILL), ("time.sleep(600)", signal.SIGTERM), ("os._exit(3)", None)],
    ids=["SIGKILL", "SIGTERM", "exit without stop"],
)
def test_ends_with_its_starter_and_leaves_nothing(then, signum, alive):
    starter, pid, _, directory = start_in_another_process(then)
    if signum is not None:
        assert alive(pid)
        starter.send_signal(signum)
    starter.wait()
    wait_for(lambda: not alive(pid), "the broker has ended")
    wait_for(lambda: not directory.exists(), "its directory is removed")


def test_ends_with_its_starter_though_a_forked_child_holds_the_same_files(alive):
    fork_a_child = (
        "child = os.fork()\nif child == 0: time.sleep(60); os._exit(0)\nprint(child, flush=True); time.sleep(600)"
    )
    starter, pid, _, directory = start_in_another_process(fork_a_child)
    child_pid = int(next_line(starter))
    starter.kill()
    try:
        wait_for(lambda: not alive(pid), "the broker has ended")
        wait_for(lambda: not directory.exists(), "its directory is removed")
        assert alive(child_pid)
    finally:
        os.kill(child_pid, signal.SIGKILL)
        starter.wait()


def test_a_starter_killed_while_it_starts_a_broker_leaves_nothing(tmp_path):
    starter = subprocess.Popen([sys.executable, "-c", STARTS_A_BROKER], env={**os.environ, "TMPDIR": str(tmp_path)})
    # Mostly the storage is being formatted then, but whoever looks late finds the broker itself.
    wait_for(lambda: commands_with(str(tmp_path)), "its storage is formatted, or it starts")
    starter.kill()
    starter.wait()
    wait_for(lambda: not list(tmp_path.iterdir()), "the directory is removed")
    wait_for(lambda: not commands_with(str(tmp_path)), "no process is left")


def test_a_dead_brokers_directory_goes_with_its_starter_too(alive):
    starter, pid, _, directory = start_in_another_process("broker.kill(); print('killed', flush=True); time.sleep(600)")
    assert next_line(starter) == "killed\n"
    assert not alive(pid)
    assert directory.exists()
    starter.kill()
    starter.wait()
    wait_for(lambda: not directory.exists(), "its directory is removed")


def test_ends_when_the_process_that_keeps_it_is_killed(alive):
    with EmbeddedKafka() as broker:
        os.kill(keeper_of(broker.pid), signal.SIGKILL)
        wait_for(lambda: not alive(broker.pid), "the broker has ended")
        wait_for(lambda: not broker.running, "its starter knows")


def test_an_interrupt_from_the_terminal_is_for_the_application_alone(alive):
    goes_on = "import signal; signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
    starter, pid, bootstrap_servers, directory = start_in_another_process(
        f"{goes_on}print('ready', flush=True)\nwhile True: time.sleep(600)"
    )
    assert next_line(starter) == "ready\n"
    try:
        os.killpg(starter.pid, signal.SIGINT)
        assert next_line(starter) == "interrupted\n"
        assert cluster_id_of(bootstrap_servers)
        assert alive(pid)
    finally:
        starter.kill()
        starter.wait()
    wait_for(lambda: not directory.exists(), "its directory is removed")


def test_outlives_the_thread_that_started_it(alive):
    broker = EmbeddedKafka()
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    try:
        assert alive(broker.pid)
        assert broker.running
        assert cluster_id_of(broker.bootstrap_servers)
    finally:
        broker.stop()


def test_stop_in_a_forked_child_leaves_the_broker_to_its_starter(broker):
    child = multiprocessing.get_context("fork").Process(target=broker.stop)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert broker.running
    assert broker.log_path.exists()


def test_brokers_started_by_several_processes_at_once_do_not_meet():
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTS_A_BROKER + "sys.stdin.read(); broker.stop()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        addresses = {json.loads(next_line(starter))[1] for starter in starters}
        cluster_ids = {cluster_id_of(address) for address in addresses}
        assert len(addresses) == len(cluster_ids) == 3
    finally:
        for starter in starters:
            starter.communicate("")
    assert [starter.returncode for starter in starters] == [0, 0, 0]


def test_killed_and_restarted_it_has_its_data_on_the_same_port(create_topic):
    with EmbeddedKafka() as broker:
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


def test_restarted_while_running_it_shuts_down_cleanly_first(create_topic):
    with EmbeddedKafka() as broker:
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"before")
        broker.restart(CLEAN_SHUTDOWN_S)
        assert "shut down completed" in broker.log_path.read_text()
        assert read_committed(broker.bootstrap_servers, topic) == [b"before"]


def test_a_kept_directory_serves_the_next_broker(tmp_path, create_topic):
    with EmbeddedKafka(directory=tmp_path / "kept", keep_directory=True) as broker:
        topic = create_topic(broker, partitions=1)
        write_in_transaction(broker.bootstrap_servers, topic, b"kept")
    with EmbeddedKafka(directory=tmp_path / "kept", keep_directory=True) as broker:
        assert read_committed(broker.bootstrap_servers, topic) == [b"kept"]


def test_of_a_directory_that_was_there_only_the_brokers_files_are_removed(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with EmbeddedKafka(directory=tmp_path) as broker:
        assert broker.log_path.parent == tmp_path
        assert (tmp_path / "data").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_clients_are_told_the_advertised_port():
    proxy_port = free_ports(1)[0]
    with EmbeddedKafka(advertised_port=proxy_port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{proxy_port}"
        assert broker.port != proxy_port
        assert is_free(proxy_port)
        cluster = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"}).list_topics(timeout=ANSWER_S)
        assert [node.port for node in cluster.brokers.values()] == [proxy_port]


def test_further_properties_reach_the_broker_and_win_over_ours():
    properties = {"group.initial.rebalance.delay.ms": "250", "log.retention.hours": "7"}
    with EmbeddedKafka(properties=properties) as broker:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        config = admin.describe_configs([resource])[resource].result(ANSWER_S)
        assert {name: config[name].value for name in properties} == properties


def test_a_port_taken_at_the_last_moment_is_exchanged_for_another(broker, monkeypatch):
    choices = [[broker.port, *free_ports(2)]]
    monkeypatch.setattr(
        embedded_kafka_module, "free_ports", lambda count: choices.pop() if choices else free_ports(count)
    )
    with EmbeddedKafka() as second:
        assert not choices
        assert second.port != broker.port
        assert second.running
