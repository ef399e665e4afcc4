"""What was seen when a transactional request was answered with an error, and what it means: the matrix as one table.

Measured against the librdkafka in confluent_kafka's wheel. The words of the table are explained by ``MEANINGS``; a word
that ends in ``!`` is an error that librdkafka calls fatal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from eos_client import errors
from eos_client.core.producer_recovery import RecoveryAction
from tests.recovery.mock_cluster import ApiKey


class Answered(Enum):
    """The request that is answered with an error: its column, its number, the call that sees it, and a fatal one."""

    PRODUCE = ("Produce", ApiKey.PRODUCE, "send_offsets_to_transaction", "flush")
    PARTITIONS = ("AddPartitions", ApiKey.ADD_PARTITIONS_TO_TXN, "send_offsets_to_transaction", "flush")
    OFFSETS = ("AddOffsets", ApiKey.ADD_OFFSETS_TO_TXN, "send_offsets_to_transaction", "send_offsets_to_transaction")
    OFFSET_COMMIT = (
        "OffsetCommit",
        ApiKey.TXN_OFFSET_COMMIT,
        "send_offsets_to_transaction",
        "send_offsets_to_transaction",
    )
    COMMIT = ("EndCommit", ApiKey.END_TXN, "commit_transaction", "commit_transaction")
    ABORT = ("EndAbort", ApiKey.END_TXN, "abort_transaction", "abort_transaction")
    BUMP = ("InitBump", ApiKey.INIT_PRODUCER_ID, "abort_transaction", "abort_transaction")
    INIT = ("InitFirst", ApiKey.INIT_PRODUCER_ID, "init_transactions", "init_transactions")
    FIND_TRANSACTION = ("FindTxn", ApiKey.FIND_COORDINATOR, "init_transactions", "init_transactions")
    FIND_GROUP = (
        "FindGroup",
        ApiKey.FIND_COORDINATOR,
        "send_offsets_to_transaction",
        "send_offsets_to_transaction",
    )

    def __init__(self, column: str, api_key: ApiKey, seen_by: str, fatal_seen_by: str) -> None:
        self.column = column
        self.api_key = api_key
        self.seen_by = seen_by
        self.fatal_seen_by = fatal_seen_by


@dataclass(frozen=True)
class Meaning:
    """What the application sees, what the recovery table promises, and what brings the producer back.

    ``way_out``: what the message tells to do. ``comes_back_by``: the call that does it; None for a stop.
    ``fails_again``: the error of the transaction after it, before the one that commits.
    """

    error: type[errors.EosError]
    action: RecoveryAction
    way_out: str
    comes_back_by: str | None = None
    fails_again: str | None = None


_ABORT = (RecoveryAction.ABORT_AND_CONTINUE, "Abort, rewind to the first uncommitted record", "abort_transaction")
_NEW_HANDLE = "Call init_transactions() to build a new handle with the same id"

MEANINGS: dict[str, Meaning | None] = {
    "-": None,  # see EXCLUSIONS
    "inside": None,  # librdkafka tries again by itself: nobody sees it
    "abort": Meaning(errors.AbortableError, *_ABORT),
    "abort2": Meaning(errors.AbortableError, *_ABORT, fails_again="OUT_OF_ORDER_SEQUENCE_NUMBER"),
    "refused": Meaning(errors.CommitRefusedError, *_ABORT),
    "rebuild": Meaning(errors.RebuildProducerError, RecoveryAction.REBUILD_PRODUCER, _NEW_HANDLE, "init_transactions"),
    "overdue": Meaning(
        errors.RebuildProducerError, RecoveryAction.REBUILD_PRODUCER, "did not return within", "init_transactions"
    ),
    "resolve": Meaning(
        errors.UnknownOutcomeError,
        RecoveryAction.RESOLVE_UNKNOWN,
        "Do not abort and do not commit",
        "init_transactions",
    ),
    "fenced": Meaning(
        errors.ProducerFencedError, RecoveryAction.STOP_FENCED, "give each running instance a transactional.id"
    ),
    "unfit": Meaning(errors.ClusterUnfitError, RecoveryAction.STOP_UNFIT, "Correct the cause, then start again"),
    "stop": Meaning(errors.FatalClientError, RecoveryAction.STOP_FATAL, "End the process"),
}

CODES = (
    "UNKNOWN_PRODUCER_ID",
    "INVALID_PRODUCER_ID_MAPPING",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "INVALID_TXN_STATE",
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "REQUEST_TIMED_OUT",
    "INVALID_TRANSACTION_TIMEOUT",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "FENCED_INSTANCE_ID",
    "STALE_MEMBER_EPOCH",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_TOPIC_OR_PART",
    "NOT_ENOUGH_REPLICAS",
    "UNKNOWN",  # UNKNOWN_SERVER_ERROR
)

# A pinned transactional.id, input offsets under a group's generation, a young transaction.
TABLE = """
                                      Produce AddPartitions AddOffsets OffsetCommit EndCommit EndAbort InitBump InitFirst FindTxn FindGroup
