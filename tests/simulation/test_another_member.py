"""A consumer that leaves its group to join it as another member, by a client library of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from eos_client import EosConsumer
from eos_client.confluent.consumer import confluent_consumer, library_consumer, safe_close
from eos_client.errors import ClusterUnavailableError, ConfigurationError, FatalClientError
from eos_client.testing.simulator.brokers.model import Membership, OffsetAndMetadata, PartitionKey
from tests.simulation.broken_off import StepStrike, StrikeError, strides, struck_calls, struck_runs
from tests.simulation.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.interception import intercepting
from tests.support.protocols import CONSUMER, PROTOCOLS

LATE_S = 12.0
EVERY_STEP = 107
"""One step in so many is struck."""

Clients = list[Any]


class OwnError(Exception):
    """What a callback of the application raises."""


def remembered(stage: SimulatedStage, clients: Clients) -> Callable[[Any], Any]:
    """The factory of the stage's consumers, with every client that it has built in ``clients``."""

    def build(settings: Any) -> Any:
        clients.append(stage.cluster.consumer(settings))
        return clients[-1]

    return build


def commit_plainly(stage: SimulatedStage, consumer: EosConsumer) -> None:
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    stage.load(5)


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=1, partitions=1)


def test_a_replaced_member_has_a_new_member_id_and_its_old_client_is_closed(stage: SimulatedStage) -> None:
    clients: Clients = []
    consumer, producer = stage.subscribed(factory=remembered(stage, clients)), stage.producer()
    commit_plainly(stage, consumer)
    before = consumer.memberid()
    stage.copy_the_rest(producer, consumer)
    assert consumer.memberid() not in (before, None)
    with pytest.raises(RuntimeError, match="closed"):
        clients[0].memberid()
    assert len(clients) == len({id(client) for client in clients}) == 2


