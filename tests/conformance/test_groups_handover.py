"""What a member reads and commits around a rebalance: nothing of a partition that left, nothing before its offset."""

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

from tests.conformance.backends import LIMIT_S, waits_long
from tests.conformance.members import BackendMember
from tests.conformance.test_groups import ALL, QUIET_S, Stage
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, PROTOCOLS

COUNT = 5
EVENT_S = 2.0
FULL = dict.fromkeys(ALL, COUNT)


class FullStage(Stage):
    """Five records in each partition."""

    def __init__(self, backend, protocol):
        super().__init__(backend, protocol)
        backend.fill(self.topic, FULL)

    def reads(self, member, count):
        """Wait until the member has got so many records in all."""
        self.backend.until(lambda: len(member.got) >= count, f"{count} records", polling=[member])
        return member


@pytest.fixture(params=PROTOCOLS)
def stage(backend, request):
    return FullStage(backend, request.param)


@pytest.fixture
def stage_of(backend):
    return lambda protocol: FullStage(backend, protocol)


def numbered(member, partitions):
    """The values that were handed over of these partitions, sorted."""
    return sorted(v for v in member.values if int(v.split("-")[0]) in partitions)


def test_a_newcomer_starts_at_what_was_committed_inside_on_revoke(stage):
    first = stage.reads(stage.alone(), 20)

    def commit(kind, partitions):
        if kind == "on_revoke":
            first.consumer.commit(offsets=stage.places([p.partition for p in partitions], 3), asynchronous=False)

    first.inside = commit
    second = stage.member()
    stage.settled(first, second)
    first.inside = lambda kind, partitions: None
    stage.reads(second, 4)
    assert numbered(second, second.owned) == sorted(f"{p}-{n}" for p in second.owned for n in (3, 4))


@waits_long
def test_a_newcomer_starts_at_the_first_record_when_nothing_was_committed(stage):
    first = stage.reads(stage.alone(), 20)
    second = stage.member()
    stage.settled(first, second)
    stage.reads(second, 10)
    assert numbered(second, ALL) == sorted(f"{p}-{n}" for p in second.owned for n in range(COUNT))


@waits_long
def test_what_a_cooperative_member_keeps_goes_on_where_it_was(stage):
    first = stage.reads(stage.alone(), 20)
    second = stage.member()
    stage.settled(first, second)
    stage.backend.for_a_while(QUIET_S, polling=[first])
    again = numbered(first, first.owned)
    once = sorted(f"{p}-{n}" for p in first.owned for n in range(COUNT))
    assert again == (sorted(once * 2) if stage.protocol == EAGER else once)


def test_after_a_revocation_nothing_more_of_its_partitions_is_handed_over(stage):
    first = stage.reads(stage.alone(), 20)
    second = stage.member()
    stage.settled(first, second)
    before = len(first.got)
    stage.backend.fill(stage.topic, FULL, start=COUNT)
    stage.backend.until(
        lambda: f"{first.owned[0]}-9" in first.values and f"{second.owned[0]}-9" in second.values,
        polling=[first, second],
    )
    assert {m.partition() for m in first.got[before:]} <= set(first.owned)


def test_one_that_takes_over_pending_offsets_reads_nothing_until_they_are_decided(stage):
    first = stage.reads(stage.alone(), 20)
    producer = stage.backend.producer({"transactional.id": stage.backend.unique("producer")})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()

    def send(kind, partitions):
        if kind == "on_revoke":
            numbers = [p.partition for p in partitions]
            producer.send_offsets_to_transaction(stage.places(numbers, 3), first.metadata, LIMIT_S)

    first.inside = send
    second = stage.member()
    stage.settled(first, second)
    stage.backend.for_a_while(QUIET_S, polling=[first, second])
    first.inside = lambda kind, partitions: None
    assert second.got == []
    producer.commit_transaction(LIMIT_S)
    stage.reads(second, 4)
    assert numbered(second, second.owned) == sorted(f"{p}-{n}" for p in second.owned for n in (3, 4))


def test_on_assign_may_choose_the_offsets(stage):
    member = stage.member(topic="")

    def from_the_third(kind, partitions):
        if kind != "on_assign":
            return
        for partition in partitions:
            partition.offset = 3
        change = member.consumer.assign if stage.protocol == EAGER else member.consumer.incremental_assign
        change(partitions)

    member.inside = from_the_third
    member.subscribe(stage.topic)
    stage.reads(member, 8)
    assert sorted({m.offset() for m in member.got}) == [3, 4]


@waits_long
def test_on_revoke_may_give_up_its_partitions_itself(stage):
    first = stage.alone()
    inside = []

    def give_up(kind, partitions):
        if kind == "on_revoke":
            if stage.protocol == EAGER:
                first.consumer.unassign()
            else:
                first.consumer.incremental_unassign(partitions)
            inside.append(first.owned)

    first.inside = give_up
    second = stage.member()
    stage.settled(first, second)
    assert inside == [[] if stage.protocol == EAGER else first.owned]


@waits_long
def test_inside_on_revoke_the_partitions_are_still_assigned_and_have_positions(stage):
    first = stage.reads(stage.alone(), 20)
    inside = []

    def look(kind, partitions):
        if kind == "on_revoke":
            inside.append((first.owned, [p.offset for p in first.consumer.position(partitions)]))

    first.inside = look
    second = stage.member()
    stage.settled(first, second)
    owned, positions = inside[0]
    assert owned == ALL
    assert positions == [COUNT] * (4 if stage.protocol == EAGER else 2)


def test_inside_on_assign_the_partitions_are_not_assigned_yet(stage):
    member = stage.member(topic="")
    inside = []
    member.inside = lambda kind, partitions: inside.append((kind, member.owned))
    member.subscribe(stage.topic)
    stage.backend.until(lambda: inside, polling=[member])
    assert inside == [("on_assign", [])]
    assert member.owned == ALL


