"""What the application's callbacks raise comes out as it is, and ``close()`` returns."""

import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eos_client import EosConsumer, EosProducer
from eos_client.confluent.consumer import safe_close
from eos_client.errors import ConfigurationError
from eos_client.observe import ClientReported
from eos_client.testing.simulator import SimulatedCluster

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class OwnError(Exception):
    """What the application raises."""


def raised_by_c_code(_):
    int("x")


def out_of_memory(_):
    [0] * (sys.maxsize // 8)


def until_it_raises(call):
    """Call, for a minute at most: a poll may return early, for a line of the log."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        call()


@pytest.mark.parametrize("client", ["consumer", "producer"])
@pytest.mark.parametrize("kind", ["error_cb", "stats_cb"])
@pytest.mark.parametrize(("callback", "error"), [(raised_by_c_code, ValueError), (out_of_memory, MemoryError)])
def test_the_callbacks_own_exception_comes_out_also_when_c_code_raised_it(client, kind, callback, error):
    made = built(client, **{kind: callback, "statistics.interval.ms": 10})
    with pytest.raises(error):
        until_it_raises(lambda: made.poll(0.1))
    made.close()


def built(client, **settings):
    if client == "producer":
        return EosProducer({**NOWHERE, "transactional.id": "t", **settings})
    made = EosConsumer({**NOWHERE, "group.id": "g", **settings})
    made.subscribe(["in"])
    return made


class RaisingLogger:
    """A `logger` that cannot write."""

    def __init__(self):
        self.errors: list[OwnError] = []

    def log(self, *_):
        self.errors.append(OwnError(len(self.errors)))
        raise self.errors[-1]


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_what_a_logger_raises_comes_out_and_close_returns(client):
    logger = RaisingLogger()
    made = built(client, logger=logger, log_level=7, debug="broker")
    with pytest.raises(OwnError) as raised:
        until_it_raises(lambda: made.poll(0.1))
    assert raised.value is logger.errors[0]
    made.close()


def test_an_exception_of_a_callback_does_not_wait_for_a_record():
    consumer = EosConsumer({**NOWHERE, "group.id": "g", "error_cb": raised_by_c_code})
    consumer.subscribe(["in"])
    with pytest.raises(ValueError, match="invalid literal"):
        consumer.poll()


class StuckClose:
    """A raw consumer whose `close` returns only when it is let go."""

    def __init__(self, settings):
        self.raw = Consumer(settings)
        self.let_go = threading.Event()

    def __getattr__(self, name):
        return getattr(self.raw, name)

    def close(self):
        self.let_go.wait()
        self.raw.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "did not leave the group within 0.05 s"),
        ({"group.instance.id": "desk-1"}, "The group keeps the place of this static member"),
    ],
    ids=["dynamic", "static"],
)
def test_a_close_that_does_not_return_is_left_behind_and_reported(monkeypatch, settings, says):
    monkeypatch.setattr(safe_close, "CLOSE_LIMIT_S", 0.05)
    events: list[Any] = []
    made: list[Any] = []

    def factory(settings):
        made.append(StuckClose(settings))
        return made[0]

    consumer = EosConsumer({**NOWHERE, "group.id": "g", **settings}, factory=factory, hook=events.append)
    consumer.close()
    reported = [event.error for event in events if isinstance(event, ClientReported)]
    assert len(reported) == 1
    assert says in reported[0]
    assert "within 0.05 s" in reported[0]
    assert consumer.close_within(1.0) is False
    made[0].let_go.set()


def test_a_close_that_waits_for_a_dropped_record_says_that_no_record_is_lost(monkeypatch):
    monkeypatch.setattr(safe_close, "CLOSE_LIMIT_AFTER_AN_EXCEPTION_S", 0.05)
    events: list[Any] = []
    made: list[Any] = []

    class Struck(StuckClose):
        def consume(self, *_):
            raise OwnError

    def factory(settings):
        made.append(Struck(settings))
        return made[0]

    consumer = EosConsumer({**NOWHERE, "group.id": "g"}, factory=factory, hook=events.append)
    with pytest.raises(OwnError):
        consumer.consume(2, 0)
    consumer.close()
    reported = [event.error for event in events if isinstance(event, ClientReported)]
    assert len(reported) == 1
    assert "within 0.05 s" in reported[0]
    assert "the next owner of its partition reads it" in reported[0]
    made[0].let_go.set()


def test_a_close_in_time_reports_nothing():
    events: list[Any] = []
    consumer = EosConsumer({**NOWHERE, "group.id": "g"}, hook=events.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert consumer.close_within(30.0) is True
    assert events == []


def failing_after(call):
    """Return a `factory` whose client fails as confluent_kafka's does when a callback's exception got lost in it."""

    def factory(settings):
        call(settings)
        raise SystemError("returned NULL without setting an exception")

    return factory


def building(client, factory, **settings):
    if client == "consumer":
        return EosConsumer({**NOWHERE, "group.id": "g", **settings}, factory=factory)
    return EosProducer({**NOWHERE, "transactional.id": "t", **settings}, factory=factory)


CLIENTS = ("consumer", "producer")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("error", [OwnError("mine"), KafkaException(KafkaError(-1)), KeyboardInterrupt()])
def test_what_a_callback_raises_inside_the_constructor_comes_out_of_it(client, error):
    def raises(_):
        raise error

    with pytest.raises(type(error)) as raised:
        building(client, failing_after(lambda settings: settings["stats_cb"]("{}")), stats_cb=raises)
    assert raised.value is error
    assert isinstance(raised.value.__context__, SystemError)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("is_heard", [False, True], ids=["lost", "run into"])
def test_an_oauth_cb_that_raises_is_named_although_the_library_has_lost_its_reason(client, is_heard):
    error = OwnError("no token server")

    def constructs(settings):
        with suppress(OwnError):
            settings["oauth_cb"]("")
        if is_heard:
            settings["stats_cb"]("{}")

    oauth = {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": raising(error)}
    with pytest.raises(ConfigurationError, match=r"oauth_cb gave no token in time, .*no token server") as raised:
        building(client, failing_after(constructs), stats_cb=raising(SystemError("with an exception set")), **oauth)
    assert isinstance(raised.value, KafkaException)
    assert raised.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert raised.value.__cause__ is not None
    assert raised.value.__cause__.__cause__ is error


@pytest.mark.parametrize("client", CLIENTS)
def test_an_oauth_cb_that_raises_is_named_where_the_library_says_that_there_was_no_token(client):
    error = OwnError("no token server")

    def constructs(settings):
        with suppress(OwnError):
            settings["oauth_cb"]("")
        raise KafkaException(KafkaError(KafkaError._FAIL, "OAuth token not set within 10 seconds timeout"))

    oauth = {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": raising(error)}
    with pytest.raises(ConfigurationError, match=r"oauth_cb gave no token in time, .*no token server"):
        building(client, failing_after(constructs), **oauth)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_constructor_that_fails_without_a_callback_keeps_its_own_error(client):
    with pytest.raises(SystemError, match="returned NULL"):
        building(client, failing_after(lambda _: None))


def test_what_a_callback_raises_while_a_handle_is_replaced_comes_out():
    cluster = SimulatedCluster()
    error = OwnError("mine")
    built: list[Any] = []

    def raises(_):
        raise error

    def factory(settings):
        if built:
            return failing_after(lambda each: each["stats_cb"]("{}"))(settings)
        built.append(cluster.producer(settings))
        return built[0]

    producer = EosProducer(
        {"bootstrap.servers": "simulated", "transactional.id": "t", "stats_cb": raises},
        factory=factory,
        clock=cluster.clock,
    )
    producer.init_transactions()
    with pytest.raises(OwnError) as raised:
        producer.adapter.rebuild()
    assert raised.value is error


class ReportsInClose(Consumer):
    """A consumer that serves callbacks inside `close`, each as often as it likes."""

    def __init__(self, settings, *calls):
        super().__init__(settings)
        self.calls = [(settings[name], arguments) for name, *arguments in calls]

    def close(self):
        for callback, arguments in self.calls:
            callback(*arguments)
        super().close()


def closing(hook=None, calls=(), **settings):
    events: list[Any] = []
    consumer = EosConsumer(
        {**NOWHERE, "group.id": "g", **settings},
        factory=lambda given: ReportsInClose(given, *calls),
        hook=hook or events.append,
    )
    return consumer, events


def raising(error):
    def callback(*_):
        raise error

    return callback


@pytest.mark.parametrize("name", ["error_cb", "stats_cb", "throttle_cb"])
def test_close_reports_what_a_client_callback_raises_and_does_not_raise_it(name):
    report = KafkaError(KafkaError._TRANSPORT)
    consumer, events = closing(calls=[(name, report), (name, report)], **{name: raising(OwnError("mine"))})
    consumer.close()
    assert [(e.client, e.error) for e in events] == [
        ("consumer", f"{name} has raised OwnError('mine'), which close() does not raise")
    ]
    with pytest.raises(RuntimeError):
        consumer.poll(0)


def test_close_reports_what_a_client_callback_has_raised_before_it():
    consumer, events = closing(stats_cb=raising(OwnError("mine")), **{"statistics.interval.ms": 10})
    given = consumer._library.guard.added_to(consumer.settings)
    given["stats_cb"]("{}")  # as inside a call that does not raise it
    consumer.close()
    assert [e.error for e in events] == ["stats_cb has raised OwnError('mine'), which close() does not raise"]


def test_close_raises_what_the_answer_to_a_commit_has_raised_also_after_a_client_callback():
    error = OwnError("of the answer")
    calls: list[Any] = [("stats_cb", "{}"), ("on_commit", None, [])]
    consumer, events = closing(calls=calls, stats_cb=raising(OwnError("mine")), on_commit=raising(error))
    with pytest.raises(OwnError) as raised:
        consumer.close()
    assert raised.value is error
    assert len(events) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_a_client_callback_comes_out_of_close_once_it_is_complete(error):
    consumer, events = closing(calls=[("stats_cb", "{}")], stats_cb=raising(error))
    with pytest.raises(type(error)) as raised:
        consumer.close()
    assert raised.value is error
    assert events == []
    with pytest.raises(RuntimeError):
        consumer._library.raw.poll(0)


def idempotent(**callbacks):
    cluster = SimulatedCluster()
    events: list[Any] = []
    cluster.create_topic("out")
    settings = {"bootstrap.servers": "simulated", "statistics.interval.ms": 10, **callbacks}
    producer = EosProducer(settings, factory=cluster.producer, clock=cluster.clock, hook=events.append)
    producer.produce("out", b"v")
    return producer, events, cluster


@pytest.mark.parametrize("error", [OwnError("mine"), KeyboardInterrupt()])
def test_closing_a_producer_raises_what_on_delivery_has_raised_once_it_is_complete(error):
    producer, events, cluster = idempotent(on_delivery=raising(error))
    with pytest.raises(type(error)) as raised:
        producer.close()
    assert raised.value is error
    assert events == []
    assert cluster.values("out") == [b"v"]
    with pytest.raises(RuntimeError):
        producer.produce("out", b"v")


def test_closing_a_producer_reports_what_a_client_callback_has_raised():
    producer, events, cluster = idempotent(stats_cb=raising(OwnError("mine")))
    library = producer.adapter.library
    library.guard.added_to(library.settings)["stats_cb"]("{}")  # as inside a call that does not raise it
    producer.close()
    assert [(e.client, e.error) for e in events] == [
        ("producer", "stats_cb has raised OwnError('mine'), which close() does not raise")
    ]
    assert cluster.values("out") == [b"v"]


class RevokesInClose(Consumer):
    """A consumer whose library has kept a revocation back until `close`."""

    def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None):
        self.on_assign, self.on_revoke = on_assign, on_revoke
        super().subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def close(self):
        self.on_revoke(self, [TopicPartition("in", 0)])
        super().close()


@pytest.mark.parametrize("leave", [EosConsumer.close, lambda consumer: consumer.close_within(60.0)])
def test_a_rebalance_callback_that_the_library_serves_in_its_close_may_call_the_consumer(leave):
    told, built = [], []

    def build(settings):
        built.append(RevokesInClose(settings))
        return built[0]

    consumer = EosConsumer({**NOWHERE, "group.id": "g"}, factory=build, hook=lambda event: None)
    consumer.subscribe(["in"], on_revoke=lambda own, partitions: told.append((own.assignment(), partitions)))
    built[0].on_assign(built[0], [TopicPartition("in", 0)])
    leave(consumer)
    assert told == [([], [TopicPartition("in", 0)])]
