"""Fetches records of the assigned partitions in the background and tracks the position of each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eos_client.testing.simulator.brokers import model
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.flow import Flow
from eos_client.testing.simulator.clients.inbox import Fetched, Inbox, Trouble
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.offset_lookup import OffsetLookup

_LOOK_AGAIN_S = 0.01
_RECORDS_MAX = 500

_Answers = dict[PartitionKey, model.Fetched | BrokerError]


class Fetcher:
    """The assignment, as far as records are concerned. What is paused stays paused when it leaves and comes back.

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
        self._look_s = 0.0
        self._nothing_new_at: int | None = None

    # -- the assignment ------------------------------------------------------------------------------------------

    def add(self, partition: PartitionKey, start: int) -> None:
        """Begin to fetch ``partition`` at ``start``, which may be a logical offset."""
        self.flows[partition] = Flow(partition, start)
        self._known_topics.add(partition.topic)
        self._look_soon()

    def remove(self, partitions: Iterable[PartitionKey]) -> None:
        """Fetch nothing of ``partitions`` any more; their queued records are void."""
        gone = list(partitions)
        for partition in gone:
            self.flows.pop(partition, None)
        self._inbox.void(gone)

    def hold(self) -> None:
        """Fetch nothing until ``release``, as a rebalance is about to be told; what is queued is void."""
        self._held = True
        self._void(list(self.flows))

    def release(self) -> None:
        """Fetch again: the assignment was changed."""
        self._changes += 1
        self._held = False
        self._look_soon()

    def pause(self, partitions: Iterable[PartitionKey]) -> None:
        """Stop fetching ``partitions``; their queued records are void and will be fetched again."""
        pausing = [partition for partition in partitions if partition.topic in self._known_topics]
        self._paused.update(pausing)
        self._void(pausing)

    def resume(self, partitions: Iterable[PartitionKey]) -> None:
        """Fetch ``partitions`` again."""
        self._look_soon()
        for partition in partitions:
            if partition in self._paused:
                self._paused.discard(partition)
                self._void([partition])

    def seek(self, partition: PartitionKey, offset: int) -> None:
        """Continue ``partition`` at ``offset``; raises KeyError when it is not assigned."""
        self.flows[partition].goes_to(offset)
        self._inbox.void([partition])
        self._look_soon()

    def handed_over(self, item: Fetched) -> bool:
        """Note that the application was given ``item``; returns whether it counts for the partition's position."""
        flow = item.flow
        if self.flows.get(flow.partition) is not flow or flow.seeks != item.seeks:
            return False
        if flow.position is not None and item.next_offset <= flow.position:
            return False
        flow.position = item.next_offset
        return True

    def _void(self, partitions: list[PartitionKey]) -> None:
        self._inbox.void(partitions)
        for flow in (self.flows[p] for p in partitions if p in self.flows):
            flow.goes_back(self._inbox.taken_until(flow))

    # -- background work -----------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When there is something to look up or to fetch."""
        looks = self.flows and not self._held and not self._fetching
        if looks and self._nothing_new_at == self._link.brokers.log_changes:
            looks = False
        return min(self._lookup.due_s, self._look_s if looks else math.inf)

    def work(self) -> None:
        """Look up starts; fetch, if a broker has something."""
        self._lookup.work()
        if self._held or self._fetching or self._look_s > self._link.clock():
            return
        self._look_s = self._link.clock() + _LOOK_AGAIN_S
        active = self._active()
        wanted = [flow for flow in active if self._has_news(flow)]
        if wanted:
            self._fetch(wanted)
        elif len(active) == len(self.flows):
            self._nothing_new_at = self._link.brokers.log_changes

    def _look_soon(self) -> None:
        self._look_s, self._nothing_new_at = self._link.clock(), None

    def _active(self) -> list[Flow]:
        return [f for p, f in self.flows.items() if f.next_fetch is not None and not f.stopped and self._wants(p)]

    def _wants(self, partition: PartitionKey) -> bool:
        return partition not in self._paused and self._inbox.waiting(partition) < self._settings.queued_records_max

    def _has_news(self, flow: Flow) -> bool:
        # A broker keeps a fetch that finds nothing until there is something: only then it is sent here.
        try:
            log = self._link.brokers.log(flow.partition)
        except BrokerError:
            return True
        end = log.last_stable_offset if self._settings.read_committed else log.high_watermark
        if flow.next_fetch == end:
            self._tell_end(flow, end)
            return False
        return (flow.next_fetch or 0) < max(end, log.log_start_offset) or (flow.next_fetch or 0) > log.log_end_offset

    def _tell_end(self, flow: Flow, end: int) -> None:
        if self._settings.partition_eof and flow.end_told_at != end:
            flow.end_told_at = end
            error = kafka_error("_PARTITION_EOF", "Fetch from broker reached end of partition")
            self._inbox.put(Trouble(error, flow.partition, end))

    def _fetch(self, flows: list[Flow]) -> None:
        self._fetching = True
        fetched = [(f, f.version, f.next_fetch or 0) for f in flows]

        def act() -> _Answers:
            return {flow.partition: self._read(flow.partition, offset) for flow, _, offset in fetched}

        def then(answer: Answer[_Answers] | None) -> None:
            self._fetching = False
            if answer is None or answer.value is None:
                self._look_s = self._link.clock() + (self._settings.backoff_s if answer is not None else 0.0)
                return
            self._look_soon()
            for flow, version, _ in fetched:
                if self.flows.get(flow.partition) is flow and flow.version == version:
                    self._arrived(flow, answer.value[flow.partition])

        self._link.post("Fetch", act, then)

    def _read(self, partition: PartitionKey, offset: int) -> model.Fetched | BrokerError:
        committed = self._settings.read_committed
        try:
            return self._link.brokers.fetch(partition, offset, _RECORDS_MAX, read_committed=committed)
        except BrokerError as refusal:
            return refusal

    def _arrived(self, flow: Flow, answer: model.Fetched | BrokerError) -> None:
        if isinstance(answer, BrokerError):
            self._look_s = self._link.clock() + self._settings.backoff_s
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
            self._look_s = self._link.clock() + _LOOK_AGAIN_S
        flow.next_fetch = answer.next_offset
