"""``eos-client status``: how a group is told, and what is found out about one on a broker."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from eos_client.cli import status as command
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.group_status import (
    GroupStatus,
    PartitionStatus,
    group_table,
    to_be_counted,
    with_counts,
    with_owners,
)
from eos_client.cli.settings import ClusterAccess
from eos_client.confluent.admin.cluster_admin import GroupDescription, GroupMember
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnavailableError
from tests.support.code_blocks import code_blocks

ORDERS_0, ORDERS_1 = InputPartition("orders", 0), InputPartition("orders", 1)
MEMBER = GroupMember("rdkafka-1f3", "billing-app", "10.0.0.3", "billing-0", frozenset({ORDERS_0}))
STANDBY = GroupMember("rdkafka-77a", "billing-app", "10.0.0.4", None, frozenset())


def partition(place: InputPartition, committed: int | None, stable_end: int, end: int | None = None) -> PartitionStatus:
    end = stable_end if end is None else end
    return PartitionStatus(partition=place, committed=committed, start=0, stable_end=stable_end, end=end)


PARTITIONS = with_owners([partition(ORDERS_1, 7, 7, 9), partition(ORDERS_0, 1200, 1240)], [MEMBER, STANDBY])
STATUS = GroupStatus(
    group_id="billing",
    description=GroupDescription("stable", "consumer", 2, (MEMBER, STANDBY)),
    partitions=PARTITIONS,
)


HOLDING = {
    "transactional_id": "upstream",
    "coordinator": 1,
    "producer_id": 4000,
    "producer_epoch": 0,
    "state": "Ongoing",
    "age_s": 3,
    "timeout_s": 60,
    "partitions": [{"topic": "orders", "partition": 1, "start_offset": 7}],
    "hanging": False,
}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operations.md"


def shown(status: GroupStatus, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(group_table(status))
    return [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_partitions_come_in_order_with_the_member_that_has_them() -> None:
    assert [(each.partition, each.owner) for each in PARTITIONS] == [(ORDERS_0, MEMBER), (ORDERS_1, None)]
    assert [(each.lag_offsets, each.held_offsets) for each in PARTITIONS] == [(40, 0), (0, 2)]


def test_a_commit_behind_the_stable_end_is_no_negative_lag() -> None:
    (ahead,) = with_owners([partition(ORDERS_0, 9, 7, 9)], [])
    assert (ahead.lag_offsets, ahead.lag_records) == (0, 0)


def test_the_smallest_lags_are_counted_up_to_a_limit() -> None:
    lags = [partition(InputPartition("orders", n), 0, lag) for n, lag in enumerate((9_000, 5_000, 5_000, 1))]
    assert [each.partition.partition for each in to_be_counted(lags)] == [3, 1]
    assert list(to_be_counted(PARTITIONS[1:])) == []


def test_a_lag_of_which_not_every_record_was_counted_is_an_upper_bound() -> None:
    assert (STATUS.lag_records, STATUS.lag_at_most) == (None, 40)
    counted = replace(STATUS, partitions=with_counts(PARTITIONS, {ORDERS_0: 31}))
    assert (counted.lag_records, counted.lag_at_most) == (31, 31)
    assert shown(STATUS)[0] == "group billing: stable, consumer protocol, 2 members, lag at most 40 records"
    assert shown(counted)[0].endswith("lag 31 records")
    assert [line.split()[3] for line in shown(STATUS) if "orders[0]" in line] == ["<="]


def test_the_lag_of_a_partition_without_a_committed_offset_is_all_that_it_holds() -> None:
    unread = replace(partition(ORDERS_1, None, 50), start=20)
    status = replace(STATUS, partitions=with_owners([partition(ORDERS_0, 7, 7), unread], []))
    assert list(to_be_counted(status.partitions)) == []
    fields = status.as_fields()
    assert (fields["lag_records"], fields["lag_offsets"]) == (None, 30)
    assert [each["lag_records"] for each in fields["partitions"]] == [0, None]
    lines = shown(status)
    assert lines[0].endswith("lag at most 30 records")
    assert "1 partition without a committed offset: all that is there counts as lag" in lines
    empty = replace(STATUS, partitions=with_owners([partition(ORDERS_0, 7, 7), replace(unread, start=50)], []))
    assert empty.lag_records == 0
    assert "without a committed offset" not in " ".join(shown(empty))


def test_the_lag_of_a_group_that_has_read_nothing_is_unknown() -> None:
    status = replace(STATUS, partitions=())
    assert [status.as_fields()[name] for name in ("lag_records", "lag_offsets")] == [None, None]
    lines = shown(status)
    assert lines[0].endswith("lag unknown")
    assert "no committed offset, and no partition assigned" in lines


def test_a_person_sees_partitions_and_members_in_80_columns() -> None:
    huge = with_owners([partition(InputPartition("t" * 200, 3), 0, 123_456_789, 123_456_999)], [])
    lines = shown(replace(STATUS, partitions=(*PARTITIONS, *huge)))
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["orders[1]", "7", "7", "0", "2"] for line in lines)
    assert any("123,456,789" in line for line in lines)
    text = " ".join(lines)
    assert "member 1: billing-app at 10.0.0.4, 0 partitions, rdkafka-77a" in text
    assert "member 2: billing-app at 10.0.0.3, instance billing-0, 1 partition, rdkafka-1f3" in text


def test_what_holds_readers_is_named_or_why_that_is_not_known() -> None:
    assert "upstream open for 3 s of at most 60 s" in " ".join(
        " ".join(shown(replace(STATUS, holding=(HOLDING,)))).split()
    )
    told = " ".join(shown(replace(STATUS, unknown="kafka-python is not installed")))
    assert "could not be looked up: kafka-python is not installed" in told


def test_the_page_shows_what_is_printed() -> None:
    refunds = InputPartition("refunds", 0)
    name = "rdkafka-4eb9550c-13d0-47b1-82fa-60ce415cd5a7"
    member = GroupMember(name, "rdkafka", "127.0.0.1", None, frozenset({ORDERS_0, refunds}))
    place = {"topic": "refunds", "partition": 0, "start_offset": 0}
    row = {**HOLDING, "transactional_id": "shop-0", "producer_id": 0, "partitions": [place]}
    partitions = with_owners([partition(ORDERS_0, 2, 6), partition(refunds, 0, 0, 1)], [member])
    status = GroupStatus(
        group_id="billing",
        description=GroupDescription("stable", "classic", 1, (member,)),
        partitions=with_counts(partitions, {ORDERS_0: 2}),
        holding=(row,),
    )
    (block,) = [each for each in code_blocks(PAGE, "text") if each.code.startswith("group billing")]
    assert shown(status, width=120) == [line.strip() for line in block.code.splitlines()]


def test_watching_goes_on_while_brokers_restart(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    looks: Iterator[Any] = iter([STATUS, ClusterUnavailableError("no broker answered"), STATUS])

    def look(*_: object) -> GroupStatus:
        found = next(looks, KeyboardInterrupt())
        if isinstance(found, GroupStatus):
            return found
        raise found

    monkeypatch.setattr(command, "_look", look)
    access = ClusterAccess(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(KeyboardInterrupt):
        command.watch_status(access, "billing", Console(width=80), as_json=True, interval_s=0.001)
    told = capsys.readouterr()
    assert [json.loads(line)["group"] for line in told.out.splitlines()] == ["billing", "billing"]
    assert told.err == "eos-client: no broker answered\n"


def test_any_group_is_shown_with_its_lag_in_records_and_who_holds_it(cluster: Any, typed: Any) -> None:
    topic, group = cluster.topic("orders", partitions=3), f"{cluster.prefix}-group"
    upstream = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{cluster.prefix}-up"})
    upstream.init_transactions(60)
    for _ in range(3):
        upstream.begin_transaction()
        upstream.produce(topic, b"visible", partition=0)
        upstream.commit_transaction(60)
    upstream.begin_transaction()
    upstream.produce(topic, b"unread", partition=2)
    upstream.commit_transaction(60)
    upstream.begin_transaction()
    upstream.produce(topic, b"open", partition=1)
    upstream.flush(60)
    member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 0)], asynchronous=False)
    member.close()
    ended = typed("status", group, "--bootstrap", cluster.bootstrap_servers, "--json")
    assert ended.wait() == 0, ended.err
    (line,) = ended.out.splitlines()
    told = json.loads(line)
    assert (told["group"], told["state"], told["lag_records"], told["lag_offsets"]) == (group, "empty", None, 6)
    assert [each["lag_records"] for each in told["partitions"]] == [2, 0, None]
    figures = [
        (each["committed"], each["stable_end"], each["end"], each["held_offsets"]) for each in told["partitions"]
    ]
    assert figures == [(2, 6, 6, 0), (0, 0, 1, 1), (None, 2, 2, 0)]
    (holding,) = told["transactions"]
    assert (holding["transactional_id"], holding["state"]) == (f"{cluster.prefix}-up", "Ongoing")
    upstream.abort_transaction(60)
    ended = typed("status", group[:-1], "--bootstrap", cluster.bootstrap_servers)
    assert ended.wait() == ExitCode.CLUSTER_UNFIT
    assert f"there is no group {group[:-1]!r}; did you mean {group!r}?" in ended.err
