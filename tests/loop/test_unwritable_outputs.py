"""Outputs that can never be written, and transforms that outlive a transaction: the loop always gets on."""

from types import MappingProxyType
from typing import Any

import pytest

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop, OutputRecord
from eos_client.errors import FatalClientError, OutputRefusedError, TransformError, UnknownOutcomeError
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionAborted, TransactionCommitted
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.loop.fakes import Bench
from tests.support.protocols import BY_COORDINATOR

BROKERS = {"bootstrap.servers": "simulated"}
LIMIT_BYTES = 2_000
ENDS_AFTER_S = 3_600.0


class Work:
    """A loop on a simulated cluster that runs until every record of `orders` is committed."""

    def __init__(self, cluster, transform, hook=lambda event: None, **options):
        self.cluster = cluster
        self.events: list[Any] = []
        self.hook = hook
        for topic in ("orders", "invoices", "letters"):
            cluster.create_topic(topic)
        config = EosConfig(BROKERS, group_id="billing", **options)
        self.loop = ExactlyOnceLoop(
            config, ["orders"], transform, output_topic="invoices", clients=cluster, hook=self._heard
        )

    def _heard(self, event):
        self.events.append(event)
        if self.done:
            self.loop.stop()
        self.hook(event)

    @property
    def done(self):
        return self.cluster.committed("billing").get(("orders", 0), 0) >= self.written

    def run(self, values):
        self.written = len(values)
        self.cluster.write("orders", values)
        self.cluster.after(ENDS_AFTER_S, self.loop.stop)
        self.loop.run()
        assert self.done, self.events[-3:]
        return self.cluster.values("invoices")

    def failed(self):
        """The records that were passed over, each of which was told once, and is counted."""
        told = [event.offset for event in self.events if isinstance(event, (RecordSkipped, RecordDeadLettered))]
        assert len(told) == len(set(told)) == self.loop.counters.records_failed, told
        return set(told)

    def aborts(self):
        return [event for event in self.events if isinstance(event, TransactionAborted)]


def numbers(count):
    return [b"%d" % n for n in range(count)]


LETTERS = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
POLICIES = [{"on_error": "skip"}, LETTERS]


def to_nowhere(record):
    """Odd numbers go to a partition that does not exist: the client library refuses them."""
    return [OutputRecord(value=record.value(), partition=99 if int(record.value()) % 2 else None)]


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_hundreds_of_outputs_refused_in_a_row_cost_a_few_aborts_and_no_time(simulated_cluster, policy):
    work = Work(simulated_cluster, to_nowhere, recovery_timeout_s=0.001, **policy)
    assert sorted(work.run(numbers(400)), key=int) == numbers(400)[::2]
    assert work.failed() == set(range(1, 400, 2))
    assert len(work.aborts()) < 10
    assert simulated_cluster.clock.now_s < 30


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_nothing_is_remembered_of_failures_that_are_committed(simulated_cluster, policy):
    work = Work(simulated_cluster, to_nowhere, **policy)
    work.run(numbers(400))
    assert len(work.loop._failed) == 0


def refuses_odd_numbers(record):
    if int(record.value()) % 2:
        raise ValueError(record.value())
    return [record.value()]


@pytest.mark.parametrize("policy", POLICIES, ids=["skip", "dead letter"])
def test_a_failure_is_told_once_however_often_its_transaction_was_aborted(simulated_cluster, policy):
    work = Work(simulated_cluster, refuses_odd_numbers, max_records=10, **policy)
    for _ in range(3):
        simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    work.run(numbers(40))
    assert len(work.aborts()) == 3
    assert work.failed() == set(range(1, 40, 2))
    assert work.loop.counters.records_failed == 20


def test_a_failure_that_is_committed_as_the_loop_stops_is_told(simulated_cluster):
    work = Work(simulated_cluster, refuses_odd_numbers, on_error="skip", commit_interval_s=60.0)
    simulated_cluster.after(1.0, work.loop.stop)
    work.run(numbers(10))
    assert work.failed() == {1, 3, 5, 7, 9}


def test_a_failure_that_a_revocation_commits_is_told_and_counted_there(simulated_cluster):
    work = Work(simulated_cluster, refuses_odd_numbers, on_error="skip", commit_interval_s=60.0)
    simulated_cluster.after(1.0, lambda: simulated_cluster.revoke(("orders", 0)))
    work.run(numbers(10))
    (committed,) = [event for event in work.events if isinstance(event, TransactionCommitted)]
    assert committed.inside_revoke
    assert work.failed() == {1, 3, 5, 7, 9}


def test_a_failure_of_a_transaction_that_is_never_committed_is_not_told(simulated_cluster):
    def ends(record):
        if record.value() == b"5":
            raise SystemExit
        return refuses_odd_numbers(record)

    work = Work(simulated_cluster, ends, on_error="skip", commit_interval_s=60.0)
    with pytest.raises(SystemExit):
        work.run(numbers(10))
    assert work.failed() == set()


