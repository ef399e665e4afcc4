"""Random stories of workers that sleep, die, are evicted and lose connections; and that the oracle sees wrong loops."""

from __future__ import annotations

import pytest

from tests.databases.stories import CommitsAfter, CommitsBefore, OnlyUpserts, Story, tell


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_story_loses_doubles_or_mixes_up_a_row(tmp_path, first):
    for seed in range(first, first + (6 if first == 0 else 300)):
        assert Story(tmp_path, seed).violations() == [], f"python -m tests.databases.stories --first {seed} --count 1"


def test_the_stories_are_eventful(tmp_path):
    stories = [Story(tmp_path, seed) for seed in range(2000, 2006)]
    for story in stories:
        story.violations()
    struck = [each for story in stories for driver in story.drivers.values() for each in driver.struck]
    outcomes = {outcome for story in stories for outcome in story.told.values()}
    assert len(struck) > 4
    assert len(outcomes) >= 2
    assert sum(len(story.stage.rows()) for story in stories) > 100


@pytest.mark.parametrize(
    ("kind", "seeds"), [(CommitsAfter, range(12)), (CommitsBefore, (17, 31)), (OnlyUpserts, (53,))]
)
def test_the_oracle_sees_a_loop_that_is_written_by_hand(kind, seeds):
    """Of 60 stories 32, 9 and 1 show it, and none of the same stories of a DatabaseConsumer."""
    assert any(tell(seed, kind) for seed in seeds)
    assert not any(tell(seed) for seed in seeds[:2])
