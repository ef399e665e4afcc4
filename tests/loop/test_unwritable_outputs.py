"""Outputs that can never be written, and transforms that outlive a transaction: the loop always gets on."""

import re
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer, EosProducer, ExactlyOnceLoop, OutputRecord
from eos_client.errors import ClusterUnfitError, FatalClientError, OutputRefusedError, TransformError
from eos_client.observe import (
    ClientReported,
    ProducerRebuilt,
    RecordDeadLettered,
    RecordSkipped,
    TransactionAborted,
    TransactionCommitted,
)
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.loop.bench import BROKERS, LETTERS, Bench, config, numbers, remembered
from tests.support.protocols import BY_COORDINATOR

LIMIT_BYTES = 2_000


def failed(work):
    """The records that were passed over, each of which was told once, and is counted."""
    told = [event.offset for event in work.events(RecordSkipped, RecordDeadLettered)]
    assert len(told) == len(set(told)) == work.loop.counters.records_failed, told
    return set(told)


def aborts(work):
    return work.events(TransactionAborted)


POLICIES = [{"on_error": "skip"}, LETTERS]


def to_nowhere(record):
    """Odd numbers go to a partition that does not exist: the client library refuses them."""
    return [OutputRecord(value=record.value(), partition=99 if int(record.value()) % 2 else None)]


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_hundreds_of_outputs_refused_in_a_row_cost_a_few_aborts_and_no_time(simulated_cluster, policy):
    work = Bench(simulated_cluster, to_nowhere, recovery_timeout_s=0.001, **policy)
    assert sorted(work.run_all(numbers(400)), key=int) == numbers(400)[::2]
    assert failed(work) == set(range(1, 400, 2))
    assert len(aborts(work)) < 10
    assert simulated_cluster.clock.now_s < 30


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_nothing_is_remembered_of_failures_that_are_committed(simulated_cluster, policy):
    work = Bench(simulated_cluster, to_nowhere, **policy)
    work.run_all(numbers(400))
    assert remembered(work.loop._failed) == 0


def refuses_odd_numbers(record):
    if int(record.value()) % 2:
        raise ValueError(record.value())
    return [record.value()]


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_a_failure_is_told_once_however_often_its_transaction_was_aborted(simulated_cluster, policy):
    work = Bench(simulated_cluster, refuses_odd_numbers, max_records=10, **policy)
    for _ in range(3):
        simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    work.run_all(numbers(40))
    assert len(aborts(work)) == 3
    assert failed(work) == set(range(1, 40, 2))
    assert work.loop.counters.records_failed == 20


def test_a_failure_that_is_committed_as_the_loop_stops_is_told(simulated_cluster):
    work = Bench(simulated_cluster, refuses_odd_numbers, on_error="skip", commit_interval_s=60.0)
    simulated_cluster.after(1.0, work.loop.stop)
    work.run_all(numbers(10))
    assert failed(work) == {1, 3, 5, 7, 9}


def test_a_failure_that_a_revocation_commits_is_told_and_counted_there(simulated_cluster):
    work = Bench(simulated_cluster, refuses_odd_numbers, on_error="skip", commit_interval_s=60.0)
    simulated_cluster.after(1.0, lambda: simulated_cluster.revoke(("orders", 0)))
    work.run_all(numbers(10))
    (committed,) = work.events(TransactionCommitted)
    assert committed.inside_revoke
    assert failed(work) == {1, 3, 5, 7, 9}


def test_a_failure_of_a_transaction_that_is_never_committed_is_not_told(simulated_cluster):
    def ends(record):
        if record.value() == b"5":
            raise SystemExit
        return refuses_odd_numbers(record)

    work = Bench(simulated_cluster, ends, on_error="skip", commit_interval_s=60.0)
    with pytest.raises(SystemExit):
        work.run_all(numbers(10))
    assert failed(work) == set()


def test_a_failure_of_which_nobody_knows_whether_it_was_committed_is_not_told(simulated_cluster):
    def transform(record):
        if record.value() == b"3":
            simulated_cluster.lose_reply("EndTxn")
        return refuses_odd_numbers(record)

    def go_on_elsewhere(event):
        if isinstance(event, ProducerRebuilt):
            simulated_cluster.lose()
            other = simulated_cluster.consumer({"group.id": "billing"})
            other.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)

    work = Bench(simulated_cluster, transform, on_error="skip", max_records=4)
    work.hears = go_on_elsewhere
    work.run_all(numbers(6))
    assert failed(work) == {5}
    reports = [event.error for event in work.events(ClientReported) if "may be committed" in event.error]
    assert [re.findall(r"offset=(\d)", text) for text in reports] == [["1"], ["3"]]


