"""Leaving a group in a way that cannot stop the process.

A rebalance callback that ``close()`` serves after the library's group has ended asks it something that is never
answered (librdkafka 2.16: ``rd_kafka_cgrp_op_serve`` drops the question; its issue 4884), and confluent_kafka waits for
the answer with the interpreter locked: every thread stands still, time limits and signal handlers included. That needs
an assignment that the application was not told of before ``close()``. So whatever there is to tell is told first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.ports import Clock

LEAVING_STEP_S = 0.01
LEAVING_ROUNDS_MAX = 500

CLOSE_LIMIT_S = 30.0
"""How long the client library's close() is waited for, once every callback that was due has run."""

CLOSE_LIMIT_AFTER_AN_EXCEPTION_S = 5.0
"""The same after an exception out of the library's ``consume``: its close() may have to wait for ever then."""


def unsubscribe_when_lost(raw: Any) -> None:
    """Unsubscribe inside a callback, before the library joins again: a static member would fence its successor by that.

    Raises nothing: what is raised inside a callback comes out of the library as something else.
    """
    with suppress(KafkaException, RuntimeError):  # a client that failed for good does not join again
        raw.unsubscribe()


def serve_before_close(raw: Any, *, unsubscribe: bool) -> None:
    """Serve the rebalance callbacks that are due, so that ``raw.close()`` meets none.

    Waits 5 seconds at most, what the callbacks themselves take not counted.

    ``unsubscribe``: end the membership first; then nothing more can become due, and the revoke callback has run on
    return. A classic static member must not (KIP-345: it stays a member until its session ends).
    """
    with suppress(KafkaException, RuntimeError):  # a client that failed for good; whoever used it was told
        if unsubscribe:
            raw.unsubscribe()
        else:
            raw.pause(raw.assignment())  # which makes the records in front of the callbacks void
        for _ in range(LEAVING_ROUNDS_MAX):
            if raw.poll(LEAVING_STEP_S) is None and not (unsubscribe and raw.assignment()):
                return


def close_in_time(close: Callable[[], None], limit_s: float, clock: Clock) -> bool:
    """Let another thread ``close`` a client; returns whether that was through within ``limit_s`` seconds."""
    closer = HandleThread("eos-consumer-close", clock)
    try:
        closer.call(close, limit_s)
    except OverdueError:
        return False
    finally:
        closer.end()
    return True
