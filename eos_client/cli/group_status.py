"""How a consumer group stands, as one immutable value, and how it is told: as a table of 80 columns or as fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from eos_client.cli.live_screen import figures_table
from eos_client.cli.printable import printable
from eos_client.cli.run_words import counted
from eos_client.cli.transactions import transaction_text
from eos_client.confluent.admin.cluster_admin import GroupDescription, GroupMember
from eos_client.core.model import InputPartition

_COUNTED_OFFSETS_MAX = 10_000
_NAME_LENGTH_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition of a group. ``committed``: the next offset of the group, None where it has committed none.

    ``start``: the oldest record; ``stable_end``: the last stable offset, up to which a ``read_committed`` reader can
    read; ``end``: the end of the log. ``lag_records``: records between committed and stable end that such a reader
    gets, None where nobody has counted; the offsets between them include transaction markers and aborted records.
    """

    partition: InputPartition
    committed: int | None
    start: int
    stable_end: int
    end: int
    owner: GroupMember | None = None
    lag_records: int | None = None

    @property
    def lag_offsets(self) -> int:
        """Offsets up to the stable end, from the committed one on: from the oldest record on, where there is none."""
        return max(0, self.stable_end - (self.start if self.committed is None else self.committed))

    @property
    def held_offsets(self) -> int:
        """Offsets that readers cannot have yet, because they lie behind the first record of an open transaction."""
        return max(0, self.end - self.stable_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group at one moment.

    ``holding``: the open transactions that hold readers of its partitions, as ``txn list`` has them; ``unknown``: why
    they could not be looked up, None where they were.
    """

    group_id: str
    description: GroupDescription
    partitions: tuple[PartitionStatus, ...]
    holding: tuple[Mapping[str, Any], ...] = ()
    unknown: str | None = None

    @property
    def lag_records(self) -> int | None:
        """The records of all partitions' lags; None where not each was counted, or no partition is known."""
        counted_lags = [each.lag_records for each in self.partitions if each.lag_records is not None]
        return sum(counted_lags) if counted_lags and len(counted_lags) == len(self.partitions) else None

    @property
    def lag_at_most(self) -> int | None:
        """An upper bound of the records of all partitions' lags; None where no partition is known."""
        return sum(_lag_of(each) for each in self.partitions) if self.partitions else None

    def as_fields(self) -> dict[str, Any]:
        """Return it for a program."""
        described = self.description
        return {
            "group": self.group_id,
            "state": described.state,
            "protocol": described.protocol,
            "lag_records": self.lag_records,
            "lag_offsets": sum(each.lag_offsets for each in self.partitions) if self.partitions else None,
            "members": [_member_fields(member) for member in described.members],
            "partitions": [_partition_fields(each) for each in self.partitions],
            "transactions": list(self.holding),
            "transactions_unknown": self.unknown,
        }


def with_owners(partitions: Sequence[PartitionStatus], members: Sequence[GroupMember]) -> tuple[PartitionStatus, ...]:
    """Return the partitions in order, each with its member, and with its lag where no record needs to be counted."""
    owners = {partition: member for member in members for partition in member.partitions}
    return tuple(
        replace(each, owner=owners.get(each.partition), lag_records=None if each.lag_offsets else 0)
        for each in sorted(partitions, key=lambda status: status.partition)
    )


def to_be_counted(partitions: Sequence[PartitionStatus]) -> Iterator[PartitionStatus]:
    """Yield the partitions whose records are worth counting: the smallest lags, 10,000 offsets together at most.

    Without a committed offset, only the members' ``auto.offset.reset`` knows which records are lag.
    """
    left = _COUNTED_OFFSETS_MAX
    uncounted = (each for each in partitions if each.lag_records is None and each.committed is not None)
    for each in sorted(uncounted, key=lambda status: (status.lag_offsets, status.partition)):
        left -= each.lag_offsets
        if left < 0:
            return
        yield each


def with_counts(
    partitions: Sequence[PartitionStatus], counts: Mapping[InputPartition, int]
) -> tuple[PartitionStatus, ...]:
    """Return the partitions with the ``counts`` of records in their lags, where there are any."""
    return tuple(replace(each, lag_records=counts.get(each.partition, each.lag_records)) for each in partitions)


def group_table(status: GroupStatus) -> RenderableType:
    """Return what a person sees, in 80 columns; names are cut where they are longer."""
    described = status.description
    heading = (
        f"group {status.group_id}: {described.state.replace('_', ' ')}, {described.protocol} protocol, "
        f"{counted(described.member_count, 'member')}, lag {_lag_text(status)}"
    )
    numbers = {member: number for number, member in enumerate(_in_order(described.members), 1)}
    table = figures_table("partition", figures=("committed", "stable end", "lag", "held", "member"))
    for each in status.partitions:
        table.add_row(*_cells(each), "" if each.owner is None else str(numbers[each.owner]))
    return Group(
        Text(printable(heading)),
        *([table] if status.partitions else [Text("no committed offset, and no partition assigned")]),
        *(Text(printable(line)) for line in _remarks(status)),
    )


def _lag_text(status: GroupStatus) -> str:
    if status.lag_at_most is None:
        return "unknown"
    return f"{'at most ' if status.lag_records is None else ''}{counted(status.lag_at_most, 'record')}"


def _cells(status: PartitionStatus) -> Iterator[str | Text]:
    yield Text(_cut(str(status.partition), _NAME_LENGTH_MAX))
    yield "" if status.committed is None else f"{status.committed:,}"
    yield f"{status.stable_end:,}"
    yield f"{'' if status.lag_records is not None else '<= '}{_lag_of(status):,}"
    yield f"{status.held_offsets:,}" if status.held_offsets else ""


def _cut(text: str, length: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= length else f"{shown[: length - 3]}..."


def _in_order(members: Sequence[GroupMember]) -> list[GroupMember]:
    return sorted(members, key=lambda each: (each.instance_id or "", each.client_id, each.host, each.member_id))


def _member_line(number: int, member: GroupMember) -> str:
    instance = "" if member.instance_id is None else f", instance {member.instance_id}"
    owned = counted(len(member.partitions), "partition")
    return f"member {number}: {member.client_id} at {member.host}{instance}, {owned}, {member.member_id}"


def _lag_of(status: PartitionStatus) -> int:
    """Return the records of the lag, or else the offsets, which are no fewer."""
    return status.lag_offsets if status.lag_records is None else status.lag_records


def _remarks(status: GroupStatus) -> Iterator[str]:
    if unread := sum(each.committed is None and each.lag_offsets > 0 for each in status.partitions):
        yield f"{counted(unread, 'partition')} without a committed offset: all that is there counts as lag"
    for number, member in enumerate(_in_order(status.description.members), 1):
        yield _member_line(number, member)
    for row in status.holding:
        yield from f"held by: {transaction_text(row)}".splitlines()
    if status.unknown is not None:
        yield f"held by a transaction that could not be looked up: {status.unknown}"


def _member_fields(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "host": member.host,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in sorted(member.partitions)],
    }


def _partition_fields(status: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": status.partition.topic,
        "partition": status.partition.partition,
        "committed": status.committed,
        "start": status.start,
        "stable_end": status.stable_end,
        "end": status.end,
        "lag_records": status.lag_records,
        "lag_offsets": status.lag_offsets,
        "held_offsets": status.held_offsets,
        "member_id": status.owner and status.owner.member_id,
    }
