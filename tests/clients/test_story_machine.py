"""Stories that hypothesis makes up, and shortens when one goes wrong. `EOS_STORIES=2000` tells more of them."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.clients.group_story import MEMBERS_MAX, PARTITIONS, SESSION_S, GroupStory, Setting
from tests.clients.storytellers import COMMIT_REQUESTS, REQUESTS

STORIES = int(os.environ.get("EOS_STORIES", "8"))
STEPS = 25
MEMBERS, COUNTS = st.integers(0, MEMBERS_MAX - 1), st.sampled_from((1, 3, 20))
SECONDS = st.sampled_from((0.01, 0.5, 1.5, 4.0, SESSION_S + 1.0))
PROTOCOLS = {
    "eager": Setting("classic", "range"),
    "cooperative": Setting("classic", "cooperative-sticky", request_timeout_s=1.0),
    "exact": Setting("consumer", commit_validation="exact", request_timeout_s=1.0),
    "assignment_epoch": Setting("consumer"),
    "impatient": Setting("consumer", impatient=True),
}


class StoryMachine(RuleBasedStateMachine):
    """Every step of a story as a rule; the logs are judged while it is told, and at its end."""

    setting = Setting()

    def __init__(self) -> None:
        super().__init__()
        self.story: GroupStory | None = None

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.story = GroupStory(seed, self.setting)
        self.told.join()

    @property
    def told(self) -> GroupStory:
        assert self.story is not None
        return self.story

    @rule(count=st.integers(1, 8))
    def write(self, count: int) -> None:
        self.told.write(count)

    @rule()
    def join(self) -> None:
        self.told.join()

    @rule(which=MEMBERS, count=COUNTS)
    def work(self, which: int, count: int) -> None:
        self.told.work(which, count)

    @rule(which=MEMBERS, other=MEMBERS, count=COUNTS, seconds=SECONDS)
    def stall_while_another_works(self, which: int, other: int, count: int, seconds: float) -> None:
        self.told.stall(which, count, seconds, lambda: self.told.work(other, count))

    @rule(which=MEMBERS, partition=st.integers(0, PARTITIONS - 1), count=COUNTS)
    def work_while_a_partition_leaves(self, which: int, partition: int, count: int) -> None:
        self.told.work(which, count, lambda: self.told.revoke(partition))

    @rule(which=MEMBERS, request=st.sampled_from(COMMIT_REQUESTS), seconds=SECONDS, pause_s=SECONDS)
    def work_after_a_late_request(self, which: int, request: str, seconds: float, pause_s: float) -> None:
        def aside(_: str) -> None:
            self.told.advance(pause_s)

        self.told.aim(which, lambda name: self.told.delay(request, seconds, name), aside)

    @rule(which=MEMBERS, request=st.sampled_from(COMMIT_REQUESTS))
    def crash(self, which: int, request: str) -> None:
        self.told.crash(which, request)

    @rule(which=MEMBERS)
    def leave(self, which: int) -> None:
        self.told.leave(which)

    @rule(which=MEMBERS)
    def kill(self, which: int) -> None:
        self.told.kill(which)

    @rule(which=MEMBERS)
    def freeze(self, which: int) -> None:
        self.told.freeze(which)

    @rule()
    def thaw(self) -> None:
        self.told.thaw()

    @rule()
    def rebalance(self) -> None:
        self.told.rebalance()

    @rule()
    def give_back(self) -> None:
        self.told.give_back()

    @rule(which=MEMBERS)
    def lose(self, which: int) -> None:
        self.told.lose(which)

    @rule(which=MEMBERS)
    def expire(self, which: int) -> None:
        self.told.expire(which)

    @rule()
    def restart(self) -> None:
        self.told.restart()

    @rule(request=st.sampled_from(REQUESTS), lost=st.sampled_from(("request", "reply", "neither")))
    def lose_or_repeat(self, request: str, lost: str) -> None:
        {"request": self.told.lose_request, "reply": self.told.lose_reply, "neither": self.told.duplicate}[lost](
            request
        )

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.told.advance(seconds)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if self.story is not None:
            self.story.oracle.watch()
            assert self.story.oracle.violations == [], repr(self.story.cluster)

    def teardown(self) -> None:
        if self.story is None:
            return
        note(repr(self.story.cluster))
        try:
            self.story.end()
        finally:
            self.story.close()
        assert self.story.oracle.violations == [], repr(self.story.cluster)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_story_that_hypothesis_makes_up_goes_wrong(protocol: str) -> None:
    """P1: result in the normal case; O1, O3, O5, O8, C1-C9 of the verification plan."""
    machine = type("StoryMachine", (StoryMachine,), {"setting": PROTOCOLS[protocol]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=STORIES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="EOS_STORIES" not in os.environ,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        ),
    )