UNKNOWN_PRODUCER_ID                   abort   abort         abort      abort        abort     inside   inside   -         -       -
INVALID_PRODUCER_ID_MAPPING           abort2  abort         abort      rebuild!     abort     inside   inside   -         -       -
OUT_OF_ORDER_SEQUENCE_NUMBER          rebuild! -            -          -            -         -        -        -         -       -
INVALID_PRODUCER_EPOCH                fenced! fenced!       fenced!    fenced!      fenced!   fenced!  fenced!  fenced!   -       -
PRODUCER_FENCED                       fenced  fenced!       fenced     fenced       fenced!   fenced!  fenced!  fenced!   -       -
INVALID_TXN_STATE                     abort2  rebuild!      rebuild!   rebuild!     unfit!    unfit!   inside   -         -       -
CONCURRENT_TRANSACTIONS               abort2  inside        inside     inside       inside    inside   inside   inside    -       -
COORDINATOR_LOAD_IN_PROGRESS          inside  inside        inside     inside       inside    inside   inside   inside    inside  inside
COORDINATOR_NOT_AVAILABLE             inside  inside        inside     inside       inside    inside   inside   inside    inside  inside
NOT_COORDINATOR                       inside  inside        inside     inside       inside    inside   inside   inside    inside  overdue
REQUEST_TIMED_OUT                     inside  abort         inside     inside       resolve   rebuild  inside   inside    inside  inside
INVALID_TRANSACTION_TIMEOUT           -       -             -          -            -         -        unfit!   unfit!    -       -
TRANSACTIONAL_ID_AUTHORIZATION_FAILED unfit   unfit!        unfit!     unfit!       unfit!    unfit!   unfit!   unfit!    unfit!  -
CLUSTER_AUTHORIZATION_FAILED          unfit   unfit!        unfit!     unfit!       unfit!    unfit!   unfit!   unfit!    unfit!  unfit!
GROUP_AUTHORIZATION_FAILED            -       -             unfit      unfit        -         -        -        -         -       unfit
TOPIC_AUTHORIZATION_FAILED            unfit   unfit         -          unfit        -         -        -        -         -       -
UNSUPPORTED_VERSION                   unfit   unfit         unfit      unfit        unfit     unfit    inside   unfit     inside  unfit
ILLEGAL_GENERATION                    -       -             -          refused      -         -        -        -         -       -
UNKNOWN_MEMBER_ID                     -       -             -          refused      -         -        -        -         -       -
FENCED_INSTANCE_ID                    -       -             -          abort        -         -        -        -         -       -
STALE_MEMBER_EPOCH                    -       -             -          refused      -         -        -        -         -       -
REBALANCE_IN_PROGRESS                 -       -             -          refused      -         -        -        -         -       -
UNKNOWN_TOPIC_OR_PART                 inside  inside        -          inside       -         -        -        -         -       -
NOT_ENOUGH_REPLICAS                   inside  -             -          -            -         -        -        -         -       -
UNKNOWN                               abort2  abort         abort      abort        resolve   rebuild  inside   inside    inside  abort
"""  # noqa: E501  # one row a line is what makes it a matrix

# librdkafka's own name for both fences, but where a Produce is answered so.
SEEN_AS = {
    (answered, code): "_FENCED"
    for answered in Answered
    for code in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    if (answered, code) != (Answered.PRODUCE, "PRODUCER_FENCED")
} | {(Answered.FIND_GROUP, "NOT_COORDINATOR"): "_TIMED_OUT"}

# One of these is tried again inside, and seen only if an attempt's limit happens to come first: here every one is met.
LASTING = frozenset({(Answered.INIT, "UNSUPPORTED_VERSION")})

_A = Answered
_MEMBERSHIP = CODES[CODES.index("ILLEGAL_GENERATION") : CODES.index("REBALANCE_IN_PROGRESS") + 1]
_FIND = frozenset({_A.FIND_TRANSACTION, _A.FIND_GROUP})


@dataclass(frozen=True)
class Exclusion:
    """Codes that a broker has no cause to answer these requests with: each must still end in a commit or a stop."""

    reason: str
    codes: frozenset[str]
    answered: frozenset[Answered]


EXCLUSIONS = (
    Exclusion(
        "only TxnOffsetCommit is judged by the group's membership",
        frozenset(_MEMBERSHIP),
        frozenset(_A) - {_A.OFFSET_COMMIT},
    ),
    Exclusion(
        "only Produce carries sequence numbers and asks for replicas",
        frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "NOT_ENOUGH_REPLICAS"}),
        frozenset(_A) - {_A.PRODUCE},
    ),
    Exclusion(
        "only InitProducerId carries a transaction time-out",
        frozenset({"INVALID_TRANSACTION_TIMEOUT"}),
        frozenset(_A) - {_A.INIT, _A.BUMP},
    ),
    Exclusion(
        "names no topic",
        frozenset({"TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART"}),
        frozenset(_A) - {_A.PRODUCE, _A.PARTITIONS, _A.OFFSET_COMMIT},
    ),
    Exclusion(
        "names no group",
        frozenset({"GROUP_AUTHORIZATION_FAILED"}),
        frozenset(_A) - {_A.OFFSETS, _A.OFFSET_COMMIT, _A.FIND_GROUP},
    ),
    Exclusion(
        "the first InitProducerId carries no producer id and meets no transaction of it",
        frozenset({"UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE"}),
        frozenset({_A.INIT}),
    ),
    Exclusion(
        "FindCoordinator carries no producer id and touches no transaction",
        frozenset(CODES[:7]) - {"OUT_OF_ORDER_SEQUENCE_NUMBER"},
        _FIND,
    ),
    Exclusion(
        "looking for the group's coordinator names no transactional.id",
        frozenset({"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}),
        frozenset({_A.FIND_GROUP}),
    ),
)


@dataclass(frozen=True)
class Cell:
    """One request answered with one code, and the table's word for it."""

    answered: Answered
    code: str
    word: str
    generated_id: bool = False

    def __str__(self) -> str:
        return f"{self.answered.column}-{self.code}-{self.word}{'-generated' if self.generated_id else ''}"

    @property
    def fatal(self) -> bool:
        """Whether librdkafka gives the handle up."""
        return self.word.endswith("!")

    @property
    def meaning(self) -> Meaning | None:
        """What the word says; None where nobody sees the error."""
        return MEANINGS[self.word.rstrip("!")]

    @property
    def seen_as(self) -> str:
        """The name under which the application sees the error."""
        return SEEN_AS.get((self.answered, self.code), self.code)

    @property
    def seen_by(self) -> str:
        """The call that raises it."""
        return self.answered.fatal_seen_by if self.fatal else self.answered.seen_by


def _cells(table: str, *, generated_id: bool = False) -> Iterator[Cell]:
    header, *rows = table.strip("\n").splitlines()
    answered = {member.column: member for member in Answered}
    for code, *words in map(str.split, rows):
        for column, word in zip(header.split(), words, strict=True):
            yield Cell(answered[column], code, word, generated_id)


CELLS = tuple(_cells(TABLE))
SEEN_CELLS = tuple(cell for cell in CELLS if cell.word != "-")
UNSEEN_CELLS = tuple(cell for cell in CELLS if cell.word == "-")

# An id that was generated is nobody else's: a fence can only be our own doing, or the coordinator's time-out.
OWN_FENCES = tuple(
    _cells(
        """
                        Produce  AddPartitions AddOffsets OffsetCommit EndCommit EndAbort InitBump InitFirst
INVALID_PRODUCER_EPOCH  rebuild! rebuild!      rebuild!   rebuild!     resolve!  rebuild! rebuild! inside
PRODUCER_FENCED         abort2   rebuild!      abort      abort        resolve!  rebuild! rebuild! inside
""",
        generated_id=True,
    )
)
