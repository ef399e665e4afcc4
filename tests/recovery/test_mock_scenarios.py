"""What a table of one answer to one request cannot say: answers in a row, brokers that go away, work in a block."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from eos_client import EosConsumer, errors
from eos_client.core.model import Outcome
from tests.recovery.mock_application import (
    HASTY,
    LIMITS,
    SILENT,
    SINK,
    SOURCE,
    STOPPED_CALLS,
    Application,
    Failure,
    FailureAccount,
    application,
)
from tests.recovery.mock_cluster import ApiKey, MockCluster
from tests.support.waiting import wait_for

SERVED_WITHIN_S = 20.0
LINES_LEFT_MAX = 100

# Handles are destroyed side by side here, and catch_warnings() is one for the whole process.
pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")


def readable(value: ApiKey | list[str]) -> str:
    return value.name if isinstance(value, ApiKey) else "+".join(value)


def test_a_fenced_producer_does_not_take_its_id_back():
    with application() as (cluster, running):
        running.call("init_transactions")
        cluster.fail_next(ApiKey.END_TXN, KafkaError.INVALID_PRODUCER_EPOCH)
        assert running.failing_transaction().named_for is errors.ProducerFencedError
        asked_before = cluster.requests()[ApiKey.INIT_PRODUCER_ID]
        taken_back = running.call("init_transactions")
        assert taken_back is not None
        assert taken_back.named_for is errors.ProducerFencedError
        assert cluster.requests()[ApiKey.INIT_PRODUCER_ID] == asked_before


@pytest.mark.parametrize("code", ["INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"])
@pytest.mark.parametrize(
    ("end", "error"),
    [("commit_transaction", errors.UnknownOutcomeError), ("abort_transaction", errors.RebuildProducerError)],
)
def test_a_fence_that_the_transactions_own_age_explains_is_recovered_from(code, end, error):
    with application() as (cluster, running):
        running.call("init_transactions")
        calls, timeout_s = running.producer.adapter.calls, running.producer.adapter.library.transaction_timeout_s
        clock = calls.clock
        running.calls["flush"] = lambda: setattr(calls, "clock", lambda: clock() + 1 + timeout_s)
        cluster.fail_next(ApiKey.END_TXN, getattr(KafkaError, code))
        failure = running.failing_transaction(end)
        calls.clock = clock
        assert failure.named_for is error
        running.calls["flush"] = lambda: running.producer.flush(30)
        story = running.live_on(failure, FailureAccount())
        assert (story.came_back_by, story.failed_again, story.committed) == ("init_transactions", [], True)


# Without input offsets no group's generation keeps another instance out (KAFKA-18019).
@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN], ids=readable)
class TestWithoutAGroup:
    def test_an_expired_pinned_id_stops_the_producer(self, api_key):
        with application() as (cluster, running):
            running.call("init_transactions")
            cluster.fail_next(api_key, KafkaError.INVALID_PRODUCER_ID_MAPPING)
            failure = running.failing_transaction(offsets=False)
            assert failure.named_for is errors.FatalClientError
            for named in ("commit_transaction", running.producer.transactional_id, "KAFKA-18019", "End the process"):
                assert named in str(failure.error)
            assert all(running.call(name) for name in STOPPED_CALLS)

    def test_an_expired_generated_id_is_nobody_elses_and_is_recovered_from(self, api_key):
        with application(generated_id=True) as (cluster, running):
            running.call("init_transactions")
            cluster.fail_next(api_key, KafkaError.INVALID_PRODUCER_ID_MAPPING)
            failure = running.failing_transaction(offsets=False)
            assert failure.named_for is errors.AbortableError
            story = running.live_on(failure, FailureAccount(), offsets=False)
            assert story.codes_again == (["OUT_OF_ORDER_SEQUENCE_NUMBER"] if api_key is ApiKey.PRODUCE else [])
            assert story.committed


@pytest.mark.parametrize("generated_id", [False, True], ids=["pinned id", "generated id"])
@pytest.mark.parametrize("loses_connection", [False, True], ids=["at once", "after the connection was lost"])
def test_a_refused_commit_is_definite_unless_a_connection_was_lost_meanwhile(loses_connection, generated_id):
    """The first copy of a repeated EndTxn may have committed before the coordinator forgot the id."""
    with application(generated_id=generated_id) as (cluster, running):
        running.call("init_transactions")
        assert running.transaction() is None
        lost = [KafkaError._TRANSPORT] if loses_connection else []
        cluster.fail_next(ApiKey.END_TXN, *lost, KafkaError.INVALID_PRODUCER_ID_MAPPING)
        failure = running.failing_transaction()
        assert cluster.unanswered(ApiKey.END_TXN) == 0
        assert failure.kafka_error.name() == "INVALID_PRODUCER_ID_MAPPING"
        assert failure.named_for is (errors.UnknownOutcomeError if loses_connection else errors.AbortableError)
        story = running.live_on(failure, FailureAccount())
        way_out = "init_transactions" if loses_connection else "abort_transaction"
        assert (story.came_back_by, story.failed_again, story.committed) == (way_out, [], True), story


def test_an_output_behind_a_failed_one_is_aborted_and_the_same_handle_goes_on():
    with application(**{"batch.num.messages": 1}) as (cluster, running):
        running.call("init_transactions")
        assert running.transaction() is None
        cluster.fail_next(ApiKey.PRODUCE, KafkaError.REQUEST_TIMED_OUT, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        one = running.calls["produce"]
        running.calls["produce"] = lambda: [one() for _ in range(2)]
        failure = running.failing_transaction()
        running.calls["produce"] = one
        assert cluster.unanswered(ApiKey.PRODUCE) == 0
        assert failure.named_for is errors.AbortableError
        assert (failure.kafka_error.name(), failure.kafka_error.fatal()) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", False)
        story = running.live_on(failure, FailureAccount())
        assert (story.came_back_by, story.failed_again, story.committed) == ("abort_transaction", [], True)


def test_an_output_that_found_no_leader_in_time_is_aborted_and_the_producer_goes_on():
    with application(brokers=2, **{"message.timeout.ms": 2000}) as (cluster, running):
        cluster.move_coordinator("transaction", running.producer.transactional_id, 1)
        cluster.move_coordinator("group", "group", 1)
        cluster.move_leader(SINK, 2)
        running.call("init_transactions")
        assert running.transaction() is None
        cluster.stop(2)
        failure = running.failing_transaction()
        cluster.start(2)
        # Told at once, or counted when the commit begins: that depends on which of librdkafka's queues it timed out in.
        # Told by the call that sends offsets, it cannot be known from offsets that timed out.
        named_for, way_out = {
            "_TIMED_OUT": (errors.RebuildProducerError, "init_transactions"),
            "_INCONSISTENT": (errors.AbortableError, "abort_transaction"),
        }[failure.kafka_error.name()]
        assert failure.named_for is named_for
        assert [report and report.name() for report in running.deliveries] == ["_MSG_TIMED_OUT"]
        story = running.live_on(failure, FailureAccount())
        assert (story.came_back_by, story.committed) == (way_out, True), story


# When no broker at all is left, librdkafka forgets the coordinator and starts from bootstrap.servers again (KIP-899);
# inside a transaction it never looks for the coordinator then, and the call outlives its own timeout for good.
class TestAfterEveryBrokerWasAway:
    def test_a_call_that_may_never_return_is_left_behind_and_a_new_handle_commits(self):
        with application(1, **{"metadata.recovery.strategy": "rebootstrap"}) as (cluster, running):
            running.producer.limits = HASTY
            abandoned = running.producer.adapter.library.raw
            failure = self._away_before_the_offsets(cluster, running)
            if failure is not None:  # nearly always, and then nearly always overdue
                running.producer.limits = LIMITS
                story = running.live_on(failure, FailureAccount())
                assert (story.failed_again, story.committed) == ([], True), story
                if failure.named_for is errors.RebuildProducerError:
                    assert "send_offsets_to_transaction did not return within 2 s" in str(failure.error)
                    assert story.came_back_by == "init_transactions"
                    self._require_served(abandoned)

    def test_a_handle_that_keeps_its_coordinator_commits_the_same_transaction(self):
        with application(1, **{"metadata.recovery.strategy": "none"}) as (cluster, running):
            assert self._away_before_the_offsets(cluster, running) is None

    def _require_served(self, abandoned: Producer) -> None:
        """What the library says of a handle that nobody polls would pile up: it tells hundreds of lines a second."""
        wait_for(
            lambda: len(abandoned) <= LINES_LEFT_MAX,
            lambda: f"{len(abandoned)} lines and events to be served",
            timeout_s=SERVED_WITHIN_S,
        )

    def _away_before_the_offsets(self, cluster: MockCluster, running: Application) -> Failure | None:
        running.call("init_transactions")
        assert running.transaction() is None
        flush = running.calls["flush"]

        def away_meanwhile() -> None:
            flush()
            cluster.stop(1)
            cluster.start(1)

        running.calls["flush"] = away_meanwhile
        failure = running.transaction()
        running.calls["flush"] = flush
        return failure


@pytest.mark.parametrize("kind", ["transaction", "group"])
def test_a_coordinator_that_moves_inside_a_transaction_is_found_again(kind):
    with application(brokers=2) as (cluster, running):
        key = running.producer.transactional_id if kind == "transaction" else "group"
        cluster.move_coordinator(kind, key, 1)
        running.call("init_transactions")
        assert running.transaction() is None
        flush = running.calls["flush"]

        def moved_meanwhile() -> None:
            flush()
            cluster.move_coordinator(kind, key, 2)

        running.calls["flush"] = moved_meanwhile
        assert running.transaction() is None


class Pipeline:
    """One consumer and one producer that copy a record in each block."""

    def __init__(self, cluster: MockCluster, running: Application) -> None:
        self.producer = running.producer
        self.producer.init_transactions()
        self.producer.begin_transaction()
        for number in range(4):
            self.producer.produce(SOURCE, str(number))
        self.producer.commit_transaction()
        self.consumer = EosConsumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "group", "logger": SILENT}, hook=lambda _: None
        )
        self.consumer.subscribe([SOURCE])

    def copy_one(self) -> tuple[Outcome | None, bytes | None]:
        """Copy the next record; returns the block's outcome and that record."""
        with self.producer.transaction(self.consumer) as block:
            message = self.consumer.poll(10)
            assert message is not None
            assert message.error() is None, message.error()
            block.produce(SINK, message.value())
        return block.outcome, message.value()


