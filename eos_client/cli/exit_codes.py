"""The exit status of ``eos-client``, as a module of its own that is imported before everything else."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class ExitCode(IntEnum):
    """Exit status of ``eos-client``. The text of each member is its row in ``eos-client --help``."""

    description: str

    def __new__(cls, code: int, description: str) -> Self:
        """Make an int that carries its own explanation."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.description = description
        return member

    OK = 0, "done, or stopped on request (SIGTERM, Ctrl-C)"
    UNEXPECTED = 1, "an error that should not happen: run again with --verbose and report it"
    USAGE = 2, "wrong command line: an unknown option, a --config without '='"
    TRANSFORM_NOT_LOADED = 3, "the transform was not found, is no function, or its module raised while imported"
    CONFIGURATION = 4, "a setting is unknown or would break exactly-once"
    CLUSTER_UNAVAILABLE = 5, "no broker answered in time: start again when the cluster is reachable"
    CLUSTER_UNFIT = 6, "the cluster lacks or refuses a topic, transactions, replicas, a permission or group membership"
    TRANSFORM_RAISED = 7, "the transform raised or made an impossible output; nothing of that transaction is visible"
    FENCED = 8, "another process runs with the same transactional.id: do not start again while it does"
    CLIENT_FATAL = 9, "the Kafka client cannot go on: start the process again"
    OUTCOME_UNKNOWN = 10, "the outcome of a commit is unknown: start again, the group's committed offsets decide"
    EMBEDDED_KAFKA = 11, "the embedded broker or database server could not start or died"
    NOT_EXACTLY_ONCE = 12, "demo: the verdict found a lost, doubled, reordered or altered record"
    EXTRA_MISSING = (
        13,
        "a package is too old, or one of an extra is missing: pip install 'eos-client[cli]', or [cli,ops]",
    )
    NOT_AUTHENTICATED = 14, "the brokers refuse the credentials, or a certificate: correct them, then start again"
    LETTERS_REFUSED = 15, "redrive: a record is no letter or cannot be sent back; it stays, and the others were sent"
    OUTPUT_LOST = 16, "output was lost: the reader of stdout or stderr is gone, or the disk is full: start again"
    LETTERS_WAIT = 17, "redrive: letters wait for the end of an open transaction: start again when it has ended"
    INTERRUPTED = (
        130,
        "a signal came before the result was printed (demo, doctor, topic, txn) or the end was read (--until-end)",
    )
