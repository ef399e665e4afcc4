"""A consumer that leaves its group to join it as another member, by a client library of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import EosConsumer
from eos_client.confluent import consumer as consumer_adapter
from eos_client.confluent import fetching, leaving
from eos_client.errors import ConfigurationError, FatalClientError
from tests.kafka.kafka_support import intercepting
from tests.simulation.block_stage import BlockStage
from tests.simulation.broken_off import CallStrike, StepStrike, StrikeError
from tests.simulation.simulated_member import CONSUMER, PROTOCOLS

LATE_S = 12.0
EVERY_STEP = 53
"""One step in so many is struck."""

Clients = list[Any]


class OwnError(Exception):
    """What a callback of the application raises."""


def remembered(stage: BlockStage, clients: Clients) -> Callable[[Any], Any]:
    """The factory of the stage's consumers, with every client that it has built in ``clients``."""

    def build(settings: Any) -> Any:
        clients.append(stage.cluster.consumer(settings))
        return clients[-1]

    return build


def commit_plainly(stage: BlockStage, consumer: EosConsumer) -> None:
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    stage.load(5)


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> BlockStage:
    return BlockStage(request.param, records=1, partitions=1)


def test_the_member_id_is_another_one_and_the_old_client_is_closed(stage: BlockStage) -> None:
    clients: Clients = []
    consumer, producer = stage.subscribed(factory=remembered(stage, clients)), stage.producer()
    commit_plainly(stage, consumer)
    before = consumer.memberid()
    stage.copy_the_rest(producer, consumer)
    assert consumer.memberid() not in (before, None)
    with pytest.raises(RuntimeError, match="closed"):
        clients[0].memberid()
    assert len(clients) == len({id(client) for client in clients}) == 2


def test_new_credentials_hold_for_the_new_client_too(stage: BlockStage) -> None:
    given: list[Any] = []

    def build(settings: Any) -> Any:
        given.append(settings)
        return stage.cluster.consumer({k: v for k, v in settings.items() if not k.startswith("sasl.")})

    consumer, producer = stage.subscribed(factory=build), stage.producer()
    consumer.set_sasl_credentials("me", "new")
    commit_plainly(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    assert (given[-1]["sasl.username"], given[-1]["sasl.password"]) == ("me", "new")


def test_where_no_other_client_can_be_built_the_next_poll_tries_again(stage: BlockStage) -> None:
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
    consumer.rewind()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


def test_a_client_that_has_failed_for_good_has_no_successor() -> None:
    """A static member that another one has fenced would fence that in turn."""
    stage = BlockStage(CONSUMER, records=1, partitions=1)
    clients: Clients = []
    fatal = KafkaException(KafkaError(KafkaError._FATAL, "fenced", True))

    def commit(raw: Any, *arguments: Any, offsets: Any = None, **named: Any) -> Any:
        if offsets == []:
            raise fatal
        return raw.commit(*arguments, offsets=offsets, **named)

    build = intercepting(remembered(stage, clients), commit=commit)
    consumer, producer = stage.subscribed(factory=build), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(offsets=list(consumer.handed_over_offsets().values()), asynchronous=False)
    for _ in range(2):
        with pytest.raises(FatalClientError), producer.transaction(consumer):
            pytest.fail("the block was entered")
    assert len(clients) == 1


def test_what_the_old_client_still_tells_is_not_heard(stage: BlockStage) -> None:
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
    stage: BlockStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "close_in_time", lambda close, *_: close() is not None)
    consumer, producer = stage.subscribed(), stage.producer()
    commit_plainly(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    (reported,) = stage.named("client_reported")
    assert "did not end within 30 s" in reported.error
    assert stage.outputs == stage.inputs[1:]


def test_a_new_client_has_the_usual_time_to_close_again(stage: BlockStage, monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float] = []

    def close_in_time(close: Callable[[], None], limit_s: float, _: Any) -> bool:
        limits_s.append(limit_s)
        close()
        return True

    for user in (fetching, consumer_adapter):
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
    assert limits_s == [leaving.CLOSE_LIMIT_AFTER_AN_EXCEPTION_S, leaving.CLOSE_LIMIT_S]


def test_what_was_not_revoked_before_the_client_was_replaced_counts_as_lost(stage: BlockStage) -> None:
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


# -- wherever an exception strikes --------------------------------------------------------------------------------


class Application:
    """Commits plainly, then copies in blocks; goes on after every exception."""

    def __init__(self, protocol: str, around: Callable[[Any], Any] = lambda client: client) -> None:
        self.stage = BlockStage(protocol, records=1, partitions=1)
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wherever_an_exception_strikes_the_old_member_is_left_for_another(protocol: str) -> None:
    counted = StepStrike(0)
    application = Application(protocol)
    with counted.armed():
        application.begins_a_block()
    for number in range(1, counted.steps, EVERY_STEP):
        struck, strike = Application(protocol), StepStrike(number)
        with strike.armed():
            struck.begins_a_block()
        struck.ends()
        assert struck.is_exact(), f"step {number}, {strike.struck}: {struck.stage.outputs}"
    assert counted.steps > 1000


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_call_of_the_library_is_struck_the_old_member_is_left_for_another(
    protocol: str, *, after: bool
) -> None:
    number = 0
    while True:
        number += 1
        strike = CallStrike(number, after=after)
        struck = Application(protocol, strike.around)
        strike.is_armed = True
        struck.begins_a_block()
        strike.is_armed = False
        struck.ends()
        assert struck.is_exact(), f"call {number}, {strike.struck}: {struck.stage.outputs}"
        if not strike.struck:
            break
    assert number > 5
