"""The program's error messages, and the exit codes that a supervisor reads.

One table, :data:`EXIT_CODES`, is the only place where a kind of error becomes a number.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING

import structlog

from eos_client import errors

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
    TRANSFORM_NOT_LOADED = 3, "FILE.py:FUNC was not found, is no function, or its file raised while imported"
    CONFIGURATION = 4, "a setting is unknown or would break exactly-once"
    CLUSTER_UNAVAILABLE = 5, "no broker answered in time: start again when the cluster is reachable"
    CLUSTER_UNFIT = (
        6,
        "the cluster lacks or refuses something: topic, transactions, replicas, permission, group membership",
    )
    TRANSFORM_RAISED = 7, "the transform raised or made an impossible output; nothing of that transaction is visible"
    FENCED = 8, "another process runs with the same transactional.id"
    CLIENT_FATAL = 9, "the Kafka client cannot go on: start the process again"
    OUTCOME_UNKNOWN = 10, "a commit was sent and its outcome could not be learned: start again, the log decides"
    EMBEDDED_KAFKA = 11, "the embedded broker could not start or died"
    NOT_EXACTLY_ONCE = 12, "demo: the verdict found a lost, doubled, reordered or altered record"
    EXTRA_MISSING = 13, "a package of an extra is missing: pip install 'eos-client[cli]', for txn 'eos-client[cli,ops]'"
    NOT_AUTHENTICATED = 14, "the brokers refuse the credentials, or a certificate: correct them, then start again"
    LETTERS_REFUSED = 15, "redrive: a dead letter cannot be sent back; it stays, and the others were sent"
    OUTPUT_LOST = (
        16,
        "what it says is lost: the reader of stderr or of a result has gone, or stdout is full: start again",
    )
    LETTERS_WAIT = 17, "redrive: letters stand behind an open transaction: start again when it has ended"
    INTERRUPTED = 130, "stopped by a signal before the result: a demo's verdict, what doctor, topic or txn has to say"


class CommandLineError(errors.EosError):
    """What the user typed cannot be carried out: correct the command."""


class ExtraMissingError(errors.EosError):
    """A command needs a package that is not installed: install the extra that the message names."""


class TransformLoadError(errors.EosError):
    """FILE.py:FUNC does not lead to a function that takes one record: correct the name or the file."""


class TransformExitedError(errors.EosError):
    """The transform raised what is no Exception, as ``sys.exit`` does: let it raise one, and stop by a signal."""


class NotExactlyOnceError(errors.EosError):
    """The demo's verdict failed: the run is the bug report."""


class LettersRefusedError(errors.EosError):
    """Some dead letters cannot be sent back: look at them, and write their records anew from elsewhere."""


class OutputLostError(errors.EosError):
    """What the command has found or done could not be written to stdout: start it again with room for it."""


class LogReaderGoneError(OutputLostError):
    """Nobody reads stderr any more, so the command stopped as by SIGTERM: start it again with a reader."""


class LettersWaitError(errors.EosError):
    """Some dead letters stand behind an open transaction: send them back when it has ended."""


EXIT_CODES: tuple[tuple[type[errors.EosError], ExitCode], ...] = (
    (CommandLineError, ExitCode.USAGE),
    (ExtraMissingError, ExitCode.EXTRA_MISSING),
    (TransformLoadError, ExitCode.TRANSFORM_NOT_LOADED),
    (TransformExitedError, ExitCode.TRANSFORM_RAISED),
    (NotExactlyOnceError, ExitCode.NOT_EXACTLY_ONCE),
    (LettersRefusedError, ExitCode.LETTERS_REFUSED),
    (OutputLostError, ExitCode.OUTPUT_LOST),
    (LettersWaitError, ExitCode.LETTERS_WAIT),
    (errors.ConfigurationError, ExitCode.CONFIGURATION),
    (errors.AuthenticationError, ExitCode.NOT_AUTHENTICATED),
    (errors.ClusterUnavailableError, ExitCode.CLUSTER_UNAVAILABLE),
    (errors.ClusterUnfitError, ExitCode.CLUSTER_UNFIT),
    (errors.TransformError, ExitCode.TRANSFORM_RAISED),
    (errors.OutputRefusedError, ExitCode.TRANSFORM_RAISED),
    (errors.ProducerFencedError, ExitCode.FENCED),
    (errors.UnknownOutcomeError, ExitCode.OUTCOME_UNKNOWN),
    (errors.EmbeddedKafkaError, ExitCode.EMBEDDED_KAFKA),
    (errors.EosError, ExitCode.CLIENT_FATAL),
)
"""First match wins. The last row stands for every other error of the loop: a supervisor restarts the process."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit status for an error; :attr:`ExitCode.UNEXPECTED` if the table has no row for it."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def exit_code_table() -> str:
    """Return the exit codes as text, one a line, for ``--help``."""
    return "\n".join(f"{code.value:>4}  {code.description}" for code in ExitCode)


_STREAM_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC})


@contextmanager
def failures_reported(*, verbose: bool, as_json: bool = False) -> Iterator[None]:
    """Turn an error of the body into one message on stderr and an exit status.

    :param verbose: print the traceback too.
    :param as_json: report it as a ``command_failed`` log line, for a machine that reads stderr.
    :raises SystemExit: with the error's :class:`ExitCode`.
    """
    try:
        yield
        print(end="", flush=True)
    except Exception as error:  # the outermost frame: every error becomes a status
        named = _named(error)
        code = exit_code_of(named)
        _report(named, code, verbose=verbose, as_json=as_json)
        raise SystemExit(code) from error


def _named(error: Exception) -> Exception:
    """Name the error of a stream that nobody reads or that is full: no file has a name in it."""
    if isinstance(error, OSError) and error.errno in _STREAM_ERRORS and error.filename is None:
        lost = OutputLostError(f"stdout cannot be written: {error.strerror}. What the command has done is done")
        lost.__cause__ = error
        return lost
    return error


def _report(error: BaseException, code: ExitCode, *, verbose: bool, as_json: bool) -> None:
    if as_json:
        structlog.get_logger().error(
            "command_failed", error=type(error).__name__, message=str(error), exit_code=int(code), exc_info=verbose
        )
        return
    message = f"unexpected {errors.text_of(error)}. Run again with --verbose for the traceback"
    if isinstance(error, errors.EosError):
        message = str(error)
    with suppress(OSError):  # a stderr that is full or has no reader: the status says it
        if verbose:
            traceback.print_exception(error)
        print(f"eos-client: {message}", file=sys.stderr)
