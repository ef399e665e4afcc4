"""Each part of the producer alone: the handle, its calls, its registration; and what joins them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import EosProducer
from eos_client.clients.transaction_outputs import write_by
from eos_client.confluent.failures.producer_failures import not_registered_error
from eos_client.confluent.producer import bounded_calls
from eos_client.confluent.producer.bounded_calls import BoundedCalls
from eos_client.confluent.producer.confluent_producer import ConfluentProducer, offsets_to_send
from eos_client.confluent.producer.library_producer import LibraryProducer
from eos_client.confluent.producer.registration import Registration, _sent_twice
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core.model import UNJOINED, InputPartition, InputPosition, ProducerLimits
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.core.producer_states import (
    Began,
    CallAnswered,
    Ended,
    HandleFinished,
    HandleSuspected,
    HandleUnregistered,
    OffsetsFollow,
    ProducerState,
    next_state,
)
from eos_client.errors import (
    AbortableError,
    ClientClosedError,
    ClusterUnavailableError,
    ConfigurationError,
    OutputRefusedError,
    RebuildProducerError,
)
from eos_client.observe import Counters, ProducerRebuilt
from eos_client.ports import OutputRecord
from tests.confluent.test_own_state import PACKAGE, written_from_outside
from tests.confluent.threads import StoppedClock

LIMIT_S = 1.0
LIMITS = ProducerLimits(commit_timeout_s=LIMIT_S, recovery_timeout_s=0.0)


class Raw:
    """The client library's producer: writes down what it is asked for; ``failing`` names what raises, and what."""

    def __init__(self, settings: dict[str, Any], failing: dict[str, BaseException]) -> None:
        self.settings = settings
        self.asked: list[str] = []
        self.values: list[Any] = []
        self.offsets: list[Any] = []
        self._failing = failing

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self._failing:
            raise self._failing[name]

    def init_transactions(self, _timeout_s: float) -> None:
        self._ask("init_transactions")

    def begin_transaction(self) -> None:
        self._ask("begin_transaction")

    def send_offsets_to_transaction(self, offsets: Any, _metadata: Any, _timeout_s: float) -> None:
        self._ask("send_offsets_to_transaction")
        self.offsets += offsets

    def commit_transaction(self, _timeout_s: float) -> None:
        self._ask("commit_transaction")

    def abort_transaction(self, _timeout_s: float) -> None:
        self._ask("abort_transaction")

    def produce(self, _topic: str, value: Any, key: Any = None) -> None:
        self._ask("produce")
        self.values.append((value, key))

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        self._ask("purge")

    def close(self) -> None:
        self._ask("close")

    def __len__(self) -> int:
        return len(self.values)


class ProducerParts:
    """The parts as `ConfluentProducer` puts them together; ``raws`` are the handles that were built."""

    def __init__(self) -> None:
        self.raws: list[Raw] = []
        self.failing: dict[str, BaseException] = {}
        self.events: list[Any] = []
        self.clock: Any = StoppedClock()
        settings = {"bootstrap.servers": "nowhere", "transactional.id": "t"}
        self.library = LibraryProducer(settings, self._build, self.clock, 0.0, generate_id=False)
        self.calls = BoundedCalls(self.library, self.clock, recovers_from_own_fence=True)
        self.ownership = ThreadOwnership("EosProducer")
        self.registration = Registration(self.calls, self.ownership, Counters(), self.events.append, 1.0)

    def _build(self, settings: dict[str, Any]) -> Raw:
        self.raws.append(Raw(settings, self.failing))
        return self.raws[-1]

    def producer(self) -> ConfluentProducer:
        settings = {"bootstrap.servers": "nowhere", "transactional.id": "t"}
        made = ConfluentProducer(
            settings, limits=LIMITS, hook=self.events.append, clock=self.clock, factory=self._build
        )
        made.library.start()
        return made


@pytest.fixture
def stage() -> Iterator[ProducerParts]:
    made = ProducerParts()
    yield made
    made.library.end_dropped()


@pytest.fixture
def started(stage: ProducerParts) -> ProducerParts:
    stage.library.start()
    return stage


def refused(code: int, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "on purpose", **flags))


# -- the handle --------------------------------------------------------------------------------------------------------


def test_a_library_producer_has_a_handle_from_start_on_until_it_is_left(stage):
    assert (stage.library.raw, stage.raws) == (None, [])
    stage.library.start()
    assert stage.library.raw is stage.raws[0]
    stage.library.abandon_handle()
    assert stage.library.raw is None
    assert stage.raws[0].asked == ["purge", "close"]


def test_what_a_handle_that_was_left_behind_reports_is_heard_by_nobody(started):
    heard: list[Any] = []
    report = started.library.guard.keeping_errors(heard.append)
    report("first")
    started.library.abandon_handle()
    report("late")
    assert heard == ["first"]


