"""Requests that come after the end of their transaction, or after its time-out, and held markers (KAFKA-17754)."""

import math

import pytest

from tests.simulator.transaction_bench import (
    AUDIT_0,
    INVOICES_0,
    NEXT_CHECK_S,
    TIMEOUT_S,
    TransactionBench,
    ended,
    newer,
    ongoing,
    refused,
    requests,
)


@pytest.fixture
def bench():
    return TransactionBench()


# -- late requests ---------------------------------------------------------------------------------------------------


def test_a_late_end_txn_ends_the_next_transaction_of_the_same_epoch(bench):
    """KAFKA-17754: without KIP-890 part 2 the next transaction keeps the epoch."""
    producer = bench.init()
    bench.transaction(producer, b"a")
    bench.add(producer)
    bench.write(producer, b"half of the next", sequence=1)
    bench.end(producer, commit=True)  # the first one's EndTxn, a second time
    assert bench.visible() == [b"a", b"half of the next"]
    with refused("INVALID_TXN_STATE"):
        bench.write(producer, b"other half", sequence=2)


def test_a_late_end_txn_ends_nothing_once_the_producer_is_replaced(bench):
    """KAFKA-17754: a new producer with the same transactional.id fences the late request."""
    producer = bench.init()
    bench.transaction(producer, b"a")
    successor = bench.init()
    bench.add(successor)
    bench.write(successor, b"b")
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.end(producer, commit=True)
    assert bench.visible() == [b"a"]
    bench.end(successor)
    assert bench.visible() == [b"a", b"b"]


def test_a_late_write_after_the_end_hangs_no_transaction(bench):
    """KIP-890 part 1: a write to a partition that is not in the transaction is refused."""
    producer = bench.init()
    bench.transaction(producer, b"a", commit=False)
    with refused("INVALID_TXN_STATE"):
        bench.write(producer, b"late", sequence=1)
    bench.add(producer, AUDIT_0)
    with refused("INVALID_TXN_STATE"):
        bench.write(producer, b"late", sequence=1)
    bench.end(producer)
    log = bench.log(INVOICES_0)
    assert log.last_stable_offset == log.log_end_offset


def test_a_late_write_while_the_transaction_ends_is_to_be_tried_again(bench):
    """KIP-890 part 1: older clients are told CONCURRENT_TRANSACTIONS as something that they retry."""
    producer = ended(commit=True, held=True)(bench)
    with refused("NOT_ENOUGH_REPLICAS"):
        bench.write(producer, b"late")
    with refused("COORDINATOR_NOT_AVAILABLE"):
        bench.coordinator.verify_offsets("billing-1", producer, "billing")


def test_a_transactional_write_must_name_its_transactional_id(bench):
    producer = ongoing(bench)
    with refused("INVALID_TXN_STATE"):
        bench.coordinator.verify(None, producer.producer_id, producer.producer_epoch, INVOICES_0)


def test_late_offsets_after_the_end_are_refused_so_that_none_stay_pending(bench):
    """P2: pending offsets wait for their transaction's marker, so none may be staged without one."""
    producer = bench.init()
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.coordinator.verify_offsets("billing-1", producer, "billing")
    with refused("INVALID_TXN_STATE"):
        bench.coordinator.verify_offsets("billing-1", producer, "shipping")
    bench.end(producer)
    with refused("INVALID_TXN_STATE"):
        bench.coordinator.verify_offsets("billing-1", producer, "billing")
    bench.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.coordinator.verify_offsets("billing-1", producer, "billing")


# -- held markers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_stays_prepared_while_its_markers_are_held(bench, commit):
    producer = ongoing(bench)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.write(producer, b"a")
    bench.coordinator.hold_markers = True
    bench.end(producer, commit=commit)
    bench.at(100.0)
    assert bench.state() == ("PrepareCommit" if commit else "PrepareAbort")
    assert (bench.visible(), bench.markers(), bench.groups.markers) == ([], [], [])
    for name in ("AddPartitionsToTxn", "AddOffsetsToTxn"):
        with refused("CONCURRENT_TRANSACTIONS"):
            requests(bench, producer)[name]()


