"""How transactions begin, run and end: requests in every state, time-outs, held markers, restarts, late requests."""

import math
from random import Random

import pytest

from eos_client.testing.simulation.brokers import Brokers
from eos_client.testing.simulation.clock import SimulatedClock
from eos_client.testing.simulation.group_requests import JoinRequest
from eos_client.testing.simulation.model import Membership, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulation.settings import BrokerSettings
from tests.simulation.transaction_bench import AUDIT_0, INVOICES_0, INVOICES_1, TIMEOUT_S, TransactionBench, refused

ORDERS_0 = PartitionKey("orders", 0)


@pytest.fixture
def bench():
    return TransactionBench()


def newer(producer, epochs=1):
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + epochs)


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


def test_one_producer_writes_to_whatever_partitions_its_process_has(bench):
    """P2: one transactional producer serves a process whatever partitions it is assigned."""
    producer = bench.init()
    for partition in (INVOICES_0, INVOICES_1, AUDIT_0):
        bench.add(producer, partition)
        bench.write(producer, b"a", partition=partition)
        bench.end(producer)
    assert [bench.visible(p) for p in (INVOICES_0, INVOICES_1, AUDIT_0)] == [[b"a"]] * 3


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


def requests(bench, producer, txn=None):
    """Each transactional request, by Kafka's name."""
    return {
        "AddPartitionsToTxn": lambda: bench.add(producer, txn=txn),
        "AddOffsetsToTxn": lambda: bench.coordinator.add_offsets(txn or "billing-1", producer, "billing"),
        "EndTxn": lambda: bench.end(producer, txn=txn),
        "Produce": lambda: bench.write(producer, b"z", txn=txn),
    }


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


def ongoing(bench):
    producer = bench.init()
    bench.add(producer)
    return producer


def ended(*, commit, held=False):
    def bring(bench):
        producer = ongoing(bench)
        bench.coordinator.hold_markers = held
        bench.end(producer, commit=commit)
        return producer

    return bring


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
    bench.at(2.0 + TIMEOUT_S - 0.5)
    assert bench.state() == "Ongoing"
    bench.at(2.0 + TIMEOUT_S)
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
    bench.at(TIMEOUT_S)
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


# -- with the group coordinator --------------------------------------------------------------------------------------


class Process:
    """One process of the group `billing`, as the brokers meet it."""

    def __init__(self, brokers, client):
        self.brokers = brokers
        request = JoinRequest(frozenset({"orders"}), client=client)
        self.member_id = brokers.groups.join("billing", request)
        generation = brokers.groups.joined("billing", self.member_id).generation
        self.membership = Membership(generation, self.member_id)

    def stage(self, producer, offset):
        groups, transactions = self.brokers.groups, self.brokers.transactions
        transactions.add_offsets("billing-1", producer, "billing")
        transactions.verify_offsets("billing-1", producer, "billing")
        offsets = {ORDERS_0: OffsetAndMetadata(offset)}
        groups.commit_offsets_in_transaction("billing", self.membership, producer, offsets)


@pytest.fixture
def brokers():
    brokers = Brokers(SimulatedClock(), BrokerSettings(), Random(0))
    brokers.create_topic("orders", 1)
    return brokers


def fetched(brokers):
    answer = brokers.groups.fetch_offsets("billing", [ORDERS_0], require_stable=True)[ORDERS_0]
    return answer.offset if answer.code == "NONE" else answer.code


def test_pending_offsets_of_a_dead_process_hold_up_their_reader_until_the_time_out(brokers):
    """P2: a pending transaction of a dead process ends by its timeout, and with it UNSTABLE_OFFSET_COMMIT."""
    producer = brokers.transactions.init_producer_id("billing-1", TIMEOUT_S)
    process = Process(brokers, "a")
    process.stage(producer, 5)
    brokers.transactions.end("billing-1", producer, commit=True)
    process.stage(producer, 9)
    assert fetched(brokers) == "UNSTABLE_OFFSET_COMMIT"
    brokers.clock.set_to(TIMEOUT_S)
    brokers.work()
    assert fetched(brokers) == 5


def test_pending_offsets_of_a_dead_process_are_settled_when_its_id_is_initialised_again(brokers):
    """P2: or at once when its transactional.id is initialised again."""
    producer = brokers.transactions.init_producer_id("billing-1", TIMEOUT_S)
    Process(brokers, "a").stage(producer, 9)
    with refused("CONCURRENT_TRANSACTIONS"):
        brokers.transactions.init_producer_id("billing-1", TIMEOUT_S)
    assert fetched(brokers) is None


