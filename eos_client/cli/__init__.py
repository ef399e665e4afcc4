"""The ``eos-client`` program: init, run, demo, demo-spark, broker, topic, tail, redrive, status, txn, doctor.

typer and rich come with the extra ``[cli]``. Nothing here imports them before :func:`main` has looked for them, so
that a plain install answers with one line instead of a traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.signals import HANG_UP, STOP, signals_handled

_EXTRA_MODULES = frozenset({"typer", "rich"})
_STDERR = 2
_RUN_UNTIL_STOPPED = frozenset({"run", "relay", "tail", "redrive", "broker"})
_TAKE_HANG_UP = frozenset({"run", "relay"})


def main() -> None:
    """Run the command line and end the process with one of :class:`~eos_client.cli.exit_codes.ExitCode`."""
    status = _status_if_stopped_early(sys.argv[1:])
    signals = STOP + HANG_UP if _TAKE_HANG_UP.intersection(sys.argv[1:2]) else STOP
    with signals_handled(lambda *_: os._exit(status), signals):  # until the command has handlers of its own
        _main()


def _status_if_stopped_early(arguments: Sequence[str]) -> ExitCode:
    """Return the exit status where a signal comes before the command itself takes it."""
    is_job = "--until-end" in arguments  # exit status 0 would mean that everything was read
    runs_until_stopped = bool(_RUN_UNTIL_STOPPED.intersection(arguments[:1]))
    return ExitCode.OK if runs_until_stopped and not is_job else ExitCode.INTERRUPTED


def _main() -> None:
    try:
        from eos_client.cli.app import app  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA_MODULES:
            raise
        print(
            f"eos-client: the command line needs {missing.name}, which is not installed: pip install 'eos-client[cli]'",
            file=sys.stderr,
        )
        sys.exit(ExitCode.EXTRA_MISSING)
    except ImportError as unmet:
        if unmet.name != "confluent_kafka":
            raise
        print(unmet, file=sys.stderr)
        sys.exit(ExitCode.EXTRA_MISSING)
    with _streams_that_may_be_closed_or_full():
        app(prog_name="eos-client")


@contextmanager
def _streams_that_may_be_closed_or_full() -> Iterator[None]:
    """Keep the work and the exit status of the body if stdout or stderr cannot be written."""
    if sys.stderr is None:  # closed before the start
        while os.open(os.devnull, os.O_RDWR) < _STDERR:  # or else a connection gets this number, and librdkafka's lines
            pass
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):  # an encoding such as ASCII cannot hold every name and record
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except OSError:  # noqa: PERF203  the interpreter would flush it again, and end with a status of its own
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
