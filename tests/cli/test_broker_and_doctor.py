import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eos_client.cli.doctor import DoctorOptions, diagnose
from eos_client.cli.doctor_checks import Level
from eos_client.confluent.admin.cluster_admin import ClusterAdmin


def address_of(broker: Any) -> str:
    broker.wait_for(lambda: broker.out.endswith("\n"), "address")
    return str(broker.out.strip())


@pytest.mark.kafka
def test_the_broker_command_serves_clients_at_the_address_it_prints_until_ctrl_c_and_leaves_nothing(
    eos_client: Any, typed: Any
) -> None:
    """SIGTERM ends that of the next test. The doctor sees that this one's transaction log cannot be created."""
    properties = ("transaction.state.log.replication.factor=3", "log.retention.hours=7")
    broker = eos_client("broker", *(word for each in properties for word in ("--property", each)))
    address = address_of(broker)
    with ClusterAdmin(address) as admin:
        assert admin.broker_settings(min(admin.cluster().brokers))["log.retention.hours"] == "7"
    doctor = typed("doctor", "--bootstrap", address)
    assert doctor.wait() == 6
    assert "init_transactions ends in a time-out" in doctor.out
    assert "set transaction.state.log.replication.factor=1" in doctor.out
    broker.process.send_signal(signal.SIGINT)
    assert broker.wait() == 0
    assert broker.err.splitlines()[-1] == "stopped"
    host, port = address.split(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


@pytest.mark.kafka
def test_a_broker_with_sasl_says_how_to_log_in(eos_client: Any, typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = eos_client("broker", "--sasl")
    address = address_of(broker)
    broker.wait_for(lambda: "Ctrl-C or SIGTERM stops it" in broker.err, "how to use it")
    exports = dict(re.findall(r"^  export (\w+)=(.*)$", broker.err, re.MULTILINE))
    assert exports["EOS_CLIENT_BOOTSTRAP_SERVERS"] == address
    for name, value in exports.items():
        monkeypatch.setenv(name, value)
    created = typed("topic", "create", "orders")
    assert (created.wait(), created.out) == (0, "orders\n")
    monkeypatch.setenv("EOS_CLIENT_CONFIG_SASL_PASSWORD", "wrong")
    refused = typed("topic", "list")
    assert refused.wait() == 14
    assert broker.terminate() == 0


def descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


@pytest.mark.soak
@pytest.mark.kafka
def test_a_broker_that_dies_by_itself_is_an_error_with_the_end_of_its_log(eos_client: Any) -> None:
    broker = eos_client("broker")
    address_of(broker)
    (java,) = (pid for pid in descendants(broker.process.pid) if Path(f"/proc/{pid}/exe").readlink().name == "java")
    os.kill(java, signal.SIGKILL)
    assert broker.wait() == 11
    assert "the broker died by itself. The end of its log:" in broker.err
    assert "[GroupCoordinator id=1] Finished loading" in broker.err


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--property", "num.partitions"], 2, "--property 'num.partitions' is not KEY=VALUE"),
        (["--port", "0"], 2, "--port"),
        (["--property", "listeners=PLAINTEXT://:1"], 2, "--property listeners: the broker sets it by itself"),
        (["--property", "num.partitions=many"], 11, "num.partitions"),
    ],
)
def test_a_broker_that_cannot_be_started_says_why(typed: Any, arguments: list[str], status: int, message: str) -> None:
    broker = typed("broker", *arguments)
    assert broker.wait() == status
    assert message in broker.err
    assert broker.out == ""


