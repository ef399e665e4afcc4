"""Membership: what the callbacks are told, and which generation the metadata shows in and after each of them."""

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import Membership, OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.clients.group_metadata import decode, encode
from tests.simulator.simulated_group import filled_cluster, group_member, pump, settle
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, PROTOCOLS

FIRST = TopicPartition("in", 0)


@pytest.fixture
def cluster():
    return filled_cluster()


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


def test_inside_revoke_a_kip_848_member_is_at_the_old_epoch_and_afterwards_until_its_heartbeat_is_answered(cluster):
    """P1: in the revoke callback commit: always safe there, since bumps are blocked while revoking."""
    first = group_member(cluster, CONSUMER)
    pump(first)
    second = group_member(cluster, CONSUMER)
    during: list[int] = []

    def stay_a_while(kind, partitions):
        if kind == "on_revoke":
            cluster.advance(20.0)
            during.append(first.generation)
            codes = cluster.brokers.groups.commit_offsets(
                "g", first.membership, {PartitionKey("in", p.partition): OffsetAndMetadata(1) for p in partitions}
            )
            assert set(codes.values()) == {"NONE"}

    first.inside = stay_a_while
    pump(first, seconds=8.0, until=lambda: during)
    (revoked,) = [s for s in first.seen if s[0] == "on_revoke"]
    assert revoked[2] == 1
    assert during == [1]
    pump(first, second)
    assert first.seen[-1] == ("on_assign", [], 1)
    assert first.generation == 2


