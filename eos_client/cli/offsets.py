"""``eos-client offsets show | set | export | release``: the positions that a database keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos_client.cli.databases import database_engine
from eos_client.cli.failures import CommandLineError
from eos_client.cli.printable import printable
from eos_client.cli.settings import ClusterAccess
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.core.model import InputPartition
from eos_client.core.offset_claims import NO_OFFSET
from eos_client.errors import ClusterUnfitError

if TYPE_CHECKING:
    from eos_client.integration.sql.stored_offsets import StoredOffset, StoredOffsets

_PLACE = re.compile(r"(?P<topic>[^\[\]=]+)\[(?P<partition>\d+)\]=(?P<offset>\d+)")


@dataclass(frozen=True, kw_only=True)
class DatabaseAccess:
    """Where the offsets table is: ``url`` as SQLAlchemy takes it."""

    url: str
    table: str


def stored_offsets(access: DatabaseAccess) -> StoredOffsets:
    """Connect to the offsets table.

    :raises ExtraMissingError: SQLAlchemy or the database's driver is not installed.
    :raises CommandLineError: the URL is none.
    """
    engine = database_engine(access.url, "positions in a database need SQLAlchemy 2")
    from eos_client.integration.sql.stored_offsets import StoredOffsets  # noqa: PLC0415  the extra may be missing

    return StoredOffsets(engine, access.table)


def show_offsets(access: DatabaseAccess, group: str | None, *, as_json: bool) -> None:
    """Print the rows of ``group``, or of all groups."""
    rows = stored_offsets(access).rows(group)
    for row in rows:
        print(json.dumps(_fields(row)) if as_json else _as_text(row))
    if not rows and not as_json:
        print("no offsets" if group is None else f"no offsets of group {printable(group)}")


def _fields(row: StoredOffset) -> dict[str, object]:
    position = row.position
    return {
        "group": row.group,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "next_offset": None if position.next_offset == NO_OFFSET else position.next_offset,
        "leader_epoch": position.leader_epoch,
        "fence": position.fence,
        "generation": position.generation,
        "owner": position.owner,
        "updated_at": row.updated_at.isoformat(),
    }


def _as_text(row: StoredOffset) -> str:
    position = row.position
    offset = "none yet" if position.next_offset == NO_OFFSET else position.next_offset
    claimed = f"fence {position.fence}, generation {position.generation}, {position.owner or 'nobody'}"
    return printable(f"{row.group}  {row.partition}  {offset}  ({claimed}; {row.updated_at:%Y-%m-%d %H:%M:%S})")


def set_offsets(access: DatabaseAccess, group: str, places: Sequence[str]) -> None:
    """Let ``group`` go on at ``places``, each ``TOPIC[PARTITION]=OFFSET``.

    :raises CommandLineError: a place is no such text, or is given twice.
    """
    offsets: dict[InputPartition, int] = {}
    for place in places:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise CommandLineError(f"{place!r} is not TOPIC[PARTITION]=OFFSET, for example 'orders[0]=1200'")
        partition = InputPartition(found["topic"], int(found["partition"]))
        if partition in offsets:
            raise CommandLineError(f"{partition} is given twice: keep one")
        offsets[partition] = int(found["offset"])
    stored_offsets(access).set(group, offsets)
    for partition, offset in sorted(offsets.items()):
        print(printable(f"{group}  {partition}  {offset}"))


def release_offsets(access: DatabaseAccess, group: str) -> None:
    """Let members of any generation claim the rows of ``group``."""
    count = stored_offsets(access).release(group)
    print(f"{count} rows of group {printable(group)} can be claimed by any member")


def export_offsets(access: DatabaseAccess, group: str, cluster: ClusterAccess) -> None:
    """Write the positions of ``group`` into Kafka as the group's committed offsets.

    :raises ClusterUnfitError: the group has members, which would overwrite them, or has no positions.
    """
    rows = [row for row in stored_offsets(access).rows(group) if row.position.next_offset != NO_OFFSET]
    if not rows:
        raise ClusterUnfitError(f"the table has no offsets of group {group!r}: correct the name")
    with ClusterAdmin(cluster.bootstrap_servers, cluster.settings) as admin:
        described = admin.group(group)
        if described is not None and described.member_count:
            raise ClusterUnfitError(
                f"group {group!r} has {described.member_count} members, whose own offsets would follow: stop them first"
            )
        admin.commit_offsets(group, {row.partition: row.position.next_offset for row in rows})
    for row in rows:
        print(printable(f"{group}  {row.partition}  {row.position.next_offset}"))
