"""Closing tells whatever there is to tell before the library's own close, which may freeze the process over it."""

import re
import signal
import threading

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from eos_client.core import membership_events
from eos_client.core.model import UNJOINED
from tests.kafka.kafka_support import SESSION_S, SHORT_SESSION_S, FreezableProgram
from tests.support.interception import intercepting
from tests.support.stderr_file import stderr_in
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol

STATIC = {"group_instance_id": "desk-1"}
CLASSIC = pytest.mark.parametrize(
    "any_stage",
    [GroupProtocol.COOPERATIVE, pytest.param(GroupProtocol.EAGER, marks=pytest.mark.soak)],
    indirect=True,
)
WITH_LOG = {"debug": "cgrp"}


def logging_at_once(settings):
    """Return `settings` without a logger: only then does the library write its log when nobody polls."""
    return {name: value for name, value in settings.items() if name != "logger"}


class Leaving:
    """A consumer, what it was told before the library's `close()` began, and what only inside that."""

    def __init__(self, stage, **settings):
        self.told, self.too_late, self.revoked_in = [], [], []
        self._closing = False
        intercepted = intercepting(Consumer, close=self._close, subscribe=self._subscribe)
        self.consumer = stage.consumer(factory=lambda given: intercepted(logging_at_once(given)), **settings)
        self.consumer.subscribe([stage.source], on_revoke=self._revoked)

    def _revoked(self, _, partitions):
        self.revoked_in.append((threading.get_ident(), len(partitions), self._closing))

    def _close(self, raw):
        self._closing = True
        raw.close()

    def _subscribe(self, raw, topics, **callbacks):
        def noted(name, callback):
            def call(consumer, partitions):
                (self.too_late if self._closing else self.told).append(name)
                callback(consumer, partitions)

            return call

        raw.subscribe(topics, **{name: noted(name, callback) for name, callback in callbacks.items()})


def with_an_assignment_due(stage, file, **settings):
    """Have a client that nobody polls, and for which the library has an assignment, by its log."""
    with stderr_in(file) as said:
        leaving = Leaving(stage, **settings, **WITH_LOG)
        is_due = re.compile("delegating (incremental )?assign of [1-9]")
        wait_for(lambda: is_due.search(said()), lambda: f"an assignment that is due: {said()}")
    return leaving


def has_left(stage):
    """The coordinator has heard of it, long before the session would end."""
    wait_for(lambda: stage.members() == [], "the group to be empty", timeout_s=SESSION_S / 2)


def test_a_member_has_given_everything_back_before_the_librarys_close(any_stage):
    leaving = Leaving(any_stage)
    wait_for(leaving.consumer.assignment, "an assignment", lambda: leaving.consumer.consume(1, 0.05))
    leaving.consumer.close()
    assert (leaving.told, leaving.too_late) == (["on_assign", "on_revoke"], [])
    has_left(any_stage)


def test_an_assignment_that_nobody_was_told_of_is_told_before_the_librarys_close(any_stage, tmp_path):
    leaving = with_an_assignment_due(any_stage, tmp_path / "stderr")
    leaving.consumer.close()
    assert (leaving.told, leaving.too_late) == (["on_assign", "on_revoke"], [])
    assert leaving.revoked_in == [], "the application was not told of the assignment"
    has_left(any_stage)


@CLASSIC
def test_a_static_member_is_told_of_its_assignment_and_stays_a_member(any_stage, tmp_path):
    leaving = with_an_assignment_due(any_stage, tmp_path / "stderr", **STATIC)
    leaving.consumer.close()
    assert leaving.told == ["on_assign"]
    assert leaving.too_late == ["on_revoke"], "an assignment that was told is taken back without a question"
    assert leaving.revoked_in == [], "the application was not told of the assignment"
    assert len(any_stage.members()) == 1


@CLASSIC
def test_the_application_of_a_static_member_is_told_of_the_revocation_before_the_librarys_close(any_stage):
    leaving = Leaving(any_stage, **STATIC)
    wait_for(leaving.consumer.assignment, "an assignment", lambda: leaving.consumer.consume(1, 0.05))
    leaving.consumer.close()
    assert leaving.revoked_in == [(threading.get_ident(), any_stage.partitions, False)]
    assert len(any_stage.members()) == 1


def test_closing_twice_and_closing_without_a_subscription_tell_nothing(stage):
    leaving = Leaving(stage)
    leaving.consumer.close()
    leaving.consumer.close()
    assert (leaving.told, leaving.too_late) == ([], [])
    stage.consumer().close()


def test_a_loss_that_a_failed_client_is_told_of_raises_nothing(stage):
    asked = []

    def fail(raw):
        asked.append(raw)
        raise KafkaException(KafkaError(KafkaError._FATAL, "Failed to remove subscription"))

    consumer = stage.consumer(factory=intercepting(Consumer, unsubscribe=fail))
    consumer._membership.tell(membership_events.Leaving())
    consumer._membership._on_lost(None, [])
    assert len(asked) == 1


def test_what_was_handed_over_stays_uncommitted_where_the_library_has_left_before_it_tells_of_the_revocation(any_stage):
    left, told = [], []

    def leave(raw):
        left.append(raw)
        raw.unsubscribe()

    def metadata(raw):
        if left:
            raise RuntimeError("Consumer group metadata not available")
        return raw.consumer_group_metadata()

    any_stage.load(1)
    factory = intercepting(Consumer, unsubscribe=leave, consumer_group_metadata=metadata)
    callbacks = {"on_revoke": lambda consumer, _: told.append(consumer.adapter.snapshot().generation)}
    consumer = any_stage.subscribed(factory=factory, callbacks=callbacks)
    any_stage.collect(consumer, any_stage.partitions)
    consumer.close()
    assert told == [UNJOINED]
    assert set(any_stage.committed().values()) == {None}


FROZEN = f"""
from eos_client import EosConsumer
own = {{"group.instance.id": "desk-1", "session.timeout.ms": {SHORT_SESSION_S * 1000:.0f}}}
consumer = EosConsumer(SETTINGS["consumer"] | own, hook=lambda event: None)
consumer.subscribe([SETTINGS["source"]])
while not consumer.assignment():
    consumer.consume(1, 0.1)
say("assigned")
await_go()
consumer.close()
say("closed")
"""


@CLASSIC
def test_a_static_member_that_was_replaced_leaves_its_successor_alone(any_stage):
    with FreezableProgram(any_stage, FROZEN) as frozen:
        assert frozen.said() == "assigned"
        frozen.signal(signal.SIGSTOP)
        wait_for(lambda: not any_stage.members(), "the session to end")
        successor = any_stage.subscribed(group_instance_id="desk-1")
        wait_for(successor.assignment, "an assignment", lambda: successor.consume(1, 0.05))
        joined = successor.adapter.snapshot().generation
        frozen.signal(signal.SIGCONT)
        frozen.go()
        assert frozen.said() == "closed"
    for _ in range(20):
        successor.consume(1, 0.1)
    assert successor.adapter.snapshot().generation == joined
    assert successor.assignment()
