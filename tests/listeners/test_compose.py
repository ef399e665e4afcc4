"""Ours around theirs, in the documented order; what theirs raises never leaves partitions half revoked."""

from __future__ import annotations

import pytest

from eos_client.core.commit_gate import Assigned, CommitAttempt, CommitDecision, GateRule
from eos_client.core.model import InputPosition
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from tests.listeners.listening import Story, ours, theirs


@pytest.fixture
def story():
    return Story()


def composed(story, **callbacks):
    listener = ComposedListener(
        RevocationListener(story.gate, story.work, hook=story.hook), ApplicationCallbacks("the consumer", **callbacks)
    )
    story.gate.observe(Assigned(ours(0, 1)))
    story.diary.clear()
    return listener


def test_assigned_ours_then_theirs(story):
    composed(story, on_assign=story.callback("on_assign")).on_assigned(theirs(2))
    assert story.diary == [
        "gate: Assigned",
        "event: partitions_assigned",
        "theirs: on_assign of the consumer with [2]",
    ]


def test_revoked_ours_begins_theirs_runs_ours_commits_and_closes(story):
    story.work.positions = ours(1)
    composed(story, on_revoke=story.callback("on_revoke")).on_revoked(theirs(1))
    assert story.diary == [
        "gate: RevocationStarted",
        "theirs: on_revoke of the consumer with [1]",
        "work: commit",
        "gate: WorkSettled",
        "gate: RevocationEnded",
        "work: departed",
        "event: partitions_revoked",
    ]


def test_lost_ours_then_theirs(story):
    composed(story, on_lost=story.callback("on_lost"), on_revoke=story.callback("on_revoke")).on_lost(theirs(0, 1))
    assert story.diary == [
        "gate: Lost",
        "work: departed",
        "event: partitions_lost",
        "theirs: on_lost of the consumer with [0, 1]",
    ]


def test_lost_without_on_lost_goes_to_on_revoke_as_in_confluent_kafka_but_commits_nothing(story):
    story.work.positions = ours(0)
    composed(story, on_revoke=story.callback("on_revoke")).on_lost(theirs(0))
    assert story.diary == [
        "gate: Lost",
        "work: departed",
        "event: partitions_lost",
        "theirs: on_revoke of the consumer with [0]",
    ]


def test_an_application_without_callbacks_is_fine(story):
    listener = composed(story)
    listener.on_assigned(theirs(2))
    listener.on_revoked(theirs(2))
    listener.on_lost(theirs(0, 1))
    assert story.gate.state.assigned == frozenset()


def test_theirs_gets_the_very_list_that_the_client_library_gave(story):
    got = []
    listener = composed(
        story,
        on_assign=lambda _, partitions: got.append(partitions),
        on_revoke=lambda _, partitions: got.append(partitions),
        on_lost=lambda _, partitions: got.append(partitions),
    )
    given = [theirs(2), theirs(2), theirs(0)]
    listener.on_assigned(given[0])
    listener.on_revoked(given[1])
    listener.on_lost(given[2])
    assert all(one is other for one, other in zip(got, given, strict=True))


def test_a_commit_of_theirs_inside_on_revoke_passes_the_gate(story):
    rulings = []

    def on_revoke(_, partitions):
        positions = {p: InputPosition(0, 1, story.work.generation) for p in ours(1)}
        rulings.append(story.gate.decide(CommitAttempt(positions, story.work.generation)))

    composed(story, on_revoke=on_revoke).on_revoked(theirs(1))
    assert [(ruling.decision, ruling.rule) for ruling in rulings] == [(CommitDecision.COMMIT, GateRule.INSIDE_REVOKE)]


def test_theirs_hears_of_an_empty_revocation_and_the_gate_stays_open(story):
    composed(story, on_revoke=story.callback("on_revoke")).on_revoked([])
    assert story.diary == ["theirs: on_revoke of the consumer with []"]
    assert story.gate.state.revocation is None


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke", "on_lost"])
def test_what_theirs_raises_goes_on_only_after_ours_is_complete(story, callback):
    story.work.positions = ours(1)
    listener = composed(story, **{callback: story.callback(callback, raises=ValueError("theirs"))})
    happen = {"on_assign": listener.on_assigned, "on_revoke": listener.on_revoked, "on_lost": listener.on_lost}
    with pytest.raises(ValueError, match="theirs"):
        happen[callback](theirs(1))
    state = story.gate.state
    assert state.revoking is False
    assert state.assigned == (ours(0, 1) if callback == "on_assign" else ours(0))
    if callback == "on_revoke":
        assert state.revocation is not None
        assert "work: commit" not in story.diary
    if callback == "on_lost":
        assert state.lost_work == ours(1)


def test_a_raising_on_revoke_that_stands_in_for_on_lost_aborts_nothing_that_is_gone_already(story):
    story.work.positions = ours(1)
    listener = composed(story, on_revoke=story.callback("on_revoke", raises=ValueError("theirs")))
    with pytest.raises(ValueError, match="theirs"):
        listener.on_lost(theirs(1))
    assert story.diary[:3] == ["gate: Lost", "work: departed", "event: partitions_lost"]
    assert not any(line.startswith(("work: commit", "work: abort")) for line in story.diary)
