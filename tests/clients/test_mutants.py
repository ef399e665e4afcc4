"""Every mistake that the client could have made is caught by a story; ``make mutants`` prints which."""

from __future__ import annotations

import contextlib

import pytest

from tests.clients.mutants import MUTANTS, Mutant, hunt

STORIES = range(140)
SOUND = Mutant("none", contextlib.nullcontext)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_of_the_client_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, (mutant.story, *STORIES)) is not None


def test_the_stories_that_catch_mutants_find_nothing_in_the_unchanged_client() -> None:
    assert hunt(SOUND, sorted({mutant.story for mutant in MUTANTS})) is None


def test_there_are_at_least_fourteen_mutants_and_no_two_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14
