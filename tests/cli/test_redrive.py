"""``eos-client redrive`` on a real broker."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in __all__

from eos_client.cli.exit_codes import ExitCode
from eos_client.confluent.admin import topic_records
from tests.cli.conftest import START_LIMIT_S, Cluster
from tests.kafka.client_quotas import limit_client
from tests.support.waiting import wait_for
from tests.verification.wire import Api

pytestmark = pytest.mark.kafka

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "redrive.md").read_text(encoding="utf-8")
(COMMAND,) = re.findall(r"\$ eos-client (redrive .*)\n", PAGE)


@pytest.fixture
def letters(cluster: Any) -> tuple[str, str]:
    """Names of a topic and of its dead letters: two, one of them without its value, and one that was aborted."""
    source, dead = cluster.topic("source"), cluster.topic("dead")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{dead}-writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    told = {"trace": b"1", "eos.topic": source, "eos.partition": b"0", "eos.offset": b"7", "eos.error": b"no route"}
    told |= {"eos.error.place": b"route.py:3 in route", "eos.error.traceback": b"Traceback ..."}
    producer.produce(dead, b"one", b"k", headers=told)
    producer.produce(dead, b"", headers=told | {"eos.omitted": b"value"})
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(dead, b"never", headers=told)
    producer.flush(60)
    producer.abort_transaction(60)
    return source, dead


def said_by_us(command: Any) -> list[str]:
    """The command's own lines: the client libraries of other tests may write to the same stderr."""
    return [line for line in command.err.splitlines() if line.startswith("eos-client:")]


def test_letters_go_back_once_and_what_cannot_is_named_with_a_status_of_its_own(
    cluster: Any, typed: Any, letters: tuple[str, str]
) -> None:
    source, dead = letters
    shown = {"orders.dead": dead, "localhost:9092": cluster.bootstrap_servers}
    command = typed(*(shown.get(word, word) for word in COMMAND.split()))
    assert command.wait() == 15
    assert command.out == f"1 sent to {source}\n"
    named, total = said_by_us(command)
    assert named.startswith(
        f"eos-client: the letter at {dead}[0]@1 stays: it lacks the record's value, which did not fit"
    )
    assert total == f"eos-client: records that cannot be sent back and stay in {dead}: 1"
    again = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--match", "no route")
    assert again.wait() == 15
    assert again.out == ""
    (sent,) = cluster.read(source)
    assert (sent.key, sent.value) == (b"k", b"one")
    assert dict(sent.headers) == {
        "trace": b"1",
        "eos.redrives": b"1",
        "eos.redriven.origin": f"{source}[0]@7".encode(),
        "eos.redriven.error": b"no route",
    }


def test_letters_that_do_not_match_are_kept_and_sent_to_another_topic_later(
    cluster: Any, typed: Any, letters: tuple[str, str]
) -> None:
    _source, dead = letters
    other = cluster.topic("other")
    line = ("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--to", other)
    kept = typed(*line, "--match", "no such error")
    assert kept.wait() == 0
    assert kept.out == f"2 kept in {dead}: the error does not hold 'no such error'\n"
    sent = typed(*line, "--limit", "1")
    assert sent.wait() == 0
    assert cluster.values(other) == [b"one"]


def test_a_topic_that_is_gone_is_named_before_anything_is_sent(cluster: Any, typed: Any) -> None:
    dead, gone = cluster.topic("dead"), f"{cluster.prefix}-gone"
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(dead, b"one", headers={"eos.topic": gone})
    producer.flush(60)
    line = ("redrive", dead, "--bootstrap", cluster.bootstrap_servers)
    refused = typed(*line)
    assert refused.wait() == 6
    assert f"letters cannot be sent to {gone}: there is no such topic" in refused.err
    empty = typed("redrive", cluster.topic("empty"), "--bootstrap", cluster.bootstrap_servers)
    assert empty.wait() == 0
    assert "no letter in" in empty.out


def test_a_letter_that_the_targets_broker_refuses_is_named_and_the_others_go(cluster: Any, typed: Any) -> None:
    dead, target = cluster.topic("dead"), f"{cluster.prefix}-compacted"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(target, 1, 1, config={"cleanup.policy": "compact"})])[target].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for key, value in ((b"k", b"one"), (None, b"no key"), (b"k", b"two")):
        producer.produce(dead, value, key, headers={"eos.topic": target, "eos.partition": b"0", "eos.offset": b"7"})
    producer.flush(60)
    command = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == 15
    assert command.out == f"2 sent to {target}\n"
    assert f"the letter at {dead}[0]@1 stays: the output to {target}[0]: INVALID_RECORD" in command.err
    assert cluster.values(target) == [b"one", b"two"]
    assert cluster.values(dead)[3:] == [b"no key"]


def test_letters_behind_an_open_transaction_are_told_with_a_status_of_its_own(
    cluster: Any, typed: Any, letters: tuple[str, str]
) -> None:
    _source, dead = letters
    target = cluster.topic("target")
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{dead}-open"})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(dead, b"open")
    writer.flush(60)
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    plain.produce(dead, b"behind", headers={"eos.topic": target})
    plain.flush(60)
    line = ("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--to", target, "--match", "no route")
    waiting = typed(*line, "--limit", "1")
    assert waiting.wait() == 17
    assert waiting.out == f"1 sent to {target}\n"
    assert f"eos-client: up to 2 letters of {dead} are in an open transaction or after it" in waiting.err
    writer.abort_transaction(60)
    again = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--to", target, "--match", "none")
    assert again.wait() == 0
    assert again.out == f"2 kept in {dead}: the error does not hold 'none'\n"


