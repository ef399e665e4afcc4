"""Judges an application by records in, records out, committed offsets, and what it was told. It knows no client.

Names of the rules: LOST, DOUBLED, TORN (a part of a record's outputs), ORDER, STRAY (an output without its offset),
TOLD (an untrue outcome, or events that differ from the logs), SKIPPED (a record passed over on its way to the
application), BACK (a committed offset went back), LETTER (a failed record is not accounted for once), START (a record
of a partition whose start nobody has chosen, under ``auto.offset.reset=error``), UNNAMED (an exception that nobody
documents), ENDED (an end without a reason), STUCK (it does not come to an end), EVENT (an error event among the records
of a block), UNTOLD (a block that has ended and has neither an outcome nor a reason for having none).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Place = tuple[int, int]
"""Partition and offset of an input record."""


@dataclass
class Attempt:
    """One processing of one record. ``parts``: how many outputs the application has written.

    ``passed_over``: the offset that was due instead, if it was another.
    """

    place: Place
    process: int = 0
    parts: int = 0
    told: str = ""
    passed_over: int | None = None


@dataclass(frozen=True)
class Seen:
    """One visible output: the attempt that wrote it, and which of how many parts it is."""

    place: Place
    attempt: int
    part: int


@dataclass
class Ends:
    """The logs and offsets at the end. ``first``: offsets before it were deleted before anybody had to read them."""

    committed: Mapping[int, int]
    written: Mapping[int, int]
    first: Mapping[int, int]
    outputs: list[Seen]
    letters: list[Place]


@dataclass
class Events:
    """What the clients' events have told. ``outputs``: how many each committed transaction had, with dead letters."""

    outputs: list[int] = field(default_factory=list)
    letters: list[Place] = field(default_factory=list)
    skipped: list[Place] = field(default_factory=list)


