"""What a recovery tells: why, which producer, how old its transaction was, what became of it, how long it took."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, libversion

from eos_client import Outcome
from eos_client.errors import FatalClientError, RebuildProducerError
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S, wait_for

STATISTICS = {"statistics_interval_ms": 50}


class Failing:
    """A producer's factory: the next call of the method that `fails` names fails once, in the way that it says."""

    def __init__(self, *methods):
        self._next = {}
        self.calls = []
        self.factory = intercepting(Producer, **{method: self._method(method) for method in methods})

    def fails(self, method, name, **flags):
        self._next[method] = KafkaException(KafkaError(getattr(KafkaError, name), "on purpose", **flags))

    def _method(self, method):
        def call(raw, *arguments, **options):
            self.calls.append(method)
            failure = self._next.pop(method, None)
            if failure is not None:
                raise failure
            return getattr(raw, method)(*arguments, **options)

        return call


def copy(stage, producer, consumer, count, *, ids_known=False):
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, count):
            txn.produce(stage.sink, message.value())
        if ids_known:
            wait_for(
                lambda: producer.adapter.library.identity, "statistics that tell the id", lambda: producer.poll(0.05)
            )
    return txn.outcome


@pytest.fixture
def joined(stage):
    """A producer and a consumer that have committed once; `failing` breaks what comes then."""

    def join(failing, **settings):
        producer, consumer = stage.producer(factory=failing.factory, **settings), stage.subscribed()
        assert copy(stage, producer, consumer, 2, ids_known=settings == STATISTICS) is Outcome.COMMITTED
        return producer, consumer

    return join


@pytest.mark.parametrize("ids_known", [True, False], ids=["with statistics", "without"])
def test_a_rebuilt_producer_says_so_at_its_first_commit(stage, joined, ids_known):
    written = stage.load(3)
    failing = Failing("send_offsets_to_transaction")
    producer, consumer = joined(failing, **(STATISTICS if ids_known else {}))
    failing.fails("send_offsets_to_transaction", "INVALID_PRODUCER_ID_MAPPING", txn_requires_abort=True)
    assert copy(stage, producer, consumer, 2) is Outcome.ABORTED
    assert stage.named("producer_recovered") == []
    assert copy(stage, producer, consumer, 4, ids_known=ids_known) is Outcome.COMMITTED
    (rebuilt,), (recovered,) = stage.named("producer_rebuilt"), stage.named("producer_recovered")
    assert rebuilt.transactional_id == recovered.transactional_id == producer.transactional_id
    assert (recovered.action, recovered.outcome, recovered.failures) == ("rebuild_producer", "aborted", 1)
    assert "INVALID_PRODUCER_ID_MAPPING" in recovered.reason
    assert rebuilt.transaction_age_s > 0
    assert recovered.to_commit_s >= rebuilt.duration_s > 0
    assert recovered.transaction_age_s > 0
    assert rebuilt.old_producer == recovered.old_producer
    if ids_known:
        (old_id, old_epoch), (new_id, new_epoch) = (
            map(int, each.split("/")) for each in (recovered.old_producer, recovered.new_producer)
        )
        assert (new_id, new_epoch > old_epoch) == (old_id, True)
    else:
        assert (recovered.old_producer, recovered.new_producer) == (None, None)
    assert producer.counters.recoveries == producer.counters.producer_rebuilds == 1
    assert sorted(stage.outputs()) == sorted(written)


def test_an_abort_is_told_with_the_first_of_its_failures(stage, joined):
    stage.load(3)
    failing = Failing("send_offsets_to_transaction", "abort_transaction")
    producer, consumer = joined(failing)
    failing.fails("send_offsets_to_transaction", "ILLEGAL_GENERATION", txn_requires_abort=True)
    failing.fails("abort_transaction", "_TIMED_OUT", retriable=True)
    assert copy(stage, producer, consumer, 2) is Outcome.ABORTED
    assert copy(stage, producer, consumer, 4) is Outcome.COMMITTED
    (recovered,) = stage.named("producer_recovered")
    assert (recovered.action, recovered.failures) == ("abort_and_continue", 2)
    assert "ILLEGAL_GENERATION" in recovered.reason
    assert producer.counters.recoveries == 2


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_without_an_answer_is_told_with_what_became_of_it(stage, joined, took_effect):
    stage.load(3)
    failing = Failing("commit_transaction")
    producer, consumer = joined(failing)
    if took_effect:
        # The transaction is ended behind the wrapper's back, so that only the answer is missing.
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, 4):
                txn.produce(stage.sink, message.value())
            raw_commit = producer.adapter.library.raw.raw.commit_transaction
            failing.fails("commit_transaction", "_TIMED_OUT", retriable=True)
            producer.adapter.library.raw._replacements["commit_transaction"] = answer_lost(raw_commit)
    else:
        failing.fails("commit_transaction", "_TIMED_OUT", retriable=True)
        assert copy(stage, producer, consumer, 4) is Outcome.ABORTED
        assert copy(stage, producer, consumer, 4) is Outcome.COMMITTED
    (recovered,) = stage.named("producer_recovered")
    assert (recovered.action, recovered.failures) == ("resolve_unknown", 1)
    assert recovered.outcome == ("committed" if took_effect else "aborted")
    assert len(stage.outputs()) == 6


def answer_lost(commit):
    def commit_transaction(_raw, *arguments):
        commit(*arguments)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "on purpose", retriable=True))

    return commit_transaction


