"""Which lines of the client library's log mean that a topic is another one than before."""

import itertools
import logging

import pytest

from eos_client.confluent.consumer.topic_identities import TopicIdentities

NONE, FIRST, SECOND = "A" * 22, "KqnzefGLRcq6fy0J7jGRPw", "En9HAz5HQROduPkefeL5sA"


class Lines:
    def __init__(self):
        self.passed_on = []

    def log(self, level, text, *arguments):
        self.passed_on.append(text % arguments)


def hears(identities, *ids, topic="orders"):
    for before, after in itertools.pairwise(ids):
        line = f"[thrd:main]: Topic {topic} changed id from {before} to {after}"
        identities.log(logging.DEBUG, "%s [%s] %s", "METADATA", "rdkafka#consumer-1", line)


def test_the_first_topic_id_is_no_replacement():
    identities = TopicIdentities({})
    hears(identities, NONE, FIRST)
    assert identities._ids == {"orders": [FIRST]}
    assert not identities.replaced


def test_a_replaced_topic_id_is_reported_until_it_is_settled():
    identities = TopicIdentities({})
    hears(identities, NONE, FIRST, SECOND)
    assert identities.replaced == identities.replaced == {"orders"}
    identities.acknowledge(identities.replaced)
    assert identities.replaced == frozenset()


def test_a_topic_that_the_library_forgot_meanwhile_is_compared_all_the_same():
    identities = TopicIdentities({})
    hears(identities, NONE, FIRST)
    hears(identities, NONE, SECOND)
    assert identities.replaced == {"orders"}


@pytest.mark.parametrize("ids", [(NONE, FIRST, NONE, FIRST), (SECOND, FIRST, SECOND, FIRST)])
def test_an_id_that_a_broker_does_not_know_or_remembers_too_long_is_no_change(ids):
    identities = TopicIdentities({})
    hears(identities, NONE, *ids[:2])
    identities.acknowledge(identities.replaced)
    hears(identities, *ids[1:])
    assert not identities.replaced


@pytest.mark.parametrize(("debug", "passed_on"), [(None, 0), ("cgrp", 1)])
def test_the_application_gets_debug_lines_only_if_it_asked_for_some(debug, passed_on):
    theirs = Lines()
    settings = {"logger": theirs} if debug is None else {"logger": theirs, "debug": debug}
    identities = TopicIdentities(settings)
    added = identities.added_to(settings)
    assert added["logger"] is identities
    assert added["debug"].split(",")[-1] == "metadata"
    hears(identities, NONE, FIRST)
    identities.log(logging.WARNING, "%s [%s] %s", "OFFSET", "rdkafka#consumer-1", "offset reset")
    assert len(theirs.passed_on) == passed_on + 1
