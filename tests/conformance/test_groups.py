"""Membership: what callbacks are told, in which generation, and who has what afterwards."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.conformance.backends import waits_long
from tests.conformance.members import BackendMember
from tests.conformance.versions import SESSION_S
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, PROTOCOLS

ALL = [0, 1, 2, 3]
QUIET_S = 0.3
PAUSE_S = 2.0


class Stage:
    """One group on a topic of four partitions."""

    def __init__(self, backend, protocol):
        self.backend = backend
        self.protocol = protocol
        self.topic = backend.topic(4)
        self.group = backend.unique("group")

    def member(self, **settings):
        return BackendMember(self.backend, self.protocol, self.group, settings.pop("topic", self.topic), **settings)

    def far(self, **settings):
        return self.backend.far_member(self.protocol, self.group, self.topic, **settings)

    def alone(self, **settings):
        """A member that has got everything."""
        member = self.member(**settings)
        self.backend.until(lambda: member.owned == ALL, "everything to be assigned", polling=[member])
        return member

    def restless(self):
        """A member that has got everything, and may not be without a poll for `PAUSE_S`."""
        # A classic session may not be longer than that.
        session = {} if self.protocol == CONSUMER else {"session_timeout_ms": round(PAUSE_S * 1000)}
        return self.alone(max_poll_interval_ms=round(PAUSE_S * 1000), **session)

    def places(self, partitions, offset=7):
        return [TopicPartition(self.topic, p, offset) for p in partitions]

    def settled(self, *members):
        """Wait until the members share everything in one generation, then until nothing moves."""

        def shared():
            owned = sorted(p for m in members for p in m.owned)
            return owned == ALL and all(m.owned for m in members) and len({m.generation for m in members}) == 1

        self.backend.until(shared, "the members to share everything", polling=members)
        self.backend.for_a_while(QUIET_S, polling=members)

    def pair(self):
        """Two members that share everything."""
        first = self.alone()
        second = self.member()
        self.settled(first, second)
        return first, second


@pytest.fixture(params=PROTOCOLS)
def stage(backend, request):
    return Stage(backend, request.param)


@pytest.fixture
def stage_of(backend):
    return lambda protocol: Stage(backend, protocol)


def test_before_the_first_join_the_metadata_has_no_generation(stage):
    fresh = stage.member(topic="")
    assert fresh.generation == -1
    assert bool(fresh.member_id) is (stage.protocol == CONSUMER)
    assert bool(fresh.consumer.memberid()) is (stage.protocol == CONSUMER)


def test_alone_it_is_assigned_everything_at_once(stage):
    member = stage.alone()
    assert member.told() == [("on_assign", ALL)]
    assert member.seen[0][2] == member.generation > 0
    assert member.consumer.memberid() == member.member_id != ""


def test_an_eager_member_gives_up_everything_at_the_old_generation_for_a_newcomer(stage_of):
    first, second = stage_of(EAGER).pair()
    generation = first.seen[0][2]
    assert first.seen[1:] == [("on_revoke", ALL, generation), ("on_assign", first.owned, generation + 1)]
    assert second.seen == [("on_assign", second.owned, generation + 1)]
    assert first.generation == second.generation == generation + 1


def test_a_cooperative_member_gives_up_its_half_at_the_new_generation_and_a_second_round_hands_it_over(stage_of):
    stage = stage_of(COOPERATIVE)
    first, second = stage.pair()
    stage.backend.until(lambda: len(first.seen) >= 4, "the second round's answer", polling=[first, second])
    generation = first.seen[0][2]
    assert first.seen[1:] == [
        ("on_revoke", second.owned, generation + 1),
        ("on_assign", [], generation + 1),
        ("on_assign", [], generation + 2),
    ]
    *first_round, handed_over = second.seen
    assert handed_over == ("on_assign", second.owned, generation + 2)
    # The second round may begin before the newcomer has asked what it got in the first.
    assert first_round in ([("on_assign", [], generation + 1)], [])


def test_a_kip_848_member_gives_up_its_half_at_the_old_epoch(stage_of):
    first, second = stage_of(CONSUMER).pair()
    epoch = first.seen[0][2]
    assert first.seen[1:] == [("on_revoke", second.owned, epoch), ("on_assign", [], epoch)]
    assert second.seen[-1] == ("on_assign", second.owned, epoch + 1)
    assert first.generation == second.generation == epoch + 1


def test_a_kip_848_epoch_rises_without_a_callback_when_somebody_joins_for_another_topic(stage_of):
    stage = stage_of(CONSUMER)
    member = stage.alone()
    epoch = member.generation
    other = stage.member(topic=stage.backend.topic(1))
    stage.backend.until(lambda: member.generation > epoch and other.owned, polling=[member, other])
    assert member.told() == [("on_assign", ALL)]


@waits_long
def test_while_a_kip_848_member_revokes_its_epoch_stays(stage_of):
    stage = stage_of(CONSUMER)
    first = stage.alone()
    epoch = first.generation
    stayed = []

    def stay(kind, partitions):
        if kind == "on_revoke":
            stage.backend.wait(1.0)
            stayed.append(first.generation)

    first.inside = stay
    second = stage.member()
    stage.settled(first, second)
    assert stayed == [epoch]


def test_one_that_closes_is_told_to_revoke_what_it_has_and_the_other_gets_it(stage):
    first, second = stage.pair()
    before, held = len(first.seen), second.owned
    at_close = len(second.seen)
    second.close()
    assert second.told(at_close) == [("on_revoke", held)]
    stage.backend.until(lambda: first.owned == ALL, polling=[first])
    told = first.told(before)
    if stage.protocol == EAGER:
        assert told == [("on_revoke", [p for p in ALL if p not in held]), ("on_assign", ALL)]
    else:
        assert told == [("on_assign", held)]


def test_unsubscribe_revokes_at_the_next_poll_and_leaves(stage):
    member = stage.alone()
    member.consumer.unsubscribe()
    stage.backend.until(lambda: not member.owned, polling=[member])
    assert member.told(1) == [("on_revoke", ALL)]
    other = stage.alone()
    assert other.told() == [("on_assign", ALL)]


def test_one_that_unsubscribed_can_come_back(stage):
    member = stage.alone()
    member.consumer.unsubscribe()
    stage.backend.until(lambda: not member.owned, polling=[member])
    member.subscribe(stage.topic)
    stage.backend.until(lambda: member.owned == ALL, polling=[member])
    assert member.told() == [("on_assign", ALL), ("on_revoke", ALL), ("on_assign", ALL)]


def test_another_subscription_replaces_the_first_and_a_cooperative_member_hears_of_a_loss(stage):
    member = stage.alone()
    other = stage.backend.topic(2)
    member.subscribe(other)
    stage.backend.until(lambda: member.topics == {other}, polling=[member])
    assert member.owned == [0, 1]
    told = [(name, numbers) for name, numbers in member.told(1) if numbers]
    assert told == [("on_lost" if stage.protocol == COOPERATIVE else "on_revoke", ALL), ("on_assign", [0, 1])]


def test_a_topic_that_leaves_the_subscription_is_revoked(stage):
    other = stage.backend.topic(2)
    member = stage.member(topic="")
    member.subscribe(stage.topic, other)
    stage.backend.until(lambda: len(member.owned) == 6, polling=[member])
    seen, generation = len(member.seen), member.seen[-1][2]  # a broker may get to know one topic after the other
    member.subscribe(stage.topic)
    stage.backend.until(lambda: member.topics == {stage.topic} and member.owned == ALL, polling=[member])
    stage.backend.until(lambda: member.generation == generation + 1 and len(member.seen) == seen + 2, polling=[member])
    if stage.protocol == EAGER:
        both = sorted([*ALL, 0, 1])
        assert member.seen[seen:] == [("on_revoke", both, generation), ("on_assign", ALL, generation + 1)]
        return
    assert member.seen[seen] == ("on_revoke", [0, 1], generation)
    assert member.told(seen + 1) == [("on_assign", [])]


def test_subscribing_to_the_same_again_moves_only_an_eager_group(stage):
    member = stage.alone()
    generation = member.generation
    member.subscribe(stage.topic)
    stage.backend.for_a_while(1.0, polling=[member])
    moved = [("on_revoke", ALL), ("on_assign", ALL)] if stage.protocol == EAGER else []
    stage.backend.until(lambda: len(member.seen) > len(moved), "an eager group to move", polling=[member])
    assert member.told(1) == moved
    assert member.generation == generation + len(moved) / 2


def test_a_pattern_subscribes_to_what_matches(stage):
    stem = stage.backend.unique("pattern")
    for ending in ("one", "two"):
        stage.backend.create_topic(f"{stem}-{ending}", 1)
    member = stage.member(topic=f"^{stem}-.*")
    stage.backend.until(lambda: len(member.consumer.assignment()) == 2, polling=[member])
    assert sorted(p.topic for p in member.consumer.assignment()) == [f"{stem}-one", f"{stem}-two"]


def test_a_subscription_to_a_topic_that_is_not_there_is_an_error_event(stage_of):
    stage = stage_of(EAGER)
    missing = stage.backend.unique("missing")
    member = stage.member(topic=missing, allow_auto_create_topics=False)
    stage.backend.until(lambda: member.errors, polling=[member])
    assert member.codes == ["UNKNOWN_TOPIC_OR_PART"]
    assert member.errors[0].topic() == missing


def test_a_pattern_that_matches_nothing_is_an_error_event_until_a_topic_does(stage_of):
    stage = stage_of(EAGER)
    stem = stage.backend.unique("later")
    member = stage.member(topic=f"^{stem}.*", topic_metadata_refresh_interval_ms=300)
    stage.backend.until(lambda: member.errors, polling=[member])
    assert member.codes == ["UNKNOWN_TOPIC_OR_PART"]
    assert member.errors[0].topic() == f"^{stem}.*"
    stage.backend.create_topic(stem, 1)
    stage.backend.until(lambda: member.topics == {stem}, polling=[member])
    assert len(member.errors) == 1


@waits_long
def test_a_kip_848_member_waits_without_a_word_for_a_topic_that_its_pattern_matches(stage_of):
    stage = stage_of(CONSUMER)
    stem = stage.backend.unique("later")
    member = stage.member(topic=f"^{stem}.*")
    stage.backend.until(lambda: member.generation > 0, polling=[member])
    stage.backend.for_a_while(QUIET_S, polling=[member])
    assert not member.topics
    stage.backend.create_topic(stem, 1)
    stage.backend.until(lambda: member.topics == {stem}, polling=[member])
    assert not member.errors


def test_without_on_lost_and_without_any_callback_partitions_change_hands_all_the_same(stage):
    first = stage.alone(without=("on_assign", "on_revoke", "on_lost"))
    second = stage.member()
    stage.settled(first, second)
    assert len(first.owned) == len(second.owned) == 2
    assert first.seen == []


def test_the_other_protocols_way_to_assign_is_refused(stage):
    member = stage.alone()
    wrong = member.consumer.incremental_assign if stage.protocol == EAGER else member.consumer.assign
    with pytest.raises(KafkaException) as refused:
        wrong([TopicPartition(stage.topic, 0)])
    assert refused.value.args[0].code() == KafkaError._STATE


def test_what_a_callback_raises_comes_out_of_consume_and_the_partitions_go_all_the_same(stage):
    first = stage.alone()

    def trouble(kind, partitions):
        if kind == "on_revoke":
            raise ArithmeticError("the application's own")

    first.inside = trouble
    second = stage.member()
    with pytest.raises(ArithmeticError):
        stage.settled(first, second)
    first.inside = lambda kind, partitions: None
    stage.settled(first, second)


@waits_long
@pytest.mark.parametrize("topics", [["a", "a"], [""], ["a", ""], []], ids=str)
def test_a_subscription_is_of_different_names(stage, topics):
    member = stage.alone()
    with pytest.raises(KafkaException) as refused:
        member.consumer.subscribe(topics)
    assert refused.value.args[0].name() == "_INVALID_ARG"
    assert member.owned == ALL


def test_one_that_does_not_poll_for_too_long_hears_so_loses_everything_and_comes_back(stage):
    member = stage.restless()
    stage.backend.wait(PAUSE_S + 1.0)
    with pytest.raises(KafkaException) as refused:
        member.consumer.commit(asynchronous=False)
    assert refused.value.args[0].name() == "_ASSIGNMENT_LOST"
    stage.backend.until(lambda: len(member.seen) > 1 and member.owned == ALL, polling=[member])
    assert member.codes == ["_MAX_POLL_EXCEEDED"]
    assert member.told() == [("on_assign", ALL), ("on_lost", ALL), ("on_assign", ALL)]
    assert member.generation > member.seen[0][2]


@waits_long
def test_heartbeats_go_on_while_a_callback_takes_longer_than_the_session(stage):
    member = stage.member(topic="")
    member.inside = lambda kind, partitions: stage.backend.wait(SESSION_S + 1.0)
    member.subscribe(stage.topic)
    stage.backend.until(lambda: member.owned == ALL, polling=[member])
    member.inside = lambda kind, partitions: None
    stage.backend.for_a_while(1.0, polling=[member])
    assert member.told() == [("on_assign", ALL)]


@waits_long
def test_while_one_does_not_poll_for_too_long_the_other_gets_its_share(stage):
    first = stage.restless()
    second = stage.member()
    stage.settled(first, second)
    stage.backend.until(lambda: second.owned == ALL, polling=[second])


@waits_long
def test_a_frozen_member_loses_everything_to_the_others_and_hears_of_it_when_it_wakes(stage):
    frozen = stage.far()
    stage.backend.until(lambda: frozen.owned == ALL, polling=[frozen])
    with frozen.frozen():
        other = stage.member()
        stage.backend.until(lambda: other.owned == ALL, polling=[other])
    stage.backend.until(lambda: ("on_lost", ALL) in frozen.told(), polling=[frozen, other])
    stage.settled(frozen, other)


@waits_long
def test_what_a_killed_member_had_goes_to_the_others_after_its_session(stage):
    victim = stage.far()
    stage.backend.until(lambda: victim.owned == ALL, polling=[victim])
    killed_s = stage.backend.clock()
    victim.kill()
    other = stage.member()
    stage.backend.until(lambda: other.owned == ALL, polling=[other])
    assert stage.backend.clock() - killed_s > SESSION_S / 2


@pytest.mark.parametrize(
    ("protocol", "shares"),
    [(CONSUMER, [3, 3]), (EAGER, [2, 4]), ("roundrobin", [3, 3]), (COOPERATIVE, [3, 3])],
)
def test_how_two_members_share_two_topics_of_three_partitions(backend, protocol, shares):
    topics, group = [backend.topic(3), backend.topic(3)], backend.unique("group")
    members = [BackendMember(backend, protocol, group, "") for _ in range(2)]
    for member in members:
        member.subscribe(*topics)

    def shared():
        return sorted(len(m.owned) for m in members) == shares

    backend.until(shared, "the members to share six partitions", polling=members)
    backend.for_a_while(QUIET_S, polling=members)
    assert shared()


def test_what_closing_tells_is_noted_also_where_the_library_has_no_metadata_any_more(stage, monkeypatch):
    def gone(_):
        raise RuntimeError("Consumer group metadata not available")

    member = stage.alone()
    monkeypatch.setattr(BackendMember, "metadata", property(gone))
    with pytest.raises(RuntimeError, match="not available"):
        member._noting("on_revoke")(None, [])
    member.close()
    assert member.seen[-1] == ("on_revoke", ALL, -1)


def test_three_members_share_and_when_two_have_left_the_third_has_everything(stage):
    members = [stage.alone()]
    for count in (2, 3):
        members.append(stage.member())
        stage.backend.until(
            lambda count=count: sorted(p for m in members for p in m.owned) == ALL and all(m.owned for m in members),
            f"{count} members to share everything",
            polling=members,
        )
    for leaving in members[:2]:
        leaving.close()
    last = members[2]
    stage.backend.until(lambda: last.owned == ALL, polling=[last])
