"""How transactions begin, run and end: requests in every state, time-outs, held markers, restarts, late requests."""

import math
from random import Random

import pytest

from eos_client.testing.simulation.brokers import Brokers
from eos_client.testing.simulation.clock import SimulatedClock
from eos_client.testing.simulation.group_requests import JoinRequest
from eos_client.testing.simulation.model import Membership, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulation.settings import BrokerSettings
from tests.simulation.transaction_world import AUDIT_0, INVOICES_0, INVOICES_1, TIMEOUT_S, World, refused

ORDERS_0 = PartitionKey("orders", 0)


@pytest.fixture
def world():
    return World()


def newer(producer, epochs=1):
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + epochs)


# -- one transaction -------------------------------------------------------------------------------------------------


def test_a_commit_shows_all_partitions_of_the_transaction_and_an_abort_none(world):
    producer = world.init()
    for sequence, commit in enumerate((True, False)):
        world.add(producer, INVOICES_0, AUDIT_0)
        for partition in (INVOICES_0, AUDIT_0):
            world.write(producer, str(commit).encode(), sequence=sequence, partition=partition)
        assert len(world.visible()) == sequence, "nothing is visible before the end"
        world.end(producer, commit=commit)
    assert world.visible() == world.visible(AUDIT_0) == [b"True"]


def test_markers_go_to_the_partitions_and_groups_of_the_transaction_only_and_once(world):
    """P2: offsets are part of the transaction: its marker reaches the group, too."""
    producer = world.init()
    world.add(producer, INVOICES_0, AUDIT_0)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.end(producer)
    assert [world.markers(p) for p in (INVOICES_0, INVOICES_1, AUDIT_0)] == [[("commit", 0)], [], [("commit", 0)]]
    assert world.groups.markers == [("billing", producer, True)]
    world.add(producer, INVOICES_1)
    world.end(producer, commit=False)
    assert [world.markers(p) for p in (INVOICES_0, INVOICES_1)] == [[("commit", 0)], [("abort", 0)]]
    assert len(world.groups.markers) == 1


def test_a_transaction_of_offsets_only_ends_in_the_group(world):
    producer = world.init()
    world.coordinator.add_offsets("billing-1", producer, "billing")
    assert world.state() == "Ongoing"
    world.coordinator.add_offsets("billing-1", producer, "shipping")
    world.end(producer, commit=False)
    assert world.groups.markers == [("billing", producer, False), ("shipping", producer, False)]


def test_one_producer_writes_to_whatever_partitions_its_process_has(world):
    """P2: one transactional producer serves a process whatever partitions it is assigned."""
    producer = world.init()
    for partition in (INVOICES_0, INVOICES_1, AUDIT_0):
        world.add(producer, partition)
        world.write(producer, b"a", partition=partition)
        world.end(producer)
    assert [world.visible(p) for p in (INVOICES_0, INVOICES_1, AUDIT_0)] == [[b"a"]] * 3


def test_a_transaction_is_described_while_it_runs_and_after_it(world):
    producer = world.init()
    world.at(3.0)
    world.add(producer, INVOICES_0)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    running = world.coordinator.describe("billing-1")
    assert (running.state, running.producer, running.timeout_s, running.started_s) == (
        "Ongoing",
        producer,
        TIMEOUT_S,
        3.0,
    )
    assert (running.partitions, running.groups) == ({INVOICES_0}, {"billing"})
    world.end(producer)
    ended = world.coordinator.describe("billing-1")
    assert (ended.state, ended.partitions, ended.groups, ended.started_s) == ("CompleteCommit", set(), set(), None)
    assert world.coordinator.describe("nobody") is None


# -- who may ask -----------------------------------------------------------------------------------------------------


def requests(world, producer, txn=None):
    """Each transactional request, by Kafka's name."""
    return {
        "AddPartitionsToTxn": lambda: world.add(producer, txn=txn),
        "AddOffsetsToTxn": lambda: world.coordinator.add_offsets(txn or "billing-1", producer, "billing"),
        "EndTxn": lambda: world.end(producer, txn=txn),
        "Produce": lambda: world.write(producer, b"z", txn=txn),
    }


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_a_producer_that_was_fenced_is_refused_in_every_request(world, request_name):
    """P3: fenced: PRODUCER_FENCED is said to clients of these versions as INVALID_PRODUCER_EPOCH."""
    zombie = world.init()
    world.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        requests(world, zombie)[request_name]()
    assert world.state() == "Empty"


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_an_epoch_that_was_never_given_is_refused(world, request_name):
    producer = world.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        requests(world, newer(producer))[request_name]()


