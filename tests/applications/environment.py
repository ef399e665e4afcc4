"""What the members of a program have in common, whichever brokers they meet, and the verdict at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eos_client.errors import (
    AbortableError,
    ClusterUnfitError,
    EosError,
    InputPositionError,
    ProducerFencedError,
    RebuildProducerError,
    TransformError,
)
from tests.applications.oracle import Ends, Oracle, Place, Seen
from tests.applications.program import GROUP, INPUT, LETTERS, OUTPUT, Program

SETTLED_AFTER_S = 75.0
"""After that no session, transaction or lost request of before can end a process any more."""
ENDS_IN_CALM_MAX = 2
STILL_A_MEMBER = "instance ID is still used by another member"
NAMES_THE_CLOCK = "this host's clock"
WORST_FIRST = (
    *("CRASHED", "LOST", "DOUBLED", "STRAY", "TORN", "ORDER", "TOLD", "LETTER", "BACK", "SKIPPED", "START"),
    *("ACCEPTED", "MISUSE", "EVENT", "PAUSED", "UNNAMED", "ENDED", "STUCK", "UNTOLD"),
)
USUAL_KINDS = frozenset({"one", "none", "two", "stamped", "slow", "very_slow"})
SILENT_ENDS = frozenset({"interrupt", "kill", "strike_call", "strike_step"})
"""Events that may end a process between a commit and the event that tells of it."""
UNKNOWN = "outcome unknown"
"""How it is counted that nobody could find out what became of a commit."""


@dataclass
class Verdict:
    """What became of a program."""

    program: Program
    violations: list[str]
    counts: Counter[str]
    took_s: float = 0.0
    answers: Mapping[str, set[str]] = field(default_factory=dict)
    """By what the application tried, an output or a misuse: what the client made of it."""

    @property
    def rule(self) -> str:
        """The worst rule that was broken, or an empty text."""
        broken = {violation.split(":")[0] for violation in self.violations}
        return min(broken, key=lambda rule: WORST_FIRST.index(rule) if rule in WORST_FIRST else 0, default="")


@dataclass(frozen=True)
class Names:
    """Topics, group and the beginning of transactional ids."""

    source: str = INPUT
    sink: str = OUTPUT
    letters: str = LETTERS
    group: str = GROUP


class NoStrike:
    """Of a block whose end is left alone. ``struck``: whether a signal came between two steps of the ending."""

    struck = ""

    def arm(self) -> None:
        """Begin: the next thing that the block does is to end."""

    def disarm(self) -> None:
        """The block has ended."""


NO_STRIKE = NoStrike()


class Environment:
    """What happens to a program, as its members see it. ``calm``: nothing unusual happens any more."""

    named_errors = (AbortableError, RebuildProducerError)

    def __init__(self, program: Program, names: Names) -> None:
        self.program, self.names = program, names
        self.oracle = Oracle(transactional=program.style != "plain", seeks=program.style == "plain" and program.seeks)
        self.counts = Counter[str]()
        self.answers: dict[str, set[str]] = defaultdict(set)
        self.failed = Counter[Place]()
        self.corrected: set[Place] = set()
        self.calm = False
        self._kinds = {(odd.partition, odd.first + each): odd.kind for odd in program.odds for each in range(odd.count)}
        if program.style == "loop":
            unusual = (place for place, kind in self._kinds.items() if kind not in USUAL_KINDS)
            self.oracle.settled_unseen = frozenset(unusual)
        self._over = False
        self._processes = 0
        self._calm_ends = 0

    # -- what members tell and ask -------------------------------------------------------------------------------

    def new_process(self) -> int:
        """Return the number of one more process."""
        self._processes += 1
        return self._processes

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.counts[what] += 1

    def answer(self, tried: str, answer: str) -> None:
        """Note what the client made of something that the application tried."""
        self.answers[tried].add(answer)

    def over(self) -> bool:
        """Whether processes are to end."""
        return self._over

    def kind_of(self, place: Place) -> str:
        """Return what is odd about a record."""
        return self._kinds.get(place, "one")

    def strike_at_end(self, _member: Any) -> Any:
        """Return what strikes at the end of the member's next block."""
        return NO_STRIKE

    def exits(self, member: Any) -> None:
        """Note that the process is gone, and what it had left behind with it."""

    def ended(self, error: EosError, now_s: float) -> None:
        """A process ended with a named error; a supervisor, or somebody who corrects the record, comes."""
        self.count(f"ended by {type(error).__name__}")
        if isinstance(error, TransformError):
            if self.program.setting.on_error != "stop":
                self.oracle.note("ENDED", f"under on_error={self.program.setting.on_error}: {error}")
            self.corrected.add((error.partition, error.offset))
            return
        if isinstance(error, InputPositionError) and self.program.setting.reset == "error":
            self.offset_is_missing(error)
            return
        if isinstance(error, ProducerFencedError) and self.program.setting.generated_id:
            self.oracle.note("ENDED", f"nobody else has the generated id: {type(error).__name__}: {error}")
        if isinstance(error, ClusterUnfitError) and not self._is_of_the_clock(error):
            self.oracle.note("ENDED", f"nothing is wrong with the cluster: {error}")
        if STILL_A_MEMBER in str(error):  # a KIP-848 group keeps a static member's place until its session ends
            return
        if now_s > self.program.until_s + SETTLED_AFTER_S:
            self._calm_ends += 1
        if self._calm_ends > ENDS_IN_CALM_MAX or self._is_quiet:
            self.oracle.note("ENDED", f"{type(error).__name__}: {error}")
            self._over = True

    def _is_of_the_clock(self, error: ClusterUnfitError) -> bool:
        return self.program.has_event("wrong_clock") and NAMES_THE_CLOCK in str(error)

    def offset_is_missing(self, error: InputPositionError) -> None:
        """Do what ``error`` says: set an offset of the group, unless it is not true that there is none."""
        partition = error.partition or 0
        committed = self.committed().get(partition)
        if committed is not None and committed >= self.first(partition):
            self.oracle.note("ENDED", f"{committed} is committed, and in the log: {type(error).__name__}: {error}")
        self.set_offset(partition)

    def committed(self) -> dict[int, int]:
        """Return the group's offsets."""
        raise NotImplementedError

    def first(self, partition: int) -> int:
        """Return the first offset that is still in the log."""
        raise NotImplementedError

    def set_offset(self, partition: int) -> None:
        """Let the group begin ``partition`` at the first record; brokers refuse it while the group has members."""
        raise NotImplementedError

    def nothing_to_commit(self, handed_over: Mapping[int, int]) -> None:
        """Note that a synchronous commit() found nothing to do after a process was handed so much."""

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing is in the program that may end a process."""
        program = self.program
        acts = {act.name for turn in program.turns for act in turn.acts}
        troubling = acts & {"stall", "sleep", "close_producer", "close_consumer"}
        return program.members == 1 and not (program.events or program.callbacks or troubling)

    def unnamed(self, error: BaseException) -> None:
        """A process ended with an error that nobody documents."""
        self.oracle.note("UNNAMED", f"{type(error).__name__}: {error}")
        if self.calm:
            self._over = True

    # -- the verdict ---------------------------------------------------------------------------------------------

    def judge(
        self,
        values: Iterable[Any],
        letters: list[Place],
        committed: dict[int, int],
        written: dict[int, int],
        first: dict[int, int],
    ) -> None:
        """Judge what is in the logs at the end; see ``Ends``."""
        outputs, unreadable = [], 0
        for value in values:
            if value.count(b"|") != 2:
                unreadable += 1
                self.oracle.note("ACCEPTED", f"{value[:10]!r}, which no broker takes")
                continue
            place, attempt, part = value.decode().split("|")
            partition, offset = place.split(":")
            outputs.append(Seen((int(partition), int(offset)), int(attempt), int(part)))
        expected = {(p, o): self._expected((p, o)) for p, end in written.items() for o in range(end)}
        ends = Ends(committed, written, first, outputs, letters)
        self.oracle.judge(ends, expected)
        if self._hears_all:
            skipping = self.program.setting.on_error == "skip"
            failing = [place for place, kind in self._kinds.items() if skipping and kind not in USUAL_KINDS]
            self.oracle.judge_events(ends, len(outputs) + len(letters) + unreadable, failing)

    @property
    def _hears_all(self) -> bool:
        """Whether an event must have told of each transaction that took effect."""
        program = self.program
        if program.style == "plain" or self.counts[UNKNOWN]:
            return False
        struck = any(event.name in SILENT_ENDS for event in program.events)
        return not struck and not any(callback.does == "interrupt" for callback in program.callbacks)

    def _expected(self, place: Place) -> frozenset[str]:
        kind, on_error = self.kind_of(place), self.program.setting.on_error
        usual = {"none": "0", "two": "2", "stamped": "2"}.get(kind, "1")
        if self.program.style != "loop" or on_error == "stop" or kind in USUAL_KINDS:
            return frozenset({usual})
        instead = "0" if on_error == "skip" else "letter"
        return frozenset({usual, instead} if kind == "flaky" else {instead})


def letter_of(headers: Any) -> Place:
    """Return which record a dead letter is about, by its headers."""
    named = dict(headers)
    return int(named["eos.partition"] or 0), int(named["eos.offset"] or 0)
