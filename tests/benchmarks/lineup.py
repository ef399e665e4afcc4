"""Who is measured: each contender with the command that starts it, and which work each of them does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.benchmarks.contenders.assignment import (
    BATCH,
    BATCH_OBJECTS,
    FIVE,
    HEADERS,
    INLINE,
    JSON,
    KEYED,
    LARGE,
    OBJECTS,
    VALUE,
    Assignment,
)
from tests.benchmarks.peers import peers_python, streams_command

LOOPS = "tests.benchmarks.contenders"
TUNING = {"fetch.queue.backoff.ms": "10", "retry.backoff.ms": "10", "reconnect.backoff.ms": "10"}


@dataclass(frozen=True)
class Contender:
    """``program`` is asked for when the contender is started: a peer's is looked for, or built, by then.

    In the values of ``settings`` ``{id}`` stands for the member's transactional id. For ``warm_up_s`` after its first
    commit a contender is not measured.
    """

    name: str
    program: Callable[[], Sequence[str]]
    settings: Mapping[str, str] = field(default_factory=dict)
    warm_up_s: float = 1.0

    def command(self, task: Assignment) -> list[str]:
        """The command of the process that does this task."""
        settings = {**task.settings, **self.settings}.items()
        pairs = [f"{name}={value.format(id=task.transactional_id)}" for name, value in settings]
        return [*self.program(), *map(str, task[:-1]), *pairs]


OURS = Contender("eos-client", lambda: (sys.executable, "-m", f"{LOOPS}.eos_client_loop"))
TUNED = Contender("hand-written", lambda: (sys.executable, "-m", f"{LOOPS}.hand_written"), TUNING)
DEFAULTS = Contender("hand-written, librdkafka's defaults", TUNED.program)
QUIX = Contender("Quix Streams", lambda: (peers_python(), "-m", f"{LOOPS}.quix_streams"), TUNING)
AIOKAFKA = Contender("aiokafka", lambda: (peers_python(), "-m", f"{LOOPS}.aiokafka_loop"))
STREAMS = Contender("Kafka Streams EOS v2", streams_command, warm_up_s=8.0)  # until Java has compiled what is hot
FRAMEWORKS = (OURS, TUNED, QUIX, AIOKAFKA, STREAMS)


@dataclass(frozen=True)
class Entry:
    """One row of the table of throughput. ``target``: of the hand-written loop that does the same, at least."""

    contender: Contender
    work: str
    processes: int = 1
    target: float | None = None

    @property
    def name(self) -> str:
        """Its name in the table."""
        processes = "" if self.processes == 1 else f", {self.processes} processes"
        return f"{self.contender.name}, {self.work}{processes}"

    @property
    def baseline(self) -> Entry:
        """The tuned hand-written loop with a function called for each record, which every ratio is of."""
        does_the_same = {VALUE, HEADERS, JSON, FIVE, LARGE}
        return Entry(TUNED, self.work if self.work in does_the_same else KEYED, self.processes)


ENTRIES = (
    Entry(TUNED, VALUE),
    Entry(OURS, VALUE, target=0.97),
    Entry(DEFAULTS, VALUE),
    Entry(TUNED, KEYED),
    Entry(OURS, KEYED, target=0.85),
    Entry(STREAMS, KEYED),
    Entry(AIOKAFKA, KEYED),
    Entry(QUIX, KEYED),
    Entry(TUNED, OBJECTS),
    Entry(TUNED, INLINE),
    Entry(TUNED, HEADERS),
    Entry(OURS, HEADERS, target=0.80),
    Entry(TUNED, BATCH),
    Entry(TUNED, BATCH_OBJECTS),
    Entry(OURS, BATCH, target=0.85),
    Entry(TUNED, JSON),
    Entry(OURS, JSON, target=0.95),
    Entry(TUNED, FIVE),
    Entry(OURS, FIVE),
    Entry(TUNED, LARGE),
    Entry(OURS, LARGE),
    *(Entry(contender, KEYED, 2) for contender in (TUNED, OURS, STREAMS, AIOKAFKA, QUIX)),
)
