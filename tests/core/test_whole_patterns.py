"""What the brokers match with a KIP-848 member's patterns, and what is told where a beginning was meant."""

import pytest

from eos_client.core.whole_patterns import is_known_to_python, no_match, unmatched

TOPICS = ("orders", "orders-aa", "orders-bb", "payments")


def test_a_pattern_matches_the_whole_name_alone():
    assert unmatched(["^orders", "^orders-a", "^pay", "^p.*"], TOPICS) == {"^orders-a", "^pay"}


@pytest.mark.parametrize("pattern", ["^(", r"^\pL", r"^\Qa\E", "^[[:alpha:]]+"])
def test_what_python_does_not_know_is_not_judged(pattern):
    assert not is_known_to_python(pattern)


def test_a_back_reference_is_judged_and_refused_by_the_brokers():
    assert is_known_to_python(r"^(a)\1")


def test_the_pattern_that_was_meant_is_told_with_a_few_of_its_topics():
    told = no_match("^orders-", (*TOPICS, "orders-cc", "orders-dd"))
    assert "no topic matches '^orders-'" in told
    assert told.endswith("'^orders-.*' would match 'orders-aa', 'orders-bb', 'orders-cc'.")


def test_no_other_pattern_is_told_where_it_would_match_nothing():
    assert no_match("^refunds", TOPICS).endswith("against the whole name of a topic.")
