"""Events as frozen records for one hook; the default hook logs them.

An event is logged under its class name in snake case, so ``CommitSkipped`` is logged as ``commit_skipped``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

import structlog

from eos_client.core.commit_gate import RuleName
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, format_partitions
from eos_client.errors import ConfigurationError

T = TypeVar("T")

LOGGER = logging.getLogger("eos_client")
"""The logger of the standard library for events, librdkafka's lines, and exceptions that hooks have raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. ``level`` is the level at which the default hook logs it."""

    level: ClassVar[str] = "info"

    @property
    def name(self) -> str:
        """The event's name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in a form that any log renderer takes."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return format_partitions(value)
    if isinstance(value, GroupGeneration):
        return value.generation_id
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStarted(Event):
    """The loop has its clients and begins to poll."""

    group_id: str
    transactional_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStopped(Event):
    """The loop has left the group. ``reason``: why it ended; after an error its class, because ``run`` raises it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFenced(Event):
    """Another process has taken the loop's ``transactional.id``; the loop ends. A restart would take the id back.

    The error that ``run`` raises says how that was noticed.
    """

    level: ClassVar[str] = "error"
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned(Event):
    """A rebalance gave us partitions."""

    partitions: frozenset[InputPartition]
    generation: GroupGeneration


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRevoked(Event):
    """A rebalance revoked partitions; their open work was committed or aborted before."""

    partitions: frozenset[InputPartition]
    generation: GroupGeneration
    uncommitted: frozenset[InputPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsLost(Event):
    """Partitions were lost (session ended, fenced): none of their open work is committed."""

    level: ClassVar[str] = "warning"
    partitions: frozenset[InputPartition]
    uncommitted: frozenset[InputPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsStartedAtEnd(Event):
    """With ``auto.offset.reset=latest``, partitions without a committed offset start at their end, behind records.

    ``offsets_before``: how many offsets of the log lie before the start of each. The group does not read these records;
    the markers of transactions in the input count too. Emitted by the first call that polls after the start was
    committed. A group's first start skips what is in the topic by intention, a partition that was added later does not.
    """

    level: ClassVar[str] = "warning"
    offsets_before: Mapping[InputPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCommitted(Event):
    """A broker confirmed the commit. ``duration_s``: from the first flush to the confirmation.

    ``poll_to_commit_s``: from the moment that the first record was handed over, or that markers before it were passed;
    None where no record was consumed. A loop commits without records, too, to move the group's offsets behind markers.
    """

    level: ClassVar[str] = "debug"
    records_in: int
    records_out: int
    duration_s: float
    generation: GroupGeneration
    inside_revoke: bool
    poll_to_commit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSkipped(Event):
    """The gate is closed: no commit was sent, and the work stays open."""

    generation: GroupGeneration
    revocation_generation: GroupGeneration
    held_for_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused(Event):
    """Offsets of a plain ``commit()`` were not committed; a refused transaction is told as TransactionAborted.

    ``rule``: the gate's rule that refused them, None for any other cause.
    """

    level: ClassVar[str] = "warning"
    partitions: frozenset[InputPartition]
    rule: RuleName | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAborted(Event):
    """A transaction was aborted; its records are consumed again. ``rule``: the gate's, None for any other cause.

    ``refused_by_group``: the group coordinator has refused the offsets.
    """

    level: ClassVar[str] = "warning"
    reason: str
    rule: RuleName | None
    records_in: int
    refused_by_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeResolved(Event):
    """The outcome of an unanswered commit was resolved from the group's committed offsets."""

    level: ClassVar[str] = "warning"
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRebuilt(Event):
    """The producer's handle was replaced; the transactional.id is the same.

    ``cause``: why, in one word: the Kafka error that finished the old handle (``_TIMED_OUT``, ``_FATAL``),
    ``connection_lost``, or ``asked_for``. ``transaction_age_s``: of the transaction that the old handle had open, 0.0
    without one. ``old_producer``: its ``id/epoch``, None where ``statistics.interval.ms`` does not make it known.
    """

    level: ClassVar[str] = "warning"
    transactional_id: str
    cause: str = "asked_for"
    reason: str
    duration_s: float
    transaction_age_s: float
    old_producer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecovered(Event):
    """The first commit after a failure was confirmed.

    ``action``: what was done, as in the recovery table; ``outcome``: of the transaction that failed (committed,
    aborted, or unknown where the offsets could not show it).
    ``failures``: how many there were until then; the other fields describe the first. ``transaction_age_s``: the age of
    the transaction when it failed; ``to_commit_s``: seconds from the failure to this commit.
    ``old_producer`` and ``new_producer``: ``id/epoch``, None where ``statistics.interval.ms`` does not make it known.
    """

    level: ClassVar[str] = "warning"
    transactional_id: str
    action: str
    reason: str
    outcome: str
    failures: int
    transaction_age_s: float
    to_commit_s: float
    old_producer: str | None
    new_producer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMeasured(Event):
    """How many offsets of each partition are not committed, up to the last stable offset as of the last fetch.

    Emitted by a polling consumer when the lag has changed. Needs ``statistics.interval.ms``, because librdkafka reports
    the last stable offset only in its statistics. ``records`` counts offsets, so the markers of transactions in the
    input count too, until a loop has passed them. Partitions of which nothing was read or passed since they were
    assigned are left out. Not emitted by a consumer that has handed out ``consumer_group_metadata()``: the application
    commits by itself, and the consumer does not see what.
    """

    level: ClassVar[str] = "debug"
    records: Mapping[InputPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReported(Event):
    """librdkafka or this client reports a condition that no call raises.

    Examples: a broker connection error, a long wait for stable offsets, a halved batch, a client that could not leave.
    """

    level: ClassVar[str] = "warning"
    client: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSkipped(Event):
    """A record that failed was skipped (``on_error="skip"``); emitted after its transaction was committed.

    ``place``: the innermost frame of the application that raised ``error``, such as ``price.py:12 in price``;
    ``traceback``: the innermost frames and the causes, 4,000 characters at most. Both are None for an error that only
    this package has raised.
    """

    level: ClassVar[str] = "error"
    topic: str
    partition: int
    offset: int
    error: str
    place: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeadLettered(Event):
    """A record that failed was written to the dead letter topic; emitted after its transaction was committed.

    ``place`` and ``traceback`` as for RecordSkipped.
    """

    level: ClassVar[str] = "error"
    topic: str
    partition: int
    offset: int
    error: str
    place: str | None = None
    traceback: str | None = None
    dead_letter_topic: str


class EventHook(Protocol):
    """Receives every event, in the thread where it happened. It should be quick.

    An exception that it raises never changes an outcome: it is logged, with the event, by logging's ``eos_client``.
    """

    def __call__(self, event: Event, /) -> None:
        """Receive ``event``."""
        ...


_AS_LOGFMT = structlog.processors.LogfmtRenderer(key_order=["event"])


def log_event(event: Event) -> None:
    """Log ``event`` under its name and at its level. The default hook.

    Where the application has configured structlog, structlog logs it. Elsewhere the logger ``eos_client`` of the
    standard library gets it as a logfmt line, with the fields as ``eos_event`` on the record. In the line each entry of
    a mapping is a field of its own (``seconds_job=0.1``); fields without a value are left out, and fractions rounded to
    six digits.
    """
    if structlog.is_configured():
        getattr(structlog.get_logger("eos_client"), event.level)(event.name, **event.as_dict())
        return
    level = getattr(logging, event.level.upper())
    if LOGGER.isEnabledFor(level):
        fields = {"event": event.name, **event.as_dict()}
        said = {name: _short(value) for name, value in _flat(fields) if value is not None and value != ""}
        LOGGER.log(level, "%s", _AS_LOGFMT(None, event.level, said), extra={"eos_event": fields})


def _short(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield fields without nesting, which logfmt lacks: entries of mappings as fields, sequences as one text."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}_{key}", each) for key, each in value.items())
        elif isinstance(value, tuple):
            yield name, " ".join(map(str, value))
        else:
            yield name, value


class _SafeHook:
    """A hook that never raises an ``Exception``, because no caller could handle one."""

    __slots__ = ("_hook",)

    def __init__(self, hook: EventHook) -> None:
        self._hook = hook

    def __call__(self, event: Event, /) -> None:
        try:
            self._hook(event)
        except Exception:
            name = getattr(self._hook, "__qualname__", type(self._hook).__qualname__)
            LOGGER.exception(
                "the hook %s raised an exception, which does not change the outcome of the event: %r", name, event
            )


def safe_hook(hook: EventHook) -> EventHook:
    """Return ``hook`` guarded: an exception that it raises is logged with the hook's name and not raised.

    Raises ConfigurationError for what cannot be called.
    """
    if not callable(hook):
        raise ConfigurationError(f"hook={hook!r} must be a function of one event.")
    return hook if isinstance(hook, _SafeHook) else _SafeHook(hook)


class FaultLog:
    """Calls what must change no outcome. What it raises is logged, once for each kind, and answered by None."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: set[tuple[str, type[Exception]]] = set()

    def attempt(self, step: str, call: Callable[..., T], *given: Any, **named: Any) -> T | None:
        """Return what ``call`` returns, or None where it raises an ``Exception``."""
        try:
            return call(*given, **named)
        except Exception as error:
            if (step, type(error)) not in self._known:
                LOGGER.exception("%s: %s failed, which changes no outcome and is logged once", self._what, step)
            self._known.add((step, type(error)))
            return None


@dataclass(slots=True)
class Counters:
    """Totals of a loop or a producer since it was created.

    ``recoveries``: failures of the producer that were recovered from; one ProducerRecovered tells all of them until the
    next commit (``failures``). ``outcomes_resolved``: unanswered commits whose outcome was looked for.
    """

    committed: int = 0
    skipped: int = 0
    aborted: int = 0
    outcomes_resolved: int = 0
    producer_rebuilds: int = 0
    recoveries: int = 0
    rebalances: int = 0
    records_in: int = 0
    records_out: int = 0
    records_failed: int = 0
    generation_id: int = -1

    def as_dict(self) -> dict[str, int]:
        """Return all counts by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunStarted(Event):
    """A Spark driver holds the lease of its sink and has fenced every slot.

    ``run``: this driver's number. ``ledger``: what was done with it (ready, initialise, restore, resize, adopt).
    ``generation``: the lease's; a sink that writes into a database has none, and claims its ledger's rows instead.
    """

    sink_id: str
    query_id: str
    run: int
    slots: int
    ledger: str
    generation: GroupGeneration = UNJOINED
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchWritten(Event):
    """All slots of a micro-batch are committed, and so is the batch-complete marker.

    ``slots_skipped``: committed by an earlier attempt. ``handles_started``: slots whose producer was not kept from an
    earlier batch. ``tasks_repeated``: slots whose task was not Spark's first attempt: the one before failed, or its
    executor was lost. ``commits_resolved``: slots whose commit was not answered and was found in the ledger.
    ``seconds``: on the driver, by step; the steps of the tasks, prefixed with ``task_``, are the longest of any slot.
    """

    sink_id: str
    batch_id: int
    rows: int
    slots_written: int
    slots_skipped: int
    handles_started: int
    tasks_repeated: int
    commits_resolved: int
    duration_s: float
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLeaseRenewed(Event):
    """This driver's lease had ended without a newer driver, so it has taken the lease again as ``run``.

    This happens when a broker, or the driver, was unreachable for longer than the group's session. ``batch_id``: where
    the driver continues; ``reason``: how the lease ended.
    """

    level: ClassVar[str] = "warning"
    sink_id: str
    run: int
    batch_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunFenced(Event):
    """This driver has lost its lease to a newer driver, or for good; its query ends."""

    level: ClassVar[str] = "error"
    sink_id: str
    run: int
    reason: str
