"""How transactions begin, run and end: requests in every state, who may send them, and what each leaves."""

import pytest

from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.simulator.transaction_bench import (
    AUDIT_0,
    INVOICES_0,
    INVOICES_1,
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


# -- one transaction -------------------------------------------------------------------------------------------------


def test_a_commit_shows_all_partitions_of_the_transaction_and_an_abort_none(bench):
    producer = bench.init()
    for sequence, commit in enumerate((True, False)):
        bench.add(producer, INVOICES_0, AUDIT_0)
        for partition in (INVOICES_0, AUDIT_0):
            bench.write(producer, str(commit).encode(), sequence=sequence, partition=partition)
        assert len(bench.visible()) == sequence, "nothing is visible before the end"
        bench.end(producer, commit=commit)
    assert bench.visible() == bench.visible(AUDIT_0) == [b"True"]


def test_markers_go_to_the_partitions_and_groups_of_the_transaction_only_and_once(bench):
    """P2: offsets are part of the transaction: its marker reaches the group, too."""
    producer = bench.init()
    bench.add(producer, INVOICES_0, AUDIT_0)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.end(producer)
    assert [bench.markers(p) for p in (INVOICES_0, INVOICES_1, AUDIT_0)] == [[("commit", 0)], [], [("commit", 0)]]
    assert bench.groups.markers == [("billing", producer, True)]
    bench.add(producer, INVOICES_1)
    bench.end(producer, commit=False)
    assert [bench.markers(p) for p in (INVOICES_0, INVOICES_1)] == [[("commit", 0)], [("abort", 0)]]
    assert len(bench.groups.markers) == 1


def test_a_transaction_of_offsets_only_ends_in_the_group(bench):
    producer = bench.init()
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    assert bench.state() == "Ongoing"
    bench.coordinator.add_offsets("billing-1", producer, "shipping")
    bench.end(producer, commit=False)
    assert bench.groups.markers == [("billing", producer, False), ("shipping", producer, False)]


def test_a_transaction_is_described_while_it_runs_and_after_it(bench):
    producer = bench.init()
    bench.at(3.0)
    bench.add(producer, INVOICES_0)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    running = bench.coordinator.describe("billing-1")
    assert (running.state, running.producer, running.timeout_s, running.started_s) == (
        "Ongoing",
        producer,
        TIMEOUT_S,
        3.0,
    )
    assert (running.partitions, running.groups) == ({INVOICES_0}, {"billing"})
    bench.end(producer)
    ended = bench.coordinator.describe("billing-1")
    assert (ended.state, ended.partitions, ended.groups, ended.started_s) == ("CompleteCommit", set(), set(), None)
    assert bench.coordinator.describe("nobody") is None


# -- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_a_producer_that_was_fenced_is_refused_in_every_request(bench, request_name):
    """P3: fenced: PRODUCER_FENCED is said to clients of these versions as INVALID_PRODUCER_EPOCH."""
    zombie = bench.init()
    bench.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        requests(bench, zombie)[request_name]()
    assert bench.state() == "Empty"


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_an_epoch_that_was_never_given_is_refused(bench, request_name):
    producer = bench.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        requests(bench, newer(producer))[request_name]()


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_a_producer_id_or_transactional_id_that_do_not_belong_together_are_refused(bench, request_name):
    bench.init()
    other = bench.init(txn="billing-2")
    for producer, txn in ((other, "billing-1"), (other, "nobody")):
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            requests(bench, producer, txn)[request_name]()


def test_an_unknown_partition_begins_no_transaction(bench):
    producer = bench.init()
    with refused("UNKNOWN_TOPIC_OR_PART"):
        bench.add(producer, INVOICES_0, PartitionKey("nowhere", 0))
    assert bench.state() == "Empty"


def test_an_empty_transactional_id_is_an_invalid_request(bench):
    producer = bench.init()
    with refused("INVALID_REQUEST"):
        bench.coordinator.end("", producer, commit=True)


# -- EndTxn in every state -------------------------------------------------------------------------------------------


def empty(bench):
    return bench.init()


END_TXN = {
    "Empty": (empty, "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
    "Ongoing": (ongoing, "CompleteCommit", "CompleteAbort"),
    "PrepareCommit": (ended(commit=True, held=True), "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"),
    "PrepareAbort": (ended(commit=False, held=True), "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
    "CompleteCommit": (ended(commit=True), "CompleteCommit", "INVALID_TXN_STATE"),
    "CompleteAbort": (ended(commit=False), "INVALID_TXN_STATE", "CompleteAbort"),
}


@pytest.mark.parametrize("state", END_TXN)
@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_in_every_state(bench, state, commit):
    """P3: EndTxn's table for a client without KIP-890 part 2."""
    bring, *expected = END_TXN[state]
    producer = bring(bench)
    assert bench.state() == state
    result = expected[0 if commit else 1]
    if result.isupper():
        with refused(result):
            bench.end(producer, commit=commit)
        assert bench.state() == state
    else:
        bench.end(producer, commit=commit)
        assert bench.state() == result
    assert len(bench.markers()) == (1 if bench.state().startswith("Complete") else 0), "each end is marked once"


def test_a_repeated_end_whose_answer_was_lost_succeeds_and_writes_no_second_marker(bench):
    producer = bench.init()
    for commit in (True, False):
        bench.add(producer)
        for _ in range(3):
            bench.end(producer, commit=commit)
    assert bench.markers() == [("commit", 0), ("abort", 0)]


def test_a_repeated_add_changes_nothing(bench):
    producer = bench.init()
    bench.add(producer)
    before = bench.coordinator.describe("billing-1")
    bench.at(5.0)
    bench.add(producer)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    after = bench.coordinator.describe("billing-1")
    assert (after.started_s, after.partitions) == (before.started_s, before.partitions)
