"""The error classes, each named for what the caller must do.

The adapter raises most of these as subclasses of ``confluent_kafka.KafkaException`` too, so that an existing
``except KafkaException`` keeps working; the original error is always the ``__cause__``.
"""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

E = TypeVar("E", bound="EosError")

_GROUPS_SHOWN_MAX = 8  # one inside the other
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)  # Python 3.10 has none


def text_of(error: BaseException, characters_max: int = 10_000) -> str:
    """Return type and message of ``error``, shortened if too long; works even if its ``__str__`` raises.

    A group of errors says only how many it holds: the text of the first one is behind it.
    """
    texts: list[str] = []
    each: BaseException | None = error
    while each is not None and len(texts) < _GROUPS_SHOWN_MAX:
        texts.append(f"{type(each).__name__}: {_message_of(each)}")
        each = first_of_group(each)
    return ": ".join(texts)[:characters_max]


def _message_of(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # the application's own str may be of a class that breaks when it is used
    except (Exception, SystemExit, GeneratorExit) as failed:  # noqa: BLE001  # the application's own code
        return f"no text, because its __str__ raised {type(failed).__name__}"


def first_of_group(error: BaseException) -> BaseException | None:
    """Return the first error of an exception group, None for any other error."""
    if _GROUP is None or not issubclass(type(error), _GROUP):
        return None
    first: BaseException = _GROUP.exceptions.__get__(error)[0]
    return first


def repr_of(value: object) -> str:
    """Return ``repr(value)``, or its type where the application's own ``__repr__`` raises."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # the application's own code
        return f"an object of type {type(value).__name__}"


class EosError(Exception):
    """Base of every error of this package. Catch a subclass: each names what to do next.

    Errors can be copied and pickled, as a process pool does; their cause stays behind.
    """

    happened = ""
    """What has happened, without what the caller must do; empty where the text is all that is said."""

    def __reduce__(self) -> tuple[object, ...]:
        return copy_of, (type(self), self.args), self.__dict__


def with_happened(error: E, happened: str) -> E:
    """Return ``error``, which says what has ``happened`` also without what the caller must do."""
    error.happened = happened
    return error


def what_happened(error: EosError) -> str:
    """Return what ``error`` says has happened, for those who need not act because the client has done so."""
    return error.happened or str(error)


def copy_of(kind: type[EosError], arguments: tuple[object, ...]) -> EosError:
    """Return an error of ``kind`` with those ``args``, without calling its constructor."""
    return kind.__new__(kind, *arguments)


class ConfigurationError(EosError, ValueError):
    """A setting would break exactly-once processing or is not understood: change the named setting."""


class ClusterUnavailableError(EosError):
    """The cluster did not answer in time: go on, or start again, when it is reachable.

    The call has committed nothing, unless ``outcome_is_unknown``: then a commit was sent, and its outcome could not be
    read from the cluster. The same clients read the group's committed offsets before they deliver or write anything
    else; new clients of the group start at those offsets.
    """

    outcome_is_unknown: bool = False


class AuthenticationError(ClusterUnavailableError):
    """The brokers refuse this client's credentials, or one side's certificate: correct them, then start again.

    A kind of ClusterUnavailableError, because a broker that refuses the credentials answers nothing else: what that
    class says about an unknown outcome applies here as well. A restart without a correction fails again.
    """


class ClusterUnfitError(EosError):
    """The cluster answers, but lacks something (topic, replicas) or does not fit this client: correct what is named."""


class InputPositionError(ClusterUnfitError):
    """An input partition cannot be read from the group's position: set an offset, then start again.

    There is no committed offset and ``auto.offset.reset=error`` forbids choosing one, or the offset is beyond the end
    of the log (the log was truncated, or the topic was deleted and created again), or the log was truncated and has
    grown again, or a topic was replaced. ``topic``, ``partition`` and ``offset`` say where; ``partition`` and
    ``offset`` are None when the whole topic is meant, ``offset`` also when there is none.
    """

    topic: str
    partition: int | None
    offset: int | None


class RetriableError(EosError):
    """The call had no effect yet and may be repeated as it was."""


class AbortableError(EosError):
    """The transaction can only be aborted: abort, rewind to the first uncommitted record, go on."""


class CommitRefusedError(AbortableError):
    """The commit gate (or the group coordinator) refused these offsets: their records may have a new owner."""


class LeaveBlockError(AbortableError):
    """A rebalance took partitions whose records a block is processing: let the error leave the block.

    ``consume``, ``poll`` and ``produce`` raise it inside the block, and the ``with`` swallows it and ends the block as
    ABORTED. Records of partitions that are still this member's are consumed again; nothing of the block is committed,
    even if the error is caught inside it.
    """


class RebuildProducerError(EosError):
    """The librdkafka producer behind this client can no longer be used: call ``init_transactions()``, then go on.

    That call creates another one with the same ``transactional.id``, which aborts what was open.
    """


class UnknownOutcomeError(EosError):
    """A commit was sent and not answered: read the group's committed offsets before you consume or write anything else.

    The transaction must not be aborted or repeated: it may have taken effect, and a late EndTxn could hit the
    transaction after it (KAFKA-17754). The handle behind the producer can no longer be used; ``init_transactions()``
    builds another one.
    """


class ProducerFencedError(EosError):
    """Another instance owns this ``transactional.id``: stop this one, or give it an id of its own.

    A supervisor must not start it again while the other runs: the restart would take the id back, and so on for ever.
    """


class FatalClientError(EosError):
    """The client cannot go on: end the process; its supervisor may start a new one."""


class WrongThreadError(EosError, RuntimeError):
    """A client was called from a thread that does not own it: call it from its owner's thread."""


class ClientClosedError(EosError, RuntimeError):
    """The client was closed: build another one."""


class TransactionStateError(EosError, RuntimeError):
    """A transactional call came in an invalid order: correct the calling code."""


class OutputRefusedError(EosError):
    """The client library refused one output record (too large, no such partition): correct that record."""


class OutputNotSerializedError(OutputRefusedError):
    """A serialiser refused the key or the value of an output: correct that output, or the serialiser.

    The serialiser's exception is the cause.
    """


class InputUnreadableError(EosError):
    """A deserialiser refused the key or the value of a record: dead-letter the record, or correct the deserialiser.

    ``key()`` and ``value()`` of the record raise it. ``topic``, ``partition`` and ``offset`` name the record; the
    deserialiser's exception is the cause.
    """

    topic: str
    partition: int
    offset: int


class TransformError(EosError):
    """A record could not be processed; nothing of its transaction becomes visible.

    The transform raised, a deserialiser or serialiser did, or an output was refused: that exception is the cause.
    ``topic``, ``partition`` and ``offset`` name the input record. Where its dead letter was refused as well, the
    message names both. ``place`` is the innermost frame of the application, such as ``price.py:12 in price``; None
    where the failure has none.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        cause: BaseException,
        *,
        place: str | None = None,
        letter_of: str | None = None,
    ) -> None:
        record, what = f"{topic}[{partition}]@{offset}", text_of(cause)
        where = "" if place is None else f" ({place})"
        if letter_of is not None:
            self._failure = f"the record at {record} failed with {letter_of}{where}, and its dead letter with {what}"
        elif issubclass(type(cause), EosError):  # it came before the transform, or after it
            self._failure = f"the record at {record} failed with {what}{where}"
        else:
            self._failure = f"the transform raised {what}{where} on the record at {record}"
        self._is_of_letter = letter_of is not None
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.place = place
        super().__init__(self.told('set on_error="skip" or "dead_letter"'))

    def told(self, way_out: str) -> str:
        """Return the message for a reader who goes on without the record by ``way_out``."""
        advice = f"Correct the transform or the record, or {way_out}"
        if self._is_of_letter:
            advice = "Have the dead letter topic take such letters, or correct the transform or the record"
        return f"{self._failure}; its transaction was aborted and nothing of it is visible. {advice}"


class RunFencedError(EosError):
    """A newer Spark driver runs this sink: let this query end, and do not restart it beside the other one."""


class FrameSchemaError(ConfigurationError):
    """The frame given to the Spark sink has a column missing or of the wrong type: correct the named column."""


class BatchLedgerError(EosError):
    """The Spark sink's ledger does not fit this micro-batch, of which nothing was written. Subclasses say what to do.

    Where the ledger can be started anew at the current batch, the message has the token for ``adopt_ledger=``.
    """


class LedgerMissingError(BatchLedgerError):
    """Entries are missing although batches were written. Find out what the topic holds, then adopt the ledger."""


class LedgerForeignError(BatchLedgerError):
    """The ledger belongs to another query (or the checkpoint was deleted): use another ``sink_id``, or adopt it."""


class LedgerAheadError(BatchLedgerError):
    """The ledger is past this batch (an old checkpoint, or an older driver): restore the newest checkpoint."""


class LedgerRegressionError(BatchLedgerError):
    """The ledger is behind what this run has seen committed: look for lost offsets on the cluster, then adopt."""


class LedgerUnreadableError(BatchLedgerError):
    """A ledger entry was written by another program or by a newer version, or its offset was reset: see the message."""


class BatchUnfinishedError(BatchLedgerError):
    """An earlier batch was written in part and Spark went on: let its failure end the query, or adopt the ledger."""


class SlotsChangedError(BatchLedgerError):
    """The number of slots changed while a batch is half written: finish it with the old number, then change it."""


class TopicChangedError(BatchLedgerError):
    """The topic changed while a batch is half written: finish it with the old topic, then change it."""


class TableChangedError(BatchLedgerError):
    """The table changed while a batch is half written: finish it with the old table, then change it."""


class BatchContentError(BatchLedgerError):
    """A re-run batch has other rows than were committed: make the query deterministic, or stage its batches."""


class EmbeddedKafkaError(EosError):
    """The embedded broker could not be started or has died; the message carries the tail of its log."""


class EmbeddedDatabaseError(EosError):
    """The embedded database server could not be started or has died; the message carries the tail of its log."""
