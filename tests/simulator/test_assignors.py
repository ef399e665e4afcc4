"""The assignors of classic groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE, Subscription, assign
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey

ASSIGNORS = ("range", "roundrobin", COOPERATIVE)
COUNTS = {"orders": 4, "payments": 3}


def count_of(topic: str) -> int:
    return COUNTS.get(topic, 0)


def keys(topic: str, *numbers: int) -> frozenset[PartitionKey]:
    return frozenset(PartitionKey(topic, number) for number in numbers)


def orders(*numbers: int) -> frozenset[PartitionKey]:
    return keys("orders", *numbers)


def member(member_id, *, topics=("orders",), instance_id=None, owned=frozenset()):
    return Subscription(member_id, frozenset(topics), instance_id, frozenset(owned), frozenset(owned))


def test_range_gives_neighbouring_partitions_topic_by_topic():
    topics = ("orders", "payments")
    shares = assign("range", [member("b", topics=topics), member("a", topics=topics)], count_of, {})
    assert shares == {
        "a": orders(0, 1) | keys("payments", 0, 1),
        "b": orders(2, 3) | keys("payments", 2),
    }


def test_round_robin_deals_all_topics_partitions_in_turn():
    topics = ("orders", "payments")
    shares = assign("roundrobin", [member("a", topics=topics), member("b", topics=topics)], count_of, {})
    assert shares == {
        "a": orders(0, 2) | keys("payments", 0, 2),
        "b": orders(1, 3) | keys("payments", 1),
    }


def test_round_robin_passes_over_who_is_not_subscribed():
    shares = assign("roundrobin", [member("a", topics=("payments",)), member("b")], count_of, {})
    assert shares == {"a": keys("payments", 0, 1, 2), "b": orders(0, 1, 2, 3)}


def test_a_restarted_static_member_keeps_its_place_under_range():
    before = assign("range", [member("x-1", instance_id="one"), member("y-1", instance_id="two")], count_of, {})
    after = assign("range", [member("z-2", instance_id="one"), member("y-1", instance_id="two")], count_of, {})
    assert before["x-1"] == after["z-2"]


def test_cooperative_sticky_moves_no_more_than_it_must():
    shares = assign(COOPERATIVE, [member("a", owned=orders(0, 1, 3)), member("b", owned=orders(2))], count_of, {})
    assert shares == {"a": orders(0, 1), "b": orders(2)}, "3 moves, and is held back until a has given it up"


def test_cooperative_sticky_gives_nobody_what_another_still_holds():
    first = assign(COOPERATIVE, [member("a", owned=orders(0, 1, 2, 3)), member("b")], count_of, {})
    assert first == {"a": orders(0, 1), "b": frozenset()}
    second = assign(COOPERATIVE, [member("a", owned=first["a"]), member("b")], count_of, {})
    assert second == {"a": orders(0, 1), "b": orders(2, 3)}


def test_a_stale_claim_yields_to_whom_the_last_round_gave_the_partition():
    stale = Subscription("a", frozenset({"orders"}), owned=orders(0, 1), held_last=orders(0))
    true = Subscription("b", frozenset({"orders"}), owned=orders(1, 2, 3), held_last=orders(1, 2, 3))
    shares = assign(COOPERATIVE, [stale, true], count_of, {})
    assert PartitionKey("orders", 1) not in shares["a"]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_pinned_partition_goes_to_its_member_and_no_other_moves(assignor):
    members = [member("a"), member("b")]
    free = assign(assignor, members, count_of, {})
    moved = min(free["a"])
    pinned = assign(assignor, members, count_of, {moved: "b"})
    assert pinned == {"a": free["a"] - {moved}, "b": free["b"] | {moved}}


def test_a_pinned_partition_moves_in_two_cooperative_rounds_and_no_other_moves():
    pins = {PartitionKey("orders", 0): "b"}
    first = assign(COOPERATIVE, [member("a", owned=orders(0, 1)), member("b", owned=orders(2, 3))], count_of, pins)
    assert first == {"a": orders(1), "b": orders(2, 3)}
    second = assign(COOPERATIVE, [member("a", owned=first["a"]), member("b", owned=first["b"])], count_of, pins)
    assert second == {"a": orders(1), "b": orders(0, 2, 3)}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_pin_to_an_absent_or_unsubscribed_member_is_passed_over(assignor):
    members = [member("a"), member("b", topics=("payments",))]
    pins = {PartitionKey("orders", 0): "b", PartitionKey("orders", 1): "gone"}
    assert assign(assignor, members, count_of, pins)["a"] == orders(0, 1, 2, 3)


def test_an_unknown_assignor_is_refused():
    with pytest.raises(BrokerError) as refused:
        assign("fair", [member("a")], count_of, {})
    assert refused.value.code == "INCONSISTENT_GROUP_PROTOCOL"


SOME_TOPICS = st.sets(st.sampled_from(["orders", "payments", "unknown"]), min_size=1)


@given(st.sampled_from(ASSIGNORS), st.lists(SOME_TOPICS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_every_partition_that_somebody_reads_has_exactly_one_reader_in_any_order_of_members(assignor, topics, random):
    members = [member(f"m{number}", topics=wanted) for number, wanted in enumerate(topics)]
    shares = assign(assignor, members, count_of, {})
    given_out = sorted(p for share in shares.values() for p in share)
    wanted = {topic for each in topics for topic in each}
    assert given_out == sorted(PartitionKey(topic, n) for topic in wanted for n in range(count_of(topic)))
    assert all(p.topic in m.topics for m in members for p in shares[m.member_id])
    random.shuffle(members)
    assert assign(assignor, members, count_of, {}) == shares


@given(st.lists(st.integers(-1, 3), min_size=7, max_size=7), st.integers(1, 4))
def test_cooperative_sticky_is_even_after_two_rounds_and_nothing_has_two_holders(holders, member_count):
    """Whatever was held at first; each member gives up between the rounds what it was not given."""
    everything = [PartitionKey(topic, n) for topic, count in COUNTS.items() for n in range(count)]
    held = {f"m{n}": {p for p, h in zip(everything, holders, strict=True) if h == n} for n in range(member_count)}
    for _ in range(2):
        members = [member(m, topics=COUNTS, owned=owned) for m, owned in held.items()]
        shares = assign(COOPERATIVE, members, count_of, {})
        for member_id, share in shares.items():
            others = set().union(*(owned for m, owned in held.items() if m != member_id))
            assert not share & others, "given to one while another holds it"
        held = {m: set(share) for m, share in shares.items()}
    sizes = [len(share) for share in held.values()]
    assert sum(sizes) == len(everything)
    assert max(sizes) - min(sizes) <= 1
