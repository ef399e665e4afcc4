"""Whatever waits, and whatever measures, goes by the clock that it was given: on a simulated one nothing takes time."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eos_client import EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.confluent import diagnosis
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.preflight import require_output_topics, require_topics
from eos_client.core.commit_gate import CommitDecision, CommitRuling, GateRule
from eos_client.core.model import UNJOINED, InputPartition, InputPosition, ProducerLimits
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, FatalClientError
from eos_client.loop.record_failures import FailedRecords
from eos_client.observe import Counters, TransactionCommitted
from eos_client.ports import OutputRecord
from tests.loop.fakes import Bench, FakeClock, FakeLibrary, FakeRecord, config

LONG_S = 600.0
REALLY_S = 30.0
KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
PLACE = InputPartition("orders", 2)
MEMBERSHIP: dict[str, Any] = {
    "consumer_group_metadata": lambda: None,
    "memberid": str,
    "consume": lambda count, timeout: [],
    "poll": lambda timeout: None,
}


def timed_out():
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "as scripted", False, True, False))


class Handle:
    """A raw client that does everything at once; `scripted` names what happens instead."""

    def __init__(self, **scripted):
        self._scripted = scripted
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append(name)
            return self._scripted[name](*arguments, **options) if name in self._scripted else 0

        return call

    def __len__(self):
        return 0


def failing(*_, **__):
    raise timed_out()


@pytest.fixture
def clock():
    """Fails the test when it took real time."""
    began_at = time.monotonic()
    yield FakeClock()
    assert time.monotonic() - began_at < REALLY_S


@pytest.fixture
def passed(clock):
    began_at = clock()
    return lambda: clock() - began_at


def make_producer(clock, raw, **options):
    return EosProducer(
        KAFKA, generate_id=True, factory=lambda _: raw, clock=clock, **{"hook": lambda event: None, **options}
    )


def make_consumer(clock, raw, hook=lambda event: None) -> Any:
    return EosConsumer({**KAFKA, "group.id": "billing"}, factory=lambda _: raw, clock=clock, hook=hook)


def test_init_transactions_is_repeated_for_its_limit_on_the_given_clock(clock, passed, monkeypatch):
    """And no real cluster is asked why it failed."""
    monkeypatch.setattr(diagnosis, "ClusterAdmin", lambda *_, **__: pytest.fail("a real cluster was asked"))
    producer = make_producer(clock, raw := Handle(init_transactions=failing))
    with pytest.raises(ClusterUnavailableError, match="as scripted"):
        producer.init_transactions(LONG_S)
    assert LONG_S <= passed() < LONG_S + 2
    assert raw.calls.count("init_transactions") > LONG_S / 2


def test_a_seek_is_repeated_on_the_given_clock(clock, passed):
    consumer = make_consumer(clock, Handle(seek=failing))
    with pytest.raises(FatalClientError, match="could not be rewound"):
        consumer.member.parts.seeks.seek(PLACE, 7)
    assert 5 <= passed() < 6


def ruling(decision):
    return lambda attempt: CommitRuling(decision, GateRule.OUTPUTS_ONLY, "as scripted")


def test_committed_offsets_are_read_again_on_the_given_clock(clock, passed):
    """What an unanswered commit comes to: the producer is rebuilt and the log is asked."""
    raw = Handle(commit_transaction=failing)
    producer = make_producer(clock, raw, limits=ProducerLimits(recovery_timeout_s=LONG_S))
    consumer = make_consumer(clock, Handle(**MEMBERSHIP, committed=failing))
    consumer._handed.work.handed_over(PLACE, InputPosition(0, 5, UNJOINED))
    consumer.gate.decide = ruling(CommitDecision.COMMIT)
    with pytest.raises(ClusterUnavailableError, match="could not be read within 600 s"):
        producer.session(consumer).end()
    assert LONG_S <= passed() < LONG_S + 3


def test_how_long_a_plain_commit_is_held_is_measured_on_the_given_clock(clock):
    events: list[Any] = []
    consumer = make_consumer(clock, Handle(**MEMBERSHIP), hook=events.append)
    consumer.subscribe(["orders"])
    consumer.gate.decide = ruling(CommitDecision.SKIP)
    for _ in range(2):
        consumer.commit(offsets=[TopicPartition(*PLACE, 7)])
        clock.sleep(11)
    assert [event.held_for_s for event in events] == [0, 11]


def test_a_pending_start_offset_is_asked_for_again_on_the_given_clock(clock):
    arriving = iter([FakeRecord()])
    raw = Handle(**{**MEMBERSHIP, "poll": lambda timeout: next(arriving, None)}, committed=failing)
    consumer = make_consumer(clock, raw)
    consumer._membership._on_assign(None, [TopicPartition(*PLACE)])
    asked = []
    for pause_s in (0.0, 0.1, 0.1, 0.5, 0.1):
        clock.sleep(pause_s)
        assert consumer.poll(0) is None
        asked.append(raw.calls.count("committed"))
    assert asked == [1, 1, 1, 2, 2]


@pytest.mark.parametrize(("require", "limit_s"), [(require_topics, 2), (require_output_topics, 5)])
def test_a_missing_topic_is_asked_for_again_on_the_given_clock(require, limit_s, clock, passed):
    nothing: Any = SimpleNamespace(list_topics=lambda *_, **__: SimpleNamespace(topics={}))
    with pytest.raises(ClusterUnfitError, match="'orders' does not exist"):
        require(nothing, ["orders"], LONG_S, clock)
    assert limit_s <= passed() < limit_s + 1


def test_a_transform_is_tried_again_after_its_back_off_on_the_given_clock(clock, passed):
    patient = config(transform_attempts_max=3, transform_backoff_s=100)
    records = FailedRecords(patient, lambda event: None, Counters(), clock)
    with pytest.raises(ZeroDivisionError):
        records.guard(lambda record: [b"%d" % (1 // 0)])(FakeRecord())
    assert passed() == 2 * 100


def test_a_full_local_queue_is_waited_for_on_the_given_clock(clock, passed):
    def full(*_, **__):
        raise BufferError

    def serve(timeout):
        clock.sleep(timeout)
        return 0

    producer = make_producer(clock, Handle(produce=full, poll=serve), limits=ProducerLimits(commit_timeout_s=LONG_S))
    session = producer.session(make_consumer(clock, Handle(**MEMBERSHIP)))
    session.begin()
    with pytest.raises(KafkaException, match="queue stayed full"):
        session.enqueue("bills", OutputRecord("bills", value=b""))
    assert LONG_S <= passed() < LONG_S + 1


def test_a_session_measures_its_transactions_on_the_clock_of_its_producer(clock):
    events: list[Any] = []
    raw = Handle(commit_transaction=lambda timeout: clock.sleep(7))
    producer = make_producer(clock, raw, hook=events.append)
    consumer = make_consumer(clock, Handle(**MEMBERSHIP))
    session = producer.session(consumer)
    session.begin()
    session.end()
    assert [event.duration_s for event in events if isinstance(event, TransactionCommitted)] == [7]


def slowly(*_, **__):
    time.sleep(0.8)


def test_a_call_that_takes_no_simulated_time_is_in_time_however_slow_the_machine_is(clock, passed):
    producer = make_producer(clock, Handle(commit_transaction=slowly))
    producer.commit_transaction(0.0)
    consumer = make_consumer(clock, Handle(**MEMBERSHIP, close=slowly))
    assert consumer.close_within(0.01)
    assert passed() == 0


def knowing(*topics):
    """A client whose cluster has only `topics`."""
    known = {topic: SimpleNamespace(error=None) for topic in topics}
    return Handle(list_topics=lambda *_, **__: SimpleNamespace(topics=known))


def make_loop(library, **options):
    return ExactlyOnceLoop(config(), ["orders"], lambda record: [], clients=library, hook=lambda event: None, **options)


def test_a_loop_takes_its_clients_and_its_time_from_its_library(clock, passed):
    consumer = knowing()
    library = FakeLibrary(clock, consumer=consumer, producer=Handle())
    loop = make_loop(library)
    assert library.built["consumer"]["group.id"] == "billing"
    assert library.built["producer"]["transactional.id"] == loop._producer.transactional_id
    with pytest.raises(ClusterUnfitError, match="input topic 'orders'"):
        loop.run()
    assert 2 <= passed() < 3
    assert consumer.calls[-1] == "close"


def test_a_loop_waits_for_its_output_topics_on_its_librarys_clock(clock, passed):
    library = FakeLibrary(clock, consumer=knowing("orders"), producer=knowing("orders"))
    with pytest.raises(ClusterUnfitError, match="output topic 'bills'"):
        make_loop(library, output_topic="bills").run()
    assert 5 <= passed() < 6


def test_a_loop_tries_a_transform_again_on_its_librarys_clock(monkeypatch):
    def fails_once(record):
        tried.append(bench.clock())
        return [] if len(tried) > 1 else 1 // 0

    tried: list[float] = []
    bench = Bench(monkeypatch, fails_once, transform_attempts_max=2, transform_backoff_s=100)
    bench.load(1)
    monkeypatch.setattr(bench.producer, "poll", lambda _: bench.loop.stop())
    bench.loop.run()
    assert tried[1] - tried[0] == 100


def test_the_default_library_is_confluent_kafka_in_real_time():
    clock = CONFLUENT_KAFKA.clock
    here = time.monotonic()
    began_at = clock()
    clock.sleep(0.05)
    assert 0.05 <= clock() - began_at <= time.monotonic() - here
    consumer = CONFLUENT_KAFKA.consumer({**KAFKA, "group.id": "billing"})
    assert type(consumer) is Consumer
    assert type(CONFLUENT_KAFKA.producer(KAFKA)) is Producer
    consumer.close()