def test_a_decided_commit_of_offsets_holds_up_readers_until_its_marker(brokers):
    """P2: while a transactional commit is pending, the fetcher is told UNSTABLE_OFFSET_COMMIT."""
    producer = brokers.transactions.init_producer_id("billing-1", TIMEOUT_S)
    Process(brokers, "a").stage(producer, 9)
    brokers.transactions.hold_markers = True
    brokers.transactions.end("billing-1", producer, commit=True)
    assert fetched(brokers) == "UNSTABLE_OFFSET_COMMIT"
    brokers.transactions.restart()
    brokers.groups.restart()
    assert fetched(brokers) == "UNSTABLE_OFFSET_COMMIT"
    brokers.transactions.hold_markers = False
    brokers.work()
    assert fetched(brokers) == 9


def test_the_group_fences_the_zombie_that_an_expired_id_has_revived(brokers):
    """P3: KAFKA-18019: bumping past the expired id is safe because the input offsets are fenced by the group."""
    transactions = brokers.transactions
    zombie = transactions.init_producer_id("billing-1", TIMEOUT_S)
    process = Process(brokers, "a")
    transactions.init_producer_id("billing-1", TIMEOUT_S)
    brokers.groups.evict("billing", process.member_id)
    transactions.forget("billing-1")
    revived = transactions.init_producer_id("billing-1", TIMEOUT_S, zombie)
    with refused("UNKNOWN_MEMBER_ID"):
        process.stage(revived, 9)
    transactions.end("billing-1", revived, commit=False)
    assert fetched(brokers) is None


# -- restarts --------------------------------------------------------------------------------------------------------


def test_a_restarted_coordinator_knows_the_open_transaction(bench):
    producer = bench.init()
    bench.add(producer)
    bench.coordinator.add_offsets("billing-1", producer, "billing")
    bench.write(producer, b"a")
    before = bench.coordinator.describe("billing-1")
    bench.coordinator._known.clear()  # what a process remembers ends with it
    bench.coordinator.restart()
    assert bench.coordinator.describe("billing-1") == before
    bench.end(producer)
    assert bench.visible() == [b"a"]
    assert bench.groups.markers == [("billing", producer, True)]


def test_a_restarted_coordinator_still_times_out_what_was_open(bench):
    ongoing(bench)
    bench.at(5.0)
    bench.coordinator.restart()
    bench.at(TIMEOUT_S)
    assert bench.state() == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart_after_the_decision_writes_the_markers_that_were_decided(bench, commit):
    producer = ongoing(bench)
    bench.write(producer, b"a")
    bench.coordinator.hold_markers = True
    bench.end(producer, commit=commit)
    bench.coordinator.restart()
    with refused("CONCURRENT_TRANSACTIONS"):
        bench.end(producer, commit=commit)
    bench.coordinator.hold_markers = False
    bench.at(0.0)
    assert bench.visible() == ([b"a"] if commit else [])
    bench.end(producer, commit=commit)


def test_a_restart_between_a_bump_and_its_repetition_still_gives_the_same_epoch(bench):
    """P3 (3): the last epoch is written to the log with the current one."""
    first = bench.init()
    bumped = bench.init(first)
    bench.coordinator.restart()
    assert bench.init(first) == bumped


def test_a_restart_gives_no_producer_id_twice(bench):
    given = [bench.init(txn=f"billing-{n}").producer_id for n in range(3)]
    bench.coordinator.restart()
    assert bench.init(txn="shipping").producer_id > max(given) + 1, "the rest of the old block is lost with the process"
    given += [bench.init(txn=f"shipping-{n}").producer_id for n in range(1003)]
    assert len(set(given)) == 1006


def test_a_restart_does_not_bring_a_forgotten_id_back(bench):
    producer = bench.init()
    bench.coordinator.forget("billing-1")
    bench.coordinator.restart()
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        bench.add(producer)


def test_a_long_log_is_compacted_to_the_latest_of_each_id(bench):
    kept = [bench.init(txn=f"billing-{n}") for n in range(600)]
    bench.init(txn="gone")
    bench.coordinator.forget("gone")
    producer = bench.init(txn="busy")
    for _ in range(1500):
        bench.coordinator.add_offsets("busy", producer, "billing")
        bench.end(producer, txn="busy")
    assert len(bench.coordinator._durable._records) < 3_000
    bench.coordinator.restart()
    assert [bench.coordinator.describe(f"billing-{n}").producer for n in range(600)] == kept
    assert bench.coordinator.describe("gone") is None
    assert bench.state("busy") == "CompleteCommit"
