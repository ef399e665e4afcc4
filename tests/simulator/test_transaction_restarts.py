"""Transactions and the offsets in them over a restart of the coordinators, and what a dead process has left pending."""

from random import Random

import pytest

from eos_client.testing.simulator.brokers.brokers import Brokers
from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.group_requests import JoinRequest
from eos_client.testing.simulator.brokers.model import Membership, OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.simulator.transaction_bench import NEXT_CHECK_S, TIMEOUT_S, TransactionBench, ongoing, refused

ORDERS_0 = PartitionKey("orders", 0)


@pytest.fixture
def bench():
    return TransactionBench()


# -- with the group coordinator --------------------------------------------------------------------------------------


class Process:
    """One process of the group `billing`, as the brokers meet it."""

    def __init__(self, simulated, client):
        self.simulated = simulated
        request = JoinRequest(frozenset({"orders"}), client=client)
        self.member_id = simulated.groups.join("billing", request)
        generation = simulated.groups.joined("billing", self.member_id).generation
        self.membership = Membership(generation, self.member_id)

    def stage(self, producer, offset):
        groups, transactions = self.simulated.groups, self.simulated.transactions
        transactions.add_offsets("billing-1", producer, "billing")
        transactions.verify_offsets("billing-1", producer, "billing")
        offsets = {ORDERS_0: OffsetAndMetadata(offset)}
        groups.commit_offsets_in_transaction("billing", self.membership, producer, offsets)


@pytest.fixture
def simulated():
    simulated = Brokers(SimulatedClock(), BrokerSettings(), Random(0))
    simulated.create_topic("orders", 1)
    return simulated


def fetched(simulated):
    answer = simulated.groups.fetch_offsets("billing", [ORDERS_0], require_stable=True)[ORDERS_0]
    return answer.offset if answer.code == "NONE" else answer.code


def test_pending_offsets_of_a_dead_process_hold_up_their_reader_until_the_time_out(simulated):
    """P2: a pending transaction of a dead process ends by its timeout, and with it UNSTABLE_OFFSET_COMMIT."""
    producer = simulated.transactions.init_producer_id("billing-1", TIMEOUT_S)
    process = Process(simulated, "a")
    process.stage(producer, 5)
    simulated.transactions.end("billing-1", producer, commit=True)
    process.stage(producer, 9)
    assert fetched(simulated) == "UNSTABLE_OFFSET_COMMIT"
    simulated.clock.set_to(TIMEOUT_S + NEXT_CHECK_S)
    simulated.work()
    assert fetched(simulated) == 5


def test_a_decided_commit_of_offsets_holds_up_readers_until_its_marker(simulated):
    """P2: while a transactional commit is pending, the fetcher is told UNSTABLE_OFFSET_COMMIT."""
    producer = simulated.transactions.init_producer_id("billing-1", TIMEOUT_S)
    Process(simulated, "a").stage(producer, 9)
    simulated.transactions.hold_markers = True
    simulated.transactions.end("billing-1", producer, commit=True)
    assert fetched(simulated) == "UNSTABLE_OFFSET_COMMIT"
    simulated.transactions.restart()
    simulated.groups.restart()
    assert fetched(simulated) == "UNSTABLE_OFFSET_COMMIT"
    simulated.transactions.hold_markers = False
    simulated.work()
    assert fetched(simulated) == 9


def test_the_group_fences_the_zombie_that_an_expired_id_has_revived(simulated):
    """P3: KAFKA-18019: bumping past the expired id is safe because the input offsets are fenced by the group."""
    transactions = simulated.transactions
    zombie = transactions.init_producer_id("billing-1", TIMEOUT_S)
    process = Process(simulated, "a")
    transactions.init_producer_id("billing-1", TIMEOUT_S)
    simulated.groups.evict("billing", process.member_id)
    transactions.forget("billing-1")
    revived = transactions.init_producer_id("billing-1", TIMEOUT_S, zombie)
    with refused("UNKNOWN_MEMBER_ID"):
        process.stage(revived, 9)
    transactions.end("billing-1", revived, commit=False)
    assert fetched(simulated) is None


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
    bench.at(TIMEOUT_S + NEXT_CHECK_S)
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


def test_a_restart_between_a_bump_and_its_repetition_fences_the_repetition(bench):
    """The log does not hold the epoch before a bump (tests/kafka/test_repeated_epoch_bump.py)."""
    first = bench.init()
    bumped = bench.init(first)
    bench.coordinator.restart()
    with refused("PRODUCER_FENCED"):
        bench.init(first)
    assert bench.init(bumped).producer_epoch == bumped.producer_epoch + 1


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
