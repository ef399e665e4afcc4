"""A worker that stalls inside its handler, and goes on once another has claimed its partitions, commits nothing."""

from __future__ import annotations

import pytest

from eos_client import Outcome
from eos_client.confluent.failures.kafka_errors import NamedError
from eos_client.confluent.positions.claims import Claims
from eos_client.confluent.positions.producer import PositionedProducer
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition
from eos_client.core.offset_claims import Position
from eos_client.errors import AbortableError
from eos_client.position_store import StoreError
from eos_client.testing import SimulatedCluster
from tests.databases.row_locking_store import Member, RowLockingStore, RowLockingTransaction
from tests.support.protocols import PROTOCOLS, settings_of

COUNT = 6


@pytest.fixture
def cluster():
    made = SimulatedCluster(seed=4)
    made.create_topic("orders")
    return made


def is_exact(store, count=COUNT):
    return store.rows == [(0, offset) for offset in range(count)]


def until(member, done, limit=300):
    for _ in range(limit):
        if done():
            return
        member.step()
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_zombie_that_wakes_in_its_handler_commits_nothing(cluster, protocol):
    store = RowLockingStore()
    zombie = Member(cluster, store, "zombie", **settings_of(protocol))
    zombie.step()
    cluster.write("orders", [b"v"] * COUNT)

    def sleeps():
        if not store.locks and zombie.clients.transaction.connection:
            zombie.inside = lambda: None
            new_owner = Member(cluster, store, "new owner", **settings_of(protocol))
            with cluster.zombie("zombie"):
                cluster.advance(60)
                until(new_owner, lambda: is_exact(store))

    zombie.inside = sleeps
    outcomes = [zombie.step() for _ in range(5)]
    assert Outcome.ABORTED in outcomes
    assert is_exact(store)


def test_a_zombie_that_sleeps_before_its_commit_holds_its_row_until_it_has_ended(cluster):
    """Nobody waits for it: the new owner is refused, asks again, and goes on behind what the zombie has committed."""
    store = RowLockingStore()
    zombie = Member(cluster, store, "zombie")
    zombie.step()
    cluster.write("orders", [b"v"] * COUNT)
    new_owners: list[Member] = []

    def sleeps(step):
        if step == "commit" and store.locks and not new_owners:
            new_owners.append(Member(cluster, store, "new owner"))
            cluster.advance(60)
            for _ in range(20):
                new_owners[0].step()
            assert store.rows == []

    store.before = sleeps
    until(zombie, lambda: new_owners)
    cluster.write("orders", [b"v"])
    assert is_exact(store)
    cluster.kill("zombie")
    cluster.kill("new owner")  # it belongs to the thread in which the commit ran
    until(Member(cluster, store, "next"), lambda: is_exact(store, COUNT + 1))


# -- handles that were given up ----------------------------------------------------------------------------------------

P0 = InputPartition("orders", 0)


class Offset:
    topic, partition, offset, metadata, leader_epoch = "orders", 0, 5, "token", None


def claimed(store):
    claims = Claims(store, "me")
    claims.assigned([P0])
    assert claims.read([P0], GroupGeneration(1, "m", "g"), lambda _: {}) == {P0: Position(-1, 1, 1, "me")}
    return claims


def test_a_call_of_a_handle_that_was_given_up_does_not_reach_the_next_ones_transaction():
    store = RowLockingStore()
    claims = claimed(store)
    old, new = PositionedProducer({}, claims), PositionedProducer({}, claims)
    old.begin_transaction()
    claims.transaction.connection.append("old")
    old.send_offsets_to_transaction([Offset], None)
    new.init_transactions()
    new.begin_transaction()
    claims.transaction.connection.append("half of the new one")
    for late in (old.commit_transaction, lambda: old.send_offsets_to_transaction([Offset], None)):
        with pytest.raises(NamedError) as raised:
            late()
        assert isinstance(raised.value.named, AbortableError)
    old.abort_transaction()
    old.close()
    assert store.rows == []
    new.send_offsets_to_transaction([Offset], None)
    new.commit_transaction()
    assert store.rows == ["half of the new one"]
    assert store.positions[P0].next_offset == 5


def test_a_commit_that_returns_late_leaves_the_next_transaction_open():
    store = RowLockingStore()
    claims = claimed(store)
    old, new = PositionedProducer({}, claims), PositionedProducer({}, claims)
    old.begin_transaction()
    old.send_offsets_to_transaction([Offset], None)

    class LateTransaction(RowLockingTransaction):
        """Commits, and answers when the next handle is in the middle of its transaction."""

        def commit(self):
            super().commit()
            new.init_transactions()
            assert claims.read([P0], GroupGeneration(1, "m", "g"), lambda _: {})[P0].attempt == "token"
            new.begin_transaction()

    old._transaction.__class__ = LateTransaction
    old.commit_transaction()
    claims.transaction.connection.append("next")
    following = type("Following", (Offset,), {"offset": 7})
    new.send_offsets_to_transaction([following], None)
    new.commit_transaction()
    assert store.rows == ["next"]
    assert store.positions[P0].next_offset == 7


def test_a_refused_commit_leaves_its_row_claimed():
    store = RowLockingStore()
    claims = claimed(store)
    producer = PositionedProducer({}, claims)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Offset], None)
    claims.transaction.close()
    with pytest.raises(NamedError):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Offset], None)
    producer.commit_transaction()
    assert store.positions[P0].next_offset == 5


def test_a_claim_under_an_older_generation_is_made_again_and_one_of_another_partition_is_not():
    store = RowLockingStore()
    claims = claimed(store)
    claims.assigned([InputPartition("orders", 1)])
    again = claims.read([P0], GroupGeneration(2, "m", "g"), lambda _: {})
    assert again == {P0: Position(-1, 2, 2, "me")}
    assert set(store.positions) == {P0}
    assert claims.read([P0], GroupGeneration(2, "m", "g"), lambda _: {}) == again


def test_what_was_committed_of_partitions_that_left_is_not_followed():
    store = RowLockingStore()
    claims = claimed(store)
    producer = PositionedProducer({}, claims)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Offset], None)
    producer.commit_transaction()
    claims.departed([P0])
    assert claims.take_committed() == {}


def test_a_position_in_doubt_is_read_once_no_transaction_holds_its_row():
    store = RowLockingStore()
    claims = claimed(store)
    transaction = claims.begin()
    moves = claims.moves_of({P0: _position(5)}, "token")
    transaction.move(moves)

    def lost():
        raise StoreError("lost")

    transaction.commit, commit = lost, transaction.commit
    with pytest.raises(StoreError):
        claims.commit(transaction, moves)
    with pytest.raises(StoreError, match="holds the row"):
        claims.read([P0], GroupGeneration(1, "m", "g"), lambda _: {})
    with pytest.raises(StoreError, match="not claimed"):
        claims.moves_of({P0: _position(6)}, "token")
    commit()
    assert claims.read([P0], GroupGeneration(1, "m", "g"), lambda _: {})[P0].attempt == "token"
    assert claims.take_committed()[P0].next_offset == 5


def _position(offset):
    return InputPosition(offset, offset, UNJOINED)
