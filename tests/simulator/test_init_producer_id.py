"""Who a producer is: the rules of InitProducerId (KIP-98, KIP-360, P3), epochs that run out, and forgotten ids."""

import pytest

from eos_client.testing.simulator.brokers.model import Marker, NewRecord, ProducerIdentity, RecordBatch
from tests.simulator.transaction_bench import AUDIT_0, INVOICES_0, TIMEOUT_S, TransactionBench, refused

LAST_EPOCH = 32_766


def identity(producer, *, epochs=0):
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + epochs)


@pytest.fixture
def bench():
    return TransactionBench()


# -- the four rules --------------------------------------------------------------------------------------------------


def test_a_new_transactional_id_starts_at_epoch_zero(bench):
    """P3: InitProducerId gives a producer id and an epoch."""
    assert bench.init().producer_epoch == 0
    assert bench.init(txn="billing-2").producer_id != bench.coordinator.describe("billing-1").producer.producer_id


def test_init_without_an_identity_bumps_the_epoch_and_fences_the_one_before(bench):
    """P3 (1): no producer id and epoch: bump."""
    first = bench.init()
    second = bench.init()
    assert second == identity(first, epochs=1)
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.add(first)
    bench.transaction(second, b"a")
    assert bench.visible() == [b"a"]


def test_init_without_an_identity_forgets_the_last_epoch_so_that_no_older_producer_can_return(bench):
    """P3 (1): no producer id and epoch: last epoch := none."""
    first = bench.init()
    bumped = bench.init(first)
    newer = bench.init()
    for old in (first, bumped):
        with refused("PRODUCER_FENCED"):
            bench.init(old)
    assert bench.coordinator.describe("billing-1").producer == newer


def test_init_with_the_current_epoch_bumps_it(bench):
    """P3 (2): epoch == current: bump, return the new one."""
    first = bench.init()
    assert bench.init(first) == identity(first, epochs=1)


def test_a_repeated_bump_whose_answer_was_lost_returns_the_same_epoch_again(bench):
    """P3 (2, 3): last := old current; epoch == last: a retry of (2), return current, no bump."""
    first = bench.init()
    bumped = bench.init(first)
    assert bench.init(first) == bumped
    assert bench.init(first) == bumped
    bench.transaction(bumped, b"a")
    assert bench.visible() == [b"a"]


def test_each_bump_remembers_only_the_epoch_just_before_it(bench):
    """P3 (3, 4): only epoch == last is a retry."""
    first = bench.init()
    second = bench.init(first)
    third = bench.init(second)
    assert bench.init(second) == third
    with refused("PRODUCER_FENCED"):
        bench.init(first)


@pytest.mark.parametrize("epochs", [-2, 2])
def test_init_with_any_other_epoch_is_fenced(bench, epochs):
    """P3 (4): anything else: fenced; InitProducerId v4 says PRODUCER_FENCED."""
    bench.init()
    bench.init()
    current = bench.init()
    with refused("PRODUCER_FENCED"):
        bench.init(identity(current, epochs=epochs))
    assert bench.coordinator.describe("billing-1").producer == current


def test_init_with_a_foreign_producer_id_is_fenced(bench):
    """P3 (4): anything else: fenced; someone else has this transactional.id."""
    bench.init()
    other = bench.init(txn="billing-2")
    with refused("PRODUCER_FENCED"):
        bench.init(other)


def test_a_fenced_producer_stays_fenced_after_the_newer_one_has_worked(bench):
    """P3 (4): fatal: someone else bumped."""
    zombie = bench.init()
    bench.transaction(bench.init(), b"a")
    with refused("PRODUCER_FENCED"):
        bench.init(zombie)
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.write(zombie, b"z")
    assert bench.visible() == [b"a"]


def test_a_bump_is_known_again_after_transactions_of_the_bumped_epoch(bench):
    """P3 (3): epoch == last: return current, however late the repeated request comes."""
    first = bench.init()
    bumped = bench.init(first)
    bench.transaction(bumped, b"a")
    assert bench.init(first) == bumped


def test_the_newest_init_says_how_long_transactions_may_take(bench):
    first = bench.init(timeout_s=10.0)
    assert bench.coordinator.describe("billing-1").timeout_s == 10.0
    bench.init(first, timeout_s=20.0)
    assert bench.coordinator.describe("billing-1").timeout_s == 20.0
    bench.init(first, timeout_s=30.0)
    assert bench.coordinator.describe("billing-1").timeout_s == 30.0, "of a repeated bump, too"