def test_new_credentials_are_given_to_the_replacing_client_too(stage: SimulatedStage) -> None:
    given: list[Any] = []

    def build(settings: Any) -> Any:
        given.append(settings)
        return stage.cluster.consumer({k: v for k, v in settings.items() if not k.startswith("sasl.")})

    consumer, producer = stage.subscribed(factory=build), stage.producer()
    consumer.set_sasl_credentials("me", "new")
    commit_plainly(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    assert (given[-1]["sasl.username"], given[-1]["sasl.password"]) == ("me", "new")


def test_a_replacement_that_cannot_be_built_is_tried_again_at_the_next_call(stage: SimulatedStage) -> None:
    refusals: list[KafkaException] = []

    def build(settings: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return stage.cluster.consumer(settings)

    consumer, producer = stage.subscribed(factory=build), stage.producer()
    commit_plainly(stage, consumer)
    refusals.append(KafkaException(KafkaError(KafkaError._FAIL, "too many open files")))
    with pytest.raises(ConfigurationError, match="too many open files"), producer.transaction(consumer):
        pytest.fail("the block was entered")
    assert len(stage.collect(consumer, 5)) == 5
    stage.load(1)
    consumer.member.fetching.rewind()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


@pytest.mark.parametrize("at", [1, 2], ids=["before it leaves", "while it leaves"])
def test_a_client_that_has_failed_for_good_has_no_successor(at: int) -> None:
    """A static member that another one has fenced would fence that in turn."""
    asked: list[None] = []
    stage = SimulatedStage(CONSUMER, records=1, partitions=1)
    clients: Clients = []
    fatal = KafkaException(KafkaError(KafkaError._FATAL, "fenced", True))

    def commit(raw: Any, *arguments: Any, offsets: Any = None, **named: Any) -> Any:
        if offsets == []:
            asked.append(None)
            if len(asked) >= at:
                raise fatal
        return raw.commit(*arguments, offsets=offsets, **named)

    build = intercepting(remembered(stage, clients), commit=commit)
    consumer, producer = stage.subscribed(factory=build), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    for _ in range(2):
        with pytest.raises(FatalClientError), producer.transaction(consumer):
            pytest.fail("the block was entered")
    assert len(clients) == 1


def test_callbacks_of_a_replaced_client_are_ignored(stage: SimulatedStage) -> None:
    heard: list[Any] = []
    clients: Clients = []

    def close(raw: Any) -> None:
        settings, callbacks = raw._background.settings, raw._callbacks
        settings.error_cb(KafkaError(KafkaError._TRANSPORT))
        callbacks["on_assign"](raw, [])
        callbacks["on_revoke"](raw, [])
        callbacks["on_lost"](raw, [])
        raw.close()

    consumer = stage.consumer(factory=intercepting(remembered(stage, clients), close=close), error_cb=heard.append)
    consumer.subscribe(["orders"], on_lost=lambda *_: heard.append("lost"))
    producer = stage.producer()
    commit_plainly(stage, consumer)
    assigned = len(stage.named("partitions_assigned"))
    with producer.transaction(consumer):
        pass
    assert heard == []
    assert len(stage.named("partitions_assigned")) == assigned
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


def test_an_old_client_that_does_not_end_is_left_behind_and_reported(
    stage: SimulatedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_consumer, "close_in_time", lambda close, *_: close() is not None)
    consumer, producer = stage.subscribed(), stage.producer()
    commit_plainly(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    (reported,) = stage.named("client_reported")
    assert "did not end within 30 s" in reported.error
    assert stage.outputs == stage.inputs[1:]


def test_a_replacing_client_has_the_usual_close_limit(stage: SimulatedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float] = []

    def close_in_time(close: Callable[[], None], limit_s: float, _: Any) -> bool:
        limits_s.append(limit_s)
        close()
        return True

    for user in (library_consumer, confluent_consumer):
        monkeypatch.setattr(user, "close_in_time", close_in_time)
    due: list[OwnError] = []

    def consume(raw: Any, *arguments: Any) -> Any:
        if due:
            raise due.pop()
        return raw.consume(*arguments)

    consumer = stage.subscribed(factory=intercepting(stage.cluster.consumer, consume=consume))
    producer = stage.producer()
    commit_plainly(stage, consumer)
    due.append(OwnError())
    with pytest.raises(OwnError):
        consumer.consume(5, 0.1)
    stage.copy_the_rest(producer, consumer)
    consumer.close()
    assert limits_s == [safe_close.CLOSE_LIMIT_AFTER_AN_EXCEPTION_S, safe_close.CLOSE_LIMIT_S]


def test_partitions_that_a_replaced_client_did_not_revoke_are_lost(stage: SimulatedStage) -> None:
    """And what the application's `on_lost` raises comes out of the next call that fetches."""
    deaf = intercepting(stage.cluster.consumer, unsubscribe=lambda _: None)
    raising = [OwnError()]

    def on_lost(*_: Any) -> None:
        raise raising.pop()

    consumer, producer = stage.subscribed(factory=deaf, callbacks={"on_lost": on_lost}), stage.producer()
    commit_plainly(stage, consumer)
    with pytest.raises(OwnError), producer.transaction(consumer):
        consumer.consume(5, 0.1)
    assert len(stage.named("partitions_lost")) == 1
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


# -- where it goes on ---------------------------------------------------------------------------------------------


def one_block(stage: SimulatedStage, consumer: EosConsumer, producer: Any) -> None:
    with producer.transaction(consumer) as txn:
        for message in consumer.consume(3, 0.2):
            txn.produce(SINK, message.value())


def copy_until(stage: SimulatedStage, consumer: EosConsumer, producer: Any, expected: list[bytes]) -> None:
    """Copy block by block until the outputs are ``expected``, and a little longer."""
    stage.wait_for(lambda: len(stage.outputs) >= len(expected), lambda: one_block(stage, consumer, producer))
    for _ in range(5):
        one_block(stage, consumer, producer)
    assert stage.outputs == expected
    assert stage.committed() == stage.written


def sought(stage: SimulatedStage, offset: int, **options: Any) -> tuple[EosConsumer, Any]:
    """A consumer that has committed half of ten records plainly and then sought, and a producer."""
    stage.load(9)
    consumer, producer = stage.subscribed(**options), stage.producer()
    stage.collect(consumer, 5)
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(SOURCE, 0, offset))
    return consumer, producer


class Choice:
    """An `on_assign` that chooses where its partition starts."""

    def __init__(self, stage: SimulatedStage) -> None:
        self.place = TopicPartition(SOURCE, 0, 0)
        self._is_eager = stage.protocol == "range"

    def on_assign(self, consumer: EosConsumer, _: Any) -> None:
        assign = consumer.assign if self._is_eager else consumer.incremental_assign
        assign([self.place])


@pytest.mark.parametrize("offset", [2, 8, OFFSET_BEGINNING])
def test_a_seek_survives_the_rejoin_before_a_block(stage: SimulatedStage, offset: int) -> None:
    consumer, producer = sought(stage, offset)
    copy_until(stage, consumer, producer, stage.inputs[max(offset, 0) :])


@pytest.mark.parametrize("in_hand", [0, 3])
def test_a_seek_survives_the_rejoin_after_only_the_start_was_committed(stage: SimulatedStage, in_hand: int) -> None:
    stage.load(9)
    consumer, producer = stage.subscribed(auto_offset_reset="latest"), stage.producer()
    stage.wait_for(lambda: stage.committed() == 10, lambda: consumer.consume(10, 0.1))
    consumer.seek(TopicPartition(SOURCE, 0, 0))
    stage.collect(consumer, in_hand)
    copy_until(stage, consumer, producer, stage.inputs)


def test_a_seek_is_dropped_if_another_member_has_committed_since(stage: SimulatedStage) -> None:
    clients: Clients = []

    def build(settings: Any) -> Any:
        if clients:
            place = {PartitionKey(SOURCE, 0): OffsetAndMetadata(7)}
            stage.cluster.brokers.groups.commit_offsets(GROUP, Membership(), place)
        return remembered(stage, clients)(settings)

    consumer, producer = sought(stage, 2, factory=build)
    copy_until(stage, consumer, producer, stage.inputs[7:])


def test_a_seek_applies_to_the_first_rejoin_only(stage: SimulatedStage) -> None:
    consumer, producer = sought(stage, 2)
    copy_until(stage, consumer, producer, stage.inputs[2:])
    producer.close()
    stage.load(3)
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    copy_until(stage, consumer, stage.producer(), sorted(stage.inputs[2:10] + stage.inputs[11:]))


def test_a_seek_is_dropped_when_its_partition_was_revoked_since(stage: SimulatedStage) -> None:
    consumer, producer = sought(stage, 2)
    stage.cluster.revoke((SOURCE, 0))
    stage.wait_for(lambda: not consumer.member.membership.assigned, lambda: consumer.consume(1, 0.1))
    stage.cluster.give_back()
    stage.wait_for(lambda: consumer.member.membership.assigned, lambda: consumer.member.fetching.wait_while_paused(0.1))
    consumer.commit(offsets=[TopicPartition(SOURCE, 0, 5)], asynchronous=False)
    copy_until(stage, consumer, producer, stage.inputs[5:])


@pytest.mark.parametrize("has_rejoined", [False, True])
def test_a_seek_of_a_partition_that_has_left_since_is_forgotten(stage: SimulatedStage, *, has_rejoined: bool) -> None:
    stage = SimulatedStage(stage.protocol, records=10)
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 20)
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(SOURCE, 1, 2))
    expected: list[bytes] = []
    if has_rejoined:
        expected = stage.inputs[12:]
        stage.wait_for(lambda: stage.outputs == expected, lambda: one_block(stage, consumer, producer))
    producer.close()
    stage.cluster.revoke((SOURCE, 1))
    stage.wait_for(
        lambda: len(consumer.member.membership.assigned) == 1, lambda: consumer.member.fetching.wait_while_paused(0.1)
    )
    consumer.commit(offsets=[TopicPartition(SOURCE, 0, 10)], asynchronous=False)
    stage.cluster.give_back()
    stage.load(1)
    producer = stage.producer()
    expected = sorted([*expected, b"0-10", b"1-10"])
    stage.wait_for(lambda: len(stage.outputs) >= len(expected), lambda: one_block(stage, consumer, producer))
    assert stage.outputs == expected


