"""Who a producer is: the rules of InitProducerId (KIP-98, KIP-360, P3), epochs that run out, and forgotten ids."""

import pytest

from eos_client.testing.simulation.model import Marker, NewRecord, ProducerIdentity, RecordBatch
from tests.simulation.transaction_world import AUDIT_0, INVOICES_0, TIMEOUT_S, World, refused

LAST_EPOCH = 32_766


def identity(producer, *, epochs=0):
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + epochs)


@pytest.fixture
def world():
    return World()


# -- the four rules --------------------------------------------------------------------------------------------------


def test_a_new_transactional_id_starts_at_epoch_zero(world):
    """P3: InitProducerId gives a producer id and an epoch."""
    assert world.init().producer_epoch == 0
    assert world.init(txn="billing-2").producer_id != world.coordinator.describe("billing-1").producer.producer_id


def test_init_without_an_identity_bumps_the_epoch_and_fences_the_one_before(world):
    """P3 (1): no producer id and epoch: bump."""
    first = world.init()
    second = world.init()
    assert second == identity(first, epochs=1)
    with refused("INVALID_PRODUCER_EPOCH"):
        world.add(first)
    world.transaction(second, b"a")
    assert world.visible() == [b"a"]


def test_init_without_an_identity_forgets_the_last_epoch_so_that_no_older_producer_can_return(world):
    """P3 (1): no producer id and epoch: last epoch := none."""
    first = world.init()
    bumped = world.init(first)
    newer = world.init()
    for old in (first, bumped):
        with refused("PRODUCER_FENCED"):
            world.init(old)
    assert world.coordinator.describe("billing-1").producer == newer


def test_init_with_the_current_epoch_bumps_it(world):
    """P3 (2): epoch == current: bump, return the new one."""
    first = world.init()
    assert world.init(first) == identity(first, epochs=1)


def test_a_repeated_bump_whose_answer_was_lost_returns_the_same_epoch_again(world):
    """P3 (2, 3): last := old current; epoch == last: a retry of (2), return current, no bump."""
    first = world.init()
    bumped = world.init(first)
    assert world.init(first) == bumped
    assert world.init(first) == bumped
    world.transaction(bumped, b"a")
    assert world.visible() == [b"a"]


def test_each_bump_remembers_only_the_epoch_just_before_it(world):
    """P3 (3, 4): only epoch == last is a retry."""
    first = world.init()
    second = world.init(first)
    third = world.init(second)
    assert world.init(second) == third
    with refused("PRODUCER_FENCED"):
        world.init(first)


@pytest.mark.parametrize("epochs", [-2, 2])
def test_init_with_any_other_epoch_is_fenced(world, epochs):
    """P3 (4): anything else: fenced; InitProducerId v4 says PRODUCER_FENCED."""
    world.init()
    world.init()
    current = world.init()
    with refused("PRODUCER_FENCED"):
        world.init(identity(current, epochs=epochs))
    assert world.coordinator.describe("billing-1").producer == current


def test_init_with_a_foreign_producer_id_is_fenced(world):
    """P3 (4): anything else: fenced; someone else has this transactional.id."""
    world.init()
    other = world.init(txn="billing-2")
    with refused("PRODUCER_FENCED"):
        world.init(other)


def test_a_fenced_producer_stays_fenced_after_the_newer_one_has_worked(world):
    """P3 (4): fatal: someone else bumped."""
    zombie = world.init()
    world.transaction(world.init(), b"a")
    with refused("PRODUCER_FENCED"):
        world.init(zombie)
    with refused("INVALID_PRODUCER_EPOCH"):
        world.write(zombie, b"z")
    assert world.visible() == [b"a"]


def test_a_bump_is_known_again_after_transactions_of_the_bumped_epoch(world):
    """P3 (3): epoch == last: return current, however late the repeated request comes."""
    first = world.init()
    bumped = world.init(first)
    world.transaction(bumped, b"a")
    assert world.init(first) == bumped


def test_the_newest_init_says_how_long_transactions_may_take(world):
    first = world.init(timeout_s=10.0)
    assert world.coordinator.describe("billing-1").timeout_s == 10.0
    world.init(first, timeout_s=20.0)
    assert world.coordinator.describe("billing-1").timeout_s == 20.0
    world.init(first, timeout_s=30.0)
    assert world.coordinator.describe("billing-1").timeout_s == 30.0, "of a repeated bump, too"