@waits_long
def test_a_seek_back_inside_a_callback_is_heeded(stage):
    first = stage.reads(stage.alone(), 20)
    before = len(first.got)

    def back(kind, partitions):
        if kind == "on_revoke":
            gone = {p.partition for p in partitions}
            for partition in first.owned:
                if partition not in gone:
                    first.consumer.seek(TopicPartition(stage.topic, partition, 2))

    first.inside = back
    second = stage.member()
    stage.settled(first, second)
    stage.reads(first, before + (10 if stage.protocol == EAGER else 6))
    found = sorted((m.partition(), m.offset()) for m in first.got[before:])
    start = 0 if stage.protocol == EAGER else 2
    assert found == [(p, n) for p in first.owned for n in range(start, COUNT)]


@waits_long
@pytest.mark.parametrize("protocol", [CONSUMER, COOPERATIVE])
def test_a_kept_partition_stays_paused_through_a_rebalance(stage_of, protocol):
    stage = stage_of(protocol)
    first = stage.reads(stage.alone(), 20)
    first.consumer.pause(stage.places(ALL, 0))
    second = stage.member()
    stage.settled(first, second)
    before = len(first.got)
    stage.backend.fill(stage.topic, FULL, start=COUNT)
    stage.backend.for_a_while(QUIET_S, polling=[first, second])
    assert len(first.got) == before
    first.consumer.resume(stage.places(first.owned, 0))
    stage.reads(first, before + 2 * COUNT)


def test_a_pause_outlives_revocation_and_return(stage):
    member = stage.reads(stage.alone(), 20)
    member.consumer.pause(stage.places(ALL, 0))
    member.consumer.unsubscribe()
    stage.backend.until(lambda: not member.owned, polling=[member])
    member.subscribe(stage.topic)
    stage.backend.until(lambda: member.owned == ALL, polling=[member])
    before = len(member.got)
    stage.backend.for_a_while(QUIET_S, polling=[member])
    silent = len(member.got) == before
    member.consumer.resume(stage.places(ALL, 0))
    stage.reads(member, before + 20)
    assert silent


@waits_long
def test_what_is_stored_is_committed_by_close_and_where_the_next_one_starts(stage):
    member = stage.alone(enable_auto_commit=True, enable_auto_offset_store=False)
    stage.reads(member, 20)
    member.consumer.store_offsets(offsets=stage.places([0, 1], 4))
    member.close()
    other = stage.reads(stage.alone(), 12)
    assert sorted(m.offset() for m in other.got if m.partition() in (0, 1)) == [4, 4]


@waits_long
def test_auto_commit_hands_over_exactly_what_was_read(stage):
    first = stage.reads(stage.alone(enable_auto_commit=True, auto_commit_interval_ms=600_000), 20)
    second = stage.member()
    stage.settled(first, second)
    stage.backend.fill(stage.topic, FULL, start=COUNT)
    stage.reads(second, 10)
    assert {m.offset() for m in second.got} == set(range(COUNT, 2 * COUNT))


def test_members_with_different_assignors_cannot_be_in_one_group(stage_of):
    stage = stage_of(EAGER)
    first = stage.alone()
    other = BackendMember(stage.backend, COOPERATIVE, stage.group, stage.topic)
    stage.backend.until(lambda: other.errors, polling=[first, other])
    assert other.codes[0] == "INCONSISTENT_GROUP_PROTOCOL"
    assert first.owned == ALL


@waits_long
def test_a_member_finds_partitions_and_topics_that_are_created_later(stage_of):
    stage = stage_of(CONSUMER)
    stem = stage.backend.unique("later")
    stage.backend.create_topic(f"{stem}-one", 1)
    member = stage.member(topic=f"^{stem}-.*", topic_metadata_refresh_interval_ms=300)
    stage.backend.until(lambda: member.topics == {f"{stem}-one"}, polling=[member])
    stage.backend.create_topic(f"{stem}-two", 1)
    stage.backend.until(lambda: len(member.topics) == 2, polling=[member])


def test_after_unsubscribe_a_kip_848_member_is_at_epoch_0_and_a_classic_one_has_no_id(stage):
    member = stage.alone()
    before = member.generation, member.member_id
    member.consumer.unsubscribe()
    stage.backend.until(lambda: not member.owned, polling=[member])
    expected = (0, before[1]) if stage.protocol == CONSUMER else (before[0], "")
    stage.backend.until(lambda: (member.generation, member.member_id) == expected, f"{expected}", polling=[member])


def test_closed_it_refuses_everything(stage):
    member = stage.alone()
    member.close()
    member.close()
    for call in (lambda: member.consumer.poll(0), member.consumer.commit, lambda: member.metadata):
        with pytest.raises((RuntimeError, KafkaException)):
            call()


def test_the_error_event_of_a_reset_outlives_the_rebalance_that_follows(stage):
    backend, gone = stage.backend, stage.places([0], OFFSET_INVALID)
    backend.consumer({"group.id": stage.group}).commit(offsets=stage.places(ALL, 0), asynchronous=False)
    first = stage.reads(stage.alone(auto_offset_reset="error"), 20)
    first.consumer.pause(gone)
    backend.fill(stage.topic, COUNT, start=COUNT)
    backend.delete_records(stage.topic, 0, COUNT + 3)
    first.consumer.resume(gone)
    backend.wait(EVENT_S)
    second = stage.member(auto_offset_reset="error")
    backend.for_a_while(EVENT_S, polling=[second])
    backend.until(lambda: first.codes, "the error event", polling=[first, second])
    assert (first.codes[0], first.errors[0].offset()) == ("_AUTO_OFFSET_RESET", COUNT)
