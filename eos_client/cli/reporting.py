"""How a command reports: its logs and results, its errors as messages and exit statuses, and a signal that ends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import CommandLineError, failures_reported
from eos_client.cli.logs import LogFormat, LogStream, configure_logs
from eos_client.cli.signals import signals_as_interrupt

_PIPE_WIDTH = 120


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  rich calls it where it has caught the error, and would end with status 1


def result_console() -> Console:
    """Return a console that folds no table where there is no terminal to measure."""
    console = _Console()
    return console if console.is_terminal else _Console(width=max(console.width, _PIPE_WIDTH))


@contextmanager
def reported(*, verbose: bool, log_format: LogFormat = LogFormat.CONSOLE, quiet: bool = False) -> Iterator[LogStream]:
    """Configure the logs, and turn an error of the command into a message and an exit status."""
    log_stream = configure_logs(log_format, verbose=verbose, quiet=quiet)
    with failures_reported(verbose=verbose, as_json=log_format is LogFormat.JSON):
        if quiet and verbose:
            raise CommandLineError("--quiet and --verbose contradict each other: keep one")
        yield log_stream


@contextmanager
def until_stopped(*, verbose: bool, log_format: LogFormat = LogFormat.CONSOLE, quiet: bool = False) -> Iterator[None]:
    """Treat a requested stop as success, unless it was caused by the loss of stderr's reader."""
    with reported(verbose=verbose, log_format=log_format, quiet=quiet) as log_stream:
        with signals_as_interrupt(), suppress(KeyboardInterrupt):
            yield
        log_stream.require_reader()


@contextmanager
def until_the_verdict(*, verbose: bool) -> Iterator[None]:
    """Let a signal end the command with a status of its own."""
    try:
        with reported(verbose=verbose), signals_as_interrupt():
            yield
    except KeyboardInterrupt:
        print("eos-client: interrupted before the verdict", file=sys.stderr)
        raise SystemExit(ExitCode.INTERRUPTED) from None
