"""Finds out where assigned partitions start: the group's committed offset, else ``auto.offset.reset``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID

from eos_client.testing.simulator.brokers.group_requests import FetchedOffset
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.flow import Flow
from eos_client.testing.simulator.clients.inbox import Inbox, Trouble
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def edge_offset(link: ClientLink, partition: PartitionKey, logical: int, *, read_committed: bool) -> int:
    """Return the first offset of ``partition``, or the one behind the last that may be read. Acts at a broker."""
    log = link.brokers.log(partition)
    if logical == OFFSET_BEGINNING:
        return log.log_start_offset
    return log.last_stable_offset if read_committed else log.high_watermark


class OffsetLookup:
    """Asks in the background for every flow whose start is unknown. ``changes`` counts those of the assignment."""

    def __init__(
        self,
        link: ClientLink,
        settings: ConsumerSettings,
        inbox: Inbox,
        flows: Mapping[PartitionKey, Flow],
        changes: Callable[[], int],
    ) -> None:
        self._link = link
        self._settings = settings
        self._inbox = inbox
        self._flows = flows
        self._changes = changes

    @property
    def due_s(self) -> float:
        """When the next look-up is to be sent."""
        unknown = self._unknown()
        return min(f.ask_again_s for f in unknown) if unknown else math.inf

    def work(self) -> None:
        """Send what is due."""
        now_s = self._link.clock()
        due = [f for f in self._unknown() if f.ask_again_s <= now_s]
        self._ask_group([f for f in due if f.waits_for_group])
        for flow in due:
            if flow.waits_for_log:
                self._ask_log(flow)

    def reset(self, flow: Flow, why: str) -> None:
        """Continue ``flow`` where ``auto.offset.reset`` says; with ``error`` the application is told instead."""
        if self._settings.reset != OFFSET_INVALID:
            flow.starts_at(self._settings.reset)
            return
        flow.stopped = True
        offset = flow.start if flow.next_fetch is None else flow.next_fetch
        self._inbox.put(Trouble(kafka_error("_AUTO_OFFSET_RESET", why), flow.partition, offset, lasts=True))

    def _unknown(self) -> list[Flow]:
        return [f for f in self._flows.values() if f.next_fetch is None and not f.asked and not f.stopped]

    def _ask_group(self, flows: list[Flow]) -> None:
        if not flows:
            return
        partitions = [f.partition for f in flows]
        for flow in flows:
            flow.asked = True
            if flow.asked_at_change is None:
                flow.asked_at_change = self._changes()

        def act() -> dict[PartitionKey, FetchedOffset]:
            groups, stable = self._link.brokers.groups, self._settings.read_committed
            return groups.fetch_offsets(self._settings.group_id, partitions, require_stable=stable)

        self._link.post("OffsetFetch", act, lambda answer: self._group_said(flows, answer))

    def _group_said(self, flows: list[Flow], answer: Answer[dict[PartitionKey, FetchedOffset]] | None) -> None:
        for flow in self._answered(flows):
            found = None if answer is None or answer.value is None else answer.value.get(flow.partition)
            is_pending = found is not None and found.code == _UNSTABLE
            if is_pending and flow.asked_at_change != self._changes():
                # librdkafka (2.16, `rd_kafka_assignment_apply_offsets`) takes it for an offset that does not exist.
                self.reset(flow, "the assignment changed while the offset was pending")
            elif answer is None or answer.refusal is not None or is_pending:
                flow.ask_again_s = self._link.clock() + self._settings.backoff_s
            elif found is None or found.offset is None:
                self.reset(flow, "no previously committed offset available")
            else:
                flow.starts_at(found.offset)

    def _ask_log(self, flow: Flow) -> None:
        flow.asked = True
        logical, committed = flow.start, self._settings.read_committed

        def act() -> int:
            return edge_offset(self._link, flow.partition, logical, read_committed=committed)

        def then(answer: Answer[int] | None) -> None:
            for asked in self._answered([flow]):
                if answer is None or answer.value is None:
                    asked.ask_again_s = self._link.clock() + self._settings.backoff_s
                elif asked.start == logical:
                    asked.starts_at(answer.value)

        self._link.post("ListOffsets", act, then)

    def _answered(self, flows: Iterable[Flow]) -> list[Flow]:
        """Return those of ``flows`` that are assigned still and were not sought meanwhile."""
        waiting = [f for f in flows if self._flows.get(f.partition) is f and f.asked and f.next_fetch is None]
        for flow in waiting:
            flow.asked = False
        return waiting


def committed_offsets(
    link: ClientLink, settings: ConsumerSettings, partitions: list[PartitionKey], deadline_s: float
) -> dict[PartitionKey, FetchedOffset]:
    """Ask for the group's offsets and wait; pending ones are asked for again until ``deadline_s``.

    Raises BrokerError and RequestTimedOut.
    """
    still_pending = BrokerError(_UNSTABLE, "a transaction is about to move these offsets")

    def once() -> dict[PartitionKey, FetchedOffset]:
        groups, stable = link.brokers.groups, settings.read_committed
        return groups.fetch_offsets(settings.group_id, partitions, require_stable=stable)

    while True:
        answer = link.call("OffsetFetch", once, deadline_s=deadline_s)
        if all(found.code != _UNSTABLE for found in answer.values()):
            return answer
        if link.clock() + settings.backoff_s >= deadline_s:
            raise still_pending
        link.wait(link.clock() + settings.backoff_s)
