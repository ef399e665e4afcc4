"""A consumer of the simulated brokers with confluent_kafka's methods.

``poll``, ``consume`` and ``close`` serve the queued callbacks and records, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message, TopicPartition

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.clients.client_core import failed
from eos_client.testing.simulator.clients.cluster_queries import ClusterQueries
from eos_client.testing.simulator.clients.commit_calls import CommitCalls
from eos_client.testing.simulator.clients.consume_dispatch import Call, ConsumeDispatch
from eos_client.testing.simulator.clients.group_metadata import encode
from eos_client.testing.simulator.clients.idle_polls import IdlePolls
from eos_client.testing.simulator.clients.inbox import (
    ClientCallback,
    CommitReport,
    ErrorEvent,
    Fetched,
    Item,
    Rebalance,
    RebalanceKind,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_SHORTEST_WAIT_S = 0.001
_LONGEST_WAIT_S = 3600.0
_CLOSE_LIMIT_S = 5.0
_CONSUME_MAX = 1_000_000
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]


class SimulatedConsumer(CommitCalls, ClusterQueries):
    """A consumer with the methods, results and errors of ``confluent_kafka.Consumer``; not thread-safe."""

    def __init__(self, config: Mapping[str, Any], link: ClientLink) -> None:
        super().__init__(config, link)
        self._callbacks: dict[str, RebalanceCallback] = {}
        self._idle_polls = IdlePolls(link)

    # -- membership ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], *callbacks: RebalanceCallback, **named: RebalanceCallback) -> None:
        """Join the group for ``topics``; names that begin with ``^`` are patterns.

        ``on_assign``, ``on_revoke``, ``on_lost``: by position or by name. Without ``on_lost``, losses go to
        ``on_revoke``.
        """
        background = self._use()
        given = {**dict(zip(_CALLBACKS, callbacks, strict=False)), **named}
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in given.items():
            if name not in _CALLBACKS:
                raise TypeError(f"'{name}' is an invalid keyword argument for subscribe()")
            if not callable(callback):
                raise TypeError(f"{name} expects a callable")
        names = [str(topic) for topic in topics]
        if not all(names) or len(names) != len({*names}) or not names:
            raise failed("Failed to set subscription", "_INVALID_ARG")
        if background.session.fatal is not None:
            raise failed("Failed to set subscription", "_FATAL")
        self._callbacks = given
        background.session.subscribe(lambda: self._matching(names))
        background.poll_ends()

    def _matching(self, names: list[str]) -> frozenset[str]:
        """Return the topics of a subscription to ``names``; a pattern without a match is returned as a topic."""
        found: set[str] = set()
        for name in names:
            matched = [t for t in self._link.brokers.topics if re.match(name, t)] if name.startswith("^") else []
            found.update(matched or [name])
        return frozenset(found)

    def unsubscribe(self) -> None:
        """Leave the group; the revoke callback runs in a later ``poll`` or in ``close``."""
        session = self._use().session
        if session.fatal is not None:
            raise failed("Failed to remove subscription", "_FATAL")
        if session.is_subscribed:
            session.unsubscribe()

    def memberid(self) -> str | None:
        """Return the member id; None before the client has one."""
        return self._use().session.member_id or None

    def consumer_group_metadata(self) -> bytes:
        """Return the group metadata as of now (KIP-447)."""
        background = self._use()
        return encode(background.settings.group_id, background.session.membership)

    # -- consuming -----------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """Return one record or error event, or None after ``timeout`` seconds; serves callbacks."""
        batch = self._collect(1, timeout, Call.POLL)
        return batch[0] if batch else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` records and error events within ``timeout`` seconds; serves callbacks."""
        self._use()
        if not 0 <= num_messages <= _CONSUME_MAX:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        if num_messages == 0:
            self._link.wait(self._link.clock() + _SHORTEST_WAIT_S)
            return []
        return self._collect(num_messages, timeout, Call.CONSUME)

    def _collect(self, count: int, timeout: float, call: Call) -> list[Message]:
        background = self._use()
        if not isinstance(timeout, (int, float)):
            raise TypeError(f"must be real number, not {type(timeout).__name__}")
        inbox, collected = background.inbox, background.inbox.collected
        began_s, was_served = self._link.clock(), False
        deadline_s = began_s + (_LONGEST_WAIT_S if timeout < 0 else max(timeout, _SHORTEST_WAIT_S))
        dispatch = ConsumeDispatch(self._serve, self._link.clock, deadline_s, call)
        background.poll_begins()
        try:
            while len(collected) < count:
                item = inbox.take()
                if item is not None:
                    was_served = was_served or not isinstance(item, ClientCallback)
                    if not dispatch(item):
                        break
                elif self._link.clock() >= dispatch.deadline_s:
                    if timeout < 0 and not collected and dispatch.deadline_s == deadline_s:
                        raise RuntimeError(f"{self._link.name} received nothing for an hour: poll with a timeout")
                    break
                else:
                    self._link.wait(dispatch.deadline_s, lambda: bool(inbox))
        finally:
            batch = self._take_collected()
            background.poll_ends()
        dispatch.raise_error()
        self._idle_polls.count(self._link.clock() - began_s, was_served=was_served)
        return batch

    def _take_collected(self) -> list[Message]:
        """Advance the positions past the collected items, even if a callback has raised and they are not returned."""
        background = self._background
        collected, passed = list(background.inbox.collected), list(background.inbox.passed)
        background.inbox.collected.clear()
        background.inbox.passed.clear()
        for item in (*collected, *passed):
            if isinstance(item, Fetched):
                self._advance_position(item)
        return [item.message for item in collected]

    def _advance_position(self, item: Fetched) -> None:
        background = self._background
        if background.fetcher.advance_position(item) and background.settings.auto_store:
            background.commits.store(item.flow.partition, item.next_offset)

    def _serve(self, item: Item) -> None:
        background = self._background
        if isinstance(item, ErrorEvent) or (isinstance(item, Fetched) and item.record is not None):
            background.inbox.collected.append(item)
        elif isinstance(item, Fetched):
            background.inbox.passed.append(item)
        elif isinstance(item, Rebalance):
            self._rebalance(item)
        elif isinstance(item, ClientCallback):
            item.call()
        elif background.settings.on_commit is not None:
            background.settings.on_commit(item.error, item.offsets)

    # -- rebalances ----------------------------------------------------------------------------------------------

    def _rebalance(self, rebalance: Rebalance) -> None:
        background = self._background
        self._changed_assignment = False
        self._losing = rebalance.kind is RebalanceKind.LOSE
        background.poll_ends()
        try:
            callback = self._callback_for(rebalance.kind)
            if callback is not None:
                callback(self, [TopicPartition(*p) for p in rebalance.partitions])
        finally:
            if not self._changed_assignment:
                self._apply(rebalance)
            self._losing = False
            background.session.on_served(rebalance)
            background.poll_begins()

    def _callback_for(self, kind: RebalanceKind) -> RebalanceCallback | None:
        if kind is RebalanceKind.ASSIGN:
            return self._callbacks.get("on_assign")
        revoked = self._callbacks.get("on_revoke")
        return revoked if kind is RebalanceKind.REVOKE else self._callbacks.get("on_lost", revoked)

    def _apply(self, rebalance: Rebalance) -> None:
        """Change the assignment if the callback has not, as confluent_kafka does."""
        incremental = self._background.settings.is_cooperative
        if rebalance.kind is not RebalanceKind.ASSIGN:
            removed = [p for p in rebalance.partitions if p in self._assigned]
            self._remove_partitions(removed if incremental else list(self._assigned))
            return
        if not incremental:
            self._remove_partitions(list(self._assigned))
        self._add_partitions([TopicPartition(*p) for p in rebalance.partitions if p not in self._assigned])

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit the stored offsets if ``enable.auto.commit`` is set, serve the queued callbacks, leave the group."""
        if self._closed:
            return
        background = self._use()
        errors: list[BaseException] = []
        background.poll_begins()
        self._leave(errors)
        deadline_s = self._link.clock() + _CLOSE_LIMIT_S
        while self._is_leaving and self._link.clock() < deadline_s:
            self._link.wait(deadline_s, lambda: bool(background.inbox) or not self._is_leaving)
            self._serve_queued(errors)
        self._closed = True
        self._link.detach()
        if errors:
            raise errors[0]

    def _leave(self, errors: list[BaseException]) -> None:
        session = self._background.session
        if session.is_subscribed:
            session.unsubscribe()
        self._serve_queued(errors)
        self._remove_partitions(list(self._assigned))

    @property
    def _is_leaving(self) -> bool:
        return self._background.commits.in_flight > 0 or self._background.session.is_departing

    def _serve_queued(self, errors: list[BaseException]) -> None:
        while (item := self._background.inbox.take()) is not None:
            if isinstance(item, ClientCallback):
                self._call_while_closing(item)
            elif isinstance(item, (Rebalance, CommitReport)):
                try:
                    self._serve(item)
                except BaseException as error:  # noqa: BLE001  # raised when the client is closed
                    errors.append(error)

    @staticmethod
    def _call_while_closing(item: ClientCallback) -> None:
        try:
            item.call()
        except BaseException as error:
            raise RuntimeError("a callback raised inside close(): confluent_kafka's would never return") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
