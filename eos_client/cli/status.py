"""``eos-client status``: looks at a consumer group from outside, once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console

from eos_client.cli.group_status import (
    GroupStatus,
    PartitionStatus,
    group_table,
    to_be_counted,
    with_counts,
    with_owners,
)
from eos_client.cli.live_screen import LiveScreen
from eos_client.cli.printable import did_you_mean, printable
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.transactions import survey, transaction_rows, transactions_admin
from eos_client.confluent.admin.cluster_admin import ClusterAdmin, GroupDescription
from eos_client.confluent.admin.topic_records import GroupOffsets, read_topic
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, EosError


def show_status(access: ClusterAccess, group_id: str, console: Console, *, as_json: bool) -> None:
    """Print how the group stands.

    :raises ClusterUnfitError: there is no such group, or it may not be looked at.
    """
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        _print(_look(admin, access, group_id), console, as_json=as_json)


def watch_status(access: ClusterAccess, group_id: str, console: Console, *, as_json: bool, interval_s: float) -> None:
    """Print how the group stands every ``interval_s`` seconds, in place on a terminal, until Ctrl-C.

    :raises ClusterUnfitError: there is no such group, or it may not be looked at.
    """
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin, LiveScreen(console) as screen:
        in_place = screen.is_live and not as_json
        show: Callable[[GroupStatus], None] = (
            (lambda status: screen.show(group_table(status)))
            if in_place
            else (lambda status: _print(status, console, as_json=as_json))
        )
        show(_look(admin, access, group_id))
        while True:
            time.sleep(interval_s)
            try:
                show(_look(admin, access, group_id))
            except ClusterUnavailableError as error:  # brokers restart
                print(f"eos-client: {printable(str(error))}", file=sys.stderr)


def _print(status: GroupStatus, console: Console, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status.as_fields()), flush=True)
    else:
        console.print(group_table(status))


def _look(admin: ClusterAdmin, access: ClusterAccess, group_id: str) -> GroupStatus:
    admin.cluster()  # says why a cluster cannot be reached, or does not take the credentials
    described = admin.group(group_id)
    if described is None:
        raise ClusterUnfitError(f"there is no group {group_id!r}{_suggestion(admin, group_id)}")
    counts = admin.partition_counts()
    with GroupOffsets(access.bootstrap_servers, group_id, access.settings, stable=False) as offsets:
        committed = offsets.read_all(counts)
    partitions = with_owners(_partitions(admin, described, committed, counts), described.members)
    counted = with_counts(partitions, _counts(access, partitions))
    status = GroupStatus(group_id=group_id, description=described, partitions=counted)
    return _with_transactions(admin, access, status)


def _suggestion(admin: ClusterAdmin, group_id: str) -> str:
    return did_you_mean(group_id, admin.group_ids()) or ": it has no member and no committed offset"


def _partitions(
    admin: ClusterAdmin,
    described: GroupDescription,
    committed: Mapping[InputPartition, int],
    partition_counts: Mapping[str, int],
) -> list[PartitionStatus]:
    """Return all partitions of the topics of which the group has read one, or been given one."""
    given = committed.keys() | {each for member in described.members for each in member.partitions}
    found = []
    for topic in sorted({each.topic for each in given}):
        count = partition_counts.get(topic, 1 + max(each.partition for each in given if each.topic == topic))
        end, stable = (admin.end_offsets(topic, count, committed_only=only) for only in (False, True))
        start = admin.start_offsets(topic, count)
        for number in range(count):
            partition = InputPartition(topic, number)
            found.append(
                PartitionStatus(
                    partition=partition,
                    committed=committed.get(partition),
                    start=start[number],
                    stable_end=stable[number],
                    end=end[number],
                )
            )
    return found


def _counts(access: ClusterAccess, partitions: tuple[PartitionStatus, ...]) -> dict[InputPartition, int]:
    """Return how many records lie in the lags that are worth counting, as a ``read_committed`` reader gets them."""
    worth = list(to_be_counted(partitions))
    counts = {each.partition: 0 for each in worth}
    for topic in sorted({each.partition.topic for each in worth}):
        here = {each.partition.partition: each for each in worth if each.partition.topic == topic}
        starts = {number: each.committed or 0 for number, each in here.items()}
        ends = {number: each.stable_end for number, each in here.items()}
        try:
            for record in read_topic(access.bootstrap_servers, topic, ends, access.settings, start_offsets=starts):
                counts[InputPartition(topic, record.partition)] += 1
        except (ClusterUnfitError, ClusterUnavailableError):  # it may be described and not read: offsets have to do
            counts = {each: count for each, count in counts.items() if each.topic != topic}
    return counts


def _with_transactions(admin: ClusterAdmin, access: ClusterAccess, status: GroupStatus) -> GroupStatus:
    held = {(each.partition.topic, each.partition.partition) for each in status.partitions if each.held_offsets}
    if not held:
        return status
    topics = sorted({topic for topic, _ in held})
    try:
        with transactions_admin(access) as transactions:
            seen = survey(admin, transactions, topics)
    except EosError as error:  # the figures are known all the same
        return replace(status, unknown=str(error))
    unread = "; ".join(f"{topic}: {reason}" for topic, reason in seen.unread.items()) or None
    rows = tuple(row for row in transaction_rows(seen, topics) if _holds(row, held))
    return replace(status, holding=rows, unknown=unread)


def _holds(row: Mapping[str, Any], held: set[tuple[str, int]]) -> bool:
    return any((place["topic"], place["partition"]) in held for place in row["partitions"])
