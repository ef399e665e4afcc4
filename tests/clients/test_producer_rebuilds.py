"""Rebuilding a producer that fails, or is interrupted, any number of times: once the cluster answers, work goes on."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.confluent.callback_guard import DeferredErrors
from eos_client.confluent.producer import bounded_calls, library_producer, registration
from eos_client.core.model import ProducerLimits
from eos_client.errors import (
    ClusterUnavailableError,
    ConfigurationError,
    EosError,
    ProducerFencedError,
    RebuildProducerError,
    TransactionStateError,
    UnknownOutcomeError,
)
from eos_client.observe import ProducerRebuilt
from eos_client.testing.simulator import SimulatedCluster
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.clients.struck_steps import StepStrike, StrikeError, strides
from tests.interruption import BrokenOffError

RECOVERY_S = 6.0
REFUSALS = 30
"""More than there are tries in two recoveries, one every 0.5 s, and fewer than in three."""
EVERY_STEP = 47
"""One step of a call in so many is struck: a prime, so that loops are struck at different steps."""
PATIENCE_S = 0.05
"""How long, in real seconds, a call stays in the library when nothing else ends it."""


class Copying:
    """An application that copies topic to topic in blocks."""

    def __init__(self, factory=lambda producer: producer, **settings):
        self.cluster = SimulatedCluster(seed=1)
        self.cluster.create_topic("in")
        self.cluster.create_topic("out")
        self.events = []
        self.consumer = EosConsumer(
            {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "earliest"},
            factory=self.cluster.consumer,
            clock=self.cluster.clock,
        )
        self.producer = self.another_producer(factory, **settings)
        self.consumer.subscribe(["in"])

    def another_producer(self, factory=lambda producer: producer, **settings):
        return EosProducer(
            {"bootstrap.servers": "simulated", "transactional.id": "t", **settings},
            factory=factory(self.cluster.producer),
            clock=self.cluster.clock,
            hook=self.events.append,
            limits=ProducerLimits(recovery_timeout_s=RECOVERY_S),
        )

    def block(self, meanwhile=lambda: None):
        txn = self.producer.transaction(self.consumer)
        with txn:
            for message in self.consumer.consume(10, 0.5):
                txn.produce("out", message.value())
                meanwhile()
        return txn.outcome

    def copies_the_rest(self, values):
        for _ in range(10):
            with suppress(ClusterUnavailableError):
                self.block()
        assert self.cluster.values("out") == values
        assert list(self.cluster.committed("g").values()) == [len(values)]

    def refuses_inits(self):
        for _ in range(REFUSALS):
            self.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")

    def gets_unavailable_twice(self):
        """Two recoveries in a row, each of which takes longer than it may."""
        self.cluster.write("in", [b"1"])
        with pytest.raises(ClusterUnavailableError):
            self.block(self.loses_its_offsets)
        with pytest.raises(ClusterUnavailableError):
            self.block()

    def loses_its_offsets(self):
        self.cluster.lose_reply("TxnOffsetCommit")
        self.refuses_inits()

    def loses_its_commit(self):
        self.cluster.lose_reply("EndTxn")
        self.refuses_inits()


@pytest.fixture
def copying():
    made = Copying()
    made.producer.init_transactions()
    return made


def test_blocks_go_on_after_two_outages_longer_than_a_recovery_may_take(copying):
    copying.gets_unavailable_twice()
    copying.copies_the_rest([b"1"])


def test_init_transactions_goes_on_after_two_outages_longer_than_a_recovery_may_take(copying):
    copying.gets_unavailable_twice()
    copying.producer.init_transactions(30.0)
    copying.copies_the_rest([b"1"])


def test_a_producer_whose_first_init_got_no_answer_says_so_and_goes_on_with_it():
    copying = Copying()
    producer = copying.producer
    copying.refuses_inits()
    with pytest.raises(ClusterUnavailableError):
        producer.init_transactions(RECOVERY_S)
    for call in (producer.begin_transaction, producer.commit_transaction, lambda: producer.produce("out", b"no")):
        with pytest.raises(RebuildProducerError, match=r"not registered.*[Cc]all init_transactions\(\)"):
            call()
    assert producer.poll(0) == 0
    assert producer.list_topics(timeout=1).topics
    producer.init_transactions(30.0)
    copying.cluster.write("in", [b"1"])
    copying.copies_the_rest([b"1"])


def test_a_handle_that_could_not_be_renewed_after_its_commit_is_renewed_by_the_next_block():
    """The commit is told as it is; what failed belongs to the work that follows."""
    copying = Copying(**{"socket.timeout.ms": 2000})
    copying.producer.init_transactions()
    copying.cluster.write("in", [b"1"])
    assert copying.block(copying.loses_its_commit) is Outcome.COMMITTED
    with pytest.raises(RebuildProducerError, match="not registered"):
        copying.producer.begin_transaction()
    copying.cluster.write("in", [b"2"])
    copying.copies_the_rest([b"1", b"2"])


@pytest.mark.parametrize("transaction_timeout_ms", [10_000, 60_000, 600_000])
def test_a_recovery_survives_a_lost_answer_to_its_own_request(transaction_timeout_ms):
    copying = Copying(**{"transaction.timeout.ms": transaction_timeout_ms})
    copying.producer.limits = ProducerLimits()
    copying.producer.init_transactions()
    copying.cluster.write("in", [b"1"])

    def loses_answers():
        copying.cluster.lose_reply("EndTxn")
        copying.cluster.lose_reply("InitProducerId")

    assert copying.block(loses_answers) is Outcome.COMMITTED
    assert [type(event) for event in copying.events].count(ProducerRebuilt) == 1
    copying.copies_the_rest([b"1"])


class Interrupted:
    """Breaks off one call of the raw producers; it goes on in the library, after those of later handles if it can."""

    def __init__(self, name, interrupt, turn):
        self.name = name
        self.turn = turn
        self.calls = 0
        self.handles = 0
        self._interrupt = interrupt
        self._overtaken = threading.Event()

    def around(self, producer):
        def build(settings):
            self.handles += 1
            return _InterruptedProducer(producer(settings), self)

        return build

    def call(self, act):
        self.calls += 1
        if self.calls != self.turn:
            result = act()
            self._overtaken.set()
            return result
        self._overtaken.clear()
        self._interrupt()
        self._overtaken.wait(PATIENCE_S)
        return act()


class _InterruptedProducer:
    def __init__(self, raw, interrupted):
        self._raw = raw
        self._interrupted = interrupted

    def __getattr__(self, name):
        method = getattr(self._raw, name)
        if name != self._interrupted.name:
            return method
        return lambda *arguments: self._interrupted.call(lambda: method(*arguments))

    def __len__(self):
        return len(self._raw)


def test_an_init_that_a_signal_broke_off_is_gone_on_with_and_fences_no_later_one(interrupt):
    interrupted = Interrupted("init_transactions", interrupt, turn=2)
    copying = Copying(interrupted.around)
    copying.producer.init_transactions()
    copying.cluster.write("in", [b"1"])
    with pytest.raises(BrokenOffError):
        copying.block(lambda: copying.cluster.lose_reply("EndTxn"))  # so that the handle is replaced
    copying.copies_the_rest([b"1"])
    assert interrupted.handles == 2


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "send_offsets_to_transaction"])
def test_a_handle_whose_call_a_signal_broke_off_is_finished_and_the_next_one_works(name, interrupt):
    copying = Copying(Interrupted(name, interrupt, turn=1).around)
    producer, consumer = copying.producer, copying.consumer
    producer.init_transactions()
    copying.cluster.write("in", [b"1"])
    assert len(consumer.consume(1, 5.0)) == 1
    producer.begin_transaction()
    producer.produce("out", b"1")
    arguments = (
        (consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        if name == "send_offsets_to_transaction"
        else ()
    )
    with pytest.raises(BrokenOffError):
        getattr(producer, name)(*arguments)
    for call in (producer.begin_transaction, producer.abort_transaction, producer.commit_transaction):
        with pytest.raises((RebuildProducerError, UnknownOutcomeError), match=f"{name}.*interrupted"):
            call()
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("out", b"2")
    producer.commit_transaction()
    assert copying.cluster.values("out")[-1] == b"2"


def transaction(producer, value="of the call that is struck"):
    producer.begin_transaction()
    producer.produce("out", value)
    producer.commit_transaction()


def struck(act, producer, number):
    strike = StepStrike(number)
    # How many steps a call takes differs, as it waits for a thread: it may be over, and refuse to be repeated.
    with strike.armed(), suppress(StrikeError, TransactionStateError):
        act(producer)
    return strike


def rebuild(producer):
    producer.adapter.rebuild()


@strides(EVERY_STEP)
@pytest.mark.parametrize("act", [EosProducer.init_transactions, rebuild, transaction])
def test_wherever_an_exception_strikes_a_producer_the_next_rebuild_gives_a_handle_that_works(act, first):
    copying = Copying()
    producer = copying.producer
    if act is not EosProducer.init_transactions:
        producer.init_transactions()
    steps = struck(act, producer, 0).steps
    for number in range(first, steps, EVERY_STEP):
        strike = struck(act, producer, number)
        for call in (lambda: producer.poll(0), producer.list_topics, lambda: producer.produce("out", b"no")):
            with suppress(EosError):
                call()
        producer.adapter.rebuild()
        transaction(producer, f"{number}")
        assert copying.cluster.values("out")[-1] == f"{number}".encode(), strike.struck


_REPLACING = {"_replace_handle", "abandon_handle", "start"}


class ReplacementStrike(StepStrike):
    """Strikes where a handle is replaced by another one."""

    def _strikes(self, code):
        parts = {registration.__file__, library_producer.__file__, bounded_calls.__file__}
        return code.co_filename in parts and code.co_name in _REPLACING


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
def test_blocks_go_on_wherever_a_second_exception_strikes_as_the_handle_of_an_interrupted_block_is_replaced(name):
    for number in itertools.count(1, 2):
        copying, strike = interrupted_twice(name, number)
        if not strike.struck:
            break
        for _ in range(3):
            copying.block()
        assert copying.cluster.values("out") == [b"1"], f"step {number}, {strike.struck}"
    assert number > 100


def interrupted_twice(name, number):
    """An application whose block is interrupted in the call that ends it, and whose next block at step ``number``."""

    def strike(*_):
        raise StrikeError

    copying = Copying(Interrupted(name, strike, turn=1).around)
    copying.producer.init_transactions()
    copying.cluster.write("in", [b"1"])
    with pytest.raises(StrikeError):
        copying.block(strike if name == "abort_transaction" else lambda: None)
    second = ReplacementStrike(number)
    with second.armed(), suppress(StrikeError):
        copying.block()
    return copying, second


def test_a_producer_that_was_fenced_does_not_take_its_id_back_in_a_rebuild(copying):
    copying.another_producer().init_transactions()
    copying.producer.begin_transaction()
    copying.producer.produce("out", b"no")
    with pytest.raises(ProducerFencedError):
        copying.producer.commit_transaction()
    for call in (copying.producer.adapter.rebuild, copying.producer.init_transactions):
        with pytest.raises(ProducerFencedError):
            call()


class OwnError(Exception):
    """What the application's callback raises."""


