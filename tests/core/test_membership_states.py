"""Membership: exhaustive tables of what each rule says, and games in which callbacks are interrupted at any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eos_client.core.membership_events import (
    ApplicationAssigns,
    AssignmentTakenOver,
    CallbackBegan,
    CallbackEnded,
    CallbackInterrupted,
    Followed,
    Leaving,
    MemberAssigned,
    MemberClosed,
    MemberDeparted,
    RejoinReported,
    ReplayBegan,
    Replayed,
    RevocationBegan,
    RevokedBeforeClose,
    Subscribed,
    SyncBegan,
    Synced,
)
from eos_client.core.membership_states import MembershipState, next_state
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, Partitions, UnexpectedEventError

SESSION_S = 10.0
ALL = frozenset(InputPartition("orders", number) for number in range(3))
SUBSETS = [frozenset(some) for count in range(4) for some in itertools.combinations(sorted(ALL), count)]
NONE: Partitions = frozenset()
SOME = frozenset({min(ALL)})
ONE = GroupGeneration(1, "one")
CLASSIC = MembershipState(is_member_epoch=False, is_static=False, session_timeout_s=SESSION_S)
KIP_848 = CLASSIC._replace(is_member_epoch=True)
BOOLEANS = (False, True)


def after(*told: Any, state: MembershipState = CLASSIC) -> MembershipState:
    """Return the state after events."""
    for event in told:
        state = next_state(state, event)
    return state


def test_what_is_no_event_is_refused():
    with pytest.raises(UnexpectedEventError, match="is not an event of a consumer's membership"):
        next_state(CLASSIC, "assigned")  # type: ignore[arg-type]


# -- readmission -------------------------------------------------------------------------------------------------------

GENERATIONS = [UNJOINED, *(GroupGeneration(number, member) for number in range(5) for member in ("", "one", "two"))]


def expected_doubt(
    before: GroupGeneration, now: GroupGeneration, elapsed_s: float, *, unconfirmed: bool, kip848: bool
) -> bool:
    """The rule once more, written down independently."""
    if kip848:
        return False  # it hears of a loss later
    if before.generation_id < 1 or now.generation_id < 1 or not before.member_id or not now.member_id:
        return False  # nobody was or is a member
    if before.member_id != now.member_id:
        return True
    if unconfirmed and before.generation_id != now.generation_id:
        return True
    return elapsed_s >= SESSION_S and now.generation_id - before.generation_id >= 2


def test_who_may_be_readmitted_is_what_the_rule_says():
    for before, now, since_s, elapsed_s, unconfirmed, kip848 in product(
        GENERATIONS, GENERATIONS, (0.0, 5.0), (9.9, 10.0, 10.1), BOOLEANS, BOOLEANS
    ):
        state = CLASSIC._replace(
            is_member_epoch=kip848,
            callback_generation=before,
            member_since_s=since_s,
            is_unconfirmed=unconfirmed,
            assigned=ALL,
        )
        expected = expected_doubt(before, now, elapsed_s, unconfirmed=unconfirmed, kip848=kip848)
        assert state.may_be_readmitted(now, since_s + elapsed_s) is expected, (before, now, elapsed_s, unconfirmed)
        assert state.lost_unnoticed(now, since_s + elapsed_s, NONE) == (ALL if expected else NONE)


@pytest.mark.parametrize("event", [Followed(ONE, 3.0), RevocationBegan(ONE, 3.0), MemberAssigned(NONE, ONE, 3.0)])
def test_a_callback_syncs_and_records_a_classic_generation(event):
    state = after(event)
    assert (state.synced_generation, state.callback_generation, state.member_since_s) == (ONE, ONE, 3.0)
    assert not state.needs_sync


@pytest.mark.parametrize("nobody", [UNJOINED, GroupGeneration(0, "one"), GroupGeneration(3, "")])
def test_a_callback_without_a_member_is_not_recorded(nobody):
    state = after(MemberAssigned(ALL, ONE, 3.0), RevocationBegan(nobody, 4.0))
    assert (state.synced_generation, state.callback_generation, state.member_since_s) == (nobody, ONE, 3.0)


def test_a_member_that_never_rejoined_has_nothing_to_confirm():
    assert not after(RevocationBegan(ONE, 0.0)).may_be_readmitted(GroupGeneration(2, "one"), 0.0)


def test_a_reported_rejoin_is_unconfirmed_until_an_assignment():
    two, three = GroupGeneration(2, "two"), GroupGeneration(3, "two")
    for revoked in SUBSETS:
        state = after(MemberAssigned(ALL, ONE, 0.0), RejoinReported(revoked, two, 5.0))
        assert (state.assigned, state.is_assigned) == (ALL - revoked, revoked != ALL)
        assert (state.synced_generation, state.callback_generation, state.member_since_s) == (two, two, 5.0)
        assert state.is_unconfirmed is (revoked != ALL)
        assert state.may_be_readmitted(three, 5.0) is (revoked != ALL)
        assert not state.may_be_readmitted(two, 5.0)
        assert after(RevocationBegan(two, 6.0), state=state).is_unconfirmed is state.is_unconfirmed
        for confirming in MemberAssigned(NONE, two, 6.0), Followed(two, 6.0):
            assert not after(confirming, state=state).may_be_readmitted(three, 7.0)


# -- syncing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [Followed(ONE, 3.0), MemberAssigned(ALL, ONE, 3.0)])
def test_only_an_emptied_queue_syncs_a_kip_848_epoch(event):
    state = after(event, state=KIP_848)
    assert state.needs_sync
    assert (state.synced_generation, state.callback_generation, state.member_since_s) == (UNJOINED, UNJOINED, 0.0)
    state = after(SyncBegan(), Synced(ONE), state=state)
    assert not state.needs_sync
    assert state.synced_generation == ONE


def test_a_kip_848_revocation_changes_nothing():
    state = after(MemberAssigned(ALL, ONE, 3.0), SyncBegan(), Synced(ONE), state=KIP_848)
    assert after(RevocationBegan(GroupGeneration(2, "one"), 4.0), state=state) == state


def test_an_epoch_is_synced_anew_after_a_broken_call():
    assert after(Replayed(), state=KIP_848).needs_sync
    assert not after(Replayed()).needs_sync


def test_an_emptied_queue_syncs_the_generation_that_was_read_before():
    two = GroupGeneration(2, "one")
    state = after(MemberAssigned(ALL, ONE, 3.0), Synced(two))
    assert (state.synced_generation, state.callback_generation) == (two, ONE)
    assert after(Synced(two), state=state) is state


# -- the subscription --------------------------------------------------------------------------------------------------


def test_a_topic_that_only_a_pattern_matches_is_not_named():
    state = after(Subscribed(("orders", "^or.*")))
    assert state.names("orders")
    assert not state.names("orders-eu")
    assert not state.names("^or.*")  # of which librdkafka has events, too
    assert state.patterns == ("^or.*",)


def test_without_a_subscription_there_is_no_group():
    assert not CLASSIC.is_subscribed
    assert not CLASSIC.names("orders")
    assert CLASSIC.patterns == ()
    assert after(Subscribed(())).is_subscribed


def test_what_is_assigned_by_hand_is_fenced_by_no_group_until_the_next_subscription():
    assert not CLASSIC.is_assigned_by_group
    assert after(Subscribed(("orders",))).is_assigned_by_group
    taken_over = after(Subscribed(("orders",)), AssignmentTakenOver())
    assert (taken_over.is_subscribed, taken_over.is_assigned_by_group) == (True, False)
    assert after(Subscribed(("bills",)), state=taken_over).is_assigned_by_group


@pytest.mark.parametrize(
    ("given", "in_callback", "has_others"),
    [(SOME, True, False), (ALL, True, True), (ALL, False, False), (NONE, True, False)],
)
def test_only_a_callback_can_add_partitions_that_the_group_did_not_give(given, in_callback, has_others):
    state = after(Subscribed(("orders",)), MemberAssigned(SOME, ONE, 0.0), ApplicationAssigns(given, in_callback))
    assert state.has_others is has_others
    assert after(ApplicationAssigns(NONE, in_callback=True), state=state).has_others is has_others
    assert not after(Subscribed(("bills",)), state=state).has_others


def test_a_member_epoch_is_synced_before_a_revocation():
    assert KIP_848.syncs_before_leaving
    assert not CLASSIC.syncs_before_leaving


def partitions_of(*topics):
    return frozenset(InputPartition(topic, 0) for topic in topics)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], False),
        ([Subscribed(("orders",))], True),
        ([Subscribed(("orders", "bills"))], False),
        ([Subscribed(("^orders",))], False),
        ([Subscribed(())], False),
        ([Subscribed(("orders",)), Subscribed(("orders",))], False),
        ([Subscribed(("bills",)), Subscribed(("orders",))], False),
        ([Subscribed(("orders",)), MemberAssigned(ALL, ONE, 0.0)], True),
        ([Subscribed(("bills",)), MemberAssigned(ALL, ONE, 0.0)], False),
        ([Subscribed(("bills",)), MemberAssigned(ALL, ONE, 0.0), MemberAssigned(NONE, ONE, 0.0)], False),
        ([Subscribed(("orders",)), ApplicationAssigns(partitions_of("orders"), in_callback=True)], True),
        ([Subscribed(("orders",)), ApplicationAssigns(partitions_of("orders", "bills"), in_callback=True)], False),
        ([ApplicationAssigns(partitions_of("orders"), in_callback=True)], False),
    ],
)
def test_records_are_of_one_topic_while_all_ever_assigned_is(told, expected):
    assert after(*told).is_of_one_topic is expected


# -- the assignment ----------------------------------------------------------------------------------------------------


def test_an_assignment_lasts_until_all_of_it_has_left():
    for given, taken in product(SUBSETS, SUBSETS):
        state = after(MemberAssigned(given, ONE, 0.0))
        assert (state.assigned, state.is_assigned) == (given, True)
        state = after(MemberDeparted(taken), state=state)
        assert (state.assigned, state.is_assigned) == (given - taken, bool(given - taken))
        assert after(MemberAssigned(taken, ONE, 0.0), state=state).assigned == given | taken


def test_following_a_generation_assigns_nothing():
    for state in after(Followed(ONE, 0.0)), after(Followed(ONE, 0.0), state=KIP_848):
        assert (state.assigned, state.is_assigned) == (NONE, False)


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_whose_departure_is_heard_while_the_consumer_leaves():
    for assigned, named, is_leaving, is_early in product(SUBSETS, SUBSETS, BOOLEANS, BOOLEANS):
        told = [MemberAssigned(assigned, ONE, 0.0)] + [Leaving()] * is_leaving + [RevokedBeforeClose()] * is_early
        departing = after(*told).departing(named)
        if is_early or (is_leaving and named and not named & assigned):
            assert departing is None
        else:
            assert departing == (named & assigned if is_leaving else named)


def test_only_a_classic_static_member_keeps_its_place():
    for is_static, is_member_epoch in product(BOOLEANS, BOOLEANS):
        state = CLASSIC._replace(is_static=is_static, is_member_epoch=is_member_epoch)
        assert state.stays_a_member is (is_static and not is_member_epoch)


def test_what_leaves_stays_out_until_it_is_closed():
    assert [
        after(*told).must_stay_out for told in ([], [Leaving()], [Leaving(), MemberClosed()], [MemberClosed()])
    ] == [
        False,
        True,
        False,
        False,
    ]
    assert after(MemberClosed()).is_closed
    assert not after(Leaving()).is_closed


def test_what_is_given_although_it_counts_as_assigned_was_lost():
    for assigned, given in product(SUBSETS, SUBSETS):
        for state in (
            after(MemberAssigned(assigned, ONE, 0.0)),
            after(MemberAssigned(assigned, ONE, 0.0), state=KIP_848),
        ):
            assert state.lost_unnoticed(ONE, 0.0, given) == assigned & given


# -- interrupted callbacks ---------------------------------------------------------------------------------------------


def test_what_a_replay_owes_follows_from_the_state():
    for assigned, partly, ours in product(SUBSETS, SUBSETS, SUBSETS):
        state = CLASSIC._replace(assigned=assigned, partly_handled=partly)
        for partition in ALL:
            is_known = partition in assigned or partition in partly
            assert (partition in state.due_losses(ours)) is (is_known and partition not in ours)
            is_told = partition in assigned and partition not in partly
            assert (partition in state.due_assignments(ours)) is (partition in ours and not is_told)


def test_what_an_earlier_callback_left_stays_partly_handled_after_another():
    for interrupted, begun in product(SUBSETS, SUBSETS):
        state = after(CallbackBegan(interrupted), CallbackInterrupted(), CallbackBegan(begun))
        assert state.partly_handled == interrupted | begun
        assert after(CallbackEnded(begun), state=state).partly_handled == interrupted - begun


class StruckError(Exception):
    """An exception that strikes between two steps of a callback."""


class Rebalances(RuleBasedStateMachine):
    """A group that gives, takes, and evicts without a word, and callbacks that are interrupted at any step.

    ``ours``: what the library has assigned. ``heard``: what the application believes is ours. ``foreign``: what another
    member may own or have committed since the application began to read it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = after(Subscribed(("orders",)))
        self.ours = self.heard = self.foreign = NONE
        self.group = UNJOINED
        self.now_s = self.call_at_s = self.previous_call_at_s = 0.0
        self.steps_left: int | None = None
        self.was_interrupted = False

    def step(self) -> None:
        if self.steps_left == 0:
            self.steps_left = None
            raise StruckError
        if self.steps_left is not None:
            self.steps_left -= 1

    def tell(self, event: Any) -> None:
        self.step()
        self.state = next_state(self.state, event)

    def hear(self, given: Partitions = NONE, taken: Partitions = NONE) -> None:
        self.step()
        self.heard = (self.heard - taken) | given
        self.foreign -= taken

    # -- what the adapter does ---------------------------------------------------------------------------------------

    def callback(self, act: Callable[[], None], partitions: Partitions) -> None:
        try:
            self.tell(CallbackBegan(partitions))
            act()
            self.tell(CallbackEnded(partitions))
        except StruckError:
            self.state = next_state(self.state, CallbackInterrupted())
            self.was_interrupted = True

    def follow(self, given: Partitions) -> None:
        if lost := self.state.lost_unnoticed(self.group, self.now_s, given):
            self.hear(given=lost, taken=lost)

    def on_assign(self, partitions: Partitions) -> None:
        def act() -> None:
            self.follow(partitions)
            self.tell(MemberAssigned(partitions, self.group, self.previous_call_at_s))
            self.hear(given=partitions)

        self.callback(act, partitions)

    def on_revoke(self, partitions: Partitions) -> None:
        def act() -> None:
            if self.state.may_be_readmitted(self.group, self.now_s):
                retained = self.state.assigned - partitions
                self.hear(given=retained, taken=retained | partitions)
                self.tell(RejoinReported(partitions, self.group, self.previous_call_at_s))
                return
            self.tell(RevocationBegan(self.group, self.previous_call_at_s))
            self.hear(taken=partitions)
            self.tell(MemberDeparted(partitions))

        self.callback(act, partitions)

    def on_lost(self, partitions: Partitions) -> None:
        def act() -> None:
            self.tell(MemberDeparted(partitions))
            self.hear(taken=partitions)

        self.callback(act, partitions)

    def on_nothing(self) -> None:
        def act() -> None:
            self.follow(NONE)
            self.tell(Followed(self.group, self.previous_call_at_s))

        self.callback(act, NONE)

    def begin_call(self, steps: int | None) -> None:
        """Begin a call, which makes good first what was interrupted, and is struck after some ``steps``."""
        self.previous_call_at_s, self.call_at_s = self.call_at_s, self.now_s
        if self.was_interrupted:
            self.steps_left = None
            self.replay()
        self.steps_left = steps

    def replay(self) -> None:
        self.was_interrupted = False
        self.tell(ReplayBegan())
        if gone := self.state.due_losses(self.ours):
            self.on_lost(gone)
        if new := self.state.due_assignments(self.ours):
            self.on_assign(new)
        elif not gone:
            self.on_nothing()
        if not self.state.callback_interrupted:
            self.tell(Replayed())

    # -- what happens ------------------------------------------------------------------------------------------------

    partitions = st.sampled_from(SUBSETS)
    steps = st.none() | st.integers(0, 5)

    @initialize(given=partitions)
    def join(self, given: Partitions) -> None:
        self.group = ONE
        self.ours = given
        self.on_assign(given)

    def rebalance(self) -> None:
        self.group = GroupGeneration(self.group.generation_id + 1, self.group.member_id)

    @rule(given=partitions, steps=steps)
    def assign(self, given: Partitions, steps: int | None) -> None:
        self.rebalance()
        self.begin_call(steps)
        new = given - self.ours
        self.ours |= new
        self.on_assign(new)
        self.steps_left = None

    @rule(taken=partitions, steps=steps)
    def revoke(self, taken: Partitions, steps: int | None) -> None:
        self.begin_call(steps)
        self.on_revoke(taken & self.ours)
        self.ours -= taken
        self.steps_left = None

    @rule(taken=partitions, steps=steps)
    def revoke_and_assign_in_one_call(self, taken: Partitions, steps: int | None) -> None:
        """The library goes on to the next callback after one that was interrupted."""
        self.begin_call(steps)
        taken &= self.ours
        self.on_revoke(taken)
        self.foreign |= taken & self.heard
        self.rebalance()
        self.on_assign(taken)
        self.steps_left = None

    @rule(steps=steps)
    def lose(self, steps: int | None) -> None:
        self.begin_call(steps)
        lost, self.ours = self.ours, NONE
        self.on_lost(lost)
        self.steps_left = None

    @rule(steps=steps)
    def break_off_a_replay(self, steps: int | None) -> None:
        self.steps_left = steps
        try:
            self.replay()
        except StruckError:
            self.was_interrupted = True
        self.steps_left = None

    @rule(seconds=st.sampled_from([0.125, SESSION_S / 2]))  # sums of these are exact
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def evict_under_another_id(self) -> None:
        self.foreign |= self.heard
        self.group = GroupGeneration(self.group.generation_id + 1, self.group.member_id + "+")

    @rule()
    def evict_under_the_same_id(self) -> None:
        self.now_s = max(self.now_s, self.call_at_s) + SESSION_S
        self.foreign |= self.heard
        self.group = GroupGeneration(self.group.generation_id + 2, self.group.member_id)

    @rule()
    @precondition(lambda self: self.state.is_unconfirmed)
    def move_on_before_it_is_confirmed(self) -> None:
        self.foreign |= self.heard
        self.rebalance()

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_that_another_owner_may_have_is_committed(self) -> None:
        if self.foreign & self.state.assigned - self.state.partly_handled:
            assert self.state.may_be_readmitted(self.group, self.now_s)

    @invariant()
    def everybody_agrees_on_what_is_ours(self) -> None:
        if not self.was_interrupted:
            assert self.state.assigned == self.heard == self.ours
            assert self.state.partly_handled == NONE
            assert not self.state.callback_interrupted

    def teardown(self) -> None:
        for _ in range(2):
            self.begin_call(None)
        self.everybody_agrees_on_what_is_ours()


TestRebalances = Rebalances.TestCase
TestRebalances.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
