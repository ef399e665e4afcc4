"""Random stories under every protocol and every commit check: nothing lost, doubled, torn or told wrongly."""

from __future__ import annotations

import pytest

from tests.clients.group_story import PARTITIONS, GroupStory, Setting
from tests.clients.spark_story import SparkStory
from tests.clients.storytellers import AIMED, STALLING, USUAL, Mix, tell, tell_calm
from tests.support.protocols import PROTOCOLS, protocol_and_assignor

SETTINGS = [
    Setting("classic", "range"),
    Setting("classic", "cooperative-sticky"),
    Setting("classic", "cooperative-sticky", request_timeout_s=1.0),
    *(
        Setting("consumer", commit_validation=variant)
        for variant in ("exact", "revocation_epoch_member", "revocation_epoch_partition", "assignment_epoch")
    ),
    Setting("consumer", commit_validation="exact", request_timeout_s=1.0),
    Setting("consumer", impatient=True),
]
MIXES = {"usual": USUAL, "stalling": STALLING, "aimed": AIMED}
EVERY_PROTOCOL = [Setting(*protocol_and_assignor(protocol)) for protocol in PROTOCOLS]
GOES_ON_WITHIN_S = 12.0


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize("seed", [1001, pytest.param(1002, marks=pytest.mark.soak)])
def test_no_story_loses_or_doubles_a_record(setting: Setting, mix: Mix, seed: int) -> None:
    """P1: result in the normal case; O1, O3, O5, O8, C1-C9 of the verification plan."""
    story = tell(seed, setting=setting, mix=mix)
    assert story.oracle.violations == [], f"seed {seed}: {story.oracle.violations}"


@pytest.mark.parametrize("seed", range(5))
def test_while_nothing_fails_nothing_is_refused_and_nothing_done_twice(seed: int) -> None:
    """P1: result in the normal case: zero refused commits."""
    assert tell_calm(seed).oracle.violations == [], f"seed {seed}"


@pytest.mark.parametrize("seed", range(5))
def test_no_repeated_batch_of_a_spark_sink_is_written_twice(seed: int) -> None:
    assert SparkStory(seed).tell() == [], f"seed {seed}"


@pytest.mark.parametrize("setting", EVERY_PROTOCOL, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_the_gate_opens_again_soon_after_the_last_revocation(setting: Setting, seed: int) -> None:
    """P1: the gate reopens within a bound: the member commits within seconds of the last event."""
    story = GroupStory(seed, setting)
    try:
        story.join()
        story.work(0)
        for event in (story.join, lambda: story.revoke(seed % PARTITIONS), story.give_back, story.rebalance):
            event()
            story.write(PARTITIONS)
            story.work(seed)
        last_event_s = story.cluster.clock()
        while not story.oracle.is_drained():
            assert story.cluster.clock() < last_event_s + GOES_ON_WITHIN_S, story.cluster.committed()
            for which in range(len(story.members)):
                story.work(which, 50)
        story.end()
        assert story.oracle.violations == []
    finally:
        story.close()


def test_two_runs_with_one_seed_are_identical() -> None:
    """Also what the brokers' logs hold, and what the application was told."""
    first, second = (tell(5, setting=Setting("classic", "cooperative-sticky", request_timeout_s=1.0)) for _ in range(2))
    assert list(first.cluster.history) == list(second.cluster.history)
    assert [repr(event) for event in first.heard] == [repr(event) for event in second.heard]
    for topic in first.cluster.brokers.topics:
        assert first.cluster.read(topic, read_committed=False) == second.cluster.read(topic, read_committed=False)
    assert first.cluster.clock() == second.cluster.clock()