def test_init_transactions_raises_what_a_delivery_callback_raised_once_and_has_succeeded():
    cluster, errors = SimulatedCluster(seed=1), list[OwnError]()
    cluster.create_topic("out")

    def on_delivery(*_):
        errors.append(OwnError(len(errors)))
        raise errors[-1]

    producer = EosProducer({"bootstrap.servers": "simulated"}, factory=cluster.producer, clock=cluster.clock)
    for number in range(3):
        producer.produce("out", f"{number}", on_delivery=on_delivery)
    with pytest.raises(OwnError) as raised:
        producer.init_transactions()
    assert raised.value is errors[0]
    producer.init_transactions()
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("out", "3")
    producer.commit_transaction()
    assert cluster.values("out") == [b"0", b"1", b"2", b"3"]
    with pytest.raises(TransactionStateError):
        producer.init_transactions()


def test_a_producer_that_cannot_become_transactional_still_belongs_to_every_thread():
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("out")
    settings = {"bootstrap.servers": "simulated", "transaction.timeout.ms": 1000}
    producer = EosProducer(settings, factory=cluster.producer, clock=cluster.clock, shortest_timeout_s=5.0)
    with pytest.raises(ConfigurationError, match=r"transaction\.timeout\.ms"):
        producer.init_transactions()
    with ThreadPoolExecutor(1) as another:
        another.submit(producer.produce, "out", b"1").result()
    producer.produce("out", b"2")
    assert producer.flush(5.0) == 0
    assert sorted(cluster.values("out")) == [b"1", b"2"]