@pytest.mark.parametrize(
    ("api_key", "codes"),
    [
        (ApiKey.PRODUCE, ["INVALID_TXN_STATE"]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ["INVALID_PRODUCER_ID_MAPPING"]),
        (ApiKey.ADD_OFFSETS_TO_TXN, ["INVALID_TXN_STATE"]),
        (ApiKey.TXN_OFFSET_COMMIT, ["ILLEGAL_GENERATION"]),
        (ApiKey.END_TXN, ["INVALID_PRODUCER_ID_MAPPING"]),
        (ApiKey.END_TXN, ["UNKNOWN_PRODUCER_ID", "UNKNOWN"]),
        (ApiKey.END_TXN, ["UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING"]),
    ],
    ids=readable,
)
def test_a_block_that_cannot_be_committed_is_aborted_and_its_record_comes_again(api_key, codes):
    with application() as (cluster, running):
        pipeline = Pipeline(cluster, running)
        assert pipeline.copy_one() == (Outcome.COMMITTED, b"0")
        cluster.fail_next(api_key, *(getattr(KafkaError, code) for code in codes))
        assert pipeline.copy_one() == (Outcome.ABORTED, b"1")
        assert cluster.unanswered(api_key) == 0
        outcomes = [pipeline.copy_one() for _ in range(2 if api_key is ApiKey.PRODUCE else 1)]
        assert outcomes[-1] == (Outcome.COMMITTED, b"1")
        assert pipeline.copy_one() == (Outcome.COMMITTED, b"2")
        pipeline.consumer.close()


# The mock forgets the offsets of each transaction: only the first can be looked up, and shows as aborted.
@pytest.mark.parametrize("code", ["UNKNOWN", "REQUEST_TIMED_OUT"])
def test_a_commit_whose_answer_proves_nothing_is_looked_up_in_the_log(code):
    with application() as (cluster, running):
        pipeline = Pipeline(cluster, running)
        cluster.fail_next(ApiKey.END_TXN, getattr(KafkaError, code))
        assert pipeline.copy_one() == (Outcome.ABORTED, b"0")
        assert running.producer.counters.outcomes_resolved == 1
        assert pipeline.copy_one() == (Outcome.COMMITTED, b"0")
        pipeline.consumer.close()
