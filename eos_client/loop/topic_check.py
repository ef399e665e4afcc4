"""Checks the topics of a loop before its first record: what it reads, and what it writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from eos_client import errors
from eos_client.core.model import is_pattern
from eos_client.core.output_topics import why_never_written


def checked_topics(topics: Sequence[str], dead_letter_topic: str | None) -> list[str]:
    """Return ``topics`` as a list; raises ConfigurationError where it is none, or where it holds the dead letters'."""
    if isinstance(topics, str) or not topics:
        raise errors.ConfigurationError(f"topics={topics!r} must be a list of at least one topic name.")
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise errors.ConfigurationError(f"topics={topics!r} must be a list of names; {topic!r} is none.")
    for topic in topics if dead_letter_topic else ():
        with suppress(re.error):  # a pattern of librdkafka's that Python does not know
            if topic == dead_letter_topic or (is_pattern(topic) and re.match(topic, dead_letter_topic or "")):
                raise errors.ConfigurationError(
                    f"dead_letter_topic={dead_letter_topic!r} is among the topics that the loop reads ({topic!r}): a "
                    "letter would fail again and write the next one. Name a topic that it does not read."
                )
    return list(topics)


def checked_output_topic(output_topic: str | None, dead_letter_topic: str | None) -> str | None:
    """Return ``output_topic``; raises ConfigurationError for one that can never be written, or a dead-letter topic."""
    if output_topic is not None and not (isinstance(output_topic, str) and output_topic):
        raise errors.ConfigurationError(
            f"output_topic={output_topic!r} must be the name of a topic, or None where each output names its own."
        )
    for option, topic in (("output_topic", output_topic), ("dead_letter_topic", dead_letter_topic)):
        if topic is not None and (why := why_never_written(topic)):
            raise errors.ConfigurationError(f"{option}={topic!r} cannot be written: {why}. Name another topic.")
    return output_topic