def test_what_a_callback_raises_is_raised_at_the_end_of_the_outermost_block():
    raised = []
    errors = DeferredErrors(lambda: raised.append(len(raised)))
    errors.raise_deferred()
    assert raised == [0]
    with errors.deferred():
        with errors.deferred():
            errors.raise_deferred()
        assert raised == [0]
    assert raised == [0, 1]
    with pytest.raises(OwnError), errors.deferred():
        raise OwnError
    with errors.deferred(until_later=True):
        errors.raise_deferred()
    assert raised == [0, 1]
    errors.raise_deferred()
    assert raised == [0, 1, 2]


def test_a_block_that_an_exception_kept_from_being_entered_defers_nothing():
    """Neither at once nor when whatever was half entered is cleared away."""
    raised = []
    errors = DeferredErrors(lambda: raised.append(len(raised)))
    half_entered = errors.deferred()
    with errors.deferred():
        pass
    del half_entered
    assert not errors.are_deferred
    assert raised == [0]


def test_a_recovery_of_several_failures_tells_the_outcome_of_the_first() -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    producer, consumer = stage.producer(), stage.subscribed()
    for _ in range(5):
        stage.cluster.lose_reply("EndTxn")
    stage.cluster.after(8.0, stage.cluster.faults.withdraw)
    with suppress(ArithmeticError), producer.transaction(consumer) as aborted:
        aborted.produce(SINK, b"one")
        producer.flush(5.0)
        raise ArithmeticError
    assert aborted.outcome is Outcome.ABORTED
    for _ in range(5):
        stage.cluster.lose_reply("EndTxn")
    stage.copy_the_rest(producer, consumer)
    (recovered,) = stage.named("producer_recovered")
    assert (recovered.failures, recovered.outcome) == (2, "aborted")
    assert [event.outcome for event in stage.named("outcome_resolved")] == ["committed"]