def test_a_port_in_use_is_named(eos_client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = eos_client("broker", "--port", str(port))
        assert broker.wait() == 11
    assert f"port {port} is in use" in broker.err


def test_the_doctor_finds_a_development_cluster_fit_with_warnings(cluster: Any, typed: Any) -> None:
    topic = cluster.topic("orders", partitions=2)
    doctor = typed(
        *("doctor", "--bootstrap", cluster.bootstrap_servers, "--group", f"{cluster.prefix}-new", "--topic", topic),
        *("--config", "group.protocol=consumer"),
    )
    assert doctor.wait() == 0
    assert "warn brokers: 1" in doctor.out
    assert f"ok   topic {topic}: 2 partitions, replication factor 1" in doctor.out
    assert re.search(r"ok   transaction\.timeout\.ms: ours \d+ ms, the brokers' limit 900000 ms", doctor.out)
    assert doctor.out.splitlines()[-1] == "fit for exactly-once"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--topic", "no-such-topic"], 6, "not fit for exactly-once: topic no-such-topic"),
        (["--config", "transaction.timeout.ms=900001"], 6, "not fit for exactly-once: transaction.timeout.ms"),
        (["--config", "enable.idempotence=false"], 4, "enable.idempotence='false' breaks exactly-once"),
        (["--config", "no.such.key=1"], 4, "no.such.key"),
        (["--config", "max.poll.interval.ms=10"], 6, "not fit for exactly-once: configuration"),
    ],
)
def test_the_doctors_exit_status_tells_what_is_wrong(
    cluster: Any, typed: Any, arguments: list[str], status: int, message: str
) -> None:
    doctor = typed("doctor", "--bootstrap", cluster.bootstrap_servers, *arguments)
    assert doctor.wait() == status
    assert message in doctor.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max.poll.interval.ms": "10"}, "the consumer refuses its configuration: .*max.poll.interval.ms"),
        ({"session.timeout.ms": "300001"}, "the consumer refuses its configuration: .*session.timeout.ms"),
        ({"client.id": "b\u00fcro"}, "client.id='b\u00fcro' has other characters than printable ASCII"),
        ({"message.timeout.ms": "600000", "transaction.timeout.ms": "60000"}, "the producer .*message.timeout.ms"),
    ],
)
def test_the_doctor_finds_what_a_loop_refuses_and_goes_on(cluster: Any, settings: dict[str, str], words: str) -> None:
    found = diagnose(DoctorOptions(bootstrap_servers=cluster.bootstrap_servers, settings=settings))
    (configuration,) = [finding for finding in found if finding.subject == "configuration"]
    assert configuration.level is Level.FAIL
    assert re.search(words, configuration.text)
    assert "brokers" in [finding.subject for finding in found]


def test_the_doctor_looks_for_hanging_transactions_also_where_the_groups_topic_is_named(cluster: Any) -> None:
    topics = ["__consumer_offsets"]
    found = diagnose(DoctorOptions(bootstrap_servers=cluster.bootstrap_servers, settings={}, topics=topics))
    (hanging,) = [finding for finding in found if finding.subject == "hanging transactions"]
    assert "not looked for" not in hanging.text


def test_the_doctor_leaves_a_pattern_to_the_job_that_runs(cluster: Any) -> None:
    cluster.topic("orders")
    pattern = f"^{cluster.prefix}.*"
    found = diagnose(DoctorOptions(bootstrap_servers=cluster.bootstrap_servers, settings={}, input_topics=[pattern]))
    assert [finding.level for finding in found if finding.subject == f"topic {pattern}"] == [Level.WARN]


def test_a_user_who_may_not_read_settings_still_learns_the_rest(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterAdmin, "broker_settings", lambda *_: {})
    topic = cluster.topic("orders")
    findings = {
        finding.subject: finding
        for finding in diagnose(DoctorOptions(bootstrap_servers=cluster.bootstrap_servers, topics=[topic]))
    }
    assert findings["__transaction_state"].way_out == "allow DescribeConfigs on the cluster to this user"
    assert findings[f"topic {topic}"].level is Level.OK


@pytest.mark.kafka
def test_the_doctor_tells_older_brokers_apart_and_what_newer_ones_bring(typed: Any, brokers: Any) -> None:
    doctor = typed("doctor", "--bootstrap", brokers.direct("4.1.2").bootstrap)
    assert doctor.wait() == 0
    assert "warn broker version: at least 4.1, below 4.3" in doctor.out
    assert "brokers >= 4.3 with group.protocol=consumer refuse no commit in a rebalance" in doctor.out
