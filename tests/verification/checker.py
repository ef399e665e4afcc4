"""Was every input processed exactly once? Answered from what is read back, by code that never saw the client.

Imports nothing of the client under test and no Kafka library: its input is a History of plain values, so that anybody
can check a run again. One rule, one violation kind; each kind has a hand-written bad history in the tests.
"""

from __future__ import annotations

import enum
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

SAMPLES_MAX = 5

# A transaction completed while the restarting broker is still fenced is recorded complete *without* its markers; a
# later commit by that producer then makes stale outputs visible. The broker says so in its log, and nowhere else.
BROKER_ATOMICITY_HOLE = "Couldn't find leader endpoint"
COORDINATOR_STARTS = re.compile(r"Leader __transaction_state-(\d+) .* starts at leader epoch (\d+) from offset (\d+) ")


class Rule(enum.Enum):
    """What a history can break; the value is the promise."""

    LOST = "every input has its output"
    DOUBLED = "no input has two outputs"
    INVENTED = "every output has its input"
    REORDERED = "outputs of one input partition keep its order within an output partition"
    ABORTED_VISIBLE = "no read_committed reader, at any time, sees an output of an aborted transaction"
    UNFINISHED = "no transaction is still open at the end"
    OFFSETS = "committed offsets equal the end of the input"


class Status(enum.Enum):
    """The verdict on a history."""

    HOLDS = "holds"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Stored:
    """One record of a topic: where it stands and the unique id it carries."""

    partition: int
    offset: int
    record_id: bytes


@dataclass(frozen=True, slots=True)
class History:
    """All that is read back after a run.

    `outputs`: the final read_committed read. `watched`: what a read_committed reader saw while the run went on.
    `aborted`, `unfinished`: (partition, offset) of output records whose transaction the log itself shows as aborted
    or without an end. `committed`: the group's offsets, None where there is none. `broker_log`: its lines.
    """

    inputs: Sequence[Stored]
    outputs: Sequence[Stored]
    input_ends: Mapping[int, int]
    committed: Mapping[int, int | None]
    watched: Sequence[Stored] = ()
    aborted: AbstractSet[tuple[int, int]] = frozenset()
    unfinished: AbstractSet[tuple[int, int]] = frozenset()
    broker_log: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: how often, and the first few cases in words."""

    rule: Rule
    count: int
    samples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule.name.lower()} {self.count} ({'; '.join(self.samples)})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What check() found. INCONCLUSIVE stands above both others: the broker itself broke atomicity."""

    status: Status
    inputs: int
    outputs: int
    violations: tuple[Violation, ...] = ()
    reason: str = ""

    def count(self, rule: Rule) -> int:
        """How often that rule was broken."""
        return sum(violation.count for violation in self.violations if violation.rule is rule)

    def __str__(self) -> str:
        parts = [self.status.value, f"{self.inputs} in, {self.outputs} out", *map(str, self.violations)]
        return "; ".join([*parts, self.reason] if self.reason else parts)


@dataclass(slots=True)
class _Findings:
    """Collects the cases of one rule."""

    rule: Rule
    count: int = 0
    samples: list[str] = field(default_factory=list)

    def add(self, case: str) -> None:
        self.count += 1
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(case)


def check(history: History) -> Verdict:
    """Judge one history by every rule."""
    findings = [
        _lost(history),
        _doubled(history),
        _invented(history),
        _reordered(history),
        _aborted_visible(history),
        _unfinished(history),
        _offsets(history),
    ]
    violations = tuple(Violation(found.rule, found.count, tuple(found.samples)) for found in findings if found.count)
    reason = _hole(history, is_violated=bool(violations))
    status = Status.VIOLATED if violations else Status.HOLDS
    return Verdict(
        Status.INCONCLUSIVE if reason else status, len(history.inputs), len(history.outputs), violations, reason
    )


def _hole(history: History, *, is_violated: bool) -> str:
    """What the brokers' logs say of atomicity that the brokers themselves have broken; empty if they have not."""
    line = next((line for line in history.broker_log if BROKER_ATOMICITY_HOLE in line), None)
    if line is not None:
        return f"broker completed a transaction without markers: {line.strip()}"
    return _lost_decision(history.broker_log) if is_violated else ""


def _lost_decision(broker_log: Iterable[str]) -> str:
    """Whether a transaction coordinator has acted on records that were cut off from its log afterwards.

    It loads its log up to the end, also what is not replicated yet: partitions, offsets and even decisions. If the
    next leader begins before that end, it knows nothing of them.
    """
    starts = [tuple(map(int, found.groups())) for line in broker_log if (found := COORDINATOR_STARTS.search(line))]
    for (log, epoch, start), (next_log, _, next_start) in pairwise(sorted(starts)):
        if log == next_log and next_start < start:
            return (
                f"the transaction coordinator of log {log} began at offset {start} (leader epoch {epoch}), the next "
                f"one at {next_start}: what the first one did in between is unknown to the second"
            )
    return ""


def _lost(history: History) -> _Findings:
    found = _Findings(Rule.LOST)
    seen = {output.record_id for output in history.outputs}
    for record in history.inputs:
        if record.record_id not in seen:
            found.add(f"input {record.partition}@{record.offset} {record.record_id!r}")
    return found


def _doubled(history: History) -> _Findings:
    found = _Findings(Rule.DOUBLED)
    for record_id, count in Counter(output.record_id for output in history.outputs).items():
        for _ in range(count - 1):
            found.add(f"{record_id!r} {count} times")
    return found


def _invented(history: History) -> _Findings:
    found = _Findings(Rule.INVENTED)
    known = {record.record_id for record in history.inputs}
    for output in history.outputs:
        if output.record_id not in known:
            found.add(f"output {output.partition}@{output.offset} {output.record_id!r}")
    return found


def _reordered(history: History) -> _Findings:
    """A doubled record that comes late is reported as doubled, not as out of order: only first appearances count."""
    found = _Findings(Rule.REORDERED)
    origin = {record.record_id: (record.partition, record.offset) for record in history.inputs}
    newest: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    counted: set[bytes] = set()
    for output in sorted(history.outputs, key=lambda output: (output.partition, output.offset)):
        if output.record_id not in origin or output.record_id in counted:
            continue
        counted.add(output.record_id)
        partition, offset = origin[output.record_id]
        lane = (partition, output.partition)
        if offset < newest[lane]:
            found.add(f"input {partition}@{offset} after @{newest[lane]} in output {output.partition}")
        newest[lane] = max(newest[lane], offset)
    return found


def _aborted_visible(history: History) -> _Findings:
    """By the log's own markers, and by time: what a reader once saw must still stand there at the end."""
    found = _Findings(Rule.ABORTED_VISIBLE)
    final = {(output.partition, output.offset): output.record_id for output in history.outputs}
    for place in sorted(final.keys() & history.aborted):
        found.add(f"output {place[0]}@{place[1]} belongs to an aborted transaction")
    for seen in history.watched:
        if final.get((seen.partition, seen.offset)) != seen.record_id:
            found.add(f"output {seen.partition}@{seen.offset} {seen.record_id!r} was seen once, gone at the end")
    return found


def _unfinished(history: History) -> _Findings:
    found = _Findings(Rule.UNFINISHED)
    for partition, offset in sorted(history.unfinished):
        found.add(f"output {partition}@{offset}")
    return found


def _offsets(history: History) -> _Findings:
    found = _Findings(Rule.OFFSETS)
    for partition, end in sorted(history.input_ends.items()):
        committed = history.committed.get(partition)
        if committed != end and not (end == 0 and committed is None):
            found.add(f"input {partition}: committed {committed}, end {end}")
    return found
