"""Offset storage (P4): what a commit writes, what a fetch says, what a restart finds."""

from __future__ import annotations

import sqlite3

import pytest

from eos_client.testing.simulator.brokers.group_requests import FetchedOffset
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    NewRecord,
    OffsetAndMetadata,
    PartitionKey,
    RecordBatch,
)
from eos_client.testing.simulator.brokers.model import ProducerIdentity as Producer
from eos_client.testing.simulator.brokers.offset_log import (
    CoordinatorDiedError,
    OffsetLog,
    OffsetLogRecord,
    OffsetRecord,
)
from eos_client.testing.simulator.brokers.offset_store import (
    COMMIT_CODES,
    COMPACTION_RECORDS_MIN,
    METADATA_BYTES_MAX,
    OffsetMismatchError,
    OffsetStore,
)
from eos_client.testing.simulator.brokers.offset_table import OffsetTable
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.settings import BrokerSettings

GROUP = "billing"
P0, P1, P2 = (PartitionKey("orders", number) for number in range(3))
ANNA = Producer(7, 0)
BERT = Producer(8, 0)
TOO_LONG = "x" * (METADATA_BYTES_MAX + 1)


def at(*offsets: int) -> dict[PartitionKey, OffsetAndMetadata]:
    return {PartitionKey("orders", number): OffsetAndMetadata(offset) for number, offset in enumerate(offsets)}


def offsets_of(store: OffsetStore, group: str = GROUP) -> dict[PartitionKey, int | None]:
    return {key: fetched.offset for key, fetched in store.fetch(group, None, require_stable=False).items()}


def store() -> OffsetStore:
    return OffsetStore(OffsetLog())


def knowing_orders() -> OffsetStore:
    return OffsetStore(OffsetLog(), partition_count={"orders": 3}.__getitem__)


# -- commit and fetch ------------------------------------------------------------------------------------------------


def test_a_commit_answers_with_a_code_for_each_partition():
    """P4: OffsetCommit(group, {partition: offset, metadata}) -> an error code per partition."""
    offsets = store()
    assert offsets.commit(GROUP, {P0: OffsetAndMetadata(5, "five"), P1: OffsetAndMetadata(6)}) == {
        P0: "NONE",
        P1: "NONE",
    }
    bad = offsets.commit(GROUP, {P0: OffsetAndMetadata(7), P1: OffsetAndMetadata(8, TOO_LONG)})
    assert bad == {P0: "OPERATION_NOT_ATTEMPTED", P1: "OFFSET_METADATA_TOO_LARGE"}


def test_a_commit_of_no_partition_writes_nothing():
    offsets = store()
    assert offsets.commit(GROUP, {}) == {}
    assert len(offsets.log) == 0


def test_a_fetch_answers_with_an_offset_or_none_for_each_partition():
    """P4: OffsetFetch(group, partitions) -> offset or "none" per partition."""
    offsets = store()
    offsets.commit(GROUP, {P0: OffsetAndMetadata(5, "five")})
    fetched = offsets.fetch(GROUP, [P1, P0], require_stable=True)
    assert fetched == {P1: FetchedOffset(None), P0: FetchedOffset(5, "five")}
    assert list(fetched) == [P1, P0]


def test_a_fetch_of_no_partition_in_particular_answers_with_all_of_the_group():
    offsets = store()
    offsets.commit(GROUP, at(1, 2, 3))
    offsets.commit("audit", at(9))
    assert offsets_of(offsets) == {P0: 1, P1: 2, P2: 3}
    assert offsets.groups() == ("audit", GROUP)


def test_unknown_groups_topics_and_partitions_have_no_offset_and_that_is_no_error():
    """P4: OffsetFetch: unknown topics and partitions have a defined answer."""
    offsets = knowing_orders()
    offsets.commit(GROUP, at(1))
    unknown = [PartitionKey("never seen", 0), PartitionKey("orders", 99), PartitionKey("orders", -1)]
    assert offsets.fetch(GROUP, unknown, require_stable=True) == dict.fromkeys(unknown, FetchedOffset(None))
    assert offsets.fetch("nobody", [P0], require_stable=True) == {P0: FetchedOffset(None)}
    assert offsets.fetch("nobody", None, require_stable=True) == {}


