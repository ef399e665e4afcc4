"""Offsets that wait for the end of a transaction (KIP-447), next to plain commits of the same partitions."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.group_requests import FetchedOffset
from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulator.brokers.offset_log import CoordinatorDiedError, OffsetLog
from eos_client.testing.simulator.brokers.offset_store import METADATA_BYTES_MAX, OffsetStore, PendingOffset

GROUP = "billing"
P0, P1 = PartitionKey("orders", 0), PartitionKey("orders", 1)
ANNA = ProducerIdentity(7, 0)
BERT = ProducerIdentity(8, 0)


def at(*offsets: int) -> dict[PartitionKey, OffsetAndMetadata]:
    return {PartitionKey("orders", number): OffsetAndMetadata(offset) for number, offset in enumerate(offsets)}


def offsets_of(store: OffsetStore, group: str = GROUP) -> dict[PartitionKey, int | None]:
    return {key: fetched.offset for key, fetched in store.fetch(group, None, require_stable=False).items()}


@pytest.fixture(params=["as written", "after a restart", "after compaction and a restart"])
def again(request):
    """What happens between a story's steps and its end."""

    def happen(store: OffsetStore) -> OffsetStore:
        if request.param == "after compaction and a restart":
            store.log.compact()
        return store if request.param == "as written" else store.reopened()

    return happen


@pytest.fixture
def store() -> OffsetStore:
    return OffsetStore(OffsetLog())


def test_staged_offsets_come_into_force_with_the_commit_marker(store, again):
    store.commit(GROUP, at(1, 1))
    store.stage(GROUP, ANNA, at(5, 6))
    store = again(store)
    assert offsets_of(store) == {P0: 1, P1: 1}
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 5, P1: 6}


def test_staged_offsets_are_dropped_with_the_abort_marker(store, again):
    store.commit(GROUP, at(1, 1))
    store.stage(GROUP, ANNA, at(5, 6))
    store = again(store)
    store.complete(GROUP, ANNA, committed=False)
    store = again(store)
    assert offsets_of(store) == {P0: 1, P1: 1}
    assert store.pending(GROUP) == {}


def test_a_fetch_of_a_pending_partition_says_unstable_to_who_requires_stable_offsets(store, again):
    store.commit(GROUP, at(1, 1))
    store.stage(GROUP, ANNA, at(5))
    store = again(store)
    unstable = FetchedOffset(None, code="UNSTABLE_OFFSET_COMMIT")
    assert store.fetch(GROUP, [P0, P1], require_stable=True) == {P0: unstable, P1: FetchedOffset(1)}
    assert store.fetch(GROUP, [P0, P1], require_stable=False) == {P0: FetchedOffset(1), P1: FetchedOffset(1)}
    assert store.pending(GROUP) == {P0: PendingOffset((ANNA,))}


def test_a_partition_that_was_never_committed_is_unstable_while_its_first_offset_is_pending(store, again):
    store.stage(GROUP, ANNA, at(5))
    store = again(store)
    assert store.fetch(GROUP, None, require_stable=True)[P0].code == "UNSTABLE_OFFSET_COMMIT"
    assert store.groups() == (GROUP,)


def test_a_plain_commit_after_the_staged_one_wins_though_the_marker_comes_last(store, again):
    store.stage(GROUP, ANNA, at(5, 5))
    store.commit(GROUP, at(9))
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 9, P1: 5}


def test_a_plain_commit_before_the_staged_one_loses(store, again):
    store.commit(GROUP, at(9))
    store.stage(GROUP, ANNA, at(5))
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 5}


@pytest.mark.parametrize("first_marked", [ANNA, BERT])
def test_of_two_transactions_the_one_that_staged_later_wins_whichever_ends_first(store, again, first_marked):
    store.stage(GROUP, ANNA, at(5))
    store.stage(GROUP, BERT, at(8))
    assert store.pending(GROUP) == {P0: PendingOffset((ANNA, BERT))}
    store.complete(GROUP, first_marked, committed=True)
    store = again(store)
    store.complete(GROUP, BERT if first_marked is ANNA else ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 8}