def test_a_failure_of_which_nobody_knows_whether_it_was_committed_is_not_told(monkeypatch):
    bench = Bench(monkeypatch, refuses_odd_numbers, on_error="skip", commit_interval_s=1.0)
    ended = bench.session.end

    def end():
        bench.session.end = ended
        bench.consumer.taken.clear()  # they are another member's by now
        raise UnknownOutcomeError

    bench.load(4)
    bench.session.end = end
    while bench.session.end != ended:
        bench.loop._turn()
    bench.load(1)
    bench.loop.counters.committed += 1
    bench.loop._turn()
    assert (
        [event for event in bench.events if isinstance(event, RecordSkipped)],
        bench.loop.counters.records_failed,
    ) == ([], 0)


def test_a_hook_that_raises_changes_no_failure(simulated_cluster):
    def raises(event):
        if event.name == "record_skipped":
            raise RuntimeError

    work = Work(simulated_cluster, refuses_odd_numbers, hook=raises, on_error="skip")
    assert work.run(numbers(10)) == numbers(10)[::2]
    assert work.loop.counters.records_failed == 5
    assert work.aborts() == []


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
    work = Work(simulated_cluster, slow, consumer=settings)
    if protocol == "consumer":
        assert work.run(numbers(5)) == numbers(5)
        return
    with pytest.raises(FatalClientError, match=r"max\.poll\.interval\.ms=6000"):
        work.run(numbers(5))
    assert simulated_cluster.values("invoices") == numbers(3)
    assert len(work.aborts()) <= 5


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

    work = Work(simulated_cluster, transform, on_error="skip")
    assert work.run(numbers(10)) == [b"0", b"1", b"2", b"3", b"4", b"7", b"8", b"9"]
    assert work.failed() == {5, 6}


@pytest.mark.parametrize("topic", ["", "no such name!", "a b\0"])
def test_a_name_that_no_topic_can_have_is_told_with_its_record(simulated_cluster, topic):
    work = Work(simulated_cluster, lambda record: [OutputRecord(topic, value=record.value())], on_error="skip")
    work.run(numbers(1))
    (skipped,) = [event for event in work.events if isinstance(event, RecordSkipped)]
    assert f"topic={topic!r}: the name of a topic has 1 to 249 of the characters" in skipped.error


@pytest.mark.parametrize("headers", [(("a", b"1"),), MappingProxyType({"a": b"1"}), {"a": b"1"}, [("a", b"1")]])
def test_headers_may_be_any_sequence_of_pairs_or_any_mapping(simulated_cluster, headers):
    work = Work(simulated_cluster, lambda record: [OutputRecord(value=b"", headers=headers)])
    work.run(numbers(1))
    (written,) = simulated_cluster.read("invoices")
    assert written.headers == (("a", b"1"),)


@pytest.mark.parametrize("impossible", IMPOSSIBLE)
def test_an_impossible_output_of_a_block_is_refused_by_name_and_leaves_the_transaction_usable(
    simulated_cluster, impossible
):
    brokers = {"bootstrap.servers": "simulated"}
    simulated_cluster.create_topic("invoices")
    simulated_cluster.create_topic("orders")
    clock = simulated_cluster.clock
    consumer = EosConsumer({**brokers, "group.id": "billing"}, factory=simulated_cluster.consumer, clock=clock)
    producer = EosProducer(brokers, factory=simulated_cluster.producer, clock=clock)
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
    work = Work(small_records, too_large_for_the_broker, **policy, producer={"batch.size": 1_000})
    expected = [v for n, v in enumerate(numbers(400)) if n not in {3, 4, 250, 399}]
    assert work.run(numbers(400)) == expected
    assert work.failed() == {3, 4, 250, 399}
    said = {e.error for e in work.events if isinstance(e, (RecordSkipped, RecordDeadLettered))}
    assert all("MSG_SIZE_TOO_LARGE" in each for each in said), said


def test_stop_names_the_record_whose_output_the_broker_refused(small_records):
    work = Work(small_records, too_large_for_the_broker, producer={"batch.size": 1_000})
    with pytest.raises(TransformError) as caught:
        work.run(numbers(400))
    assert caught.value.offset == 3
    assert "MSG_SIZE_TOO_LARGE" in str(caught.value)
    assert "set batch.size below the topic's max.message.bytes" in str(caught.value)


def test_batches_that_only_together_exceed_the_brokers_limit_get_through_and_blame_nobody(small_records):
    work = Work(small_records, lambda record: [record.value() * 100], on_error="skip")
    work.run([b"1"] * 200)
    assert work.failed() == set()
    assert len(work.cluster.values("invoices")) == 200


@pytest.mark.parametrize("waits_s", [25.0, 120.0])
def test_a_transform_that_outlives_the_transaction_timeout_gets_through_wherever_it_stands(simulated_cluster, waits_s):
    def slow(record):
        if record.value() in {b"7", b"50"}:
            simulated_cluster.clock.sleep(waits_s)
        return [record.value()]

    work = Work(simulated_cluster, slow)
    assert work.run(numbers(60)) == numbers(60)
    assert len(work.aborts()) <= 4


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

    work = Work(small_records, transform, **policy)
    work.written = 2 * SENTINEL
    small_records.write("orders", numbers(work.written))
    work.loop.run()
    assert small_records.committed("billing")["orders", 0] > SENTINEL
    assert small_records.values("invoices") == numbers(SENTINEL + 1)
