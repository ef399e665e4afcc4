"""The buckets that a relay is assigned: where each goes on, and the rows that were read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TIMESTAMP_CREATE_TIME, Message

from eos_client.core.model import InputPartition
from eos_client.core.outbox_numbers import BucketState
from eos_client.outbox_store import OutboxRow, OutboxStore, RowHeader
from eos_client.position_store import StoreUnfitError

_READ_MAX = 1000
"""How many rows are read at once."""
_GROUP_DECIDES = (OFFSET_STORED, OFFSET_INVALID)
GroupOffsets = Callable[[list[InputPartition]], Mapping[InputPartition, int]]


class BucketFlow:
    """One assigned bucket.

    ``sought``: where it shall go on, while that is not done yet: a number, or one of librdkafka's logical offsets.
    ``begin``: where it went on, or None. ``position``: the number after the last row that was handed over, or None.
    ``read_up_to``: the number after the last row that was read.
    """

    def __init__(self, offset: int) -> None:
        self.sought: int | None = None
        self.begin: int | None = None
        self.position: int | None = None
        self.read_up_to = 0
        self.is_paused = False
        self.waiting: deque[Message] = deque()
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Go on at ``offset``; what was read ahead is dropped."""
        self.sought, self.begin, self.position = offset, None, None
        self.waiting.clear()

    def start_at(self, seq: int) -> None:
        """Begin to read at ``seq``."""
        self.sought, self.begin, self.read_up_to = None, seq, seq

    @property
    def shown_position(self) -> int | None:
        """The number after the last row that was handed over, and after the numbers behind it whose rows are gone."""
        return self.read_up_to if self.position is not None and not self.waiting else self.position

    @property
    def perhaps_published(self) -> int:
        """The number below which rows may be published."""
        return self.position if self.position is not None else self.begin or 0


