"""Avoids the deadlock in ``close()`` (librdkafka #4884).

If ``close()`` serves a rebalance callback after librdkafka's group has ended, the callback's request is never answered
(librdkafka 2.16: ``rd_kafka_cgrp_op_serve`` drops it), and confluent_kafka waits for the answer while holding the GIL:
the whole process hangs, time limits and signal handlers included. This needs an assignment whose callback has not run
before ``close()``, so all pending callbacks are served first.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from eos_client.completion import Completion
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.ports import Clock

_LEAVING_STEP_S = 0.01
_LEAVING_ROUNDS_MAX = 500

CLOSE_LIMIT_S = 30.0
"""How long the client library's close() is waited for, once every callback that was due has run."""

CLOSE_LIMIT_AFTER_AN_EXCEPTION_S = 5.0
"""The same after an exception out of the library's ``consume``: its close() may have to wait for ever then."""

EXIT_LIMIT_S = 10.0
"""How long the end of the process waits for its consumers to leave their groups, all together."""

Leave = Callable[[], "Completion | None"]
"""Begins to leave the group; returns its completion, or None if another thread may be using the member."""


def unsubscribe_when_lost(raw: Any) -> None:
    """Unsubscribe inside a callback, before the library joins again: a static member would fence its successor by that.

    Raises nothing: what is raised inside a callback comes out of the library as something else.
    """
    with suppress(KafkaException, RuntimeError):  # a client that failed for good does not join again
        raw.unsubscribe()


def serve_before_close(raw: Any, *, unsubscribe: bool, is_classic: bool) -> None:
    """Serve the rebalance callbacks that are due, so that ``raw.close()`` meets none.

    Waits at most 5 s, not counting the callbacks. ``unsubscribe``: end the membership first; then nothing more can
    become due, and the revoke callback has run on return. A classic static member must not (KIP-345: it stays a member
    until its session ends). Any other classic member has no member id once it has left; while it is rebalancing,
    librdkafka only notes that it is to leave.
    """
    for _ in range(_LEAVING_ROUNDS_MAX):
        # In each round: a signal handler may raise the same. What a client that failed for good raises was told before.
        with suppress(KafkaException, RuntimeError):
            if unsubscribe:
                raw.unsubscribe()
            else:
                raw.pause(raw.assignment())  # which makes the records in front of the callbacks void
            is_served = raw.poll(_LEAVING_STEP_S) is None
            if is_served and not (unsubscribe and (raw.assignment() or (is_classic and raw.memberid()))):
                return


def close_in_time(close: Callable[[], None], limit_s: float, clock: Clock) -> bool:
    """Let another thread ``close`` a client; returns whether it finished within ``limit_s`` seconds."""
    closer = HandleThread("eos-consumer-close", clock)
    try:
        closer.call(close, limit_s)
    except OverdueError:
        return False
    finally:
        closer.end()
    return True


def in_background(leave: Callable[[], None]) -> Completion:
    """Let a new thread ``leave``. Never waits: it may be called while garbage is collected, by any thread."""
    done = Completion()

    def run() -> None:
        try:
            with suppress(Exception):  # there is no caller left
                leave()
        finally:
            done.set()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # the interpreter shuts down, and takes no new thread
        run()
    return done


class Members:
    """The members of groups that this process has built and not closed, keyed by objects that live as long as they do.

    librdkafka frees a member by leaving its group, and can stop the whole process by that, as its ``close()`` can: a
    KIP-848 member with a pending assignment callback often does. So a thread of its own leaves the group first. A
    consumer and its callbacks refer to each other, so only Python's cyclic collector frees it, which a program that
    does nothing but poll may never run: the partitions would wait for ``max.poll.interval.ms``.
    """

    def __init__(self) -> None:
        self._members: dict[weakref.ref[object], tuple[object, weakref.WeakMethod[Leave]]] = {}

    def register(self, member: object, group: object, leave: Leave) -> None:
        """Register ``member``, which is about to join ``group``, after freeing dropped members of that group."""
        if any(known() is not member for known, (joined, _) in self._members.copy().items() if joined == group):
            gc.collect()
        self._members[weakref.ref(member, self._forget)] = group, weakref.WeakMethod(leave)

    def forget(self, member: object) -> None:
        """Forget ``member``, which is closed."""
        self._forget(weakref.ref(member))

    def leave_at_exit(self) -> None:
        """Let all members leave that no other thread may be using, and wait EXIT_LIMIT_S seconds for it."""
        deadline = time.monotonic() + EXIT_LIMIT_S
        leaves = [leave() for _, leave in self._members.copy().values()]
        for done in [leave() for leave in leaves if leave is not None]:  # all of them, before any is waited for
            if done is not None:
                done.wait(max(0.0, deadline - time.monotonic()))

    def _forget(self, known: weakref.ref[object]) -> None:
        self._members.pop(known, None)


MEMBERS = Members()
atexit.register(MEMBERS.leave_at_exit)