@dataclass
class Oracle:
    """Hears what the application gets and is told, and judges at the end.

    ``seeks``: the application itself goes back, so that its commits may.
    """

    transactional: bool
    seeks: bool = False
    violations: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    handed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    settled_unseen: frozenset[Place] = frozenset()
    """Records that the loop settles without the transform, once it knows that their outputs are refused."""
    told_committed: int = 0
    told_aborted: int = 0
    events: Events = field(default_factory=Events)
    due: dict[tuple[int, int], int] = field(default_factory=dict)
    """By process and partition: the next offset that is due."""
    _committed: dict[int, int] = field(default_factory=dict)

    def note(self, rule: str, what: str) -> None:
        """Remember one violation."""
        self.violations.append(f"{rule}: {what}")

    # -- while it runs -------------------------------------------------------------------------------------------

    def took(self, process: int, place: Place, *, committed: int) -> int:
        """Note that ``process`` was handed a record; returns the number of this attempt.

        ``committed``: the group's offset at this moment, or where a group without one starts.
        """
        partition, offset = place
        reached = max(self.due.get((process, partition), 0), committed)
        while reached < offset and (partition, reached) in self.settled_unseen:
            reached += 1
        self.due[process, partition] = offset + 1
        self.handed[partition].add(offset)
        self.attempts.append(Attempt(place, process, passed_over=reached if offset > reached else None))
        return len(self.attempts) - 1

    def sought(self, process: int, place: Place) -> None:
        """Note that the application itself chose where to go on."""
        self.due[process, place[0]] = place[1]

    def told(self, outcome: str, attempts: Iterable[int]) -> None:
        """Note what the application was told of ``attempts``: committed or aborted."""
        for number in attempts:
            attempt = self.attempts[number]
            attempt.told = outcome
            if outcome == "aborted" and attempt.passed_over is not None:
                key = (attempt.process, attempt.place[0])
                self.due[key] = min(self.due[key], attempt.passed_over)
        if outcome == "committed":
            self.told_committed += 1
        elif outcome == "aborted":
            self.told_aborted += 1

    def watch(self, committed: Mapping[int, int]) -> None:
        """Look at the group's offsets, which never go back unless the application does."""
        for partition, offset in committed.items():
            if not self.seeks and offset < self._committed.get(partition, 0):
                self.note("BACK", f"partition {partition} went from {self._committed[partition]} to {offset}")
            self._committed[partition] = offset

    # -- at the end ----------------------------------------------------------------------------------------------

    def judge(self, ends: Ends, expected: Mapping[Place, frozenset[str]]) -> None:
        """Judge the logs. ``expected``: by record, what may have become of it: a number of outputs, or "letter"."""
        for partition, end in ends.written.items():
            if ends.committed.get(partition, ends.first[partition]) < end:
                self.note("STUCK", f"partition {partition} is committed up to {ends.committed.get(partition)} of {end}")
        self._judge_passed_over()
        if not self.transactional:
            self._judge_plain(ends)
            return
        by_place: dict[Place, list[Seen]] = defaultdict(list)
        for seen in ends.outputs:
            by_place[seen.place].append(seen)
        self._judge_order(ends.outputs)
        self._judge_told(ends.outputs)
        for partition, end in ends.written.items():
            for offset in range(end):
                place = (partition, offset)
                inside = offset < ends.committed.get(partition, 0)
                self._judge_record(place, by_place.get(place, []), ends, expected[place], inside=inside)

    def _judge_passed_over(self) -> None:
        """Of a block that is told to be aborted, whatever it was handed comes again: it may begin too far."""
        for attempt in self.attempts:
            if attempt.passed_over is not None and attempt.told != "aborted":
                where = f"{attempt.place[0]}:{attempt.place[1]}"
                self.note("SKIPPED", f"process {attempt.process} got {where}, and was due {attempt.passed_over}")

    def _judge_plain(self, ends: Ends) -> None:
        for partition, end in ends.committed.items():
            missed = [o for o in range(ends.first[partition], end) if o not in self.handed[partition]]
            if missed:
                self.note("LOST", f"partition {partition}: {missed} were committed and never handed over")

    def _judge_record(
        self, place: Place, outputs: list[Seen], ends: Ends, expected: frozenset[str], *, inside: bool
    ) -> None:
        name, letters = f"{place[0]}:{place[1]}", ends.letters.count(place)
        if not inside and (outputs or letters):
            self.note("STRAY", f"{name} has outputs, but its offset is not committed")
            return
        attempts = {seen.attempt for seen in outputs}
        if len(attempts) > 1 or len(outputs) > len({seen.part for seen in outputs}):
            self.note("DOUBLED", f"{name} has {len(outputs)} outputs of attempts {sorted(attempts)}")
            return
        if letters > 1 or (letters and outputs):
            self.note("LETTER", f"{name} has {letters} dead letters and {len(outputs)} outputs")
            return
        became = "letter" if letters else str(len(outputs))
        required = inside and place[1] >= ends.first[place[0]]
        if required and became not in expected and not self._as_written(place, outputs):
            rule = "LOST" if not outputs and not letters else "TORN"
            self.note(rule, f"{name} became {became}, expected {' or '.join(sorted(expected))}")

    def _as_written(self, place: Place, outputs: list[Seen]) -> bool:
        """Whether the application itself wrote no more than this: it passes over outputs that are refused."""
        if outputs:
            return self.attempts[outputs[0].attempt].parts == len(outputs)
        return any(a.place == place and a.parts == 0 and a.told == "committed" for a in self.attempts)

    def _judge_order(self, outputs: list[Seen]) -> None:
        reached: dict[int, Place] = {}
        for seen in outputs:
            partition, offset = seen.place
            if (offset, seen.part) < reached.get(partition, (-1, -1)):
                self.note("ORDER", f"{partition}:{offset} comes behind {partition}:{reached[partition][0]}")
            reached[partition] = (offset, seen.part)

    def _judge_told(self, outputs: list[Seen]) -> None:
        visible = Counter(seen.attempt for seen in outputs)
        for number, attempt in enumerate(self.attempts):
            name = f"{attempt.place[0]}:{attempt.place[1]} (attempt {number})"
            if attempt.told == "aborted" and visible[number]:
                self.note("TOLD", f"{name} is visible, and was told to be aborted")
            if attempt.told == "committed" and visible[number] < attempt.parts:
                self.note("TOLD", f"{name} shows {visible[number]} of {attempt.parts}, and was told to be committed")

    def judge_events(self, ends: Ends, visible: int, may_be_skipped: Iterable[Place]) -> None:
        """Compare what events have told with the logs. ``visible``: so many outputs and dead letters there are.

        ``may_be_skipped``: records that are passed over if they fail.
        """
        told = sum(self.events.outputs)
        if told != visible:
            what = f"{told} outputs and dead letters"
            self.note("TOLD", f"events of committed transactions tell of {what}, and {visible} are visible")
        letters, told_of = Counter(ends.letters), Counter(self.events.letters)
        for partition, offset in sorted(letters.keys() | told_of.keys()):
            there, told_times = letters[partition, offset], told_of[partition, offset]
            if there != told_times:
                self.note("TOLD", f"{partition}:{offset} has {there} dead letters, and {told_times} events tell of one")
        self._judge_skipped(ends, may_be_skipped)

    def _judge_skipped(self, ends: Ends, may_be_skipped: Iterable[Place]) -> None:
        written = {*(seen.place for seen in ends.outputs), *ends.letters}
        told_of = Counter(self.events.skipped)
        for place, times in sorted(told_of.items()):
            passed = place[1] < ends.committed.get(place[0], 0) and place not in written
            if times > 1 or not passed:
                became = "was passed over" if passed else "was not passed over"
                self.note("TOLD", f"{place[0]}:{place[1]} {became}, and {times} events tell that it was skipped")
        for place in sorted({*may_be_skipped} - written - told_of.keys()):
            if ends.first[place[0]] <= place[1] < ends.committed.get(place[0], 0):
                self.note("TOLD", f"{place[0]}:{place[1]} was passed over, and no event tells of it")