def test_a_handle_left_before_its_init_was_answered_may_explain_a_fence(started):
    started.library.init.mark_requested(is_needed=True)
    started.library.abandon_handle()
    assert started.library.abandoned_inits.may_explain_fence


@pytest.mark.parametrize("losses", [0, 1])
def test_an_init_whose_connection_was_lost_may_explain_a_fence(stage, losses):
    producer = stage.producer()
    producer.init_transactions(5.0)
    producer.library.log.losses = losses
    producer.begin_transaction()
    assert producer.library.abandoned_inits.may_explain_fence is bool(losses)


# -- its calls ---------------------------------------------------------------------------------------------------------


def test_a_finished_handle_takes_no_calls_and_says_why(started):
    why = RebuildProducerError("broken")
    started.calls.tell(HandleFinished(why))
    with pytest.raises(RebuildProducerError) as raised:
        started.calls.require_usable()
    assert raised.value is why
    assert started.calls.state.transaction_failure is why
    assert not started.calls.state.may_initialise


def test_a_handle_without_an_init_still_serves_until_it_is_gone(started):
    started.calls.tell(HandleUnregistered(not_registered_error("t")))
    started.calls.require_serving()
    started.library.abandon_handle()
    with pytest.raises(RebuildProducerError, match="is not registered"):
        started.calls.require_serving()


def test_a_call_is_marked_as_interrupted_until_its_end_is_booked(started):
    started.calls.tell(Began(0.0))
    started.calls.run(TransactionalRequest.COMMIT, lambda: None, 1.0)
    assert started.calls.state.may_have_ended
    assert not started.calls.state.can_end_transaction
    started.calls.tell(Ended(TransactionalRequest.COMMIT))
    assert started.calls.state.why_unusable is None
    assert started.calls.state.transaction is None


def test_a_commit_took_no_effect_before_it_is_sent_and_in_the_transaction_after_it(started):
    started.calls.tell(Began(0.0))
    assert started.calls.state.commit_took_no_effect
    started.calls.run(TransactionalRequest.COMMIT, lambda: None, 1.0)
    started.calls.tell(CallAnswered())
    assert not started.calls.state.commit_took_no_effect
    started.calls.tell(Ended(TransactionalRequest.COMMIT))
    assert not started.calls.state.commit_took_no_effect, "it has ended the transaction"
    started.calls.tell(Began(0.0))
    assert started.calls.state.commit_took_no_effect


def test_a_failed_call_of_a_transaction_is_remembered_as_why_it_can_only_be_aborted(started):
    started.calls.tell(Began(0.0))
    failure = started.calls.must_abort("on purpose")
    assert started.calls.state.transaction_failure is failure
    started.calls.tell(Ended(TransactionalRequest.ABORT))
    assert started.calls.state.transaction_failure is None


def test_what_a_signal_handler_tells_is_kept_by_the_call_that_it_has_interrupted(started, monkeypatch):
    """Between reading the state and storing it."""
    started.calls.tell(Began(0.0))
    in_handler: list[Any] = []

    def interrupted(state: ProducerState, event: Any) -> ProducerState:
        if not in_handler:
            in_handler.append(None)
            in_handler.append(started.calls.must_abort("on purpose"))
        return next_state(state, event)

    monkeypatch.setattr(bounded_calls, "next_state", interrupted)
    started.calls.tell(OffsetsFollow(0))
    assert started.calls.state.transaction_failure is in_handler[1]
    assert started.calls.state.transaction.losses_before_offsets == 0


# -- its registration --------------------------------------------------------------------------------------------------


def test_an_init_that_has_succeeded_lets_the_handle_take_calls(started):
    started.registration.init_transactions(LIMIT_S)
    started.calls.require_usable()
    assert started.raws[0].asked == ["init_transactions"]


def test_a_handle_whose_call_before_its_init_was_interrupted_is_replaced(started):
    started.calls.begin_call(TransactionalRequest.BEGIN)
    started.registration.set_deadline(0.0)  # after one attempt
    started.registration.init_transactions(LIMIT_S)
    started.calls.require_usable()
    assert [raw.asked for raw in started.raws] == [["purge", "close"], ["init_transactions"]]


def test_an_init_in_vain_ends_when_the_process_is_to_stop(started):
    started.failing["init_transactions"] = refused(KafkaError._TIMED_OUT, retriable=True)
    started.registration.set_deadline(0.0)
    with pytest.raises(ClusterUnavailableError, match="to stop"):
        started.registration.init_transactions(LIMIT_S)


def test_a_rebuild_leaves_the_handle_and_initialises_another_one(started):
    started.registration.init_transactions(LIMIT_S)
    started.registration.rebuild(LIMIT_S)
    assert [raw.asked for raw in started.raws] == [["init_transactions", "purge", "close"], ["init_transactions"]]
    assert [type(event) for event in started.events] == [ProducerRebuilt]


