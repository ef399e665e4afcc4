"""Who makes up stories: from a seed, one step after the other, under every protocol and commit check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.clients.group_story import MEMBERS_MAX, SESSION_S, BlockMember, Build, GroupStory, LoopMember, Setting
from tests.clients.spark_story import SparkStory

STEPS = 120
COMMIT_REQUESTS = ("EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn")
REQUESTS = ("EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "AddPartitionsToTxn", "Produce", "InitProducerId", "Fetch")


@dataclass(frozen=True)
class Mix:
    """How many of the steps write inputs, are work, are work that is interrupted, or a fault amid a commit.

    The others are events and faults at any time.
    """

    writes: float = 0.25
    works: float = 0.45
    stalls: float = 0.1
    aimed: float = 0.03


CALM_WORKS = 0.55
HEARTBEATS_LOST = 0.03
USUAL, STALLING, AIMED = Mix(), Mix(works=0.3, stalls=0.3), Mix(works=0.25, stalls=0.0, aimed=0.3)


def random_step(story: GroupStory, random: Random, mix: Mix = USUAL, depth: int = 0) -> None:
    """Take one step; while a member is interrupted, others are taken."""
    which, dice = random.randrange(MEMBERS_MAX), random.random()
    story.steps_taken += 1

    def others() -> None:
        for _ in range(random.randrange(4)):
            random_step(story, random, mix, depth + 1)

    if dice < mix.writes:
        story.write(random.choice((1, 2, 5)))
    elif dice < mix.writes + mix.works:
        story.work(which, random.choice((1, 3, 20)), others if depth == 0 else lambda: None)
    elif dice < mix.writes + mix.works + mix.stalls and depth == 0:
        story.stall(which, random.choice((3, 20)), random.choice((0.5, 3.0, 11.0, 16.0)), others)
    elif dice < mix.writes + mix.works + mix.stalls + mix.aimed and depth == 0:
        aimed_step(story, random, which, others)
    else:
        random.choice(rare_steps(story, random, which))()
    story.oracle.watch()


def aimed_step(story: GroupStory, random: Random, which: int, others: Callable[[], None]) -> None:
    request, seconds = random.choice(COMMIT_REQUESTS), random.choice((1.5, 4.0, 12.0))
    dice = random.random()

    def slowly(name: str) -> None:
        story.advance(random.choice((0.0, 0.5, 1.0, 1.5)))
        story.delay("EndTxn", 1.5, name)

    if dice < 0.4:
        story.write(8)
        story.crash(which, "EndTxn" if dice < 0.3 else request)
        story.advance(random.choice((0.01, SESSION_S + 0.5)))
        for new_owner in range(MEMBERS_MAX):  # what it left behind is pending while they come
            story.work(new_owner)
            random.choice((story.join, story.rebalance, lambda new_owner=new_owner: story.revoke(new_owner)))()
    else:
        story.write(8)
        story.aim(which, lambda name: story.delay(request, seconds, name), slowly if dice < 0.7 else lambda _: others())


def rare_steps(story: GroupStory, random: Random, which: int) -> list[Callable[[], None]]:
    return [
        story.join,
        story.join,
        lambda: story.leave(which),
        lambda: story.kill(which),
        lambda: story.freeze(which),
        story.thaw,
        story.rebalance,
        lambda: story.revoke(which),
        story.give_back,
        lambda: story.lose(which),
        story.restart,
        lambda: story.expire(which),
        lambda: story.lose_reply(random.choice(REQUESTS)),
        lambda: story.lose_request(random.choice(REQUESTS)),
        lambda: story.duplicate(random.choice(REQUESTS)),
        lambda: story.delay(random.choice(REQUESTS), random.choice((0.05, 1.5, 4.0, 12.0))),
        lambda: story.advance(random.choice((0.01, 0.5, 3.0, 12.0))),
    ]


def calm_step(story: GroupStory, random: Random) -> None:
    """Take one step of a story in which members come and go, partitions move, and nothing fails."""
    which, dice = random.randrange(MEMBERS_MAX), random.random()
    story.steps_taken += 1
    if dice < USUAL.writes:
        story.write(random.choice((1, 2, 5)))
    elif dice < USUAL.writes + CALM_WORKS:
        story.work(which, random.choice((1, 3, 20)))
    else:
        random.choice(
            [
                story.join,
                lambda: story.leave(which),
                story.rebalance,
                lambda: story.revoke(which),
                story.give_back,
                lambda: story.advance(random.choice((0.01, 0.5, 3.0))),
            ]
        )()
    story.oracle.watch()


def tell(
    seed: int, steps: int = STEPS, setting: Setting | None = None, build: Build = BlockMember, mix: Mix = USUAL
) -> GroupStory:
    """Tell one random story to its end and return it, judged."""
    return _told(GroupStory(seed, setting or Setting(), build), steps, partial(random_step, mix=mix))


def tell_of_heartbeats(seed: int, setting: Setting, build: Build = BlockMember, steps: int = STEPS) -> GroupStory:
    """Tell a calm story in which the group moves on, and a member does not know yet.

    The answers to some heartbeats are lost, and to each that says that partitions were given up.
    """
    request = "ConsumerGroupHeartbeat" if setting.protocol == "consumer" else "JoinGroup"

    def step(story: GroupStory, random: Random) -> None:
        if random.random() < HEARTBEATS_LOST:
            story.lose_reply(request)
        calm_step(story, random)

    story = GroupStory(seed, setting, build, gated=build is BlockMember)
    story.revoked = lambda client: story.lose_reply(request, client)
    return _told(story, steps, step)


def tell_calm(seed: int, steps: int = STEPS, setting: Setting | None = None) -> GroupStory:
    """Tell a story without faults, in which also nothing may be done twice or be refused."""
    story = _told(GroupStory(seed, setting or Setting(), LoopMember), steps, calm_step)
    story.oracle.judge_calm()
    return story


def _told(story: GroupStory, steps: int, step: Callable[[GroupStory, Random], None]) -> GroupStory:
    random = Random(f"story {story.seed}")
    try:
        story.join()
        for _ in range(steps):
            step(story, random)
        story.end()
    finally:
        story.close()
    return story


SETTINGS = (
    (Setting("consumer"), USUAL),
    (Setting("classic", "cooperative-sticky", request_timeout_s=1.0), USUAL),
    (Setting("consumer", commit_validation="exact", request_timeout_s=1.0), AIMED),
    (Setting("classic", "range"), AIMED),
    (Setting("consumer", commit_validation="exact", impatient=True), STALLING),
)


class Shelf:
    """All stories, numbered: of every kind in turn."""

    kinds = len(SETTINGS) + 2

    @staticmethod
    def name(number: int) -> str:
        """Return what story ``number`` is about."""
        kind = number % Shelf.kinds
        names = [*(str(setting) for setting, _ in SETTINGS), "Spark sink", "calm"]
        return f"{names[kind]}, story {number}"

    @staticmethod
    def violations(number: int) -> list[str]:
        """Tell story ``number`` and return what is wrong in it."""
        kind = number % Shelf.kinds
        if kind == len(SETTINGS):
            return SparkStory(number).tell()
        if kind > len(SETTINGS):
            return tell_calm(number).oracle.violations
        setting, mix = SETTINGS[kind]
        return tell(number, setting=setting, mix=mix).oracle.violations
