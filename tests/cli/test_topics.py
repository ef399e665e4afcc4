"""`eos-client topic create` and `eos-client tail`: a newcomer sees what came out without writing a program."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kafka.client_quotas import limit_client

pytestmark = pytest.mark.kafka

EVERY_LINE = (
    "0@0\tk1\tapples\ttrace=1",
    r"0@1	\xff	\N",
    "0@2\tnull\t",
    r"0@3	ü	C:\\new\x1b[2J\n	\t=\x07",
)


@pytest.fixture
def written(cluster: Any) -> str:
    """A topic of one partition: a committed transaction, also of what cannot be printed, and an aborted one."""
    topic = cluster.topic("tailed")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "apples", "k1", headers={"trace": b"1"})
    producer.produce(topic, None, b"\xff")
    producer.produce(topic, b"", b"null")
    producer.produce(topic, b"C:\\new\x1b[2J\n", "\u00fc", headers={"\t": b"\x07"})
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, "never")
    producer.flush(60)
    producer.abort_transaction(60)
    return str(topic)


def test_a_topic_is_created_with_its_partitions_and_named(cluster: Any, typed: Any) -> None:
    name = f"{cluster.prefix}-created"
    command = typed("topic", "create", name, "--bootstrap", cluster.bootstrap_servers, "--partitions", "3")
    assert command.wait() == 0
    assert command.out == f"{name}\n"
    assert cluster.admin.topics([name])[name].partition_count == 3


def test_a_topic_that_is_there_already_is_named(cluster: Any, typed: Any) -> None:
    name = cluster.topic("there")
    command = typed("topic", "create", name, "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == 6
    assert name in command.err
    assert "already exists" in command.err


def test_what_can_be_created_is_and_what_cannot_is_named(cluster: Any, typed: Any) -> None:
    there, new, newer = cluster.topic("there-first"), f"{cluster.prefix}-new", f"{cluster.prefix}-newer"
    names = (there, new, "not/a/name", newer, new)
    command = typed("topic", "create", *names, "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == 6
    assert command.out.splitlines() == [new, newer]
    assert all(f"would not create topic '{name}'" in command.err for name in (there, "not/a/name"))
    assert new not in command.err


def test_tail_prints_committed_records_with_key_value_and_headers(cluster: Any, typed: Any, written: str) -> None:
    command = typed("tail", written, "--bootstrap", cluster.bootstrap_servers, "--no-follow")
    assert command.wait() == 0
    assert command.out.splitlines() == list(EVERY_LINE)


@pytest.mark.soak
def test_tail_escapes_what_the_encoding_of_the_output_cannot_hold(
    cluster: Any, eos_client: Any, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    command = eos_client("tail", written, "--bootstrap", cluster.bootstrap_servers, "--no-follow")
    assert command.wait() == 0
    assert command.out.splitlines() == [line.replace("ü", r"\xfc") for line in EVERY_LINE]


def test_tail_as_json_shows_also_what_was_aborted_where_asked(cluster: Any, typed: Any, written: str) -> None:
    asked = ("--no-follow", "--json", "--uncommitted")
    command = typed("tail", written, "--bootstrap", cluster.bootstrap_servers, *asked)
    assert command.wait() == 0
    first, second, _empty, _escaped, third = map(json.loads, command.out.splitlines())
    assert first.pop("timestamp_ms") > 1_700_000_000_000
    assert first == {"partition": 0, "offset": 0, "key": "k1", "value": "apples", "headers": [["trace", "1"]]}
    assert (second["key"], second["value"], third["key"]) == ({"base64": "/w=="}, None, None)
    assert third["value"] == "never"


def test_tail_begins_where_it_is_told(cluster: Any, typed: Any) -> None:
    topic = cluster.topic("begun", partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(60)
    for number in range(4):  # each with a marker behind it
        producer.begin_transaction()
        producer.produce(topic, f"v{number}", partition=0)
        producer.commit_transaction(60)
    producer.begin_transaction()  # of a time before its marker's, as always
    for minute in (0, 1):
        producer.produce(topic, f"m{minute}", partition=1, timestamp=1_700_000_000_000 + minute * 60_000)
    producer.commit_transaction(60)

    def printed(*options: str) -> list[str]:
        command = typed("tail", topic, "--bootstrap", cluster.bootstrap_servers, "--no-follow", *options)
        assert command.wait() == 0, command.err
        return sorted(line.split("\t")[2] for line in command.out.splitlines())

    assert printed("--last", "2") == ["m0", "m1", "v2", "v3"]
    assert printed("--last", "2", "--partition", "0") == ["v2", "v3"]
    assert printed("--from-offset", "3", "--partition", "0") == ["v2", "v3"]
    assert printed("--since", "2023-11-14T22:14:00Z", "--partition", "1") == ["m1"]
    assert printed("--since", "0s", "--partition", "0") == []
    refused = typed("tail", topic, "--bootstrap", cluster.bootstrap_servers, "--partition", "2")
    assert refused.wait() == 6
    assert f"topic '{topic}' has no partition 2: the last of its 2 is 1" in refused.err


def test_topics_are_listed_with_their_partitions(cluster: Any, typed: Any) -> None:
    topic = cluster.topic("listed", partitions=3)
    listed = typed("topic", "list", "--bootstrap", cluster.bootstrap_servers)
    assert listed.wait() == 0
    assert f"{topic}\t3" in listed.out.splitlines()
    assert "__consumer_offsets" not in listed.out
    mistyped = typed("tail", f"{topic}s", "--bootstrap", cluster.bootstrap_servers)
    assert mistyped.wait() == 6
    assert f"there is no topic '{topic}s'; did you mean '{topic}'? If not: eos-client topic create" in mistyped.err


def test_tail_follows_a_topic_until_it_has_seen_enough(cluster: Any, eos_client: Any) -> None:
    topic = cluster.topic("followed")
    command = eos_client("tail", topic, "--bootstrap", cluster.bootstrap_servers, "--count", "2")
    cluster.load(topic, [b"one"])
    command.wait_for(lambda: "one" in command.out, "the first record")
    cluster.load(topic, [b"two"])
    assert command.wait() == 0
    assert [line.split("\t")[2] for line in command.out.splitlines()] == ["one", "two"]


@pytest.mark.parametrize(
    "settings", [("--config", "allow.auto.create.topics=true"), pytest.param((), marks=pytest.mark.soak)]
)
def test_a_topic_that_is_deleted_while_it_is_followed_is_named(
    cluster: Any, eos_client: Any, settings: tuple[str, ...]
) -> None:
    topic = cluster.topic("deleted")
    command = eos_client("tail", topic, "--bootstrap", cluster.bootstrap_servers, "--count", "5", *settings)
    cluster.load(topic, [b"one"])
    command.wait_for(lambda: "one" in command.out, "the first record")
    cluster.admin.delete_topics([topic])
    assert command.wait(60) == 6
    assert f"there is no topic '{topic}' any more" in command.err
    assert cluster.admin.topics([topic]) == {topic: None}


@pytest.mark.soak  # test_redrive.py has the same reader under a quota
def test_a_tail_that_a_client_quota_holds_back_says_so(cluster: Any, eos_client: Any) -> None:
    topic = cluster.topic("large")
    cluster.load(topic, [b"x" * 500_000])
    limit_client(cluster.bootstrap_servers, topic, "consumer_byte_rate", 1000)
    line = ("tail", topic, "--bootstrap", cluster.bootstrap_servers, "--no-follow", "--config", f"client.id={topic}")
    command = eos_client(*line)
    command.wait_for(lambda: "client_throttled" in command.err, "what holds it back")
    assert command.terminate() == 0
    assert command.out == ""
    assert "a client quota" in command.err


def test_ctrl_c_ends_a_tail_with_status_0(cluster: Any, eos_client: Any, written: str) -> None:
    command = eos_client("tail", written, "--bootstrap", cluster.bootstrap_servers)
    command.wait_for(lambda: "apples" in command.out, "the first record")
    assert command.terminate() == 0


def test_a_topic_that_is_not_there_is_named_with_the_way_out(cluster: Any, typed: Any) -> None:
    command = typed("tail", "no-such-topic", "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == 6
    assert "there is no topic 'no-such-topic': eos-client topic create no-such-topic --bootstrap" in command.err