def test_an_evicted_member_is_told_that_everything_is_lost_and_comes_back(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    cluster.lose()
    settle(member)
    assert member.told() == [
        ("on_assign", [0, 1, 2, 3]),
        ("on_lost", [0, 1, 2, 3]),
        ("on_assign", [0, 1, 2, 3]),
    ]
    assert member.owned == [0, 1, 2, 3]


def test_without_on_lost_a_loss_goes_to_on_revoke(cluster, protocol):
    member = group_member(cluster, protocol, without=("on_lost",))
    pump(member)
    cluster.lose()
    settle(member)
    assert member.told()[1] == ("on_revoke", [0, 1, 2, 3])


def test_records_that_wait_are_void_when_a_rebalance_is_told(cluster, protocol):
    """Nothing of a partition that has left is handed over after the call in which its callback ran."""
    member = group_member(cluster, protocol, max_poll_interval_ms=600_000)
    pump(member, until=lambda: member.got)
    cluster.revoke(("in", 2), ("in", 3))
    for partition in range(4):
        cluster.write("in", [b"more"] * 5, partition=partition)
    pump(member, seconds=12.0, until=lambda: member.owned == [0, 1])
    assert member.owned == [0, 1]
    before = len(member.got)
    pump(member, seconds=5.0)
    assert {m.partition() for m in member.got[before:]} <= {0, 1}
    kept = [(m.partition(), m.offset()) for m in member.got if m.partition() < 2]
    if protocol != EAGER:
        assert sorted(kept) == [(p, n) for p in (0, 1) for n in range(15)]


def test_a_record_collected_before_the_callback_may_be_returned_after_it_but_never_doubled(cluster):
    """The news of the pause comes through another thread: in some runs too late."""
    late = 0
    for seed in range(12):
        made = SimulatedCluster(seed=seed)
        made.create_topic("in", 2)
        member = group_member(made, COOPERATIVE)
        pump(member)
        for partition in range(2):
            made.write("in", [b"x"] * 5, partition=partition)
        made.revoke(("in", 1))
        batch = member.consumer.consume(1000, 6.0)
        assert member.owned == [0]
        late += any(m.partition() == 1 for m in batch)
        pump(member)
        kept = [m.offset() for m in (*batch, *member.got) if m.partition() == 0]
        assert kept == list(range(5))
    assert 0 < late < 12


def test_a_seek_inside_a_callback_drops_what_its_call_has_collected(cluster):
    """In a few of these runs the call has collected something before the callback."""
    for seed in range(100):
        made = SimulatedCluster(seed=seed)
        made.create_topic("in", 2)
        member = group_member(made, COOPERATIVE)
        pump(member)
        made.write("in", [b"x"] * 5)

        def back_to_two(kind, _, consumer=member.consumer):
            if kind == "on_revoke":
                consumer.seek(TopicPartition("in", 0, 2))
                consumer.pause([FIRST])

        member.inside = back_to_two
        made.revoke(("in", 1))
        assert member.consumer.consume(1000, 6.0) == []
        assert member.consumer.position([FIRST])[0].offset == OFFSET_INVALID
        member.consumer.resume([FIRST])
        pump(member)
        assert [m.offset() for m in member.got] == [2, 3, 4]


def test_nothing_is_fetched_while_a_rebalance_waits_for_the_application(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    cluster.revoke(("in", 3))
    cluster.advance(12.0)
    before = len(cluster.history)
    cluster.write("in", [b"new"])
    cluster.advance(5.0)
    assert "Fetch" not in {d.request for d in list(cluster.history)[before:]}
    member.got.clear()
    pump(member)
    assert [m.offset() for m in member.got if m.partition() == 0][-1] == 10


def test_close_runs_on_revoke_with_what_is_owned_and_may_commit_there(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    member.inside = lambda kind, partitions: member.consumer.commit(asynchronous=False)
    member.consumer.close()
    assert member.told()[1:] == [("on_revoke", [0, 1, 2, 3])]
    assert set(cluster.committed().values()) == {10}


def test_subscribing_again_before_the_revocation_was_served_comes_back(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    member.consumer.unsubscribe()
    member.consumer.subscribe(["in"])
    settle(member)
    assert member.owned == [0, 1, 2, 3]
    assert len(cluster.brokers.groups.describe("g").members) == 1


def test_a_cooperative_member_that_drops_a_topic_revokes_it_and_loses_it_if_it_has_to_look_up_another(cluster):
    cluster.create_topic("second", 1)
    cluster.create_topic("third", 1)
    member = group_member(cluster, COOPERATIVE, subscribe=False)
    for topics in (["in", "second"], ["in"], ["in"], ["third"]):
        member.subscribe(*topics)
        pump(member, seconds=4.0)
    assert member.seen == [
        ("on_assign", [0, 0, 1, 2, 3], 1),
        ("on_revoke", [0], 1),
        ("on_assign", [], 2),
        ("on_lost", [0, 1, 2, 3], 2),
        ("on_assign", [0], 3),
    ]


def test_a_topic_that_does_not_exist_is_told_once_and_joined_when_it_is_created(cluster):
    member = group_member(cluster, EAGER, subscribe=False)
    member.consumer.subscribe(["in", "later"])
    settle(member)
    (error,) = member.errors
    assert (error.error().code(), error.topic()) == (KafkaError.UNKNOWN_TOPIC_OR_PART, "later")
    cluster.create_topic("later", 1)
    settle(member)
    assert {p.topic for p in member.consumer.assignment()} == {"in", "later"}


def test_metadata_bytes_are_the_librarys_layout():
    assert encode("g", Membership(-1, "", None)) == b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01"
    assert encode("g", Membership(3, "m", "i")) == b"CGMDv2:\x03\x00\x00\x00g\x00m\x00\x00i\x00"
    for membership in (Membership(7, "m"), Membership(0, "m", "i"), Membership()):
        assert decode(encode("group", membership)) == ("group", membership)
    with pytest.raises(ValueError, match="not group metadata"):
        decode(b"something else")


def test_a_member_that_waits_to_join_again_and_is_told_to_leave_meanwhile_does_not_join(cluster):
    """It still holds a partition, and serves the revocation whenever it likes."""
    member = group_member(cluster, COOPERATIVE)
    pump(member)
    cluster.refuse("Heartbeat", "REBALANCE_IN_PROGRESS")
    cluster.refuse("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    session = member.consumer._background.session
    pump(member, seconds=10.0, until=lambda: session._next_request_s > cluster.clock())
    member.consumer.unsubscribe()
    cluster.clock.sleep(5.0)
    assert member.owned == [0, 1, 2, 3]
    pump(member)
    assert member.told() == [("on_assign", [0, 1, 2, 3]), ("on_revoke", [0, 1, 2, 3])]
    assert cluster.brokers.groups.describe("g").members == {}
