"""Which records of a topic belong to aborted or unfinished transactions, read from the log segments themselves.

A reader that trusts the consumer's own filtering cannot tell whether an aborted record was shown. This one reads the
record batches on disk (message format v2) and their control markers, and uses neither broker nor client.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT_MARKER = 0
COMMIT_MARKER = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch: offsets, producer, and for a control batch its marker (0 abort, 1 commit)."""

    first_offset: int
    last_offset: int
    producer_id: int
    transactional: bool
    marker: int | None


@dataclass(slots=True)
class Fates:
    """(partition, offset) of every transactional record by how its transaction ended."""

    committed: set[tuple[int, int]] = field(default_factory=set)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    unfinished: set[tuple[int, int]] = field(default_factory=set)


def batches(segment: bytes) -> Iterator[Batch]:
    """The batches of one segment; an incomplete one at the end is still being written and is left out."""
    at = 0
    while at + BATCH_HEAD.size <= len(segment):
        first, length, _, _, _, attributes, last_delta, _, _, producer_id, _, _, _ = BATCH_HEAD.unpack_from(segment, at)
        end = at + 12 + length
        if length <= 0 or end > len(segment):
            return
        marker = _marker(segment[at + BATCH_HEAD.size : end]) if attributes & CONTROL else None
        yield Batch(first, first + last_delta, producer_id, bool(attributes & TRANSACTIONAL), marker)
        at = end


def _marker(records: bytes) -> int:
    """Type of the first control record: its key is version (int16) and type (int16)."""
    at = 0
    for _ in range(4):  # length, attributes, timestamp delta, offset delta: attributes fit the same one-byte form
        while records[at] & 0x80:
            at += 1
        at += 1
    while records[at] & 0x80:
        at += 1
    at += 1
    return int.from_bytes(records[at + 2 : at + 4], "big")


def fates(log_directory: Path, topic: str) -> Fates:
    """Read every partition of the topic under a broker's log directory (searched at any depth)."""
    found = Fates()
    for partition_directory in log_directory.rglob(f"{topic}-*"):
        name, _, number = partition_directory.name.rpartition("-")
        if name == topic and number.isdigit() and partition_directory.is_dir():
            _follow(partition_directory, int(number), found)
    return found


def _follow(partition_directory: Path, partition: int, found: Fates) -> None:
    open_records: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for segment in sorted(partition_directory.glob("*.log")):
        for batch in batches(segment.read_bytes()):
            if batch.marker is not None:
                ended = open_records.pop(batch.producer_id, set())
                (found.committed if batch.marker == COMMIT_MARKER else found.aborted).update(ended)
            elif batch.transactional:
                offsets = range(batch.first_offset, batch.last_offset + 1)
                open_records[batch.producer_id].update((partition, offset) for offset in offsets)
    for still_open in open_records.values():
        found.unfinished.update(still_open)
