"""An application as data: which clients it builds, what it does with them, and what happens around it.

A program prints as one Python expression that ``parse`` reads again, so a failure is told by its text alone.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE

INPUT, OUTPUT, LETTERS, GROUP = "orders", "invoices", "letters", "billing"
SMALL_LIMIT, LARGE_LIMIT = 6_000, 8_000
"""In bytes: what the producer takes, and the brokers; the other way round where brokers are to refuse something."""


class _Readable:
    """Prints what differs from the defaults."""

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.default is MISSING or value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Setting(_Readable):
    """What the application and the brokers are set to."""

    protocol: str = "classic"
    assignor: str = "range"
    validation: str = "assignment_epoch"
    reset: str = "earliest"
    static: bool = False
    end_events: bool = False
    max_poll_ms: int = 300_000
    transaction_timeout_ms: int | None = None
    request_timeout_s: float = 60.0
    commit_interval_s: float = 0.1
    max_records: int = 100_000
    batch_size: int = 500
    commit_timeout_s: float = 2.0
    hold_limit_s: float = 3.0
    scope: str = "member"
    policy: str = "skip"
    recovery_timeout_s: float = 30.0
    on_error: str = "stop"
    attempts_max: int = 1
    topic_kind: str = "named"
    """What the application subscribes to: the topic's name, or a "pattern" that matches it."""
    generated_id: bool = False
    """No transactional.id is given, so each process generates one."""
    stores: str = ""
    """What plain use stores for a commit() without arguments: "messages" or "offsets"; empty: the client does it."""

    @property
    def may_strand_partitions(self) -> bool:
        """Whether what a member owed when it ended can be nobody's until the group's next round, as in Kafka."""
        return self.static and self.assignor == COOPERATIVE


@dataclass(frozen=True, repr=False)
class Odd(_Readable):
    """The transform does something of ``kind`` with ``count`` records of a partition."""

    kind: str
    partition: int
    first: int
    count: int = 1


@dataclass(frozen=True, repr=False)
class Write(_Readable):
    """``count`` input records are written at a moment."""

    at_s: float
    partition: int
    count: int


@dataclass(frozen=True, repr=False)
class Event(_Readable):
    """Something happens to the cluster, or to a member's process."""

    at_s: float
    name: str
    what: str = ""
    detail: str = ""
    member: int = 0
    number: float = 0.0


@dataclass(frozen=True, repr=False)
class Callback(_Readable):
    """The application's callback ``where`` does something unusual when it is called for the ``turn``-th time.

    ``turn=0``: each time.
    """

    where: str
    turn: int
    does: str
    number: float = 0.0


@dataclass(frozen=True, repr=False)
class Act(_Readable):
    """One act of the application inside a turn: see ``ApplicationMember`` for what each name does."""

    name: str
    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, repr=False)
class Turn(_Readable):
    """One ``with producer.transaction(consumer)`` block, or one round of plain use."""

    acts: tuple[Act, ...]
    swallows: bool = False
    """The application catches what calls inside the block raise, and goes on inside it."""
    late: bool = False
    """The application writes the outputs of the block's records only after its last act."""
    then: str = ""
    """Which commit() the application tries after a block that was committed, as it did before there were blocks."""
    reopens: bool = False
    """It closes the producer before it tries that, and builds another for the next block."""
    keeps_alive: bool = False
    """After the block it pauses everything, polls, and resumes: a loop that waits for something else does so."""


@dataclass(frozen=True, repr=False)
class Program(_Readable):
    """Everything that a run depends on. ``style``: loop, block or plain. ``until_s``: when all faults are over."""

    seed: int
    style: str
    setting: Setting = Setting()
    partitions: int = 2
    writes: tuple[Write, ...] = ()
    odds: tuple[Odd, ...] = ()
    turns: tuple[Turn, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    events: tuple[Event, ...] = ()
    members: int = 1
    as_bytes: bool = False
    goes_on: bool = False
    """The application catches ClusterUnavailableError out of a block, and goes on with the same clients."""
    until_s: float = 3.0
    batches: bool = False
    """The transform of the loop takes lists of records."""
    gives_back: bool = False
    """After an exception the application seeks back to what it has in hand."""
    replaces: bool = False
    """After an exception, or a close() inside a block, the application goes on with another producer."""
    commits_first: str = ""
    """How each process commits plainly before its first block, for which it builds another consumer then."""

    def has_callback(self, where: str) -> bool:
        """Whether the application's callback ``where`` does anything."""
        return any(callback.where == where for callback in self.callbacks)

    def has_event(self, name: str) -> bool:
        """Whether something called ``name`` happens."""
        return any(event.name == name for event in self.events)

    @property
    def seeks(self) -> bool:
        """Whether the application reads records again of its own accord."""
        acts = {act.name for turn in self.turns for act in turn.acts}
        return self.gives_back or "seek_back" in acts or any(callback.does == "seek" for callback in self.callbacks)

    @property
    def brokers_refuse(self) -> bool:
        """Whether some outputs are too large for the brokers, and not for the producer."""
        return any(odd.kind == "broker_refuses" for odd in self.odds)


_NAMES = {each.__name__: each for each in (Setting, Odd, Write, Event, Callback, Act, Turn, Program)}


def parse(text: str) -> Program:
    """Return the program that ``repr`` has printed."""
    program = eval(text, {"__builtins__": {}}, dict(_NAMES))  # our own print
    if not isinstance(program, Program):
        raise TypeError(f"{text[:80]!r} is no program")
    return program
