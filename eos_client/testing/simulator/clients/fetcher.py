"""Fetches records of the assigned partitions in the background and keeps the position of each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from confluent_kafka import OFFSET_INVALID

from eos_client.testing.simulator.brokers import model
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.flow import Flow
from eos_client.testing.simulator.clients.inbox import ErrorEvent, Fetched, Inbox
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.offset_lookup import OffsetLookup

_FETCH_INTERVAL_S = 0.01
_RECORDS_MAX = 500

_Answers = dict[PartitionKey, model.Fetched | BrokerError]


class Fetcher:
    """The assigned partitions and what is fetched of them. A paused partition stays paused when it is assigned again.

    librdkafka knows a topic from its first assignment on; a pause before that has no effect.
    """

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox) -> None:
        self.flows: dict[PartitionKey, Flow] = {}
        self._link = link
        self._settings = settings
        self._inbox = inbox
        self._lookup = OffsetLookup(link, settings, inbox, self.flows, lambda: self._changes)
        self._changes = 0
        self._paused: set[PartitionKey] = set()
        self._known_topics: set[str] = set()
        self._held = False
        self._fetching = False
        self._fetch_s = 0.0
        self._idle_at_change: int | None = None

    # -- the assignment ------------------------------------------------------------------------------------------

    def add(self, partition: PartitionKey, start: int) -> None:
        """Fetch ``partition`` from ``start`` on, which may be a logical offset."""
        self.flows[partition] = Flow(partition, start)
        self._known_topics.add(partition.topic)
        self._fetch_soon()

    def remove(self, partitions: Iterable[PartitionKey]) -> None:
        """Stop fetching ``partitions`` and drop their queued records."""
        removed = list(partitions)
        for partition in removed:
            self.flows.pop(partition, None)
        self._inbox.drop(removed)

    def hold(self) -> None:
        """Stop fetching until `release`, because a rebalance is queued, and drop the queued records."""
        self._held = True
        self._drop_queued(list(self.flows))

    def release(self) -> None:
        """Fetch again, after a change of the assignment."""
        self._changes += 1
        self._held = False
        self._fetch_soon()

    def pause(self, partitions: Iterable[PartitionKey]) -> None:
        """Stop fetching ``partitions`` and drop their queued records, which will be fetched again."""
        pausing = [partition for partition in partitions if partition.topic in self._known_topics]
        self._paused.update(pausing)
        self._drop_queued(pausing)

    def resume(self, partitions: Iterable[PartitionKey]) -> None:
        """Fetch ``partitions`` again."""
        self._fetch_soon()
        for partition in partitions:
            if partition in self._paused:
                self._paused.discard(partition)
                self._drop_queued([partition])

    def seek(self, partition: PartitionKey, offset: int) -> None:
        """Continue ``partition`` at ``offset``; raises KeyError when it is not assigned.

        Of OFFSET_INVALID, ``auto.offset.reset`` says where that is, even if the group has an offset.
        """
        flow = self.flows[partition]
        flow.seek_to(offset)
        self._inbox.drop([partition], is_seek=True)
        if offset == OFFSET_INVALID:
            self._lookup.reset(flow, "no previously committed offset available")
        self._fetch_soon()

    def stop(self, partition: PartitionKey) -> None:
        """Fetch nothing of ``partition`` until the next seek."""
        self.flows[partition].stop_until_sought()
        self._inbox.drop([partition], is_seek=True)

    def advance_position(self, item: Fetched) -> bool:
        """Advance the partition's position past ``item``; returns False if ``item`` is outdated."""
        flow = item.flow
        if self.flows.get(flow.partition) is not flow or flow.seeks != item.seeks:
            return False
        if flow.position is not None and item.next_offset <= flow.position:
            return False
        flow.position = item.next_offset
        return True

    def _drop_queued(self, partitions: list[PartitionKey]) -> None:
        self._inbox.drop(partitions)
        for flow in (self.flows[p] for p in partitions if p in self.flows):
            flow.refetch(self._inbox.taken_until(flow))

    # -- background work -----------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When a look-up or a fetch is due."""
        is_fetch_due = self.flows and not self._held and not self._fetching
        if is_fetch_due and self._idle_at_change == self._link.brokers.log_changes:
            is_fetch_due = False
        return min(self._lookup.due_s, self._fetch_s if is_fetch_due else math.inf)

    def work(self) -> None:
        """Look up starts; fetch, if a broker has new records."""
        self._lookup.work()
        if self._held or self._fetching or self._fetch_s > self._link.clock():
            return
        self._fetch_s = self._link.clock() + _FETCH_INTERVAL_S
        active = self._active()
        wanted = [flow for flow in active if self._has_records(flow)]
        if wanted:
            self._fetch(wanted)
        elif len(active) == len(self.flows):
            self._idle_at_change = self._link.brokers.log_changes

    def _fetch_soon(self) -> None:
        self._fetch_s, self._idle_at_change = self._link.clock(), None

    def _active(self) -> list[Flow]:
        return [f for p, f in self.flows.items() if f.next_fetch is not None and not f.stopped and self._wants(p)]

    def _wants(self, partition: PartitionKey) -> bool:
        return partition not in self._paused and self._inbox.waiting(partition) < self._settings.queued_records_max

    def _has_records(self, flow: Flow) -> bool:
        # A broker answers a fetch when it has records: here the fetch is sent only then.
        try:
            log = self._link.brokers.log(flow.partition)
        except BrokerError:
            return True
        end = log.last_stable_offset if self._settings.read_committed else log.high_watermark
        if flow.next_fetch == end:
            self._report_end(flow, end)
            return False
        return (flow.next_fetch or 0) < max(end, log.log_start_offset) or (flow.next_fetch or 0) > log.log_end_offset

    def _report_end(self, flow: Flow, end: int) -> None:
        if self._settings.partition_eof and flow.end_reported_at != end:
            flow.end_reported_at = end
            error = kafka_error("_PARTITION_EOF", "Fetch from broker reached end of partition")
            self._inbox.put(ErrorEvent(error, flow.partition, end))

    def _fetch(self, flows: list[Flow]) -> None:
        self._fetching = True
        fetched = [(f, f.version, f.next_fetch or 0) for f in flows]

        def act() -> _Answers:
            return {flow.partition: self._read(flow.partition, offset) for flow, _, offset in fetched}

        def then(answer: Answer[_Answers] | None) -> None:
            self._fetching = False
            if answer is None or answer.value is None:
                self._fetch_s = self._link.clock() + (self._settings.backoff_s if answer is not None else 0.0)
                return
            self._fetch_soon()
            for flow, version, _ in fetched:
                if self.flows.get(flow.partition) is flow and flow.version == version:
                    self._on_fetched(flow, answer.value[flow.partition])

        self._link.post("Fetch", act, then)

    def _read(self, partition: PartitionKey, offset: int) -> model.Fetched | BrokerError:
        committed = self._settings.read_committed
        try:
            return self._link.brokers.fetch(partition, offset, _RECORDS_MAX, read_committed=committed)
        except BrokerError as refusal:
            return refusal

    def _on_fetched(self, flow: Flow, answer: model.Fetched | BrokerError) -> None:
        if isinstance(answer, BrokerError):
            self._fetch_s = self._link.clock() + self._settings.backoff_s
            if answer.code == "OFFSET_OUT_OF_RANGE":
                flow.version += 1
                self._lookup.reset(flow, f"fetch failed due to requested offset not available: {answer.why}")
            return
        flow.watermarks = (answer.log_start_offset, answer.high_watermark)
        flow.last_stable_offset = answer.last_stable_offset
        for record in answer.records:
            self._inbox.put(Fetched(flow, flow.seeks, record.offset + 1, record))
        last = answer.records[-1].offset + 1 if answer.records else flow.next_fetch
        if answer.next_offset != last:
            self._inbox.put(Fetched(flow, flow.seeks, answer.next_offset))
        if answer.next_offset == flow.next_fetch:
            self._fetch_s = self._link.clock() + _FETCH_INTERVAL_S
        flow.next_fetch = answer.next_offset