def test_a_rejoin_without_a_seek_reads_no_committed_offsets(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    commit_plainly(stage, consumer)
    asking = mock.patch.object(consumer.member.library, "committed_or_raise", side_effect=AssertionError("asked"))
    with asking as asked, producer.transaction(consumer):
        asked.side_effect = None  # what is asked inside the block is another thing
    stage.copy_the_rest(producer, consumer)


def test_a_start_chosen_by_on_assign_ends_an_earlier_seek(stage: SimulatedStage) -> None:
    choice = Choice(stage)
    consumer, producer = sought(stage, 2, callbacks={"on_assign": choice.on_assign})
    choice.place.offset = 6
    with producer.transaction(consumer):
        pass
    stage.wait_for(lambda: consumer.member.membership.assigned, lambda: consumer.member.fetching.wait_while_paused(0.1))
    stage.cluster.lose()
    choice.place.offset = OFFSET_INVALID
    stage.wait_for(lambda: stage.named("partitions_lost"), lambda: consumer.member.fetching.wait_while_paused(0.1))
    copy_until(stage, consumer, producer, stage.inputs[5:])


def test_a_start_chosen_by_on_assign_wins_over_a_seek(stage: SimulatedStage) -> None:
    choice = Choice(stage)
    consumer, producer = sought(stage, 2, callbacks={"on_assign": choice.on_assign})
    choice.place.offset = 6
    copy_until(stage, consumer, producer, stage.inputs[6:])


def test_a_seek_survives_a_slow_answer_with_the_committed_offsets(stage: SimulatedStage) -> None:
    consumer, producer = sought(stage, 2)
    stage.cluster.delay("OffsetFetch", 3.0)
    with suppress(ClusterUnavailableError):
        copy_until(stage, consumer, producer, stage.inputs[2:])
    copy_until(stage, consumer, producer, stage.inputs[2:])


def test_a_member_fenced_before_its_replacement_gets_the_fatal_error() -> None:
    stage = SimulatedStage("range", records=1, partitions=1)
    consumer, producer = stage.subscribed(group_instance_id="one"), stage.producer()
    commit_plainly(stage, consumer)
    successor = stage.subscribed(group_instance_id="one")
    stage.wait_for(lambda: successor.member.membership.assigned, lambda: successor.consume(1, 0.1))
    stage.cluster.advance(10.0)
    for _ in range(2):
        with pytest.raises(FatalClientError), producer.transaction(consumer):
            pytest.fail("the block was entered")


# -- wherever an exception strikes --------------------------------------------------------------------------------


class Application:
    """Commits plainly, then copies in blocks; goes on after every exception."""

    def __init__(self, protocol: str, around: Callable[[Any], Any] = lambda client: client) -> None:
        self.stage = SimulatedStage(protocol, records=1, partitions=1)
        self.consumer = self.stage.subscribed(factory=around(self.stage.cluster.consumer), socket_timeout_ms=5000)
        self.producer = self.stage.producer()
        self.stage.collect(self.consumer, 1)
        self.stage.cluster.delay("OffsetCommit", LATE_S)
        with suppress(KafkaException):
            self.consumer.commit(asynchronous=False)
        self.consumer.commit(asynchronous=False)
        self.stage.load(5)

    def begins_a_block(self) -> None:
        with suppress(StrikeError), self.producer.transaction(self.consumer):
            pass

    def ends(self) -> None:
        self.stage.copy_the_rest(self.producer, self.consumer)
        self.stage.cluster.advance(LATE_S)

    def is_exact(self) -> bool:
        return self.stage.committed() == 6 and self.stage.outputs == self.stage.inputs[1:]


@strides(EVERY_STEP)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exception_at_any_step_of_the_replacement_leaves_a_new_member(protocol: str, first: int) -> None:
    def broken_off(strike: StepStrike, steps: StepStrike | None = None) -> Application:
        application = Application(protocol)
        with strike.armed(steps):
            application.begins_a_block()
        return application

    for struck, strike in struck_runs(broken_off, EVERY_STEP, first=first, steps_min=1001):
        struck.ends()
        assert struck.is_exact(), f"step {strike.number}, {strike.struck}: {struck.stage.outputs}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_failure_of_any_library_call_of_the_replacement_leaves_a_new_member(protocol: str, *, after: bool) -> None:
    for struck, strike in struck_calls(lambda strike: Application(protocol, strike.around), after=after, calls_min=5):
        struck.begins_a_block()
        strike.is_armed = False
        struck.ends()
        assert struck.is_exact(), f"call {strike.number}, {strike.struck}: {struck.stage.outputs}"
