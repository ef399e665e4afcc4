"""Patterns of a KIP-848 member, which the brokers match with RE2/J and against the whole name of a topic.

A classic member matches by itself, from the beginning of the name. Where nothing matches, brokers report nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CLASS_OF_POSIX = "[[:"  # Python has no such classes and takes them for something else
_NAMED_MAX = 3


def is_known_to_python(pattern: str) -> bool:
    """Whether Python's expressions can tell what ``pattern`` matches: RE2/J's differ from them in places."""
    if _CLASS_OF_POSIX in pattern:
        return False
    try:
        re.compile(f"{pattern}.*")
    except re.error:
        return False
    return True


def unmatched(patterns: Iterable[str], topics: Iterable[str]) -> frozenset[str]:
    """Return those of ``patterns`` that match the whole name of no topic."""
    names = frozenset(topics)
    return frozenset(pattern for pattern in patterns if not any(map(re.compile(pattern).fullmatch, names)))


def no_match(pattern: str, topics: Iterable[str]) -> str:
    """Say that ``pattern`` matches none of ``topics``, and which ones it would match if it did not end there."""
    longer = f"{pattern}.*"
    meant = sorted(filter(re.compile(longer).fullmatch, topics))[:_NAMED_MAX]
    remedy = f"; {longer!r} would match {', '.join(map(repr, meant))}." if meant else "."
    return (
        f"no topic matches {pattern!r}. With group.protocol=consumer the brokers match it, with RE2, against the "
        f"whole name of a topic{remedy}"
    )