def test_a_repeated_bump_keeps_the_id_from_expiring(bench):
    first = bench.init()
    bench.init(first)
    bench.at(1000.0)
    bench.init(first)
    assert bench.coordinator.due_s == 1000.0 + bench.settings.transactional_id_expiration_s


# -- bump and go on --------------------------------------------------------------------------------------------------


def test_an_abort_and_a_bump_go_on_with_sequences_from_zero(bench):
    """P3: abort, bump the epoch, restart sequences at 0, go on."""
    producer = bench.init()
    bench.transaction(producer, b"a", b"b")
    bench.add(producer)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        bench.write(producer, b"lost its predecessor", sequence=7)
    bench.end(producer, commit=False)
    bumped = bench.init(producer)
    bench.transaction(bumped, b"c", sequence=0)
    assert bench.visible() == [b"a", b"b", b"c"]


def test_a_bumped_epoch_that_does_not_start_at_zero_is_refused(bench):
    """P3: bump the epoch, restart sequences at 0."""
    producer = bench.init()
    bench.transaction(producer, b"a", b"b")
    bumped = bench.init(producer)
    bench.add(bumped)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        bench.write(bumped, b"c", sequence=2)


def test_after_a_bump_a_late_batch_of_the_old_epoch_is_refused(bench):
    """P3: abort, bump the epoch: what is still under way at the old epoch comes too late."""
    producer = bench.init()
    bench.add(producer)
    bench.write(producer, b"a")
    bench.end(producer, commit=False)
    bumped = bench.init(producer)
    bench.add(bumped)
    bench.write(bumped, b"b")
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.write(producer, b"late", sequence=1)
    bench.end(bumped)
    assert bench.visible() == [b"b"]


def test_without_a_bump_an_abort_and_a_reset_go_on_where_the_log_has_lost_its_state(bench):
    """P3: against a coordinator without this: abort and reset without a bump."""
    producer = bench.init()
    bench.transaction(producer, b"a", b"b")
    bench.log(INVOICES_0).expire_producers(not_since_s=bench.clock() + 1)
    bench.add(producer)
    bench.end(producer, commit=False)
    bench.transaction(producer, b"c", sequence=0)
    assert bench.visible() == [b"a", b"b", b"c"]


def test_a_producer_without_a_transactional_id_bumps_its_epoch_by_itself(bench):
    """P3: a non-transactional idempotent producer bumps its epoch locally and re-numbers."""
    producer = bench.coordinator.init_producer_id(None, TIMEOUT_S)
    log = bench.log(AUDIT_0)
    for value, epoch in ((b"a", 0), (b"b", 1)):
        log.append(RecordBatch((NewRecord(value),), producer.producer_id, epoch, base_sequence=0), bench.clock())
    assert bench.visible(AUDIT_0) == [b"a", b"b"]


def test_what_is_known_of_a_producer_outlives_its_records(bench):
    """P3: producer state outlives its records in the log."""
    producer = bench.init()
    bench.transaction(producer, b"a", b"b")
    bench.log(INVOICES_0).delete_records(3)
    assert bench.visible() == []
    bench.add(producer)
    assert bench.write(producer, b"a", b"b", sequence=0) == 0, "a duplicate is known although the record is gone"
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.log(INVOICES_0).append_marker(identity(producer, epochs=-1), Marker.COMMIT, bench.clock())
    bench.write(producer, b"c", sequence=2)
    bench.end(producer)
    assert bench.visible() == [b"c"]


def test_a_bump_in_the_middle_of_a_transaction_aborts_it_and_ends_the_producer(bench):
    """P3: abort, *then* bump: InitProducerId in an open transaction fences whoever has it."""
    producer = bench.init()
    bench.add(producer)
    bench.write(producer, b"a")
    with refused("CONCURRENT_TRANSACTIONS"):
        bench.init(producer)
    with refused("PRODUCER_FENCED"):
        bench.init(producer)
    assert bench.visible() == []


# -- a transaction of the one before ---------------------------------------------------------------------------------