def test_a_lost_connection_costs_the_handle_once_when_the_next_transaction_has_ended(stage, joined):
    """Between transactions, too: a later loss of the same handle may not be told."""
    stage.load(5)
    producer, consumer = joined(Failing())
    producer.adapter.library.log.losses += 1
    assert stage.named("producer_rebuilt") == []
    assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    (rebuilt,) = stage.named("producer_rebuilt")
    assert "KAFKA-17754" in rebuilt.reason
    assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(stage.sink, message.value())
        producer.adapter.library.log.losses += 1
    assert txn.outcome is Outcome.COMMITTED
    assert len(stage.named("producer_rebuilt")) == 2
    assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    assert len(stage.named("producer_rebuilt")) == 2
    assert len(stage.outputs()) == 10


class PublicFailures:
    """A logger that counts what the application is told of failed connections."""

    def __init__(self):
        self.count = 0

    def log(self, _level, _text, facility, *_):
        self.count += facility == "FAIL"


def test_a_closing_that_the_client_library_planned_is_heard_though_the_application_is_not_told(stage):
    stage.load(2)
    told = PublicFailures()
    producer = stage.producer(connections_max_idle_ms=500, logger=told)
    consumer = stage.subscribed()
    wait_for(
        lambda: producer.adapter.library.log.losses,
        "an idle connection to be closed",
        producer.adapter.calls.drain_events,
    )
    assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    assert len(stage.named("producer_rebuilt")) == 1
    assert told.count == 0


def test_where_the_client_library_does_not_tell_of_its_connections_each_transaction_ends_with_its_handle(stage):
    stage.load(2)
    producer = stage.producer(factory=lambda settings: Producer({**settings, "debug": "eos"}))
    consumer = stage.subscribed()
    for _ in range(2):
        assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    assert len(stage.named("producer_rebuilt")) == 2
    assert (
        f"librdkafka {libversion()[0]} does not log lost connections in a known format"
        in stage.named("producer_rebuilt")[0].reason
    )
    assert len(stage.outputs()) == 4


def test_a_gate_that_aborts_is_no_failure_of_the_producer(stage, joined):
    stage.load(3)
    producer, consumer = joined(Failing())
    with pytest.raises(LookupError), producer.transaction(consumer):
        raise LookupError
    assert copy(stage, producer, consumer, 4) is Outcome.COMMITTED
    assert stage.named("producer_recovered") == []
    assert producer.counters.recoveries == 0


def test_without_a_group_a_pinned_id_that_was_forgotten_is_not_taken_again(stage):
    """KAFKA-18019: another instance may have come and gone under that id."""
    failing = Failing("produce", "abort_transaction")
    producer = stage.producer(factory=failing.factory, transactional_id=f"pinned-{stage.group}")
    producer.begin_transaction()
    failing.fails("produce", "INVALID_PRODUCER_ID_MAPPING", txn_requires_abort=True)
    with pytest.raises(FatalClientError, match="KAFKA-18019") as refused:
        producer.produce(stage.sink, b"lost")
    assert producer.transactional_id in str(refused.value)
    for call in (producer.abort_transaction, producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(FatalClientError, match="KAFKA-18019"):
            call()
    assert "abort_transaction" not in failing.calls
    producer.init_transactions()  # whoever calls this has made sure
    producer.begin_transaction()
    producer.produce(stage.sink, b"afterwards")
    producer.commit_transaction(WAIT_S)
    assert stage.outputs() == ["afterwards"]


def test_with_a_group_even_a_first_transaction_goes_on_after_its_id_was_forgotten(stage):
    written = stage.load(1)
    failing = Failing("produce")
    producer = stage.producer(factory=failing.factory, transactional_id=f"pinned-{stage.group}")
    consumer = stage.subscribed()
    failing.fails("produce", "INVALID_PRODUCER_ID_MAPPING", txn_requires_abort=True)
    assert copy(stage, producer, consumer, 2) is Outcome.ABORTED
    assert copy(stage, producer, consumer, 2) is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)


def test_an_abandoned_handle_reports_no_deliveries(stage):
    heard = []
    limits = {"message_timeout_ms": 30_000, "linger_ms": 20_000, "transaction_timeout_ms": 30_000}
    failing = Failing("abort_transaction")
    producer = stage.producer(factory=failing.factory, on_delivery=lambda *report: heard.append(report), **limits)
    one = {"on_delivery": lambda *report: heard.append(report)}
    producer.begin_transaction()
    producer.produce(stage.sink, b"a")
    producer.produce(stage.sink, b"b", **one)
    producer.produce(stage.sink, b"c", None, -1, one["on_delivery"])
    producer.produce_batch(stage.sink, [{"value": b"d", "callback": one["on_delivery"]}, {"value": b"e"}])
    handle, thread = producer.adapter.library.raw.raw, producer.adapter.library.thread
    failing.fails("abort_transaction", "_TIMED_OUT", retriable=True)
    with pytest.raises(RebuildProducerError):
        producer.abort_transaction(1)
    producer.init_transactions()
    thread._thread.join(WAIT_S)  # the old handle was destroyed in it, with five records
    assert not thread._thread.is_alive()
    assert handle is not producer.adapter.library.raw.raw
    assert heard == []
    producer.begin_transaction()
    producer.produce(stage.sink, b"f", **one)
    producer.commit_transaction(WAIT_S)
    assert [(error, message.value()) for error, message in heard] == [(None, b"f")]