@pytest.mark.parametrize("commit", [True, False])
def test_released_markers_are_written_by_the_next_work_as_they_were_decided(bench, commit):
    producer = ongoing(bench)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.write(producer, b"a")
    bench.coordinator.hold_markers = True
    bench.end(producer, commit=commit)
    assert bench.coordinator.due_s == math.inf
    bench.coordinator.hold_markers = False
    assert bench.coordinator.due_s <= bench.clock()
    assert bench.visible() == [], "only work() writes them"
    bench.at(0.0)
    assert bench.visible() == ([b"a"] if commit else [])
    assert bench.groups.markers == [("billing", producer, commit)]
    bench.end(producer, commit=commit)
    bench.transaction(producer, b"b", sequence=1)
    assert bench.visible()[-1] == b"b"


# -- time-outs -------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(bench):
    """P2: a pending transaction of a dead process ends by its timeout."""
    producer = bench.init()
    bench.at(2.0)
    bench.add(producer)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.write(producer, b"a")
    bench.at(2.0 + TIMEOUT_S)
    assert bench.state() == "Ongoing"
    bench.at(2.0 + TIMEOUT_S + NEXT_CHECK_S)
    assert bench.state() == "CompleteAbort"
    assert bench.markers() == [("abort", 1)]
    assert bench.groups.markers == [("billing", newer(producer), False)]
    log = bench.log(INVOICES_0)
    assert (bench.visible(), log.last_stable_offset) == ([], log.log_end_offset)


@pytest.mark.parametrize("commit", [True, False])
def test_after_a_time_out_its_producer_can_neither_end_nor_bump_nor_write(bench, commit):
    """P3: the coordinator's abort is a bump by someone else: fatal for the producer."""
    producer = ongoing(bench)
    bench.at(60.0)
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.end(producer, commit=commit)
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.write(producer, b"late")
    with refused("PRODUCER_FENCED"):
        bench.init(producer)
    assert bench.init() == newer(producer, epochs=2)


def test_the_transaction_timeout_runs_from_the_first_request_and_is_not_prolonged(bench):
    producer = bench.init()
    for now_s in (0.0, 4.0, 8.0):
        bench.at(now_s)
        bench.add(producer, INVOICES_0 if now_s < 8.0 else AUDIT_0)
    bench.at(TIMEOUT_S + NEXT_CHECK_S)
    assert bench.state() == "CompleteAbort"
    assert bench.markers(AUDIT_0) == [("abort", 1)]


def test_each_transaction_has_the_whole_timeout(bench):
    producer = bench.init()
    for turn in range(4):
        bench.at(turn * 9.0)
        bench.transaction(producer, b"a", sequence=turn)
    assert len(bench.visible()) == 4


def test_time_outs_are_looked_for_at_intervals():
    bench = TransactionBench(transaction_abort_check_interval_s=4.0)
    producer = bench.init(timeout_s=5.0)
    bench.at(1.0)
    bench.add(producer)
    bench.at(7.9)
    assert bench.state() == "Ongoing"
    bench.at(8.0)
    assert bench.state() == "CompleteAbort"


def test_a_decided_transaction_does_not_time_out(bench):
    producer = ended(commit=True, held=True)(bench)
    bench.at(60.0)
    bench.coordinator.hold_markers = False
    bench.at(60.0)
    assert bench.markers() == [("commit", 0)]
    bench.transaction(producer, b"a")


def test_only_the_transaction_that_took_too_long_is_aborted(bench):
    slow, quick = bench.init(), bench.init(txn="billing-2")
    bench.add(slow)
    bench.at(6.0)
    bench.add(quick, AUDIT_0, txn="billing-2")
    bench.at(11.0)
    assert (bench.state(), bench.state("billing-2")) == ("CompleteAbort", "Ongoing")
    bench.end(quick, txn="billing-2")


def test_an_idle_coordinator_wants_nothing_before_an_id_expires(bench):
    assert bench.coordinator.due_s == math.inf
    bench.init()
    assert bench.coordinator.due_s == bench.settings.transactional_id_expiration_s


def test_work_leaves_nothing_due(bench):
    for txn in ("a", "b", "c"):
        bench.add(bench.init(txn=txn), txn=txn)
    bench.clock.set_to(60.0)
    bench.coordinator.work()
    assert bench.coordinator.due_s > 60.0