def test_a_hook_that_raises_changes_no_failure(simulated_cluster):
    def raises(event):
        if event.name == "record_skipped":
            raise RuntimeError

    work = Bench(simulated_cluster, refuses_odd_numbers, on_error="skip")
    work.hears = raises
    assert work.run_all(numbers(10)) == numbers(10)[::2]
    assert work.loop.counters.records_failed == 5
    assert aborts(work) == []


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_record_that_takes_longer_than_the_group_waits_for_a_poll_gets_through_or_ends_the_loop_by_name(
    simulated_cluster, protocol
):
    def slow(record):
        if record.value() == b"3":
            simulated_cluster.clock.sleep(8.0)
        return [record.value()]

    settings = {"max.poll.interval.ms": 6_000, "group.protocol": protocol}
    settings |= {"session.timeout.ms": 6_000} if protocol == "classic" else {}
    work = Bench(simulated_cluster, slow, consumer=settings)
    if protocol == "consumer":
        assert work.run_all(numbers(5)) == numbers(5)
        return
    with pytest.raises(FatalClientError, match=r"max\.poll\.interval\.ms=6000"):
        work.run_all(numbers(5))
    assert simulated_cluster.values("invoices") == numbers(3)
    assert len(aborts(work)) <= 5


IMPOSSIBLE: Any = {
    "huge partition": {"partition": 2**40},
    "huge timestamp": {"timestamp_ms": 2**70},
    "negative partition": {"partition": -5},
    "truth for a partition": {"partition": True},
    "fractional partition": {"partition": 0.5},
    "timestamp that means now": {"timestamp_ms": 0},
    "timestamp before the epoch": {"timestamp_ms": -1},
    "fractional timestamp": {"timestamp_ms": 1.5},
    "value": {"value": 1.5},
    "value without unicode": {"value": "\ud800"},
    "key": {"key": 7},
    "key without unicode": {"key": "\ud800"},
    "headers": {"headers": 42},
    "text as headers": {"headers": "ab"},
    "header without value": {"headers": [("a",)]},
    "header's value": {"headers": [("a", 1)]},
    "header's name": {"headers": [(b"a", b"1")]},
    "header's name without unicode": {"headers": [("\ud800", b"1")]},
    "header's name in a mapping": {"headers": {"\ud800": b"1"}},
    "header's name cut short": {"headers": [("a\0b", b"1")]},
    "empty topic": {"topic": ""},
    "topic": {"topic": "no such name!"},
    "long topic": {"topic": "x" * 250},
    "longer topic": {"topic": "x" * 600},
    "topic without unicode": {"topic": "\ud800"},
    "topic of bytes": {"topic": b"orders"},
    "dots for a topic": {"topic": ".."},
}


@pytest.mark.parametrize("impossible", IMPOSSIBLE)
def test_an_impossible_output_is_its_own_records_failure(simulated_cluster, impossible):
    def transform(record):
        options = IMPOSSIBLE[impossible] if record.value() in {b"5", b"6"} else {}
        return [OutputRecord(**{"value": record.value(), **options})]

    work = Bench(simulated_cluster, transform, on_error="skip")
    assert work.run_all(numbers(10)) == [b"0", b"1", b"2", b"3", b"4", b"7", b"8", b"9"]
    assert failed(work) == {5, 6}


@pytest.mark.parametrize("topic", ["", "no such name!", "a b\0"])
def test_a_name_that_no_topic_can_have_is_told_with_its_record(simulated_cluster, topic):
    work = Bench(simulated_cluster, lambda record: [OutputRecord(topic, value=record.value())], on_error="skip")
    work.run_all(numbers(1))
    (skipped,) = work.events(RecordSkipped)
    assert f"topic={topic!r}: the name of a topic has 1 to 249 of the characters" in skipped.error


@pytest.mark.parametrize("headers", [(("a", b"1"),), MappingProxyType({"a": b"1"}), {"a": b"1"}, [("a", b"1")]])
def test_headers_may_be_any_sequence_of_pairs_or_any_mapping(simulated_cluster, headers):
    work = Bench(simulated_cluster, lambda record: [OutputRecord(value=b"", headers=headers)])
    work.run_all(numbers(1))
    (written,) = simulated_cluster.read("invoices")
    assert written.headers == (("a", b"1"),)


class Name(str, Enum):
    """Header names as an application may define them."""

    TRACE = "trace-id"


@pytest.mark.parametrize("value", [b"1", "1", "a\0b", None])
def test_a_header_s_name_may_be_of_an_enum_of_texts(simulated_cluster, value):
    work = Bench(simulated_cluster, lambda record: OutputRecord(value=b"", headers=[(Name.TRACE, value)]))
    work.run_all(numbers(1))
    ((name, _written),) = simulated_cluster.read("invoices")[0].headers
    assert (type(name), name) == (str, "trace-id")


