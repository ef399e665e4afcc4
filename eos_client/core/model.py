"""The frozen values that decisions are made of: generations, positions, outcomes, limits, topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec


class UnexpectedEventError(Exception):
    """A state machine has no row for what has happened: a mistake of this package, and none of the caller's."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. This is a mistake of eos-client: end the process, and report this text. Nothing that was not "
            "committed is lost or visible."
        )


class Outcome(Enum):
    """How one attempt to commit ended. Only what a broker confirmed is COMMITTED."""

    COMMITTED = "committed"
    SKIPPED = "skipped"
    ABORTED = "aborted"


def is_pattern(topic: str) -> bool:
    """Whether ``topic`` is a regular expression: librdkafka recognises one by its first character."""
    return topic.startswith("^")


class InputPartition(NamedTuple):
    """One partition of an input topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


Partitions = frozenset[InputPartition]
NO_PARTITIONS: Partitions = frozenset()


def format_partitions(partitions: Partitions) -> str:
    """Format partitions for messages, for example ``orders[0-3,7]``."""
    by_topic: dict[str, list[list[int]]] = {}
    for topic, number in sorted(partitions):
        spans = by_topic.setdefault(topic, [])
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(
        f"{topic}[{','.join(str(a) if a == b else f'{a}-{b}' for a, b in spans)}]" for topic, spans in by_topic.items()
    )


WITHOUT_A_FENCE = "brokers accept offsets that name no member without any check (KIP-447)"
"""Why a commit of offsets is refused whose generation is not that of an active member."""


@dataclass(frozen=True, slots=True)
class GroupGeneration:
    """Our membership of the group, as librdkafka last reported it.

    ``generation_id`` is the classic generation or, where ``is_member_epoch``, the KIP-848 member epoch. Where the
    metadata format was not understood, the number only tells *changed* from *unchanged*.
    """

    generation_id: int
    member_id: str
    group_id: str = ""
    is_member_epoch: bool = False

    @property
    def is_active_member(self) -> bool:
        """Whether it names a member of the group, so that brokers check a commit that carries it.

        Every broker accepts generation -1 with an empty member id without any check, transactional commits included
        (KAFKA-18060, ``ConsumerGroup.validateOffsetCommit``); epoch 0 means "joining" or "left" (KIP-848).
        """
        return self.generation_id > 0 and bool(self.member_id)

    def same_membership(self, other: GroupGeneration) -> bool:
        """Whether both name the same member at the same generation."""
        return self.generation_id == other.generation_id and self.member_id == other.member_id

    def __str__(self) -> str:
        return f"generation {self.generation_id} of member {self.member_id or '<none>'}"


UNJOINED = GroupGeneration(-1, "")


OffsetGaps = tuple[tuple[int, int], ...]

GAPS_MAX = 256
"""How many gaps a position keeps one by one: a consumer whose offsets are committed elsewhere gathers them for ever."""


class InputPosition(msgspec.Struct, frozen=True, gc=False):
    """Uncommitted work on one partition: records ``first_offset`` (inclusive) to ``next_offset`` (exclusive).

    ``generation`` is the membership that was known when the first of them was consumed. ``gaps``: the spans of offsets
    in between, each like this one, that hold no record: transaction markers, aborted and compacted records. Of more
    than GAPS_MAX, ``gaps`` are the last, and ``earlier_gaps`` is how many offsets the others span.
    """

    first_offset: int
    next_offset: int
    generation: GroupGeneration
    leader_epoch: int | None = None
    gaps: OffsetGaps = ()
    earlier_gaps: int = 0

    @property
    def record_count(self) -> int:
        """How many records it covers."""
        return self.next_offset - self.first_offset - _span(self.gaps) - self.earlier_gaps

    def between(self, first_offset: int, next_offset: int) -> InputPosition:
        """Return the part of it from ``first_offset`` (inclusive) to ``next_offset`` (exclusive).

        A part that begins or ends among more than GAPS_MAX gaps counts the earlier ones of them as records.
        """
        gaps = _between(self.gaps, first_offset, next_offset)
        earlier = self.earlier_gaps if first_offset == self.first_offset and gaps[:1] == self.gaps[:1] else 0
        return InputPosition(first_offset, next_offset, self.generation, self.leader_epoch, gaps, earlier)

    def followed_by(self, later: InputPosition) -> InputPosition:
        """Return both as one position; ``later`` was handed over later, and may overlap the end of this one."""
        first = min(self.first_offset, later.first_offset)
        before = self.between(first, later.first_offset)
        skipped = ((self.next_offset, later.first_offset),) if self.next_offset < later.first_offset else ()
        gaps = (*before.gaps, *skipped, *later.gaps)
        earlier = before.earlier_gaps + later.earlier_gaps + _span(gaps[:-GAPS_MAX])
        gaps = gaps[-GAPS_MAX:]
        return InputPosition(first, later.next_offset, self.generation, later.leader_epoch, gaps, earlier)


def _span(gaps: OffsetGaps) -> int:
    return sum(after - first for first, after in gaps)


def _between(gaps: OffsetGaps, first_offset: int, next_offset: int) -> OffsetGaps:
    clipped = ((max(first, first_offset), min(after, next_offset)) for first, after in gaps)
    return tuple((first, after) for first, after in clipped if first < after) if gaps else ()


class CommittedOffset(NamedTuple):
    """A group's committed offset of one partition, with the metadata and the leader epoch committed with it."""

    offset: int
    metadata: str
    leader_epoch: int | None = None


InputPositions = Mapping[InputPartition, InputPosition]


def record_count(positions: InputPositions) -> int:
    """Return how many records ``positions`` cover."""
    return sum(position.record_count for position in positions.values())


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """How long transactional work may take, in seconds.

    ``commit_timeout_s`` bounds each transactional call from outside, because some outlive their own timeout; a commit
    that exceeds it has an unknown outcome. ``start_timeout_s`` bounds the first contact with the cluster,
    ``recovery_timeout_s`` the rebuilding of a producer and the look-up of an unknown outcome.
    """

    commit_timeout_s: float = 4.0
    start_timeout_s: float = 10.0
    recovery_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Shape of one topic; replica counts are those of its least replicated partition."""

    name: str
    partition_count: int
    replicas_min: int
    insync_replicas_min: int
    leaderless: tuple[int, ...]