def test_a_topic_without_dead_letters_is_left_as_it_is(cluster: Any, typed: Any) -> None:
    orders = cluster.topic("orders")
    cluster.load(orders, [b"one", b"two"])
    for _run in range(2):
        command = typed("redrive", orders, "--bootstrap", cluster.bootstrap_servers)
        assert command.wait() == 15
        assert command.out == ""
        (said,) = said_by_us(command)
        assert said.startswith(f"eos-client: {orders} holds no dead letters: ")
        assert f"such as {orders}.dead" in said
        assert cluster.values(orders) == [b"one", b"two"]


def test_a_record_among_the_letters_that_is_none_is_passed_over(
    cluster: Any, typed: Any, letters: tuple[str, str]
) -> None:
    source, dead = letters
    cluster.load(dead, [b"order"])
    command = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == 15
    assert command.out == f"1 sent to {source}\n"
    omitted, none, total = said_by_us(command)
    assert "@1 stays: " in omitted
    assert none.endswith(" is no dead letter: it has no header eos.topic")
    assert total == f"eos-client: records that cannot be sent back and stay in {dead}: 2"
    assert cluster.values(dead).count(b"order") == 1


def test_an_offset_of_the_group_beyond_the_end_is_named_with_the_way_out(
    cluster: Any, typed: Any, letters: tuple[str, str]
) -> None:
    source, dead = letters
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    moved = ConsumerGroupTopicPartitions("moved", [TopicPartition(dead, 0, 9999)])
    wait_for(  # its coordinator may not be there yet
        lambda: admin.alter_consumer_group_offsets([moved])["moved"].exception(60) is None, "the offset is set"
    )
    command = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--group", "moved")
    assert command.wait() == 6
    assert f"the group moved goes on at offset 9999 of {dead}[0], beyond its end at 5" in command.err
    assert "Reset the group's offset" in command.err
    assert cluster.values(source) == []


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tail", ["max.poll.interval.ms=10"]),
        ("redrive", ["group.protocol=consumer", "session.timeout.ms=10000"]),
        ("redrive", ["fetch.max.bytes=100"]),
    ],
)
def test_settings_that_contradict_each_other_are_named(
    cluster: Any, typed: Any, letters: tuple[str, str], name: str, settings: list[str]
) -> None:
    options = [word for setting in settings for word in ("--config", setting)]
    command = typed(name, letters[1], "--bootstrap", cluster.bootstrap_servers, *options)
    assert command.wait() == 4
    assert "refuses its configuration" in command.err
    assert settings[-1].split("=")[0] in command.err


def test_letters_that_a_client_quota_holds_back_are_told_of_with_the_quota(
    cluster: Any, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = cluster.topic("dead")
    cluster.load(dead, [b"x" * 500_000])
    limit_client(cluster.bootstrap_servers, dead, "consumer_byte_rate", 1000)
    monkeypatch.setattr(topic_records, "_IDLE_LIMIT_S", 1.0)
    command = typed("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--config", f"client.id={dead}")
    assert command.wait() == 5
    assert "an open transaction, an absent leader or a client quota holds them back" in command.err
    assert re.search(r"client_throttled .*broker=127\.0\.0\.1:\d+ .*wait_s=\d{3}", command.err)


@pytest.mark.parametrize("answered", [1, pytest.param(0, marks=pytest.mark.soak)])
def test_a_connection_that_is_lost_while_the_end_is_read_neither_hides_a_letter_nor_invents_one(
    proxied_broker: Any, eos_client: Any, answered: int
) -> None:
    cluster = Cluster(proxied_broker.bootstrap)
    with cluster.admin:
        source, dead = cluster.topic("source"), cluster.topic("dead")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(dead, b"one", headers={"eos.topic": source, "eos.partition": b"0", "eos.offset": b"7"})
        producer.flush(60)
        requests = [proxied_broker.proxy.hold_next(Api.LIST_OFFSETS) for _ in range(answered + 1)]
        command = eos_client("redrive", dead, "--bootstrap", cluster.bootstrap_servers)
        for request in requests[:-1]:
            request.deliver()
        requests[-1].discard()
        assert command.wait() == 0, command.err
        assert command.out == f"1 sent to {source}\n"
        assert cluster.values(source) == [b"one"]


def test_a_run_that_is_stopped_while_it_waits_says_so(cluster: Any, eos_client: Any, letters: tuple[str, str]) -> None:
    _source, dead = letters
    group = f"{dead}-group"
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": "0"}  # the first of two
    other = Consumer({**settings, "enable.auto.commit": False})
    other.subscribe([dead])
    wait_for(other.assignment, "the partition is assigned", lambda: other.poll(0.1), timeout_s=START_LIMIT_S)
    command = eos_client("redrive", dead, "--bootstrap", cluster.bootstrap_servers, "--group", group)

    def has_told() -> bool:
        other.poll(0.1)
        return f"another member of the group {group} holds" in command.err

    command.wait_for(has_told, "it has told what it waits for")
    assert command.terminate() == 0
    assert command.out == "stopped by SIGTERM: 0 sent, and what is left waits for the next run\n"
    other.close()


def test_a_misspelt_topic_of_letters_is_named_with_what_was_meant(cluster: Any, typed: Any) -> None:
    dead = cluster.topic("dead")
    command = typed("redrive", dead[:-1], "--bootstrap", cluster.bootstrap_servers)
    assert command.wait() == ExitCode.CLUSTER_UNFIT
    assert f"there is no topic {dead[:-1]!r} with dead letters; did you mean {dead!r}?" in command.err
