"""The offsets topic: torn commits are told from whole ones, and a compaction changes no answer."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulator.brokers.offset_log import (
    CoordinatorDiedError,
    OffsetLog,
    OffsetLogRecord,
    OffsetMarker,
    OffsetRecord,
)

GROUP = "billing"
P0, P1, P2 = (PartitionKey("orders", number) for number in range(3))
ANNA = ProducerIdentity(7, 0)
BERT = ProducerIdentity(8, 0)


def run(number: int, *offsets: tuple[PartitionKey, int | None], producer=None, repairs=False) -> list[OffsetLogRecord]:
    return [
        OffsetRecord(
            GROUP,
            key,
            None if offset is None else OffsetAndMetadata(offset),
            number,
            len(offsets),
            producer,
            repairs,
        )
        for key, offset in offsets
    ]


def marker(number: int, producer: ProducerIdentity, committed: bool = True) -> list[OffsetLogRecord]:
    return [OffsetMarker(GROUP, producer, committed, number)]


def log_of(*runs: list[OffsetLogRecord]) -> OffsetLog:
    return OffsetLog(record for each in runs for record in each)


def compacted(*runs: list[OffsetLogRecord]) -> list[OffsetLogRecord]:
    log = log_of(*runs)
    log.compact()
    return list(log.records)


def test_a_run_of_fewer_records_than_its_size_is_not_whole():
    """P4: a run of fewer records than its size says is a partial write."""
    log = log_of(run(1, (P0, 1), (P1, 1)), run(2, (P0, 2), (P1, 2), (P2, 2))[:2], run(3, (P2, 3)))
    assert [is_whole for _, is_whole in log.runs()] == [True, False, True]


@pytest.mark.parametrize("records", [0, 1, 2, 3])
def test_a_writer_can_die_after_any_record_of_a_commit(records):
    log = OffsetLog()
    writer = log.open()
    log.die_after(records)
    with pytest.raises(CoordinatorDiedError):
        log.append(writer, run(1, (P0, 1), (P1, 1), (P2, 1)))
    assert len(log) == records


def test_a_dead_writer_writes_no_more_and_the_next_one_does():
    log = OffsetLog()
    dead = log.open()
    log.die_after(0)
    with pytest.raises(CoordinatorDiedError):
        log.append(dead, run(1, (P0, 1)))
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        log.append(dead, run(1, (P0, 1)))
    log.append(log.open(), run(1, (P0, 1)))
    assert len(log) == 1


def test_a_writer_that_was_replaced_is_refused():
    log = OffsetLog()
    zombie = log.open()
    log.open()
    with pytest.raises(BrokerError) as refused:
        log.append(zombie, run(1, (P0, 1)))
    assert refused.value.code == "NOT_COORDINATOR"


def test_compaction_keeps_the_latest_record_of_each_key_and_no_other():
    """P4: compaction keeps the latest record per key."""
    log = log_of(run(1, (P0, 1)), run(2, (P1, 2)), run(3, (P0, 3)), run(4, (P0, 4)))
    log.compact()
    assert list(log.records) == [*run(2, (P1, 2)), *run(4, (P0, 4))]


def test_compaction_keeps_a_commit_whole_while_one_of_its_records_is_the_latest():
    """P4: compaction keeps the latest record per key."""
    kept = compacted(run(1, (P0, 1), (P1, 1)), run(2, (P0, 2)))
    assert kept == [*run(1, (P0, 1), (P1, 1)), *run(2, (P0, 2))]


def test_compaction_before_recovery_does_not_take_a_torn_commit_for_the_latest():
    torn = run(2, (P0, 2), (P1, 2))[:1]
    assert compacted(run(1, (P0, 1)), torn) == run(1, (P0, 1))


def test_compaction_removes_a_repair_with_the_torn_commit_that_it_covers():
    torn = run(2, (P0, 2), (P1, 2))[:1]
    assert compacted(run(1, (P0, 1)), torn, run(3, (P0, 1), repairs=True)) == run(1, (P0, 1))


def test_compaction_keeps_a_pending_commit():
    pending = run(2, (P0, 2), producer=ANNA)
    assert compacted(run(1, (P0, 1)), pending, run(3, (P1, 3))) == [*run(1, (P0, 1)), *pending, *run(3, (P1, 3))]


def test_compaction_keeps_the_marker_with_the_commit_that_it_brought_into_force():
    first, second = run(1, (P0, 1), producer=ANNA), run(3, (P1, 3), producer=ANNA)
    everything = [*first, *marker(2, ANNA), *second, *marker(4, ANNA)]
    assert compacted(everything) == everything


def test_compaction_removes_an_aborted_commit_and_keeps_the_producers_last_marker():
    aborted = run(1, (P0, 1), producer=ANNA)
    kept = compacted(aborted, marker(2, ANNA, committed=False), marker(3, ANNA, committed=False))
    assert kept == marker(3, ANNA, committed=False)


def test_compaction_keeps_what_overtook_a_pending_commit():
    pending = run(1, (P0, 1), producer=ANNA)
    later = [*run(2, (P0, 2), producer=BERT), *marker(3, BERT)]
    assert compacted(pending, later) == [*pending, *later]


def test_compaction_removes_a_deletion_once_nothing_older_is_left():
    assert compacted(run(1, (P0, 1)), run(2, (P0, None))) == []


def test_compaction_keeps_a_deletion_while_an_older_record_has_to_stay():
    everything = [*run(1, (P0, 1), (P1, 1)), *run(2, (P0, None))]
    assert compacted(everything) == everything