class Unshowable:
    def __repr__(self):
        raise RuntimeError("detached")


@pytest.mark.parametrize(
    "given",
    [
        {"topic": Unshowable()},
        {"partition": Unshowable()},
        {"timestamp_ms": Unshowable()},
        {"headers": [Unshowable()]},
        {"headers": [(Unshowable(), b"1")]},
        {"topic": ["invoices"]},
    ],
    ids=["topic", "partition", "timestamp", "headers", "name", "list"],
)
def test_what_cannot_be_shown_is_refused_as_its_records_failure(simulated_cluster, given):
    work = Bench(simulated_cluster, lambda record: OutputRecord(**{"value": b"", **given}), on_error="skip")
    assert work.run_all(numbers(2)) == []
    assert failed(work) == {0, 1}


@pytest.mark.parametrize(("field", "content"), [("key", 0), ("value", {}), ("key", [])])
def test_a_key_or_value_that_counts_as_false_is_named(simulated_cluster, field, content):
    work = Bench(simulated_cluster, lambda record: OutputRecord(**{"value": b"", field: content}), on_error="skip")
    work.run_all(numbers(1))
    (skipped,) = work.events(RecordSkipped)
    assert f"({field}={content!r})" in skipped.error


@pytest.mark.parametrize("form", [iter, lambda pairs: (pair for pair in pairs)], ids=["iterator", "generator"])
def test_headers_that_only_an_iterator_gives_are_refused(simulated_cluster, form):
    """An output that finds the local queue full is written again, and would have none then."""
    work = Bench(
        simulated_cluster, lambda record: OutputRecord(value=b"", headers=form([("a", b"1")])), on_error="skip"
    )
    assert work.run_all(numbers(1)) == []
    (skipped,) = work.events(RecordSkipped)
    assert "headers must be a mapping, or a sequence of (name, value) pairs, not" in skipped.error


@pytest.mark.parametrize("impossible", IMPOSSIBLE)
def test_an_impossible_output_of_a_block_is_refused_by_name_and_leaves_the_transaction_usable(
    simulated_cluster, impossible
):
    simulated_cluster.create_topic("invoices")
    simulated_cluster.create_topic("orders")
    clock = simulated_cluster.clock
    consumer = EosConsumer({**BROKERS, "group.id": "billing"}, factory=simulated_cluster.consumer, clock=clock)
    producer = EosProducer(BROKERS, factory=simulated_cluster.producer, clock=clock)
    consumer.subscribe(["orders"])
    producer.init_transactions()
    options = {"topic": "invoices", "value": b"bad", **IMPOSSIBLE[impossible]}
    with producer.transaction(consumer) as txn:
        txn.produce("invoices", b"before")
        with pytest.raises(OutputRefusedError):
            txn.produce(**options)
        txn.produce("invoices", b"after")
    assert simulated_cluster.values("invoices") == [b"before", b"after"]


def too_large_for_the_broker(record):
    large = int(record.value()) in {3, 4, 250, 399}
    return [record.value() + b" " * (LIMIT_BYTES if large else 0)]


@pytest.fixture
def small_records(make_simulated_cluster):
    return make_simulated_cluster(settings=BrokerSettings(message_max_bytes=LIMIT_BYTES))


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_outputs_that_only_the_broker_refuses_are_found_and_settled_like_others(small_records, policy):
    work = Bench(small_records, too_large_for_the_broker, **policy, producer={"batch.size": 1_000})
    expected = [v for n, v in enumerate(numbers(400)) if n not in {3, 4, 250, 399}]
    assert work.run_all(numbers(400)) == expected
    assert failed(work) == {3, 4, 250, 399}
    said = {e.error for e in work.events(RecordSkipped, RecordDeadLettered)}
    assert all("MSG_SIZE_TOO_LARGE" in each for each in said), said


def test_stop_names_the_record_whose_output_the_broker_refused(small_records):
    work = Bench(small_records, too_large_for_the_broker, producer={"batch.size": 1_000})
    with pytest.raises(TransformError) as caught:
        work.run_all(numbers(400))
    assert caught.value.offset == 3
    assert "MSG_SIZE_TOO_LARGE" in str(caught.value)
    assert "set batch.size below the topic's max.message.bytes" in str(caught.value)


def test_batches_that_only_together_exceed_the_brokers_limit_get_through_and_blame_nobody(small_records):
    work = Bench(small_records, lambda record: [record.value() * 100], on_error="skip")
    work.run_all([b"1"] * 200)
    assert failed(work) == set()
    assert len(work.cluster.values("invoices")) == 200


