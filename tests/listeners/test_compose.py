"""Ours around theirs, in the documented order; what theirs raises never leaves partitions half revoked."""

from __future__ import annotations

import pytest

from eos_client.core.commit_gate import CommitAttempt, CommitDecision, GateAssigned, RuleName
from eos_client.core.model import InputPosition
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from tests.listeners.listening import ListeningMember, ours, theirs


@pytest.fixture
def member():
    return ListeningMember()


def composed(member, **callbacks):
    listener = ComposedListener(
        RevocationListener(member.gate, member.work, hook=member.hook),
        ApplicationCallbacks("the consumer", **callbacks),
    )
    member.gate.tell(GateAssigned(ours(0, 1)))
    member.diary.clear()
    return listener


def test_on_assign_runs_after_our_listener(member):
    composed(member, on_assign=member.callback("on_assign")).on_assigned(theirs(2))
    assert member.diary == [
        "gate: GateAssigned",
        "event: partitions_assigned",
        "theirs: on_assign of the consumer with [2]",
    ]


def test_on_revoke_runs_between_the_start_of_the_revocation_and_its_commit(member):
    member.work.positions = ours(1)
    composed(member, on_revoke=member.callback("on_revoke")).on_revoked(theirs(1))
    assert member.diary == [
        "gate: RevocationStarted",
        "theirs: on_revoke of the consumer with [1]",
        "work: commit",
        "gate: WorkEnded",
        "gate: RevocationEnded",
        "work: departed",
        "event: partitions_revoked",
    ]


def test_on_lost_runs_after_our_listener(member):
    composed(member, on_lost=member.callback("on_lost"), on_revoke=member.callback("on_revoke")).on_lost(theirs(0, 1))
    assert member.diary == [
        "gate: GateLost",
        "work: departed",
        "event: partitions_lost",
        "theirs: on_lost of the consumer with [0, 1]",
    ]


def test_lost_without_on_lost_goes_to_on_revoke_as_in_confluent_kafka_but_commits_nothing(member):
    member.work.positions = ours(0)
    composed(member, on_revoke=member.callback("on_revoke")).on_lost(theirs(0))
    assert member.diary == [
        "gate: GateLost",
        "work: departed",
        "event: partitions_lost",
        "theirs: on_revoke of the consumer with [0]",
    ]


def test_an_application_without_callbacks_is_fine(member):
    listener = composed(member)
    listener.on_assigned(theirs(2))
    listener.on_revoked(theirs(2))
    listener.on_lost(theirs(0, 1))
    assert member.gate.state.assigned == frozenset()


def test_application_callbacks_get_the_librarys_own_list(member):
    got = []
    listener = composed(
        member,
        on_assign=lambda _, partitions: got.append(partitions),
        on_revoke=lambda _, partitions: got.append(partitions),
        on_lost=lambda _, partitions: got.append(partitions),
    )
    given = [theirs(2), theirs(2), theirs(0)]
    listener.on_assigned(given[0])
    listener.on_revoked(given[1])
    listener.on_lost(given[2])
    assert all(one is other for one, other in zip(got, given, strict=True))


def test_a_commit_of_the_application_inside_on_revoke_passes_the_gate(member):
    rulings = []

    def on_revoke(_, partitions):
        positions = {p: InputPosition(0, 1, member.work.generation) for p in ours(1)}
        rulings.append(member.gate.decide(CommitAttempt(positions, member.work.generation)))

    composed(member, on_revoke=on_revoke).on_revoked(theirs(1))
    assert [(ruling.decision, ruling.rule) for ruling in rulings] == [(CommitDecision.COMMIT, RuleName.INSIDE_REVOKE)]


def test_an_empty_revocation_reaches_on_revoke_and_leaves_the_gate_open(member):
    composed(member, on_revoke=member.callback("on_revoke")).on_revoked([])
    assert member.diary == ["theirs: on_revoke of the consumer with []"]
    assert member.gate.state.revocation is None


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke", "on_lost"])
def test_an_exception_of_the_application_is_raised_after_our_listener_is_complete(member, callback):
    member.work.positions = ours(1)
    listener = composed(member, **{callback: member.callback(callback, raises=ValueError("theirs"))})
    happen = {"on_assign": listener.on_assigned, "on_revoke": listener.on_revoked, "on_lost": listener.on_lost}
    with pytest.raises(ValueError, match="theirs"):
        happen[callback](theirs(1))
    state = member.gate.state
    assert state.revoking is False
    assert state.assigned == (ours(0, 1) if callback == "on_assign" else ours(0))
    if callback == "on_revoke":
        assert state.revocation is not None
        assert "work: commit" not in member.diary
    if callback == "on_lost":
        assert state.lost_work == ours(1)


def test_a_raising_on_revoke_that_stands_in_for_on_lost_aborts_nothing_that_is_gone_already(member):
    member.work.positions = ours(1)
    listener = composed(member, on_revoke=member.callback("on_revoke", raises=ValueError("theirs")))
    with pytest.raises(ValueError, match="theirs"):
        listener.on_lost(theirs(1))
    assert member.diary[:3] == ["gate: GateLost", "work: departed", "event: partitions_lost"]
    assert not any(line.startswith(("work: commit", "work: abort")) for line in member.diary)