def test_a_repeated_bump_keeps_the_id_from_expiring(world):
    first = world.init()
    world.init(first)
    world.at(1000.0)
    world.init(first)
    assert world.coordinator.due_s == 1000.0 + world.settings.transactional_id_expiration_s


# -- bump and go on --------------------------------------------------------------------------------------------------


def test_an_abort_and_a_bump_go_on_with_sequences_from_zero(world):
    """P3: abort, bump the epoch, restart sequences at 0, go on."""
    producer = world.init()
    world.transaction(producer, b"a", b"b")
    world.add(producer)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        world.write(producer, b"lost its predecessor", sequence=7)
    world.end(producer, commit=False)
    bumped = world.init(producer)
    world.transaction(bumped, b"c", sequence=0)
    assert world.visible() == [b"a", b"b", b"c"]


def test_a_bumped_epoch_that_does_not_start_at_zero_is_refused(world):
    """P3: bump the epoch, restart sequences at 0."""
    producer = world.init()
    world.transaction(producer, b"a", b"b")
    bumped = world.init(producer)
    world.add(bumped)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        world.write(bumped, b"c", sequence=2)


def test_after_a_bump_a_late_batch_of_the_old_epoch_is_refused(world):
    """P3: abort, bump the epoch: what is still under way at the old epoch comes too late."""
    producer = world.init()
    world.add(producer)
    world.write(producer, b"a")
    world.end(producer, commit=False)
    bumped = world.init(producer)
    world.add(bumped)
    world.write(bumped, b"b")
    with refused("INVALID_PRODUCER_EPOCH"):
        world.write(producer, b"late", sequence=1)
    world.end(bumped)
    assert world.visible() == [b"b"]


def test_without_a_bump_an_abort_and_a_reset_go_on_where_the_log_has_lost_its_state(world):
    """P3: against a coordinator without this: abort and reset without a bump."""
    producer = world.init()
    world.transaction(producer, b"a", b"b")
    world.log(INVOICES_0).expire_producers(not_since_s=world.clock() + 1)
    world.add(producer)
    world.end(producer, commit=False)
    world.transaction(producer, b"c", sequence=0)
    assert world.visible() == [b"a", b"b", b"c"]


def test_a_producer_without_a_transactional_id_bumps_its_epoch_by_itself(world):
    """P3: a non-transactional idempotent producer bumps its epoch locally and re-numbers."""
    producer = world.coordinator.init_producer_id(None, TIMEOUT_S)
    log = world.log(AUDIT_0)
    for value, epoch in ((b"a", 0), (b"b", 1)):
        log.append(RecordBatch((NewRecord(value),), producer.producer_id, epoch, base_sequence=0), world.clock())
    assert world.visible(AUDIT_0) == [b"a", b"b"]


def test_what_is_known_of_a_producer_outlives_its_records(world):
    """P3: producer state outlives its records in the log."""
    producer = world.init()
    world.transaction(producer, b"a", b"b")
    world.log(INVOICES_0).delete_records(3)
    assert world.visible() == []
    world.add(producer)
    assert world.write(producer, b"a", b"b", sequence=0) == 0, "a duplicate is known although the record is gone"
    with refused("INVALID_PRODUCER_EPOCH"):
        world.log(INVOICES_0).append_marker(identity(producer, epochs=-1), Marker.COMMIT, world.clock())
    world.write(producer, b"c", sequence=2)
    world.end(producer)
    assert world.visible() == [b"c"]


def test_a_bump_in_the_middle_of_a_transaction_aborts_it_and_ends_the_producer(world):
    """P3: abort, *then* bump: InitProducerId in an open transaction fences whoever has it."""
    producer = world.init()
    world.add(producer)
    world.write(producer, b"a")
    with refused("CONCURRENT_TRANSACTIONS"):
        world.init(producer)
    with refused("PRODUCER_FENCED"):
        world.init(producer)
    assert world.visible() == []


# -- a transaction of the one before ---------------------------------------------------------------------------------


