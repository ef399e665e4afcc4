"""Which commits a group accepts, by version, and what a refused one does to its client."""

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client.testing.simulator.brokers.model import Membership
from eos_client.testing.simulator.clients.group_metadata import encode
from tests.conformance.backends import LIMIT_S, waits_long
from tests.conformance.members import BackendMember
from tests.conformance.test_groups import ALL, PAUSE_S, Stage
from tests.conformance.versions import ASSIGNMENT_EPOCH, SESSION_S
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, PROTOCOLS

pytestmark = pytest.mark.differs_by_version

ILLEGAL, UNKNOWN = "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"


class CommitStage(Stage):
    """A group whose offsets are committed by hand-made metadata, each time in a transaction of its own."""

    def __init__(self, backend, protocol):
        super().__init__(backend, protocol)
        self._next_offset = 0
        self._producer = None

    @property
    def producer(self):
        if self._producer is None:
            self._producer = self.backend.producer({"transactional.id": self.backend.unique("committer")})
            self._producer.init_transactions(LIMIT_S)
        return self._producer

    def send(self, membership, partitions):
        """Commit new offsets of `partitions`; the name of the error, or None and then they are committed."""
        self._next_offset += 1
        offsets = [TopicPartition(self.topic, p, self._next_offset) for p in partitions]
        self.producer.begin_transaction()
        try:
            self.producer.send_offsets_to_transaction(offsets, encode(self.group, membership), LIMIT_S)
        except KafkaException as refused:
            error = refused.args[0]
            assert (error.txn_requires_abort(), error.fatal(), error.retriable()) == (True, False, False)
            self.producer.abort_transaction(LIMIT_S)
            assert self.stored(partitions) != [self._next_offset] * len(partitions)
            return error.name()
        self.producer.commit_transaction(LIMIT_S)
        assert self.stored(partitions) == [self._next_offset] * len(partitions)
        return None

    def stored(self, partitions):
        """The offsets of the group as they are."""
        reader = self.backend.consumer({"group.id": self.group})
        found = reader.committed([TopicPartition(self.topic, p) for p in partitions], LIMIT_S)
        reader.close()
        return [place.offset for place in found]


@pytest.fixture(params=PROTOCOLS)
def stage(backend, request):
    return CommitStage(backend, request.param)


@pytest.fixture
def stage_of(backend):
    return lambda protocol: CommitStage(backend, protocol)


def test_which_transactional_commits_of_a_kip_848_member_are_accepted(stage_of):
    stage = stage_of(CONSUMER)
    first, second = stage.pair()
    now, before, me = first.generation, first.seen[0][2], first.member_id
    kept, given_away = first.owned, second.owned
    older = None if stage.backend.commit_validation == ASSIGNMENT_EPOCH else ILLEGAL
    expected = {
        "the present epoch, its own": (now, me, kept, None),
        "the present epoch, another's": (now, me, given_away, None),
        "an older epoch, kept since then": (before, me, kept, older),
        "an older epoch, revoked since then": (before, me, given_away, ILLEGAL),
        "an older epoch, one kept and one revoked": (before, me, [kept[0], given_away[0]], ILLEGAL),
        "an epoch before the assignment": (before - 1, me, kept, ILLEGAL),
        "epoch 0": (0, me, kept, ILLEGAL),
        "an epoch to come": (now + 1, me, kept, ILLEGAL),
        "no generation, no member": (-1, "", given_away, None),
        "no generation, its member id": (-1, me, kept, ILLEGAL),
        "the present epoch, somebody unknown": (now, "nobody", kept, UNKNOWN),
    }
    found = {name: stage.send(Membership(epoch, who), what) for name, (epoch, who, what, _) in expected.items()}
    assert found == {name: code for name, (_, _, _, code) in expected.items()}


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_which_transactional_commits_of_a_classic_member_are_accepted(stage_of, protocol):
    stage = stage_of(protocol)
    first, second = stage.pair()
    now, me = first.generation, first.member_id
    expected = {
        "the present generation, its own": (now, me, first.owned, None),
        "the present generation, another's": (now, me, second.owned, None),
        "an older generation, kept since then": (now - 1, me, first.owned, ILLEGAL),
        "a generation to come": (now + 1, me, first.owned, ILLEGAL),
        "no generation, no member": (-1, "", second.owned, None),
        "no generation, its member id": (-1, me, first.owned, ILLEGAL),
        "the present generation, somebody unknown": (now, "nobody", first.owned, UNKNOWN),
        "the present generation, no member id": (now, "", first.owned, UNKNOWN),
    }
    found = {name: stage.send(Membership(epoch, who), what) for name, (epoch, who, what, _) in expected.items()}
    assert found == {name: code for name, (_, _, _, code) in expected.items()}