def test_a_rebuild_tells_why_and_gives_nobody_an_order(started):
    started.registration.init_transactions(LIMIT_S)
    started.calls.tell(HandleSuspected(_sent_twice("b-0", log_understood=True)))
    started.registration.rebuild(LIMIT_S)
    (event,) = started.events
    assert event.reason.endswith("could still end the next transaction (KAFKA-17754).")


def test_a_producer_gives_way_while_its_init_is_unanswered(started):
    started.library.init.mark_requested(is_needed=True)
    started.registration.release_id()
    assert started.library.raw is None


def test_a_producer_that_has_its_id_does_not_give_way(started):
    started.registration.init_transactions(LIMIT_S)
    started.registration.release_id()
    assert started.library.raw is started.raws[0]


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def producer(stage: ProducerParts) -> Iterator[ConfluentProducer]:
    made = stage.producer()
    yield made
    made.close()


def test_a_transaction_is_open_until_its_commit_is_answered(producer, stage):
    producer.init_transactions()
    producer.begin_transaction()
    assert producer.calls.state.can_end_transaction
    producer.commit_transaction(1.0)
    assert producer.calls.state.may_have_ended
    assert stage.raws[0].asked[:3] == ["init_transactions", "begin_transaction", "commit_transaction"]


def test_the_offsets_that_are_sent_have_the_metadata_and_where_it_is_known_the_epoch():
    positions = {
        InputPartition("orders", 0): InputPosition(1, 5, UNJOINED),
        InputPartition("orders", 1): InputPosition(1, 7, UNJOINED, leader_epoch=3),
    }
    offsets = offsets_to_send(positions, "token")
    assert [(p.partition, p.offset, p.metadata, p.leader_epoch) for p in offsets] == [
        (0, 5, "token", None),
        (1, 7, "token", 3),
    ]


def test_a_transaction_that_can_only_be_aborted_is_not_committed_and_says_why(producer, stage):
    producer.init_transactions()
    producer.begin_transaction()
    failure = producer.calls.must_abort("on purpose")
    with pytest.raises(AbortableError) as raised:
        producer.commit_transaction(1.0)
    assert raised.value is failure
    assert "commit_transaction" not in stage.raws[0].asked


def test_what_is_no_output_is_refused_and_nothing_is_queued(producer, stage):
    with pytest.raises(OutputRefusedError, match="no topic"):
        write_by(producer.produce, "no topic", OutputRecord(value=b"v"), None)
    assert stage.raws[0].values == []


def test_the_loop_gets_the_client_librarys_own_produce_while_the_handle_is_usable(producer, stage):
    assert producer.raw_produce == stage.raws[0].produce
    producer.calls.tell(HandleUnregistered(not_registered_error("t")))
    with pytest.raises(RebuildProducerError):
        producer.raw_produce  # noqa: B018


@pytest.mark.parametrize("name", ["bounded_calls", "confluent_producer", "library_producer", "registration"])
def test_no_part_of_a_producer_changes_the_state_of_another(name):
    written = written_from_outside(PACKAGE / "confluent" / "producer" / f"{name}.py")
    assert [each for each in written if not each.endswith("self._counters.producer_rebuilds")] == []


@pytest.mark.parametrize("name", ["on_delivery", "error_cb", "stats_cb"])
@pytest.mark.parametrize("its_id", [{}, {"transactional.id": "t"}], ids=["idempotent", "transactional"])
def test_a_callback_that_nobody_can_call_is_refused_as_the_client_library_refuses_it(name, its_id):
    with pytest.raises((ConfigurationError, TypeError), match=f"{name}.*callable"):
        EosProducer({"bootstrap.servers": "nowhere:9092", **its_id, name: "a name"})


@pytest.mark.parametrize("name", ["limits", "settings", "transactional_id"])
def test_a_producer_whose_subclass_has_not_built_it_says_so_of_what_its_parts_know(name):
    forgetful = type("Forgetful", (EosProducer,), {"__init__": lambda _: None})()
    with pytest.raises(ClientClosedError, match="super"):
        getattr(forgetful, name)


def test_a_producers_face_changes_the_state_of_no_part():
    assert list(written_from_outside(PACKAGE / "clients" / "producer.py")) == []


def test_an_error_that_says_already_what_to_do_is_not_taken_for_the_outputs_fault():
    named = ConfigurationError("the producer refuses its configuration")

    def produce(*_: Any, **__: Any) -> None:
        raise named

    with pytest.raises(ConfigurationError) as raised:
        write_by(produce, "out", OutputRecord(value=b"v"), None)
    assert raised.value is named