def test_init_aborts_the_transaction_of_a_dead_process_at_once(world):
    """P2: a pending transaction of a dead process ends at once when its transactional.id is initialised again."""
    dead = world.init()
    world.add(dead)
    world.coordinator.add_offsets("billing-1", dead, "billing")
    world.write(dead, b"a")
    with refused("CONCURRENT_TRANSACTIONS"):
        world.init()
    assert world.state() == "CompleteAbort"
    assert world.groups.markers == [("billing", identity(dead, epochs=1), False)]
    assert world.log(INVOICES_0).last_stable_offset == world.log(INVOICES_0).log_end_offset
    assert world.init() == identity(dead, epochs=2)
    assert world.visible() == []


def test_init_waits_for_a_decided_transaction_and_does_not_undo_it(world):
    producer = world.init()
    world.add(producer)
    world.write(producer, b"a")
    world.coordinator.hold_markers = True
    world.end(producer)
    for _ in range(2):
        with refused("CONCURRENT_TRANSACTIONS"):
            world.init()
    world.coordinator.hold_markers = False
    world.at(1.0)
    assert world.init() == identity(producer, epochs=1)
    assert world.visible() == [b"a"]


def test_init_waits_while_the_abort_it_began_is_held(world):
    dead = world.init()
    world.add(dead)
    world.coordinator.hold_markers = True
    for _ in range(3):
        with refused("CONCURRENT_TRANSACTIONS"):
            world.init()
    assert world.state() == "PrepareAbort"
    world.coordinator.hold_markers = False
    world.at(0.0)
    assert world.init() == identity(dead, epochs=2), "the abort fenced once, however often it was asked for"


# -- epochs run out --------------------------------------------------------------------------------------------------


def test_the_last_usable_epoch_is_given_and_the_next_init_gets_a_new_producer_id(world):
    """P3: exhausted epoch: new producer id."""
    first = world.init()
    world.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = world.init()
    assert last == ProducerIdentity(first.producer_id, LAST_EPOCH)
    fresh = world.init()
    assert fresh.producer_epoch == 0
    assert fresh.producer_id != first.producer_id
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        world.add(last)


def test_a_bump_of_the_last_epoch_remembers_the_old_producer_id_for_a_lost_answer(world):
    """P3: exhausted epoch: new producer id, the old one remembered as previous."""
    world.init()
    world.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = world.init()
    fresh = world.init(last)
    assert fresh.producer_epoch == 0
    assert world.init(last) == fresh
    assert world.init(last) == fresh, "however often the answer is lost"
    for zombie in (identity(last, epochs=-1), ProducerIdentity(last.producer_id, fresh.producer_epoch)):
        with refused("PRODUCER_FENCED"):
            world.init(zombie)


def test_a_new_producer_id_taken_by_somebody_else_fences_the_old_one(world):
    """P3 (1, 4): the last epoch is none after an init without an identity, across a change of the id, too."""
    world.init()
    world.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = world.init()
    world.init()
    with refused("PRODUCER_FENCED"):
        world.init(last)


def test_a_bump_to_the_last_epoch_whose_answer_was_lost_returns_it_again(world):
    """P3 (3): epoch == last: a retry, at the end of the epochs as well."""
    world.init()
    world.coordinator.set_epoch("billing-1", LAST_EPOCH - 2)
    producer = world.init()
    last = world.init(producer)
    assert last.producer_epoch == LAST_EPOCH
    assert world.init(producer) == last


def test_the_epoch_above_the_last_usable_one_is_for_fencing_only(world):
    """P3: exhausted epoch (32767): no producer has it, a time-out may."""
    world.init()
    world.coordinator.set_epoch("billing-1", LAST_EPOCH - 1)
    last = world.init()
    world.add(last)
    world.write(last, b"a")
    world.at(60.0)
    assert world.markers() == [("abort", 32_767)]
    with refused("INVALID_PRODUCER_EPOCH"):
        world.write(last, b"b", sequence=1)
    fresh = world.init()
    assert (fresh.producer_epoch, fresh.producer_id != last.producer_id) == (0, True)


# -- ids that are forgotten ------------------------------------------------------------------------------------------


