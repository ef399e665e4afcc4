"""Judges whether a topic can take the outputs of transactions: by its name, and by its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from eos_client.core.internal_logs import OFFSETS_LOG, TRANSACTION_LOG, whole_number

TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME_RULE = (
    f"the name of a topic has 1 to {TOPIC_NAME_LENGTH_MAX} of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is "
    "neither '.' nor '..'"
)
_TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")

KAFKAS_OWN = frozenset({TRANSACTION_LOG, OFFSETS_LOG, "__share_group_state", "__cluster_metadata"})
"""The internal topics: brokers say TOPIC_AUTHORIZATION_FAILED to every transaction that would write one."""

MARKER_BYTES = 78
"""The size of a transaction marker. A broker tries for ever to write one that is larger than the topic's
max.message.bytes, so the transaction neither commits nor aborts, and its transactional.id stays unusable (seen with
Kafka 4.3.1: a limit of 77 bytes ends like that, one of 78 does not)."""


def is_topic_name(topic: str) -> bool:
    """Whether a broker would take ``topic`` for the name of a topic."""
    return _TOPIC_NAME.fullmatch(topic) is not None and topic not in {".", ".."}


def why_never_written(topic: str) -> str:
    """Return why no transaction can write a topic of this name, as the end of a sentence; empty where one can."""
    if not is_topic_name(topic):
        return TOPIC_NAME_RULE
    return "it is one of Kafka's own topics, which brokers let no client write" if topic in KAFKAS_OWN else ""


def why_unfit_settings(settings: Mapping[str, str]) -> str:
    """Return why no transaction that writes a topic with ``settings`` can end; empty where one can."""
    limit = whole_number(settings, "max.message.bytes")
    if limit is None or limit >= MARKER_BYTES:
        return ""
    return (
        f"max.message.bytes={limit} lets no transaction end that writes it: the marker of a commit or an abort has "
        f"{MARKER_BYTES} bytes"
    )