@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "Produce"])
def test_a_producer_id_or_transactional_id_that_do_not_belong_together_are_refused(world, request_name):
    world.init()
    other = world.init(txn="billing-2")
    for producer, txn in ((other, "billing-1"), (other, "nobody")):
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            requests(world, producer, txn)[request_name]()


def test_an_unknown_partition_begins_no_transaction(world):
    producer = world.init()
    with refused("UNKNOWN_TOPIC_OR_PART"):
        world.add(producer, INVOICES_0, PartitionKey("nowhere", 0))
    assert world.state() == "Empty"


def test_an_empty_transactional_id_is_an_invalid_request(world):
    producer = world.init()
    with refused("INVALID_REQUEST"):
        world.coordinator.end("", producer, commit=True)


# -- EndTxn in every state -------------------------------------------------------------------------------------------


def empty(world):
    return world.init()


def ongoing(world):
    producer = world.init()
    world.add(producer)
    return producer


def ended(*, commit, held=False):
    def bring(world):
        producer = ongoing(world)
        world.coordinator.hold_markers = held
        world.end(producer, commit=commit)
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
def test_end_txn_in_every_state(world, state, commit):
    """P3: EndTxn's table for a client without KIP-890 part 2."""
    bring, *expected = END_TXN[state]
    producer = bring(world)
    assert world.state() == state
    result = expected[0 if commit else 1]
    if result.isupper():
        with refused(result):
            world.end(producer, commit=commit)
        assert world.state() == state
    else:
        world.end(producer, commit=commit)
        assert world.state() == result
    assert len(world.markers()) == (1 if world.state().startswith("Complete") else 0), "each end is marked once"


def test_a_repeated_end_whose_answer_was_lost_succeeds_and_writes_no_second_marker(world):
    producer = world.init()
    for commit in (True, False):
        world.add(producer)
        for _ in range(3):
            world.end(producer, commit=commit)
    assert world.markers() == [("commit", 0), ("abort", 0)]


def test_a_repeated_add_changes_nothing(world):
    producer = world.init()
    world.add(producer)
    before = world.coordinator.describe("billing-1")
    world.at(5.0)
    world.add(producer)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    after = world.coordinator.describe("billing-1")
    assert (after.started_s, after.partitions) == (before.started_s, before.partitions)


# -- late requests ---------------------------------------------------------------------------------------------------


def test_a_late_end_txn_ends_the_next_transaction_of_the_same_epoch(world):
    """KAFKA-17754: without KIP-890 part 2 the next transaction keeps the epoch."""
    producer = world.init()
    world.transaction(producer, b"a")
    world.add(producer)
    world.write(producer, b"half of the next", sequence=1)
    world.end(producer, commit=True)  # the first one's EndTxn, a second time
    assert world.visible() == [b"a", b"half of the next"]
    with refused("INVALID_TXN_STATE"):
        world.write(producer, b"other half", sequence=2)


def test_a_late_end_txn_ends_nothing_once_the_producer_is_replaced(world):
    """KAFKA-17754: a new producer with the same transactional.id fences the late request."""
    producer = world.init()
    world.transaction(producer, b"a")
    successor = world.init()
    world.add(successor)
    world.write(successor, b"b")
    with refused("INVALID_PRODUCER_EPOCH"):
        world.end(producer, commit=True)
    assert world.visible() == [b"a"]
    world.end(successor)
    assert world.visible() == [b"a", b"b"]


def test_a_late_write_after_the_end_hangs_no_transaction(world):
    """KIP-890 part 1: a write to a partition that is not in the transaction is refused."""
    producer = world.init()
    world.transaction(producer, b"a", commit=False)
    with refused("INVALID_TXN_STATE"):
        world.write(producer, b"late", sequence=1)
    world.add(producer, AUDIT_0)
    with refused("INVALID_TXN_STATE"):
        world.write(producer, b"late", sequence=1)
    world.end(producer)
    log = world.log(INVOICES_0)
    assert log.last_stable_offset == log.log_end_offset


