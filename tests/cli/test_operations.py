"""What an operator does on a real cluster: finds transactions that hang, ends them, and asks the doctor."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import TopicPartition

from tests.cli.conftest import Cluster
from tests.support.guarded_broker import PASSWORD, GuardedBroker, guarded_broker
from tests.support.late_writes import NOBODYS_PRODUCER_ID, write_late

pytestmark = pytest.mark.kafka

LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """A broker that takes late writes, as those before 3.6 did."""
    properties = {"transaction.partition.verification.enable": "false"}
    with guarded_broker(tmp_path_factory.mktemp("guarded"), properties) as broker:
        yield broker


@pytest.fixture
def cluster(guarded: GuardedBroker) -> Cluster:
    return Cluster(guarded.bootstrap_servers)


class Operator:
    """Runs commands on the plain listener, or with ``secure`` as the super user on the other one."""

    def __init__(self, guarded: GuardedBroker, eos_client: Any, settings_file: Any) -> None:
        self.guarded, self.eos_client, self.settings_file = guarded, eos_client, settings_file
        lines = [f"{key} = {json.dumps(value)}" for key, value in guarded.secure_settings.items()]
        settings_file.write_text("\n".join(lines))

    def run(self, *arguments: str, secure: bool = False, status: int | None = 0) -> Any:
        """``status`` is what it must end with; None stands for any error."""
        where = ["--bootstrap", self.guarded.bootstrap_servers]
        if secure:
            where = ["--bootstrap", self.guarded.secure_servers, "--config-file", str(self.settings_file)]
        command = self.eos_client(*arguments, *where)
        ended_with = command.wait()
        assert ended_with == status or (status is None and ended_with), command.out + command.err
        return command

    def listed(self, topic: str, *, secure: bool = False) -> list[dict[str, Any]]:
        command = self.run("txn", "list", "--json", "--topic", topic, secure=secure)
        listed = [json.loads(line) for line in command.out.splitlines()]
        return [each for each in listed if any(place["topic"] == topic for place in each["partitions"])]


@pytest.fixture
def operator(guarded: GuardedBroker, eos_client: Any, tmp_path: Any) -> Operator:
    return Operator(guarded, eos_client, tmp_path / "secure.toml")


def begun(cluster: Cluster, topic: str, *, transactional_id: str) -> Producer:
    """A producer with a transaction that is open on partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transaction.timeout.ms": 600_000}
    producer = Producer({**settings, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"pending", partition=0)
    producer.flush(60)
    return producer


def stable_end(cluster: Cluster, topic: str, partition: int) -> int:
    return cluster.admin.end_offsets(topic, 2, committed_only=True)[partition]


def test_an_open_transaction_is_listed_with_its_coordinator_and_ended_by_its_id_only_by_force(
    cluster: Cluster, operator: Operator
) -> None:
    topic = cluster.topic("orders", partitions=2)
    producer = begun(cluster, topic, transactional_id=f"{topic}-writer")
    (listed,) = operator.listed(topic)
    assert listed.pop("age_s") in range(600)
    place = {"topic": topic, "partition": 0, "start_offset": 0}
    assert listed == {
        "transactional_id": f"{topic}-writer",
        "coordinator": 1,
        "producer_id": listed["producer_id"],
        "producer_epoch": 0,
        "state": "Ongoing",
        "timeout_s": 600,
        "partitions": [place],
        "hanging": False,
    }
    ending = ("txn", "abort", "--transactional-id", f"{topic}-writer")
    assert "--force ends it now; a process that is alive is fenced by that" in operator.run(*ending, status=2).err
    assert [each["state"] for each in operator.listed(topic)] == ["Ongoing"]
    said = operator.run(*ending, "--force").out
    assert said == f"aborted {topic}-writer, producer {listed['producer_id']} epoch 0: {topic}[0]\n"
    assert operator.listed(topic) == []
    assert stable_end(cluster, topic, 0) == 2  # behind the record and the marker
    assert cluster.values(topic, 2) == []
    del producer


def test_a_transaction_that_nobody_will_end_is_found_and_ended_on_a_secure_cluster(
    cluster: Cluster, operator: Operator
) -> None:
    topic = cluster.topic("orders", partitions=2)
    begun_here = begun(cluster, topic, transactional_id=f"{topic}-writer")
    cluster.load(topic, [b"before"], partition=1)
    offset = write_late(cluster.bootstrap_servers, TopicPartition(topic, 1), timestamp_ms=LONG_AGO_MS)
    cluster.load(topic, [b"behind"], partition=1)
    assert stable_end(cluster, topic, 1) == offset == 1
    shown = operator.run("txn", "list", "--topic", topic, secure=True)
    way_out = f"eos-client txn abort --topic {topic} --partition 1 --start-offset 1"
    assert (
        f"producer {NOBODYS_PRODUCER_ID} epoch 0  {topic}[1]@1\n      -> nobody will end it: {way_out}\n" in shown.out
    )
    assert [(each["state"], each["hanging"]) for each in operator.listed(topic, secure=True)] == [
        ("Ongoing", False),
        ("Hanging", True),
    ]
    ended = operator.run(*way_out.split()[1:], "--verbose", secure=True)
    assert ended.out == f"aborted {topic}[1]@1 of producer {NOBODYS_PRODUCER_ID} epoch 0\n"
    assert [each["state"] for each in operator.listed(topic)] == ["Ongoing"]
    begun_here.abort_transaction(60)
    assert cluster.values(topic, 2) == [b"before", b"behind"]
    assert PASSWORD not in shown.out + shown.err + ended.out + ended.err
    assert "no open transaction begins at" in operator.run(*way_out.split()[1:], status=2).err


def test_a_known_producers_late_write_hangs_where_its_coordinator_lists_other_partitions(
    cluster: Cluster, operator: Operator
) -> None:
    topic = cluster.topic("orders", partitions=2)
    producer = begun(cluster, topic, transactional_id=f"{topic}-writer")
    (own,) = operator.listed(topic)
    identity = {"producer_id": own["producer_id"], "producer_epoch": own["producer_epoch"]}
    place = TopicPartition(topic, 1)
    write_late(cluster.bootstrap_servers, place, timestamp_ms=round(time.time() * 1000), **identity)
    assert [each["state"] for each in operator.listed(topic)] == ["Ongoing", "Unlisted"]
    at_its_place = ("txn", "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    assert "too young to be called hanging" in operator.run(*at_its_place, status=2).err
    producer.commit_transaction(60)
    assert stable_end(cluster, topic, 1) == 0
    operator.run(*at_its_place, "--force")
    assert stable_end(cluster, topic, 1) == 2


def test_wrong_credentials_and_unsupported_mechanisms_are_told_apart(operator: Operator) -> None:
    wrong = operator.run("txn", "list", "--config", "sasl.password=wrong", secure=True, status=None)
    assert "Authentication failed" in wrong.err
    other = operator.run("txn", "list", "--config", "ssl.key.pem=x", secure=True, status=4)
    assert "ssl.key.pem" in other.err
