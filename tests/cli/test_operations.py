"""What an operator does on a real cluster: finds transactions that hang, ends them, and asks the doctor."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import TopicPartition

from eos_client.cli import doctor
from eos_client.cli.doctor import DoctorOptions, diagnose
from eos_client.cli.doctor_checks import Level
from eos_client.cli.failures import ExtraMissingError
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from tests.cli.conftest import Cluster
from tests.cli.test_secure_clusters import Site
from tests.support.late_writes import NOBODYS_PRODUCER_ID, write_late
from tests.support.secured_broker import OPERATOR, PASSWORD, Op, on_cluster, on_id, on_topic

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operations.md"
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def cluster(secured_broker: Any, tmp_path: Path) -> Site:
    return Site(secured_broker, tmp_path)


class Operator:
    """Runs commands on the plain listener, where they may do anything, or by a login on the secure one."""

    def __init__(self, cluster: Site, command: Any) -> None:
        self.cluster, self.command = cluster, command

    def run(self, *arguments: str, login: dict[str, str] | None = None, status: int = 0) -> Any:
        """``status`` is what it must end with."""
        where = self.cluster.config(login) if login else ["--bootstrap", self.cluster.bootstrap_servers]
        command = self.command(*arguments, *where)
        assert command.wait() == status, command.out + command.err
        return command

    def all_ids(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("txn", "list", "--all", "--json").out.splitlines()]

    def listed(self, topic: str, **how: Any) -> list[dict[str, Any]]:
        command = self.run("txn", "list", "--json", "--topic", topic, **how)
        return [json.loads(line) for line in command.out.splitlines()]


@pytest.fixture
def operator(cluster: Site, typed: Any) -> Operator:
    return Operator(cluster, typed)


def begun(cluster: Cluster, topic: str, *, transactional_id: str, timeout_ms: int = 600_000) -> Producer:
    """A producer with a transaction that is open on partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transaction.timeout.ms": timeout_ms}
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
    cluster: Site, operator: Operator
) -> None:
    """By an operator who may do what the page lists, and no more."""
    topic = cluster.topic("orders", partitions=2)
    needed = [*on_topic(topic, Op.READ), *on_id("*", Op.DESCRIBE), *on_cluster(Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS)]
    cluster.broker.grant(OPERATOR, *needed)
    login = cluster.broker.login("PLAIN", OPERATOR)
    begun_here = begun(cluster, topic, transactional_id=f"{topic}-writer")
    cluster.load(topic, [b"before"], partition=1)
    offset = write_late(cluster.bootstrap_servers, TopicPartition(topic, 1), timestamp_ms=LONG_AGO_MS)
    cluster.load(topic, [b"behind"], partition=1)
    assert stable_end(cluster, topic, 1) == offset == 1
    shown = operator.run("txn", "list", "--topic", topic, login=login)
    way_out = f"eos-client txn abort --topic {topic} --partition 1 --start-offset 1"
    assert (
        f"producer {NOBODYS_PRODUCER_ID} epoch 0  {topic}[1]@1\n      -> nobody will end it: {way_out}\n" in shown.out
    )
    assert [(each["state"], each["hanging"]) for each in operator.listed(topic, login=login)] == [
        ("Ongoing", False),
        ("Hanging", True),
    ]
    ended = operator.run(*way_out.split()[1:], "--verbose", login=login)
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


def test_wrong_credentials_and_unsupported_mechanisms_are_told_apart(cluster: Site, operator: Operator) -> None:
    login = cluster.broker.login("PLAIN", OPERATOR)
    wrong = operator.run("txn", "list", "--config", "sasl.password=wrong", login=login, status=14)
    assert "Authentication failed" in wrong.err
    other = operator.run("txn", "list", "--config", "ssl.key.pem=x", login=login, status=4)
    assert "ssl.key.pem" in other.err


def test_a_user_who_may_not_see_all_ids_is_not_told_that_a_transaction_hangs(cluster: Site, operator: Operator) -> None:
    topic, unread = cluster.topic("orders", partitions=2), cluster.topic("unread")
    producer = begun(cluster, topic, transactional_id=f"{topic}-writer")
    write_late(cluster.bootstrap_servers, TopicPartition(topic, 1), timestamp_ms=LONG_AGO_MS)
    cluster.broker.grant(cluster.user, *on_topic(topic, Op.READ), *on_topic(unread, Op.DESCRIBE))
    login = cluster.new_user()
    of_reader = operator.run("txn", "list", "--json", "--topic", topic, "--topic", unread, login=login)
    found = [json.loads(line) for line in of_reader.out.splitlines()]
    at = ("--topic", topic, "--partition", "1", "--start-offset", "0")
    refused = operator.run("txn", "abort", *at, login=login, status=2)
    forced = operator.run("txn", "abort", *at, "--force", login=login, status=6)
    assert [each["state"] for each in operator.listed(topic)] == ["Ongoing", "Hanging"]
    assert [(each["state"], each["hanging"]) for each in found] == [("Unlisted", False), ("Hidden", None)]
    assert f"{unread} was not looked at: " in of_reader.err
    assert "TOPIC_AUTHORIZATION_FAILED" in of_reader.err
    assert "no transactional id that this user may see has its producer id" in refused.err
    assert f"the cluster would not end the transaction on {topic}[1]: CLUSTER_AUTHORIZATION_FAILED" in forced.err
    operator.run("txn", "abort", *at)
    producer.abort_transaction(60)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_the_commands_print(cluster: Site, operator: Operator) -> None:
    """But for numbers, and for the page's names and address, each of which stands for one of this test's."""
    orders, invoices = cluster.topic("orders", partitions=2), cluster.topic("invoices")
    job_id = f"{cluster.prefix}-billing-0"
    producer = begun(cluster, orders, transactional_id=job_id, timeout_ms=60_000)
    write_late(cluster.bootstrap_servers, TopicPartition(orders, 1), timestamp_ms=LONG_AGO_MS)
    real = {"billing-0": job_id, "orders": orders, "invoices": invoices, "billing": f"{cluster.prefix}-billing"}
    real |= {"localhost:9092": cluster.bootstrap_servers}
    named = re.compile(r"localhost:9092|\b(?:billing-0|billing|orders|invoices)\b")
    shown = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) == 2
    for command, _, printed in re.findall(r"\$ eos-client (.*) (--bootstrap.*)\n((?:[^$].*\n)*)", "".join(shown)):
        arguments = [named.sub(lambda name: real[name[0]], word) for word in command.split()]
        expected = named.sub(lambda name: real[name[0]], printed)
        assert without_numbers(operator.run(*arguments).out) == without_numbers(expected)
    producer.abort_transaction(60)