@pytest.mark.parametrize("unknown", [PartitionKey("nowhere", 0), PartitionKey("orders", 3), PartitionKey("orders", -1)])
def test_a_commit_to_an_unknown_topic_or_partition_says_so(unknown):
    """P4: unknown topics and partitions have a defined answer."""
    offsets = OffsetStore(OffsetLog(), partition_count=lambda topic: {"orders": 3}.get(topic, 0))
    assert offsets.commit(GROUP, {unknown: OffsetAndMetadata(1)}) == {unknown: "UNKNOWN_TOPIC_OR_PART"}


def test_every_error_of_commit_and_fetch_is_enumerated():
    """P4: OffsetCommit, OffsetFetch: errors enumerated."""
    offsets = knowing_orders()
    offsets.stage(GROUP, ANNA, {P2: OffsetAndMetadata(5)})
    faults = {
        P0: OffsetAndMetadata(-1),
        P1: OffsetAndMetadata(1, TOO_LONG),
        PartitionKey("orders", 9): OffsetAndMetadata(1),
    }
    seen = set(offsets.commit(GROUP, {**faults, P2: OffsetAndMetadata(1)}).values())
    seen |= set(offsets.commit(GROUP, {P2: OffsetAndMetadata(1)}, expected={P2: None}).values())
    seen |= set(offsets.commit(GROUP, at(1)).values())
    assert seen == set(COMMIT_CODES)
    answers = offsets.fetch(GROUP, [P0, P2], require_stable=True)
    assert {fetched.code for fetched in answers.values()} == {"NONE", "UNSTABLE_OFFSET_COMMIT"}


def test_a_read_sees_the_last_acknowledged_write():
    """P4: a read sees the last acknowledged write."""
    offsets = store()
    for offset in (1, 2, 3, 2):
        offsets.commit(GROUP, at(offset))
        assert offsets_of(offsets) == {P0: offset}


def test_a_commit_per_message_is_survived_and_the_log_does_not_grow_without_end():
    """P4: survives a commit per message."""
    offsets = store()
    for offset in range(3 * COMPACTION_RECORDS_MIN):
        offsets.commit(GROUP, at(offset))
    assert len(offsets.log) <= COMPACTION_RECORDS_MIN
    assert offsets_of(offsets) == offsets_of(offsets.reopened()) == {P0: 3 * COMPACTION_RECORDS_MIN - 1}


def test_an_entry_takes_at_most_64_bytes_also_when_each_group_has_only_one():
    """P4: <= 64 bytes of memory per entry. Measured from outside, at a million, by tests.benchmarks.offset_memory."""
    offsets, entries = OffsetTable(), 30_000
    for number in range(entries):
        key = PartitionKey("orders", number % 3)
        offsets.put(f"billing-{number * 7919 % entries:06}", {key: OffsetAndMetadata(10**9 + number)})
    pages = offsets._rows.execute("PRAGMA page_count").fetchone()[0]
    page_bytes = offsets._rows.execute("PRAGMA page_size").fetchone()[0]
    assert pages * page_bytes / entries <= 64


# -- all or nothing, and death ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [OffsetAndMetadata(-1), OffsetAndMetadata(2, TOO_LONG)])
def test_one_refused_partition_keeps_the_whole_commit_from_being_written(fault):
    """P4: a commit of several partitions is all-or-nothing."""
    offsets = store()
    offsets.commit(GROUP, at(1, 1, 1))
    offsets.commit(GROUP, {**at(2, 2), P2: fault})
    assert offsets_of(offsets) == {P0: 1, P1: 1, P2: 1}
    assert len(offsets.log) == 3


def test_a_commit_is_one_record_a_partition_with_its_number_and_size():
    """P4: one record per partition, key group-topic-partition, value offset + transaction number + transaction size."""
    offsets = store()
    offsets.commit("other", at(1))
    offsets.commit(GROUP, {P0: OffsetAndMetadata(5, "five"), P1: OffsetAndMetadata(6)})
    assert offsets.log.records[1:] == (
        OffsetRecord(GROUP, P0, OffsetAndMetadata(5, "five"), commit_number=2, commit_size=2),
        OffsetRecord(GROUP, P1, OffsetAndMetadata(6), commit_number=2, commit_size=2),
    )


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_nothing_acknowledged_is_lost_when_the_coordinator_dies_at_any_record(written):
    """P4: nothing acknowledged is lost when the process dies."""
    offsets = store()
    offsets.commit(GROUP, at(1, 1, 1))
    offsets.log.die_after(written)
    with pytest.raises(CoordinatorDiedError):
        offsets.commit(GROUP, at(2, 2, 2))
    expected = 2 if written == 3 else 1
    assert offsets_of(offsets.reopened()) == {P0: expected, P1: expected, P2: expected}