def test_an_aborted_transaction_does_not_overtake_another(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.stage(GROUP, BERT, at(8))
    store.complete(GROUP, BERT, committed=False)
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 5}


def test_the_last_offset_staged_in_one_transaction_counts(store, again):
    store.stage(GROUP, ANNA, at(5, 5))
    store.stage(GROUP, ANNA, at(7))
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 7, P1: 5}


def test_a_marker_ends_the_transaction_in_its_own_group_only(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.stage("audit", ANNA, at(6))
    store.complete(GROUP, ANNA, committed=True)
    store = again(store)
    assert store.pending(GROUP) == {}
    assert store.pending("audit") == {P0: PendingOffset((ANNA,))}


def test_a_repeated_marker_changes_nothing(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.complete(GROUP, ANNA, committed=True)
    store.commit(GROUP, at(9))
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert offsets_of(again(store)) == {P0: 9}


def test_the_abort_of_a_time_out_carries_a_later_epoch_and_ends_the_transaction(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.complete(GROUP, ProducerIdentity(ANNA.producer_id, 1), committed=False)
    assert again(store).pending(GROUP) == {}


def test_offsets_of_an_earlier_epoch_than_the_last_marker_are_refused(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.complete(GROUP, ProducerIdentity(ANNA.producer_id, 1), committed=False)
    store = again(store)
    with pytest.raises(BrokerError) as refused:
        store.stage(GROUP, ANNA, at(6))
    assert refused.value.code == "INVALID_PRODUCER_EPOCH"
    assert store.pending(GROUP) == {}


def test_a_marker_of_an_earlier_epoch_comes_too_late(store, again):
    newer = ProducerIdentity(ANNA.producer_id, 1)
    store.stage(GROUP, newer, at(5))
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert again(store).pending(GROUP) == {P0: PendingOffset((newer,))}


@pytest.mark.parametrize(
    ("key", "entry", "code"),
    [
        (P1, OffsetAndMetadata(1, "x" * (METADATA_BYTES_MAX + 1)), "OFFSET_METADATA_TOO_LARGE"),
        (P1, OffsetAndMetadata(-1), "INVALID_REQUEST"),
        (PartitionKey("orders", -1), OffsetAndMetadata(1), "UNKNOWN_TOPIC_OR_PART"),
    ],
)
def test_one_bad_partition_keeps_a_whole_transactional_commit_from_being_staged(store, key, entry, code):
    """P4: a commit of several partitions is all-or-nothing."""
    with pytest.raises(BrokerError) as refused:
        store.stage(GROUP, ANNA, {**at(5), key: entry})
    assert refused.value.code == code
    assert len(store.log) == 0


def test_a_transactional_commit_that_was_torn_is_never_pending(store):
    """P4: recovery: a partial write is not applied."""
    store.commit(GROUP, at(1, 1))
    store.log.die_after(1)
    with pytest.raises(CoordinatorDiedError):
        store.stage(GROUP, ANNA, at(5, 5))
    recovered = store.reopened()
    recovered.complete(GROUP, ANNA, committed=True)
    assert offsets_of(recovered) == {P0: 1, P1: 1}


def test_a_deleted_group_has_no_offsets_and_an_open_transaction_does_not_bring_them_back(store, again):
    store.commit(GROUP, at(1, 1))
    store.commit("audit", at(1))
    store.stage(GROUP, ANNA, at(5))
    store.delete_group(GROUP)
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    store = again(store)
    assert store.fetch(GROUP, None, require_stable=True) == {}
    assert store.groups() == ("audit",)


def test_a_group_that_had_only_pending_offsets_when_it_was_deleted_gets_none(store, again):
    store.stage(GROUP, ANNA, at(5))
    store.delete_group(GROUP)
    store = again(store)
    store.complete(GROUP, ANNA, committed=True)
    assert again(store).groups() == ()


def test_deleted_partitions_take_no_offset_of_another_with_them(store, again):
    store.commit(GROUP, at(1, 1))
    store.delete(GROUP, [P1])
    assert offsets_of(again(store)) == {P0: 1}