def test_a_late_write_while_the_transaction_ends_is_to_be_tried_again(world):
    """KIP-890 part 1: older clients are told CONCURRENT_TRANSACTIONS as something that they retry."""
    producer = ended(commit=True, held=True)(world)
    with refused("NOT_ENOUGH_REPLICAS"):
        world.write(producer, b"late")
    with refused("COORDINATOR_NOT_AVAILABLE"):
        world.coordinator.verify_offsets("billing-1", producer, "billing")


def test_a_transactional_write_must_name_its_transactional_id(world):
    producer = ongoing(world)
    with refused("INVALID_TXN_STATE"):
        world.coordinator.verify(None, producer.producer_id, producer.producer_epoch, INVOICES_0)


def test_late_offsets_after_the_end_are_refused_so_that_none_stay_pending(world):
    """P2: pending offsets wait for their transaction's marker, so none may be staged without one."""
    producer = world.init()
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.coordinator.verify_offsets("billing-1", producer, "billing")
    with refused("INVALID_TXN_STATE"):
        world.coordinator.verify_offsets("billing-1", producer, "shipping")
    world.end(producer)
    with refused("INVALID_TXN_STATE"):
        world.coordinator.verify_offsets("billing-1", producer, "billing")
    world.init()
    with refused("INVALID_PRODUCER_EPOCH"):
        world.coordinator.verify_offsets("billing-1", producer, "billing")


# -- held markers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_stays_prepared_while_its_markers_are_held(world, commit):
    producer = ongoing(world)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.write(producer, b"a")
    world.coordinator.hold_markers = True
    world.end(producer, commit=commit)
    world.at(100.0)
    assert world.state() == ("PrepareCommit" if commit else "PrepareAbort")
    assert (world.visible(), world.markers(), world.groups.markers) == ([], [], [])
    for name in ("AddPartitionsToTxn", "AddOffsetsToTxn"):
        with refused("CONCURRENT_TRANSACTIONS"):
            requests(world, producer)[name]()


@pytest.mark.parametrize("commit", [True, False])
def test_released_markers_are_written_by_the_next_work_as_they_were_decided(world, commit):
    producer = ongoing(world)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.write(producer, b"a")
    world.coordinator.hold_markers = True
    world.end(producer, commit=commit)
    assert world.coordinator.due_s == math.inf
    world.coordinator.hold_markers = False
    assert world.coordinator.due_s <= world.clock()
    assert world.visible() == [], "only work() writes them"
    world.at(0.0)
    assert world.visible() == ([b"a"] if commit else [])
    assert world.groups.markers == [("billing", producer, commit)]
    world.end(producer, commit=commit)
    world.transaction(producer, b"b", sequence=1)
    assert world.visible()[-1] == b"b"


# -- time-outs -------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world):
    """P2: a pending transaction of a dead process ends by its timeout."""
    producer = world.init()
    world.at(2.0)
    world.add(producer)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.write(producer, b"a")
    world.at(2.0 + TIMEOUT_S - 0.5)
    assert world.state() == "Ongoing"
    world.at(2.0 + TIMEOUT_S)
    assert world.state() == "CompleteAbort"
    assert world.markers() == [("abort", 1)]
    assert world.groups.markers == [("billing", newer(producer), False)]
    log = world.log(INVOICES_0)
    assert (world.visible(), log.last_stable_offset) == ([], log.log_end_offset)


@pytest.mark.parametrize("commit", [True, False])
def test_after_a_time_out_its_producer_can_neither_end_nor_bump_nor_write(world, commit):
    """P3: the coordinator's abort is a bump by someone else: fatal for the producer."""
    producer = ongoing(world)
    world.at(60.0)
    with refused("INVALID_PRODUCER_EPOCH"):
        world.end(producer, commit=commit)
    with refused("INVALID_PRODUCER_EPOCH"):
        world.write(producer, b"late")
    with refused("PRODUCER_FENCED"):
        world.init(producer)
    assert world.init() == newer(producer, epochs=2)


def test_the_transaction_timeout_runs_from_the_first_request_and_is_not_prolonged(world):
    producer = world.init()
    for now_s in (0.0, 4.0, 8.0):
        world.at(now_s)
        world.add(producer, INVOICES_0 if now_s < 8.0 else AUDIT_0)
    world.at(TIMEOUT_S)
    assert world.state() == "CompleteAbort"
    assert world.markers(AUDIT_0) == [("abort", 1)]


def test_each_transaction_has_the_whole_timeout(world):
    producer = world.init()
    for turn in range(4):
        world.at(turn * 9.0)
        world.transaction(producer, b"a", sequence=turn)
    assert len(world.visible()) == 4