def test_the_table_never_holds_a_part_of_a_commit():
    """P4: the in-memory table holds only complete commits."""
    offsets = store()
    offsets.commit(GROUP, at(1, 1))
    offsets.log.die_after(1)
    with pytest.raises(CoordinatorDiedError):
        offsets.commit(GROUP, at(2, 2))
    assert offsets_of(offsets) == {P0: 1, P1: 1}
    assert offsets_of(offsets.reopened()) == {P0: 1, P1: 1}


def test_a_coordinator_that_was_replaced_commits_nothing_any_more():
    zombie = store()
    zombie.commit(GROUP, at(1))
    restarted = zombie.reopened()
    with pytest.raises(BrokerError) as refused:
        zombie.commit(GROUP, at(2))
    assert refused.value.code == "NOT_COORDINATOR"
    assert offsets_of(zombie) == offsets_of(restarted) == {P0: 1}


# -- recovery --------------------------------------------------------------------------------------------------------


def torn_after(written: int) -> OffsetLog:
    """P0 at 1, P2 nowhere, and a commit of P0 and P2 and P1 that was not finished."""
    offsets = store()
    offsets.commit(GROUP, {P0: OffsetAndMetadata(1, "kept")})
    offsets.commit(GROUP, {P1: OffsetAndMetadata(1)})
    offsets.log.die_after(written)
    with pytest.raises(CoordinatorDiedError):
        offsets.commit(GROUP, {key: OffsetAndMetadata(2) for key in (P0, P2, P1)})
    return offsets.log


def cleaned_by_key(log: OffsetLog) -> OffsetLog:
    """A cleaner that knows of keys only, as that of a broker does, and takes the last record of each."""
    last: dict[tuple[str, PartitionKey], OffsetLogRecord] = {}
    for record in log.records:
        assert isinstance(record, OffsetRecord)
        last.pop((record.group_id, record.partition), None)
        last[record.group_id, record.partition] = record
    return OffsetLog(last.values())


def test_a_torn_commit_is_not_applied_by_recovery():
    """P4: recovery: a partial write is not applied."""
    assert offsets_of(OffsetStore(torn_after(2))) == {P0: 1, P1: 1}


def test_recovery_writes_the_previous_values_of_a_torn_commit_again_at_the_end():
    """P4: recovery: the previous values are re-appended at the end."""
    log = torn_after(2)
    before = len(log)
    OffsetStore(log)
    repairs = [record for record in log.records[before:] if isinstance(record, OffsetRecord)]
    assert [(record.partition, record.entry) for record in repairs] == [(P0, OffsetAndMetadata(1, "kept")), (P2, None)]


def test_after_recovery_a_cleaner_that_looks_at_keys_alone_cannot_lose_a_previous_value():
    """P4: previous values are re-appended so that compaction cannot delete them."""
    log = torn_after(2)
    OffsetStore(log)
    assert offsets_of(OffsetStore(cleaned_by_key(log))) == {P0: 1, P1: 1}


def test_a_second_recovery_writes_nothing_again():
    log = torn_after(2)
    OffsetStore(log)
    repaired = log.records
    OffsetStore(log)
    assert log.records == repaired


def test_a_recovery_that_dies_while_it_repairs_is_finished_by_the_next_one():
    log = torn_after(2)
    log.die_after(1)
    with pytest.raises(CoordinatorDiedError):
        OffsetStore(log)
    assert offsets_of(OffsetStore(log)) == {P0: 1, P1: 1}
    assert offsets_of(OffsetStore(cleaned_by_key(log))) == {P0: 1, P1: 1}


def test_a_new_commit_after_a_torn_one_counts():
    offsets = OffsetStore(torn_after(2))
    offsets.commit(GROUP, at(5, 5, 5))
    assert offsets_of(offsets.reopened()) == {P0: 5, P1: 5, P2: 5}