def test_init_aborts_the_transaction_of_a_dead_process_at_once(bench):
    """P2: a pending transaction of a dead process ends at once when its transactional.id is initialised again."""
    dead = bench.init()
    bench.add(dead)
    bench.coordinator.add_offsets("billing-1", dead, "billing")
    bench.write(dead, b"a")
    with refused("CONCURRENT_TRANSACTIONS"):
        bench.init()
    assert bench.state() == "CompleteAbort"
    assert bench.groups.markers == [("billing", identity(dead, epochs=1), False)]
    assert bench.log(INVOICES_0).last_stable_offset == bench.log(INVOICES_0).log_end_offset
    assert bench.init() == identity(dead, epochs=2)
    assert bench.visible() == []


def test_init_waits_for_a_decided_transaction_and_does_not_undo_it(bench):
    producer = bench.init()
    bench.add(producer)
    bench.write(producer, b"a")
    bench.coordinator.hold_markers = True
    bench.end(producer)
    for _ in range(2):
        with refused("CONCURRENT_TRANSACTIONS"):
            bench.init()
    bench.coordinator.hold_markers = False
    bench.at(1.0)
    assert bench.init() == identity(producer, epochs=1)
    assert bench.visible() == [b"a"]


def test_init_waits_while_the_abort_it_began_is_held(bench):
    dead = bench.init()
    bench.add(dead)
    bench.coordinator.hold_markers = True
    for _ in range(3):
        with refused("CONCURRENT_TRANSACTIONS"):
            bench.init()
    assert bench.state() == "PrepareAbort"
    bench.coordinator.hold_markers = False
    bench.at(0.0)
    assert bench.init() == identity(dead, epochs=2), "the abort fenced once, however often it was asked for"


# -- epochs run out --------------------------------------------------------------------------------------------------


def test_the_last_usable_epoch_is_given_and_the_next_init_gets_a_new_producer_id(bench):
    """P3: exhausted epoch: new producer id."""
    first = bench.init()
    bench.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = bench.init()
    assert last == ProducerIdentity(first.producer_id, LAST_EPOCH)
    fresh = bench.init()
    assert fresh.producer_epoch == 0
    assert fresh.producer_id != first.producer_id
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        bench.add(last)


def test_a_bump_of_the_last_epoch_remembers_the_old_producer_id_for_a_lost_answer(bench):
    """P3: exhausted epoch: new producer id, the old one remembered as previous."""
    bench.init()
    bench.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = bench.init()
    fresh = bench.init(last)
    assert fresh.producer_epoch == 0
    assert bench.init(last) == fresh
    assert bench.init(last) == fresh, "however often the answer is lost"
    for zombie in (identity(last, epochs=-1), ProducerIdentity(last.producer_id, fresh.producer_epoch)):
        with refused("PRODUCER_FENCED"):
            bench.init(zombie)


def test_a_new_producer_id_taken_by_somebody_else_fences_the_old_one(bench):
    """P3 (1, 4): the last epoch is none after an init without an identity, across a change of the id, too."""
    bench.init()
    bench.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = bench.init()
    bench.init()
    with refused("PRODUCER_FENCED"):
        bench.init(last)


def test_a_bump_to_the_last_epoch_whose_answer_was_lost_returns_it_again(bench):
    """P3 (3): epoch == last: a retry, at the end of the epochs as well."""
    bench.init()
    bench.coordinator.set_epoch("billing-1", LAST_EPOCH - 2)
    producer = bench.init()
    last = bench.init(producer)
    assert last.producer_epoch == LAST_EPOCH
    assert bench.init(producer) == last


def test_the_epoch_above_the_last_usable_one_is_for_fencing_only(bench):
    """P3: exhausted epoch (32767): no producer has it, a time-out may."""
    bench.init()
    bench.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = bench.init()
    bench.add(last)
    bench.write(last, b"a")
    bench.at(60.0)
    assert bench.markers() == [("abort", 32_767)]
    with refused("INVALID_PRODUCER_EPOCH"):
        bench.write(last, b"b", sequence=1)
    fresh = bench.init()
    assert (fresh.producer_epoch, fresh.producer_id != last.producer_id) == (0, True)


# -- ids that are forgotten ------------------------------------------------------------------------------------------


