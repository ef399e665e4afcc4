"""Our half of every rebalance callback leaves the gate in a definite state, whatever happens on the way."""

from __future__ import annotations

import pytest

from eos_client.core.commit_gate import CommitAttempt, CommitDecision, Revocation, RuleName
from eos_client.core.model import GroupGeneration, InputPosition
from eos_client.listeners import RevocationListener
from eos_client.observe import Counters, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from tests.listeners.listening import ListeningMember, ours, theirs


@pytest.fixture
def member():
    return ListeningMember()


@pytest.fixture
def listener(member):
    made = RevocationListener(member.gate, member.work, hook=member.hook)
    made.on_assigned(theirs(0, 1))
    member.diary.clear()
    member.events.clear()
    return made


def ask(member, *numbers, generation=None):
    generation = generation or member.work.generation
    positions = {p: InputPosition(0, 1, member.work.generation) for p in ours(*numbers)}
    return member.gate.decide(CommitAttempt(positions, generation, generation_is_synced=True))


class TestRevoked:
    def test_the_work_is_committed_while_the_gate_knows_that_we_are_revoking_and_then_the_gate_closes(
        self, member, listener
    ):
        member.work.positions = ours(0, 1)
        listener.on_revoked(theirs(1))
        assert member.diary == [
            "gate: RevocationStarted",
            "work: commit",
            "gate: WorkEnded",
            "gate: RevocationEnded",
            "work: departed",
            "event: partitions_revoked",
        ]
        assert member.work.revoking_at_commit is True
        assert member.gate.state.revocation == Revocation(member.work.generation, ours(1))
        assert member.gate.state.assigned == ours(0)
        assert ask(member, 0).decision is CommitDecision.SKIP

    @pytest.mark.parametrize("part", ["uncommitted", "snapshot"])
    def test_the_gate_closes_whatever_interrupts_the_end_of_the_callback(self, member, listener, part, monkeypatch):
        def interrupted():
            raise KeyboardInterrupt

        member.work.positions, member.work.commit_succeeds = ours(0, 1), False
        monkeypatch.setattr(member.work, part, interrupted)
        with pytest.raises(KeyboardInterrupt):
            listener.on_revoked(theirs(1))
        assert (member.gate.state.revoking, member.gate.state.assigned) == (False, ours(0))
        assert member.gate.state.revoked_work == ours(1)

    def test_the_generation_remembered_is_the_one_after_the_commit(self, member, listener):
        moved = GroupGeneration(6, "m", "billing")

        def commit(_):
            member.work.generation = moved

        member.work.commit_before_revoke = commit
        listener.on_revoked(theirs(1))
        assert member.gate.state.revocation == Revocation(moved, ours(1))

    def test_work_that_could_not_be_committed_is_named_to_the_gate_and_to_the_hook(self, member, listener):
        member.work.positions, member.work.commit_succeeds = ours(0, 1), False
        listener.on_revoked(theirs(1))
        assert member.gate.state.revoked_work == ours(1)
        (event,) = member.events
        assert isinstance(event, PartitionsRevoked)
        assert (event.partitions, event.uncommitted) == (ours(1), ours(1))
        assert ask(member, 0, 1, generation=GroupGeneration(6, "m")).decision is CommitDecision.ABORT

    def test_work_of_partitions_that_stay_is_not_counted_as_lost(self, member, listener):
        member.work.positions = ours(0)
        listener.on_revoked(theirs(1))
        assert member.gate.state.revoked_work == frozenset()

    def test_an_empty_revocation_does_not_close_the_gate(self, member, listener):
        called = []
        listener.on_revoked([], between=lambda: called.append("theirs"))
        assert member.diary == []
        assert called == ["theirs"]
        assert member.gate.state.revocation is None
        assert ask(member, 0).decision is CommitDecision.COMMIT

    def test_the_application_callback_of_a_revocation_runs_while_commits_are_allowed(self, member, listener):
        seen = []
        listener.on_revoked(theirs(1), between=lambda: seen.append(ask(member, 0, 1).decision))
        assert seen == [CommitDecision.COMMIT]

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["Exception", "BaseException"])
    def test_a_raising_on_revoke_aborts_the_work_and_completes_the_revocation(self, member, listener, error):
        member.work.positions = ours(1)

        def between():
            raise error

        with pytest.raises(type(error)):
            listener.on_revoked(theirs(1), between=between)
        assert member.diary == [
            "gate: RevocationStarted",
            f"work: abort because the application's on_revoke raised {type(error).__name__}: {error}",
            "gate: WorkEnded",
            "gate: RevocationEnded",
            "work: departed",
            "event: partitions_revoked",
        ]
        assert member.gate.state.revoking is False

    def test_when_the_commit_itself_raises_the_partitions_are_not_left_half_revoked(self, member, listener):
        member.work.positions, member.work.commit_raises = ours(1), KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            listener.on_revoked(theirs(1))
        assert member.gate.state.revoking is False
        assert member.gate.state.assigned == ours(0)
        assert member.gate.state.revoked_work == ours(1)
        assert member.work.departures == [ours(1)]

    def test_when_even_the_abort_raises_the_partitions_are_not_left_half_revoked(self, member, listener):
        member.work.positions, member.work.abort_raises = ours(1), RuntimeError("and no abort")

        def between():
            raise ValueError("no")

        with pytest.raises(RuntimeError, match="and no abort"):
            listener.on_revoked(theirs(1), between=between)
        assert member.gate.state.revoking is False
        assert member.gate.state.revoked_work == ours(1)

    def test_when_the_membership_cannot_be_read_the_gate_does_not_stay_open_for_everything(self, member, listener):
        def unreadable():
            raise RuntimeError("the consumer is closed")

        member.work.snapshot = unreadable
        with pytest.raises(RuntimeError, match="closed"):
            listener.on_revoked(theirs(1))
        assert member.gate.state.revoking is False, "INSIDE_REVOKE would let every later commit pass"


class TestLost:
    def test_nothing_is_committed_and_the_gate_is_told_before_anybody_else(self, member, listener):
        member.work.positions = ours(0, 1)
        listener.on_lost(theirs(0, 1))
        assert member.diary == ["gate: GateLost", "work: departed", "event: partitions_lost"]
        (event,) = member.events
        assert isinstance(event, PartitionsLost)
        assert (event.partitions, event.uncommitted) == (ours(0, 1), ours(0, 1))
        assert ask(member, 0).rule is RuleName.LOST_WORK

    def test_a_partition_lost_without_work_leaves_no_mark(self, member, listener):
        listener.on_lost(theirs(1))
        assert member.gate.state.lost_work == frozenset()
        assert member.gate.state.assigned == ours(0)


class TestAssigned:
    def test_new_partitions_may_be_committed_from_now_on(self, member, listener):
        assert ask(member, 2).decision is CommitDecision.ABORT
        listener.on_assigned(theirs(2))
        assert ask(member, 0, 2).decision is CommitDecision.COMMIT
        (event,) = member.events
        assert isinstance(event, PartitionsAssigned)
        assert (event.partitions, event.generation) == (ours(2), member.work.generation)

    def test_an_empty_assignment_changes_nothing(self, member, listener):
        before = member.gate.state
        listener.on_assigned([])
        assert member.gate.state == before


def test_each_assignment_counts_as_one_rebalance_and_shows_its_generation(member):
    counters = Counters()
    listener = RevocationListener(member.gate, member.work, hook=member.hook, counters=counters)
    listener.on_assigned(theirs(0))
    member.work.generation = GroupGeneration(8, "m")
    listener.on_assigned([])
    assert (counters.rebalances, counters.generation_id) == (2, 8)