def test_a_repair_does_not_win_over_a_transaction_that_was_pending():
    offsets = store()
    offsets.stage(GROUP, ANNA, at(5))
    offsets.log.die_after(1)
    with pytest.raises(CoordinatorDiedError):
        offsets.commit(GROUP, at(2, 2))
    recovered = offsets.reopened()
    recovered.complete(GROUP, ANNA, committed=True)
    assert offsets_of(recovered) == offsets_of(recovered.reopened()) == {P0: 5}


def test_compaction_changes_no_answer():
    """P4: compaction keeps the latest record per key."""
    offsets = store()
    for offset in range(5):
        offsets.commit(GROUP, at(offset, offset))
        offsets.commit("audit", at(offset))
    offsets.log.compact()
    assert len(offsets.log) == 3
    recovered = offsets.reopened()
    assert offsets_of(recovered) == {P0: 4, P1: 4}
    assert offsets_of(recovered, "audit") == {P0: 4}


# -- the optimistic lock ---------------------------------------------------------------------------------------------


def test_a_compare_and_set_commits_when_the_expected_offset_is_there():
    """P4: optimistic lock: set to x iff it is now y, per partition."""
    offsets = store()
    assert offsets.commit(GROUP, at(5), expected={P0: None}) == {P0: "NONE"}
    assert offsets.commit(GROUP, at(6), expected={P0: 5}) == {P0: "NONE"}
    assert offsets_of(offsets) == {P0: 6}


def test_one_mismatch_keeps_the_whole_compare_and_set_from_being_written():
    """P4: optimistic lock: all-or-nothing."""
    offsets = store()
    offsets.commit(GROUP, at(5, 5))
    with pytest.raises(OffsetMismatchError):
        offsets.commit(GROUP, at(6, 6), expected={P0: 5, P1: 4})
    assert offsets_of(offsets) == {P0: 5, P1: 5}
    assert len(offsets.log) == 2


def test_a_mismatch_names_the_actual_values_of_the_partitions_that_differ():
    """P4: optimistic lock: a mismatch names the actual value."""
    offsets = store()
    offsets.commit(GROUP, at(5, 5))
    with pytest.raises(OffsetMismatchError) as mismatch:
        offsets.commit(GROUP, at(6, 6, 6), expected={P0: 5, P1: 4, P2: 3})
    assert mismatch.value.actual == {P1: 5, P2: None}
    assert str(mismatch.value) == (
        "nothing was committed: orders [1] is at 5, not at 4; orders [2] is at no offset, not at 3"
    )


def test_a_compare_and_set_waits_for_an_open_transaction_whose_end_would_move_the_offset():
    offsets = store()
    offsets.commit(GROUP, at(1))
    offsets.stage(GROUP, ANNA, at(5))
    assert offsets.commit(GROUP, at(2), expected={P0: 1}) == {P0: "UNSTABLE_OFFSET_COMMIT"}
    offsets.complete(GROUP, ANNA, committed=True)
    with pytest.raises(OffsetMismatchError):
        offsets.commit(GROUP, at(2), expected={P0: 1})


# -- offsets that live elsewhere -------------------------------------------------------------------------------------


def test_a_reader_that_keeps_offsets_and_results_in_one_database_transaction_starts_where_that_says():
    """P4: offsets may live elsewhere: data and offsets in one transaction of a database."""
    log = PartitionLog(BrokerSettings())
    log.append(RecordBatch(tuple(NewRecord(value=bytes([number])) for number in range(6))), 0.0)
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("CREATE TABLE results (value INTEGER)")
    database.execute("CREATE TABLE progress AS SELECT 0 AS next_offset")
    for dies_before_commit in (False, True, False, True, False):
        (start,) = database.execute("SELECT next_offset FROM progress").fetchone()
        fetched = log.fetch(start, 2, read_committed=True)
        database.execute("BEGIN")
        values = [(record.value[0],) for record in fetched.records if record.value is not None]
        database.executemany("INSERT INTO results VALUES (?)", values)
        database.execute("UPDATE progress SET next_offset = ?", (fetched.next_offset,))
        database.execute("ROLLBACK" if dies_before_commit else "COMMIT")
    assert [value for (value,) in database.execute("SELECT value FROM results")] == [0, 1, 2, 3, 4, 5]
    database.close()