def test_after_its_id_expired_a_producer_is_told_so_and_may_bump(bench):
    """P3: INVALID_PRODUCER_ID_MAPPING becomes abortable: abort, bump, go on."""
    producer = bench.init()
    bench.transaction(producer, b"a")
    bench.coordinator.forget("billing-1")
    for ask in (
        lambda: bench.add(producer),
        lambda: bench.coordinator.add_offsets("billing-1", producer, "billing"),
        lambda: bench.end(producer),
        lambda: bench.end(producer, commit=False),
        lambda: bench.write(producer, b"z", sequence=1),
    ):
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            ask()
    bumped = bench.init(producer)
    assert (bumped.producer_epoch, bumped.producer_id != producer.producer_id) == (0, True)
    bench.transaction(bumped, b"b")
    assert bench.visible() == [b"a", b"b"]


def test_a_bump_past_an_expired_id_revives_a_zombie_and_fences_its_successor(bench):
    """P3: KAFKA-18019: only safe because the input offsets are fenced by the group; else a producer must stop."""
    zombie = bench.init()
    successor = bench.init()
    bench.transaction(successor, b"a")
    bench.coordinator.forget("billing-1")
    revived = bench.init(zombie)
    bench.transaction(revived, b"doubled by a zombie")
    assert b"doubled by a zombie" in bench.visible()
    with refused("PRODUCER_FENCED"):
        bench.init(successor)


def test_an_idle_id_expires_by_itself_and_one_in_use_does_not():
    bench = TransactionBench(transactional_id_expiration_s=100.0)
    producer = bench.init()
    for turn in range(5):
        bench.at(60.0 * turn)
        bench.transaction(producer, b"a", sequence=turn)
    bench.at(60.0 * 4 + 99.0)
    assert bench.state() == "CompleteCommit"
    bench.at(60.0 * 4 + 100.0)
    assert bench.coordinator.describe("billing-1") is None
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        bench.add(producer)


def test_an_open_transaction_keeps_its_id_from_expiring():
    bench = TransactionBench(transactional_id_expiration_s=5.0)
    producer = bench.init(timeout_s=60.0)
    bench.add(producer)
    bench.at(30.0)
    assert bench.state() == "Ongoing"
    bench.end(producer)


def test_forgetting_an_id_aborts_its_open_transaction_so_that_readers_go_on(bench):
    producer = bench.init()
    bench.add(producer)
    bench.write(producer, b"a")
    bench.coordinator.forget("billing-1")
    assert bench.markers() == [("abort", 1)]
    assert bench.visible() == []
    assert bench.log(INVOICES_0).last_stable_offset == bench.log(INVOICES_0).log_end_offset


def test_forgetting_an_id_completes_a_decided_transaction_first(bench):
    producer = bench.init()
    bench.add(producer)
    bench.write(producer, b"a")
    bench.coordinator.hold_markers = True
    bench.end(producer)
    bench.coordinator.forget("billing-1")
    assert bench.visible() == [b"a"]


# -- requests that are not meant -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 900.1])
def test_a_transaction_timeout_beyond_the_brokers_limit_is_refused(bench, timeout_s):
    with refused("INVALID_TRANSACTION_TIMEOUT"):
        bench.init(timeout_s=timeout_s)
    assert bench.coordinator.describe("billing-1") is None


def test_an_empty_transactional_id_and_half_an_identity_are_invalid_requests(bench):
    with refused("INVALID_REQUEST"):
        bench.coordinator.init_producer_id("", TIMEOUT_S)
    producer = bench.init()
    for half in (ProducerIdentity(producer.producer_id, -1), ProducerIdentity(-1, 0)):
        with refused("INVALID_REQUEST"):
            bench.init(half)


def test_idempotent_producers_get_a_producer_id_each(bench):
    given = [bench.coordinator.init_producer_id(None, TIMEOUT_S) for _ in range(3)]
    assert len({each.producer_id for each in given}) == 3
    assert {each.producer_epoch for each in given} == {0}


def test_the_script_cannot_lower_an_epoch_nor_touch_an_unknown_id(bench):
    bench.init()
    bench.coordinator.set_epoch("billing-1", 5)
    for epoch in (5, 4, 32_768):
        with pytest.raises(ValueError, match="the epoch of 'billing-1' is 5"):
            bench.coordinator.set_epoch("billing-1", epoch)
    for script in (bench.coordinator.forget, lambda txn: bench.coordinator.set_epoch(txn, 1)):
        with pytest.raises(LookupError, match="nobody"):
            script("nobody")