def test_after_its_id_expired_a_producer_is_told_so_and_may_bump(world):
    """P3: INVALID_PRODUCER_ID_MAPPING becomes abortable: abort, bump, go on."""
    producer = world.init()
    world.transaction(producer, b"a")
    world.coordinator.forget("billing-1")
    for ask in (
        lambda: world.add(producer),
        lambda: world.coordinator.add_offsets("billing-1", producer, "billing"),
        lambda: world.end(producer),
        lambda: world.end(producer, commit=False),
        lambda: world.write(producer, b"z", sequence=1),
    ):
        with refused("INVALID_PRODUCER_ID_MAPPING"):
            ask()
    bumped = world.init(producer)
    assert (bumped.producer_epoch, bumped.producer_id != producer.producer_id) == (0, True)
    world.transaction(bumped, b"b")
    assert world.visible() == [b"a", b"b"]


def test_a_bump_past_an_expired_id_revives_a_zombie_and_fences_its_successor(world):
    """P3: KAFKA-18019: only safe because the input offsets are fenced by the group; else a producer must stop."""
    zombie = world.init()
    successor = world.init()
    world.transaction(successor, b"a")
    world.coordinator.forget("billing-1")
    revived = world.init(zombie)
    world.transaction(revived, b"doubled by a zombie")
    assert b"doubled by a zombie" in world.visible()
    with refused("PRODUCER_FENCED"):
        world.init(successor)


def test_an_idle_id_expires_by_itself_and_one_in_use_does_not():
    world = World(transactional_id_expiration_s=100.0)
    producer = world.init()
    for turn in range(5):
        world.at(60.0 * turn)
        world.transaction(producer, b"a", sequence=turn)
    world.at(60.0 * 4 + 99.0)
    assert world.state() == "CompleteCommit"
    world.at(60.0 * 4 + 100.0)
    assert world.coordinator.describe("billing-1") is None
    with refused("INVALID_PRODUCER_ID_MAPPING"):
        world.add(producer)


def test_an_open_transaction_keeps_its_id_from_expiring():
    world = World(transactional_id_expiration_s=5.0)
    producer = world.init(timeout_s=60.0)
    world.add(producer)
    world.at(30.0)
    assert world.state() == "Ongoing"
    world.end(producer)


def test_forgetting_an_id_aborts_its_open_transaction_so_that_readers_go_on(world):
    producer = world.init()
    world.add(producer)
    world.write(producer, b"a")
    world.coordinator.forget("billing-1")
    assert world.markers() == [("abort", 1)]
    assert world.visible() == []
    assert world.log(INVOICES_0).last_stable_offset == world.log(INVOICES_0).log_end_offset


def test_forgetting_an_id_completes_a_decided_transaction_first(world):
    producer = world.init()
    world.add(producer)
    world.write(producer, b"a")
    world.coordinator.hold_markers = True
    world.end(producer)
    world.coordinator.forget("billing-1")
    assert world.visible() == [b"a"]


# -- requests that are not meant -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 900.1])
def test_a_transaction_timeout_beyond_the_brokers_limit_is_refused(world, timeout_s):
    with refused("INVALID_TRANSACTION_TIMEOUT"):
        world.init(timeout_s=timeout_s)
    assert world.coordinator.describe("billing-1") is None


def test_an_empty_transactional_id_and_half_an_identity_are_invalid_requests(world):
    with refused("INVALID_REQUEST"):
        world.coordinator.init_producer_id("", TIMEOUT_S)
    producer = world.init()
    for half in (ProducerIdentity(producer.producer_id, -1), ProducerIdentity(-1, 0)):
        with refused("INVALID_REQUEST"):
            world.init(half)


def test_idempotent_producers_get_a_producer_id_each(world):
    given = [world.coordinator.init_producer_id(None, TIMEOUT_S) for _ in range(3)]
    assert len({each.producer_id for each in given}) == 3
    assert {each.producer_epoch for each in given} == {0}


def test_the_script_cannot_lower_an_epoch_nor_touch_an_unknown_id(world):
    world.init()
    world.coordinator.set_epoch("billing-1", 5)
    for epoch in (5, 4, 32_768):
        with pytest.raises(ValueError, match="the epoch of 'billing-1' is 5"):
            world.coordinator.set_epoch("billing-1", epoch)
    for script in (world.coordinator.forget, lambda txn: world.coordinator.set_epoch(txn, 1)):
        with pytest.raises(LookupError, match="nobody"):
            script("nobody")