def without_numbers(text: str) -> str:
    return re.sub(r"\d+ (?:s|min|h|days)\b|\d+", "N", text)


# -- the doctor ------------------------------------------------------------------------------------------------------


def diagnosed(operator: Operator, *arguments: str, **how: Any) -> dict[str, tuple[str, str]]:
    command = operator.run("doctor", "--json", *arguments, **how)
    return {each["subject"]: (each["level"], each["text"]) for each in map(json.loads, command.out.splitlines())}


def test_the_doctor_names_each_permission_that_a_job_lacks(cluster: Site, operator: Operator) -> None:
    orders, invoices, hidden = (cluster.topic(name) for name in ("orders", "invoices", "hidden"))
    group, job_id, needed = f"{cluster.prefix}-group", cluster.prefix, cluster.needed(orders, invoices)
    job = ("--from", orders, "--to", invoices, "--group", group, "--transactional-id", job_id)
    login = cluster.new_user()
    cluster.broker.grant(cluster.user, *needed, *on_cluster(Op.DESCRIBE_CONFIGS))
    may_do_all = diagnosed(operator, *job, login=login)
    resources = (f"topic {orders}", f"topic {invoices}", f"group {group}", f"transactional id {job_id}")
    assert [may_do_all[f"permissions on {name}"] for name in resources] == [
        ("ok", "Read"),
        ("ok", "Write"),
        ("ok", "Read"),
        ("ok", "Write"),
    ]
    cluster.broker.take_away(cluster.user, *needed)
    others = [*on_topic(orders, Op.WRITE), *on_topic(invoices, Op.READ), *on_id(job_id, Op.DESCRIBE)]
    cluster.broker.grant(cluster.user, *others)
    found = diagnosed(operator, *job, "--topic", hidden, login=login, status=6)
    assert [found[f"permissions on {name}"] for name in resources] == [
        ("fail", "missing: Read"),
        ("fail", "missing: Write"),
        ("fail", "missing: Read"),
        ("fail", "missing: Write"),
    ]
    assert found[f"topic {hidden}"] == ("fail", "may not be seen by this user")
    assert all(job_id not in (each["transactional_id"] or "") for each in operator.all_ids())


def test_asking_for_the_permission_on_an_id_leaves_its_producer_alone(cluster: Cluster, operator: Operator) -> None:
    topic = cluster.topic("orders", partitions=2)
    producer = begun(cluster, topic, transactional_id=f"{topic}-writer")
    found = diagnosed(operator, "--to", topic, "--transactional-id", f"{topic}-writer")
    assert found[f"permissions on transactional id {topic}-writer"] == ("ok", "Write")
    producer.commit_transaction(60)
    assert cluster.values(topic, 2) == [b"pending"]


def test_what_the_doctor_cannot_ask_is_a_finding_with_its_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_extra(_access: object) -> None:
        raise ExtraMissingError("pip install 'eos-client[ops]'")

    monkeypatch.setattr(ClusterAdmin, "broker_settings", lambda *_: {})
    monkeypatch.setattr(doctor, "transactions_admin", without_extra)
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "output_topics": [cluster.topic("invoices")],
    }
    pinned = diagnose(DoctorOptions(**options, transactional_id=f"{cluster.prefix}-billing-0"))
    told = {finding.subject: f"{finding.level.value} {finding.text}" for finding in pinned}
    assert told["hanging transactions"] == "warn not looked for: pip install 'eos-client[ops]'"
    of_id = told[f"permissions on transactional id {cluster.prefix}-billing-0"]
    assert of_id.startswith("warn not known: asking could fence a running job")
    # An id that was made up for the question has no job.
    (of_generated,) = [each for each in diagnose(DoctorOptions(**options)) if "transactional id eos-" in each.subject]
    assert of_generated.level is Level.OK


def test_the_doctor_sees_a_hanging_transaction_and_how_to_end_it(cluster: Cluster, operator: Operator) -> None:
    topic = cluster.topic("orders", partitions=2)
    write_late(cluster.bootstrap_servers, TopicPartition(topic, 1), timestamp_ms=LONG_AGO_MS)
    told = operator.run("doctor", "--topic", topic, status=6).out
    assert f"fail transaction at {topic}[1]@0: no coordinator knows it: nobody will end it; its last" in told
    (way_out,) = [line for line in told.splitlines() if "eos-client txn abort" in line]
    operator.run(*way_out.removeprefix("      -> eos-client ").split())
    level, text = diagnosed(operator, "--topic", topic)["hanging transactions"]
    assert (level, text.partition(";")[0]) == ("ok", "none")
