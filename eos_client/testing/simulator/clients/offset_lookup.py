"""Looks up where assigned partitions start: the group's committed offset, else ``auto.offset.reset``."""

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
from eos_client.testing.simulator.clients.inbox import ErrorEvent, Inbox
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def edge_offset(link: ClientLink, partition: PartitionKey, logical: int, *, read_committed: bool) -> int:
    """Return the first offset of ``partition``, or the end of what may be read; runs as a broker."""
    log = link.brokers.log(partition)
    if logical == OFFSET_BEGINNING:
        return log.log_start_offset
    return log.last_stable_offset if read_committed else log.high_watermark


class OffsetLookup:
    """Looks up the start of every flow without one, in the background. ``changes`` counts the changed assignments."""

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
        """When the next look-up is due."""
        unknown = self._unknown()
        return min(f.next_lookup_s for f in unknown) if unknown else math.inf

    def work(self) -> None:
        """Send the look-ups that are due."""
        now_s = self._link.clock()
        due = [f for f in self._unknown() if f.next_lookup_s <= now_s]
        self._look_up_in_group([f for f in due if f.needs_group_offset])
        for flow in due:
            if flow.needs_log_offset:
                self._look_up_in_log(flow)

    def reset(self, flow: Flow, why: str) -> None:
        """Continue ``flow`` where ``auto.offset.reset`` says; with ``error``, report an error event instead."""
        if self._settings.reset != OFFSET_INVALID:
            flow.start_at(self._settings.reset)
            return
        flow.stopped = True
        offset = flow.start if flow.next_fetch is None else flow.next_fetch
        self._inbox.put(ErrorEvent(kafka_error("_AUTO_OFFSET_RESET", why), flow.partition, offset, outlasts_drop=True))

    def _unknown(self) -> list[Flow]:
        return [f for f in self._flows.values() if f.next_fetch is None and not f.is_looked_up and not f.stopped]

    def _look_up_in_group(self, flows: list[Flow]) -> None:
        if not flows:
            return
        partitions = [f.partition for f in flows]
        for flow in flows:
            flow.is_looked_up = True
            if flow.lookup_at_change is None:
                flow.lookup_at_change = self._changes()

        def act() -> dict[PartitionKey, FetchedOffset]:
            groups, stable = self._link.brokers.groups, self._settings.read_committed
            return groups.fetch_offsets(self._settings.group_id, partitions, require_stable=stable)

        self._link.post("OffsetFetch", act, lambda answer: self._on_group_offsets(flows, answer))

    def _on_group_offsets(self, flows: list[Flow], answer: Answer[dict[PartitionKey, FetchedOffset]] | None) -> None:
        for flow in self._answered(flows):
            found = None if answer is None or answer.value is None else answer.value.get(flow.partition)
            is_pending = found is not None and found.code == _UNSTABLE
            if is_pending and flow.lookup_at_change != self._changes():
                # librdkafka (2.16, `rd_kafka_assignment_apply_offsets`) treats it as an offset that does not exist.
                self.reset(flow, "the assignment changed while the offset was pending")
            elif answer is None or answer.refusal is not None or is_pending:
                flow.next_lookup_s = self._link.clock() + self._settings.backoff_s
            elif found is None or found.offset is None:
                self.reset(flow, "no previously committed offset available")
            else:
                flow.start_at(found.offset)

    def _look_up_in_log(self, flow: Flow) -> None:
        flow.is_looked_up = True
        logical, committed = flow.start, self._settings.read_committed

        def act() -> int:
            return edge_offset(self._link, flow.partition, logical, read_committed=committed)

        def then(answer: Answer[int] | None) -> None:
            for answered in self._answered([flow]):
                if answer is None or answer.value is None:
                    answered.next_lookup_s = self._link.clock() + self._settings.backoff_s
                elif answered.start == logical:
                    answered.start_at(answer.value)

        self._link.post("ListOffsets", act, then)

    def _answered(self, flows: Iterable[Flow]) -> list[Flow]:
        """Return those of ``flows`` that are still assigned and were not sought meanwhile."""
        waiting = [f for f in flows if self._flows.get(f.partition) is f and f.is_looked_up and f.next_fetch is None]
        for flow in waiting:
            flow.is_looked_up = False
        return waiting


def committed_offsets(
    link: ClientLink, settings: ConsumerSettings, partitions: list[PartitionKey], deadline_s: float
) -> dict[PartitionKey, FetchedOffset]:
    """Fetch the group's offsets; while some are pending, fetch them again until ``deadline_s``.

    Raises BrokerError and RequestTimedOut.
    """
    still_pending = BrokerError(_UNSTABLE, "a transaction is about to move these offsets")

    def act() -> dict[PartitionKey, FetchedOffset]:
        groups, stable = link.brokers.groups, settings.read_committed
        return groups.fetch_offsets(settings.group_id, partitions, require_stable=stable)

    while True:
        answer = link.call("OffsetFetch", act, deadline_s=deadline_s)
        if all(found.code != _UNSTABLE for found in answer.values()):
            return answer
        if link.clock() + settings.backoff_s >= deadline_s:
            raise still_pending
        link.wait(link.clock() + settings.backoff_s)