class BucketFlows:
    """The flows of all assigned buckets, partitions of ``topic``. Everything is called from the polling thread."""

    def __init__(self, store: OutboxStore) -> None:
        self._store = store
        self._flows: dict[InputPartition, BucketFlow] = {}
        self._refused = 0  # how often in a row the group has not said where flows start

    def get(self, partition: InputPartition) -> BucketFlow | None:
        """Return the flow of ``partition``, None where it is not assigned."""
        return self._flows.get(partition)

    @property
    def assigned(self) -> Collection[InputPartition]:
        """The partitions that are assigned."""
        return self._flows.keys()

    @property
    def perhaps_published(self) -> dict[InputPartition, int]:
        """The number below which rows of each partition may be published."""
        return {partition: flow.perhaps_published for partition, flow in self._flows.items()}

    def add(self, offsets: Mapping[InputPartition, int]) -> None:
        """Begin flows at ``offsets``, which may be logical ones."""
        self._flows.update({partition: BucketFlow(offset) for partition, offset in sorted(offsets.items())})

    def drop(self, partitions: Iterable[InputPartition]) -> None:
        """Forget the flows of ``partitions``."""
        for partition in partitions:
            self._flows.pop(partition, None)

    def pause(self, partitions: Iterable[InputPartition], *, is_paused: bool) -> None:
        """Hand nothing over of ``partitions``, or again."""
        for flow in (self._flows[p] for p in partitions if p in self._flows):
            flow.is_paused = is_paused

    # -- reading -------------------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[Message]:
        """Return up to ``count`` rows that were read ahead."""
        taken: list[Message] = []
        for flow in self._flows.values():
            if flow.is_paused or not flow.waiting:
                continue
            left = count - len(taken)
            messages = [flow.waiting.popleft() for _ in range(min(left, len(flow.waiting)))]
            if messages:
                flow.position = _offset(messages[-1]) + 1
                taken += messages
        return taken

    def look_up_starts(self, committed: GroupOffsets) -> None:
        """Find where flows begin that are sought; ``committed`` returns the group's offsets, where there are any.

        Raises what ``committed`` does, which may be for one of them alone: then it is asked for them one by one, one in
        each call, so that the others go on.
        """
        sought = {p: flow for p, flow in self._flows.items() if flow.sought is not None}
        by_group = [p for p, flow in sought.items() if flow.sought in _GROUP_DECIDES]
        self._start([p for p in sought if p not in by_group], {})
        if by_group:
            asked = by_group if self._refused == 0 else [by_group[self._refused % len(by_group)]]
            self._refused += 1
            self._start(asked, committed(asked))
            self._refused = self._refused if len(asked) < len(by_group) else 0

    def _start(self, partitions: list[InputPartition], committed: Mapping[InputPartition, int]) -> None:
        logical = [p for p in partitions if p not in committed and (self._flows[p].sought or 0) < 0]
        states = self._store.states([p.partition for p in logical]) if logical else {}
        for partition in partitions:
            flow = self._flows[partition]
            seq = committed.get(partition, flow.sought or 0)
            if partition in logical:
                state = states[partition.partition]
                seq = state.next_seq if flow.sought == OFFSET_END else state.published
            flow.start_at(seq)

    def read(self) -> bool:
        """Read rows of the buckets that may go on and have none left; returns whether there were any.

        The counters are read first: every row with a number below them can be seen by then, so that a number without a
        row is one whose row was deleted, and is passed.
        """
        hungry = {p: flow for p, flow in self._flows.items() if _is_hungry(flow)}
        if not hungry:
            return False
        states = self._store.states([p.partition for p in hungry])
        for partition, flow in hungry.items():
            _require_not_set_back(partition, flow, states[partition.partition])
        ready = {p: flow for p, flow in hungry.items() if states[p.partition].next_seq > flow.read_up_to}
        if not ready:
            return False
        share = max(1, _READ_MAX // len(ready))
        spans = {
            p.partition: (flow.read_up_to, min(flow.read_up_to + share, states[p.partition].next_seq))
            for p, flow in ready.items()
        }
        flows = {p.partition: (p, flow) for p, flow in ready.items()}
        for row in self._store.read(spans):
            partition, flow = flows[row.bucket]
            flow.waiting.append(_message(partition, row))
        for partition, flow in ready.items():
            flow.read_up_to = spans[partition.partition][1]
            if flow.position is None and not flow.waiting:
                flow.position = flow.read_up_to
        return True

    def add_numbered(self, rows: Iterable[OutboxRow]) -> None:
        """Take rows that were numbered just now, as far as they are the next ones of buckets that have none left."""
        hungry = {p.partition: (p, flow) for p, flow in self._flows.items() if _is_hungry(flow)}
        for row in rows:
            if row.bucket in hungry:
                partition, flow = hungry[row.bucket]
                if flow.read_up_to == row.seq:
                    flow.waiting.append(_message(partition, row))
                    flow.read_up_to = row.seq + 1

    @property
    def is_any_hungry(self) -> bool:
        """Whether more rows could be handed over."""
        return any(map(_is_hungry, self._flows.values()))


def _is_hungry(flow: BucketFlow) -> bool:
    return flow.sought is None and not flow.is_paused and not flow.waiting


def _require_not_set_back(partition: InputPartition, flow: BucketFlow, state: BucketState) -> None:
    if state.next_seq < flow.read_up_to:
        raise StoreUnfitError(
            f"the next number of {partition} in the outbox is {state.next_seq}, and rows below {flow.read_up_to} were "
            "read already: the database was set back to an earlier state, as by a failover to a replica that lagged"
        )


def _offset(message: Any) -> int:
    return int(message.offset())


def _message(partition: InputPartition, row: OutboxRow) -> Message:
    # Texts become bytes, as they would by a broker.
    headers: list[tuple[str, str | bytes | None]] = [
        (RowHeader.ROW_ID, str(row.row_id).encode()),
        (RowHeader.TOPIC, None if row.topic is None else row.topic.encode()),
        (RowHeader.HEADERS, None if row.headers is None else row.headers.encode()),
    ]
    return Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=row.seq,
        key=row.key,
        value=row.value,
        headers=headers,
        timestamp=(TIMESTAMP_CREATE_TIME, row.timestamp_ms),
    )
