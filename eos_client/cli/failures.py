"""The program's error messages, and which error ends it with which exit code.

One table, :data:`EXIT_CODES`, is the only place where a kind of error becomes a number.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from eos_client import errors
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.printable import printable


class CommandLineError(errors.EosError):
    """What the user typed cannot be carried out: correct the command."""


class ExtraMissingError(errors.EosError):
    """A command needs a package that is not installed: install the extra that the message names."""


class TransformLoadError(errors.EosError):
    """FILE.py:FUNC or package.module:FUNC leads to no function of one record: correct the name or the code."""


class TransformExitedError(errors.EosError):
    """The transform raised what is no Exception, as ``sys.exit`` does: let it raise one, and stop by a signal."""


class NotExactlyOnceError(errors.EosError):
    """The demo found a record that was not processed exactly once: report the run as a bug."""


class LettersRefusedError(errors.EosError):
    """Some dead letters cannot be sent back: look at them, and write their records anew from elsewhere."""


class OutputLostError(errors.EosError):
    """stdout or stderr could not be written: free its disk or keep its reader, then run the command again."""


class LettersWaitError(errors.EosError):
    """Some dead letters cannot be read until an open transaction has ended: send them back then."""


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
    (errors.EmbeddedDatabaseError, ExitCode.EMBEDDED_KAFKA),
    (errors.EosError, ExitCode.CLIENT_FATAL),
)
"""First match wins. The last row stands for every other error of the loop: a supervisor restarts the process."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit status for an error; :attr:`ExitCode.UNEXPECTED` if the table has no row for it."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def exit_code_table() -> str:
    """Return the exit codes as text, one a line, for ``--help``."""
    return "\n".join(f"{code.value:>4}  {code.description}" for code in ExitCode)


_WAY_OUT = "give --on-error skip, or --on-error dead_letter --dead-letter-topic TOPIC"
_STREAM_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC})


@contextmanager
def extra_needed(extra: str, package: str, what: str) -> Iterator[None]:
    """Import what ``extra`` brings.

    :raises ExtraMissingError: ``package`` is not installed; ``what`` says what needs it.
    """
    try:
        yield
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != package:
            raise
        raise ExtraMissingError(f"{what}, which is not installed: pip install 'eos-client[{extra}]'") from missing


@contextmanager
def registry_extra_needed() -> Iterator[None]:
    """Import what decodes the records of a Schema Registry.

    :raises ExtraMissingError: an extra of confluent-kafka is not installed.
    """
    try:
        yield
    except ImportError as missing:
        raise ExtraMissingError(
            f"--schema-registry needs {missing.name or 'a package'}, which is not installed: "
            "pip install 'confluent-kafka[avro]'"
        ) from missing


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
    """Return OutputLostError for a stdout that is full or that nobody reads (no file is named then), else ``error``."""
    if isinstance(error, OSError) and error.errno in _STREAM_ERRORS and error.filename is None:
        lost = OutputLostError(f"stdout cannot be written: {error.strerror}. What the command has changed stays")
        lost.__cause__ = error
        return lost
    return error


def _message_of(error: BaseException) -> str:
    """Return the message of ``error``, with the options of the command in place of the settings in Python."""
    return error.told(_WAY_OUT) if isinstance(error, errors.TransformError) else str(error)


def _report(error: BaseException, code: ExitCode, *, verbose: bool, as_json: bool) -> None:
    message = _message_of(error)
    if as_json:
        structlog.get_logger().error(
            "command_failed", error=type(error).__name__, message=message, exit_code=int(code), exc_info=verbose
        )
        return
    if not isinstance(error, errors.EosError):
        message = f"unexpected {errors.text_of(error)}. Run again with --verbose for the traceback"
    with suppress(OSError):  # a stderr that is full or has no reader: the status says it
        if verbose:
            traceback.print_exception(error)
        print(f"eos-client: {printable(message)}", file=sys.stderr)