def test_time_outs_are_looked_for_at_intervals():
    world = World(transaction_abort_check_interval_s=4.0)
    producer = world.init(timeout_s=5.0)
    world.at(1.0)
    world.add(producer)
    world.at(7.9)
    assert world.state() == "Ongoing"
    world.at(8.0)
    assert world.state() == "CompleteAbort"


def test_a_decided_transaction_does_not_time_out(world):
    producer = ended(commit=True, held=True)(world)
    world.at(60.0)
    world.coordinator.hold_markers = False
    world.at(60.0)
    assert world.markers() == [("commit", 0)]
    world.transaction(producer, b"a")


def test_only_the_transaction_that_took_too_long_is_aborted(world):
    slow, quick = world.init(), world.init(txn="billing-2")
    world.add(slow)
    world.at(6.0)
    world.add(quick, AUDIT_0, txn="billing-2")
    world.at(11.0)
    assert (world.state(), world.state("billing-2")) == ("CompleteAbort", "Ongoing")
    world.end(quick, txn="billing-2")


def test_an_idle_coordinator_wants_nothing_before_an_id_expires(world):
    assert world.coordinator.due_s == math.inf
    world.init()
    assert world.coordinator.due_s == world.settings.transactional_id_expiration_s


def test_work_leaves_nothing_due(world):
    for txn in ("a", "b", "c"):
        world.add(world.init(txn=txn), txn=txn)
    world.clock.set_to(60.0)
    world.coordinator.work()
    assert world.coordinator.due_s > 60.0


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


def test_a_restarted_coordinator_knows_the_open_transaction(world):
    producer = world.init()
    world.add(producer)
    world.coordinator.add_offsets("billing-1", producer, "billing")
    world.write(producer, b"a")
    before = world.coordinator.describe("billing-1")
    world.coordinator._known.clear()  # what a process remembers ends with it
    world.coordinator.restart()
    assert world.coordinator.describe("billing-1") == before
    world.end(producer)
    assert world.visible() == [b"a"]
    assert world.groups.markers == [("billing", producer, True)]


def test_a_restarted_coordinator_still_times_out_what_was_open(world):
    ongoing(world)
    world.at(5.0)
    world.coordinator.restart()
    world.at(TIMEOUT_S)
    assert world.state() == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart_after_the_decision_writes_the_markers_that_were_decided(world, commit):
    producer = ongoing(world)
    world.write(producer, b"a")
    world.coordinator.hold_markers = True
    world.end(producer, commit=commit)
    world.coordinator.restart()
    with refused("CONCURRENT_TRANSACTIONS"):
        world.end(producer, commit=commit)
    world.coordinator.hold_markers = False
    world.at(0.0)
    assert world.visible() == ([b"a"] if commit else [])
    world.end(producer, commit=commit)


def test_a_restart_between_a_bump_and_its_repetition_still_gives_the_same_epoch(world):
    """P3 (3): the last epoch is written to the log with the current one."""
    first = world.init()
    bumped = world.init(first)
    world.coordinator.restart()
    assert world.init(first) == bumped


def test_a_restart_gives_no_producer_id_twice(world):
    given = [world.init(txn=f"billing-{n}").producer_id for n in range(3)]
    world.coordinator.restart()
    assert world.init(txn="shipping").producer_id > max(given) + 1, "the rest of the old block is lost with the process"
    given += [world.init(txn=f"shipping-{n}").producer_id for n in range(1003)]
    assert len(set(given)) == 1006


def test_a_restart_does_not_bring_a_forgotten_id_back(world):
    producer = world.init()
    world.coordinator.forget("billing-1")
    world.coordinator.restart()
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        world.add(producer)


def test_a_long_log_is_compacted_to_the_latest_of_each_id(world):
    kept = [world.init(txn=f"billing-{n}") for n in range(600)]
    world.init(txn="gone")
    world.coordinator.forget("gone")
    producer = world.init(txn="busy")
    for _ in range(1500):
        world.coordinator.add_offsets("busy", producer, "billing")
        world.end(producer, txn="busy")
    assert len(world.coordinator._durable._records) < 3_000
    world.coordinator.restart()
    assert [world.coordinator.describe(f"billing-{n}").producer for n in range(600)] == kept
    assert world.coordinator.describe("gone") is None
    assert world.state("busy") == "CompleteCommit"