def test_a_group_that_nobody_joined_accepts_anonymous_transactional_commits_only(stage_of):
    stage = stage_of(CONSUMER)
    assert stage.send(Membership(1, "nobody"), [0]) == ILLEGAL
    assert stage.send(Membership(-1, ""), [0]) is None
    assert stage.send(Membership(1, "nobody"), [0]) == UNKNOWN


def test_transactional_commits_after_the_last_member_left(stage):
    member = stage.alone()
    was = Membership(member.generation, member.member_id)
    member.close()
    assert stage.send(was, [0]) == UNKNOWN
    assert stage.send(Membership(-1, ""), [0]) is None


def test_a_commit_inside_on_revoke_is_accepted_plain_and_transactional(stage):
    first = stage.alone()
    found = []

    def commit(kind, partitions):
        if kind == "on_revoke":
            numbers = [p.partition for p in partitions]
            found.append(first.commit(offsets=stage.places(numbers, 5)))
            found.append(stage.send(Membership(first.generation, first.member_id), numbers))

    first.inside = commit
    stage.send(Membership(-1, ""), [0])  # the producer is ready
    second = stage.member()
    stage.settled(first, second)
    assert found == [None, None]


def test_the_metadata_of_before_a_revocation_is_refused_for_what_was_revoked(stage):
    first = stage.alone()
    was = Membership(first.generation, first.member_id)
    second = stage.member()
    stage.settled(first, second)
    assert stage.send(was, second.owned) == ILLEGAL
    assert stage.send(Membership(first.generation, first.member_id), first.owned) is None


@waits_long
def test_a_plain_commit_at_the_present_generation_is_accepted_whoever_has_the_partition(stage):
    first, second = stage.pair()
    assert first.commit(offsets=stage.places(second.owned)) is None
    assert stage.stored(second.owned) == [7, 7]


def test_one_that_never_joined_commits_plainly_only_while_the_group_has_no_members(stage):
    outsider = stage.member(topic="")
    assert outsider.commit(offsets=stage.places([0])) is None
    member = stage.alone()
    assert outsider.commit(offsets=stage.places([0])) == UNKNOWN
    assert member.commit(offsets=stage.places([0], 8)) is None


@waits_long
def test_the_commits_of_a_frozen_member_are_refused_once_it_was_evicted(stage):
    frozen = stage.far()
    stage.backend.until(lambda: frozen.owned == ALL, polling=[frozen])
    was = Membership(frozen.generation, frozen.member_id)
    assert stage.send(was, ALL) is None
    with frozen.frozen():
        other = stage.member()
        stage.backend.until(lambda: other.owned == ALL, polling=[other])
        assert stage.send(was, ALL) == UNKNOWN
        now = Membership(other.generation, other.member_id)
        assert stage.send(now, ALL) is None