@pytest.mark.parametrize("waits_s", [25.0, 120.0])
def test_a_transform_that_outlives_the_transaction_timeout_gets_through_wherever_it_stands(simulated_cluster, waits_s):
    def slow(record):
        if record.value() in {b"7", b"50"}:
            simulated_cluster.clock.sleep(waits_s)
        return [record.value()]

    work = Bench(simulated_cluster, slow)
    assert work.run_all(numbers(60)) == numbers(60)
    assert len(aborts(work)) <= 4


SENTINEL = 4
REFUSED = {
    "the client library": OutputRecord(value=b"of no partition", partition=99),
    "the brokers": OutputRecord(value=b"x" * 2 * LIMIT_BYTES),
}


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_loop_that_its_transform_stops_just_before_a_refused_output_ends_with_a_commit(
    small_records, refused, policy
):
    """The transform stops each loop at the same record: without a commit every restart would do so again."""

    def transform(record):
        number = int(record.value())
        if number == SENTINEL:
            work.loop.stop("the sentinel was read")
        return [refused if number > SENTINEL else record.value()]

    work = Bench(small_records, transform, **policy)
    work.load(2 * SENTINEL)
    work.run()
    assert work.committed > SENTINEL
    assert work.written == numbers(SENTINEL + 1)


AHEAD_S = 7200
KAFKAS_LIMIT = BrokerSettings(log_message_timestamp_after_max_s=3600)


def copied(record):
    return [record.value()]


def twice_in_a_row(record):
    """Of several wrong times the reports of a batch say INVALID_RECORD, and do not say which record they are of."""
    return [record.value(), record.value()]


def fails(record):
    raise ValueError(record.value())


def beside_a_time_of_its_own(record):
    return [OutputRecord(value=record.value(), timestamp_ms=1), record.value()]


@pytest.mark.parametrize("policy", [{}, *POLICIES], ids=["stop", "skip", "dead letter"])
@pytest.mark.parametrize("batch", [1, 500])
@pytest.mark.parametrize("transform", [copied, twice_in_a_row, beside_a_time_of_its_own])
def test_a_clock_that_is_wrong_is_no_failure_of_a_record(make_simulated_cluster, transform, batch, policy):
    cluster = make_simulated_cluster(settings=KAFKAS_LIMIT)
    work = Bench(cluster, transform, batch_size=batch, max_records=batch, **policy)
    cluster.set_clock_ahead(AHEAD_S)
    with pytest.raises(ClusterUnfitError, match="this host's clock") as caught:
        work.run_all(numbers(20))
    assert "INVALID_TIMESTAMP" in str(caught.value)
    assert "message.timestamp.after.max.ms" in str(caught.value)
    assert (failed(work), work.committed, work.written, cluster.values("letters")) == (set(), 0, [], [])
    assert work.is_closed


def test_a_dead_letter_that_the_clock_spoils_is_no_failure_of_a_record(make_simulated_cluster):
    cluster = make_simulated_cluster(settings=KAFKAS_LIMIT)
    work = Bench(cluster, fails, **LETTERS)
    cluster.set_clock_ahead(AHEAD_S)
    with pytest.raises(ClusterUnfitError, match="this host's clock"):
        work.run_all(numbers(20))
    assert (failed(work), work.committed) == (set(), 0)


def test_a_clock_that_jumps_while_the_loop_runs_ends_it_and_the_next_one_goes_on(make_simulated_cluster):
    cluster = make_simulated_cluster(settings=KAFKAS_LIMIT)
    work = Bench(cluster, copied, on_error="skip")
    for second in range(20):
        cluster.after(second, lambda n=second: cluster.write("orders", [b"%d" % n]))
    cluster.after(9.5, lambda: cluster.set_clock_ahead(AHEAD_S))
    with pytest.raises(ClusterUnfitError, match="this host's clock"):
        work.run()
    assert 0 < work.committed < 20
    loop = ExactlyOnceLoop(config(on_error="skip"), ["orders"], copied, output_topic="invoices", clients=cluster)
    cluster.after(60, loop.stop)
    loop.run()
    assert work.written == numbers(20)


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one without a time"])
def test_a_time_of_the_applications_that_is_refused_is_its_records_failure(make_simulated_cluster, beside, policy):
    cluster = make_simulated_cluster(settings=KAFKAS_LIMIT)

    def transform(record):
        wrong = int(record.value()) % 20 == 7
        stamped = OutputRecord(value=record.value(), timestamp_ms=AHEAD_S * 10_000 if wrong else 1)
        return [record.value(), stamped] if beside else [stamped]

    work = Bench(cluster, transform, **policy)
    wanted = [value for value in numbers(100) for _ in range(1 + beside) if int(value) % 20 != 7]
    assert work.run_all(numbers(100)) == wanted
    assert failed(work) == set(range(7, 100, 20))
