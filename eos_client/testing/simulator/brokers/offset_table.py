"""Committed offsets in memory: at most 64 bytes an entry, also for a million groups (P4; the benchmark measures it).

A dict of Python objects takes several hundred bytes an entry, so the rows are in an SQLite database in memory. A
group's name is stored once for each topic, a topic's name once; the row id of an offset combines the number of that
pair with the partition. Each update is one SQL statement, so SQLite executes it atomically.
"""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Iterable, Mapping

from eos_client.testing.simulator.brokers.model import OffsetAndMetadata, PartitionKey

PARTITIONS_MAX = 2**31
"""The largest number of partitions of a topic: Kafka numbers them with an int32."""

_SCHEMA = (
    "CREATE TABLE pairs (group_id TEXT, topic INTEGER, number INTEGER, PRIMARY KEY (group_id, topic)) WITHOUT ROWID",
    "CREATE TABLE offsets (row INTEGER PRIMARY KEY, offset INTEGER NOT NULL, metadata TEXT NOT NULL)",
)
_PUT = """
    INSERT OR REPLACE INTO offsets
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)
"""
_REMOVE = "DELETE FROM offsets WHERE row IN (SELECT value FROM json_each(?))"


class OffsetTable:
    """The offsets in force, by group and partition. The store adds complete commits only."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._rows.close)
        for statement in _SCHEMA:
            self._rows.execute(statement)
        self._topic_numbers: dict[str, int] = {}
        self._topics: list[str] = []
        self._pairs_made = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return int(self._rows.execute("SELECT count(*) FROM offsets").fetchone()[0])

    def put(self, group_id: str, offsets: Mapping[PartitionKey, OffsetAndMetadata]) -> None:
        """Set all of ``offsets`` atomically: a reader sees all of them or none."""
        first_rows = {
            topic: self._first_row_or_new(group_id, topic) for topic in dict.fromkeys(key[0] for key in offsets)
        }
        rows = [
            (first_rows[key.topic] + key.partition, entry.offset, _escaped(entry.metadata))
            for key, entry in offsets.items()
        ]
        self._rows.execute(_PUT, (json.dumps(rows),))

    def remove(self, group_id: str, partitions: Iterable[PartitionKey]) -> None:
        """Remove all of ``partitions`` atomically. Those without an offset are ignored."""
        valid = [key for key in partitions if 0 <= key.partition < PARTITIONS_MAX]
        found = [(key, self._first_row(group_id, key.topic)) for key in valid]
        rows = [first_row + key.partition for key, first_row in found if first_row is not None]
        self._rows.execute(_REMOVE, (json.dumps(rows),))
        for topic in dict.fromkeys(key.topic for key, first_row in found if first_row is not None):
            self._remove_empty_pair(group_id, topic)

    def get(self, group_id: str, partition: PartitionKey) -> OffsetAndMetadata | None:
        """Return the offset of ``partition``, or None."""
        first_row = self._first_row(group_id, partition.topic)
        if first_row is None or not 0 <= partition.partition < PARTITIONS_MAX:
            return None
        row = self._rows.execute(
            "SELECT offset, metadata FROM offsets WHERE row = ?", (first_row + partition.partition,)
        ).fetchone()
        return None if row is None else OffsetAndMetadata(row[0], _plain(row[1]))

    def of_group(self, group_id: str) -> dict[PartitionKey, OffsetAndMetadata]:
        """Return all offsets of the group, sorted by partition."""
        found = {}
        pairs = self._rows.execute("SELECT topic, number FROM pairs WHERE group_id = ?", (group_id,)).fetchall()
        for topic, number in pairs:
            first_row = number * PARTITIONS_MAX
            for row, offset, metadata in self._rows.execute(
                "SELECT row, offset, metadata FROM offsets WHERE row BETWEEN ? AND ?", _rows_of(first_row)
            ):
                found[PartitionKey(self._topics[topic], row - first_row)] = OffsetAndMetadata(offset, _plain(metadata))
        return dict(sorted(found.items()))

    def groups(self) -> tuple[str, ...]:
        """Return the ids of all groups that have an offset, sorted."""
        return tuple(row[0] for row in self._rows.execute("SELECT DISTINCT group_id FROM pairs ORDER BY group_id"))

    def _first_row(self, group_id: str, topic: str) -> int | None:
        topic_number = self._topic_numbers.get(topic)
        if topic_number is None:
            return None
        row = self._rows.execute(
            "SELECT number FROM pairs WHERE group_id = ? AND topic = ?", (group_id, topic_number)
        ).fetchone()
        return None if row is None else int(row[0]) * PARTITIONS_MAX

    def _first_row_or_new(self, group_id: str, topic: str) -> int:
        known = self._first_row(group_id, topic)
        if known is not None:
            return known
        if topic not in self._topic_numbers:
            self._topic_numbers[topic] = len(self._topics)
            self._topics.append(topic)
        number = self._pairs_made
        self._rows.execute("INSERT INTO pairs VALUES (?, ?, ?)", (group_id, self._topic_numbers[topic], number))
        self._pairs_made += 1
        return number * PARTITIONS_MAX

    def _remove_empty_pair(self, group_id: str, topic: str) -> None:
        first_row = self._first_row(group_id, topic)
        if first_row is None:
            return
        remaining = self._rows.execute("SELECT 1 FROM offsets WHERE row BETWEEN ? AND ? LIMIT 1", _rows_of(first_row))
        if remaining.fetchone() is None:
            pair = (group_id, self._topic_numbers[topic])
            self._rows.execute("DELETE FROM pairs WHERE group_id = ? AND topic = ?", pair)


def _rows_of(first_row: int) -> tuple[int, int]:
    return first_row, first_row + PARTITIONS_MAX - 1


def _escaped(metadata: str) -> str:
    """Escape as in JSON: SQLite's text ends at a NUL character."""
    return json.dumps(metadata)[1:-1]


def _plain(escaped: str) -> str:
    return str(json.loads(f'"{escaped}"'))