@waits_long
def test_inside_on_lost_a_classic_member_has_no_id_any_more_and_a_kip_848_one_has(stage):
    member = stage.restless()
    inside = []
    member.inside = lambda kind, partitions: inside.append((kind, member.generation, member.member_id))
    was = member.member_id
    stage.backend.wait(PAUSE_S + 1.0)
    stage.backend.until(lambda: inside, polling=[member])
    kind, generation, member_id = inside[0]
    assert kind == "on_lost"
    assert generation == member.seen[0][2]
    assert member_id == (was if stage.protocol == CONSUMER else "")


@waits_long
def test_inside_on_lost_after_a_pause_only_a_kip_848_member_may_still_commit_plainly(stage):
    member = stage.restless()
    bystander = stage.member()
    stage.settled(member, bystander)
    found = []
    member.inside = lambda kind, partitions: found.append((kind, member.commit(offsets=stage.places([0]))))
    stage.backend.for_a_while(PAUSE_S + 1.0, polling=[bystander])
    stage.backend.until(lambda: found, polling=[member, bystander])
    assert found[0] == ("on_lost", None if stage.protocol == CONSUMER else UNKNOWN)


# -- static members --------------------------------------------------------------------------------------------------


def static(stage, name="one", **settings):
    return stage.member(group_instance_id=name, **settings)


@waits_long
def test_a_static_member_that_closes_and_comes_back_gets_what_it_had_and_nobody_else_hears_of_it(stage):
    first, second = static(stage, "one"), static(stage, "two")
    stage.settled(first, second)
    held, before = second.owned, len(first.seen)
    second.close()
    stage.backend.for_a_while(0.5, polling=[first])
    back = static(stage, "two")
    stage.backend.until(lambda: back.owned == held, polling=[first, back])
    stage.backend.for_a_while(0.5, polling=[first, back])
    assert first.told(before) == []


@waits_long
def test_a_static_member_that_stays_away_loses_what_it_had_when_its_session_is_over(stage):
    first, second = static(stage, "one"), static(stage, "two")
    stage.settled(first, second)
    second.close()
    closed_s = stage.backend.clock()
    stage.backend.until(lambda: first.owned == ALL, polling=[first])
    assert stage.backend.clock() - closed_s > SESSION_S / 2


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_second_client_with_a_classic_static_id_takes_over_and_the_first_is_fenced_for_good(stage_of, protocol):
    stage = stage_of(protocol)
    first = static(stage)
    stage.backend.until(lambda: first.owned == ALL, polling=[first])
    was = Membership(first.generation, first.member_id, "one")
    assert stage.send(was, [0]) is None
    second = static(stage)
    stage.backend.until(lambda: second.owned == ALL, polling=[second])
    assert stage.send(was, [0]) == "FENCED_INSTANCE_ID"
    # A heartbeat may have told it before.
    assert first.commit(offsets=stage.places([0])) in {"FENCED_INSTANCE_ID", "_FATAL"}
    stage.backend.until(lambda: first.errors, polling=[first, second])
    assert first.codes == ["_FATAL"]
    assert first.commit(offsets=[]) == "_FATAL"
    assert second.commit(offsets=[]) == "_NO_OFFSET"
    assert stage.send(Membership(second.generation, second.member_id, "one"), [0]) is None


def test_a_second_client_with_a_kip_848_static_id_is_refused_for_good_while_the_first_lives(stage_of):
    stage = stage_of(CONSUMER)
    first = static(stage)
    stage.backend.until(lambda: first.owned == ALL, polling=[first])
    second = static(stage)
    stage.backend.until(lambda: second.errors, polling=[first, second])
    assert second.codes == ["_FATAL"]
    assert second.commit(offsets=[]) == "_FATAL"
    assert first.commit(offsets=[]) == "_NO_OFFSET"
    assert first.owned == ALL
    assert first.commit(offsets=stage.places([0])) is None


def test_metadata_of_a_static_member_names_its_instance(stage):
    member = static(stage)
    assert isinstance(member, BackendMember)
    stage.backend.until(lambda: member.owned == ALL, polling=[member])
    assert encode(stage.group, Membership(member.generation, member.member_id, "one")) == member.metadata
