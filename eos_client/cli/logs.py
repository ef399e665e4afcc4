"""Configures structlog for the program: coloured lines for people, one JSON object a line for machines, on stderr."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, TextIO

import structlog

from eos_client.cli.failures import OutputLostError

REPEAT_INTERVAL_S = 10.0
_THROTTLED_S_MIN = 5.0


class LogFormat(str, Enum):
    """How log lines look on stderr."""

    CONSOLE = "console"
    JSON = "json"


def configure_logs(log_format: LogFormat, *, verbose: bool, quiet: bool = False) -> LogStream:
    """Send structlog's events, and what other libraries log or warn of, to stderr, and return the stream of it.

    :param verbose: debug level: every committed transaction, not only what is out of the ordinary.
    :param quiet: warnings and errors only.
    """
    stream = LogStream()
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    structlog.configure(
        processors=_processors(log_format),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),  # type: ignore[arg-type]  # it writes and flushes
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)
    logging.getLogger("eos_client").setLevel(logging.DEBUG)  # what --config debug=... asks librdkafka for
    logging.captureWarnings(capture=True)
    return stream


def _processors(log_format: LogFormat) -> list[Any]:
    processors, dev = structlog.processors, structlog.dev
    common = [structlog.contextvars.merge_contextvars, processors.add_log_level]
    if log_format is LogFormat.JSON:
        stamp = processors.TimeStamper(fmt="iso", utc=True)
        return [*common, stamp, processors.format_exc_info, processors.JSONRenderer(default=str)]
    renderer = dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=dev.plain_traceback)
    return [*common, processors.TimeStamper(fmt="%H:%M:%S", utc=False), renderer]


class LogStream:
    """Stderr that survives its reader: when the pipe breaks, the process is asked to stop as by SIGTERM.

    Without this, the loop would fail inside a log call, or run on with nobody to watch it. On a full disk, lines are
    lost until there is room again. While something is shown in place on the terminal, lines appear above it.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._broken = False

    def write(self, text: str) -> None:
        """Write ``text``, or nothing once the reader has gone."""
        self._guarded(lambda: self._place.write(text))

    def flush(self) -> None:
        """Hand everything to the reader now."""
        self._guarded(self._place.flush)

    def require_reader(self) -> None:
        """Do nothing while stderr can be read.

        :raises OutputLostError: its reader has gone, for which the process was asked to stop.
        """
        if self._broken:
            raise OutputLostError("the reader of stderr has gone: start again with one")

    @property
    def _place(self) -> TextIO:
        """Stderr, or what rich has put in its place as long as it shows something there."""
        return sys.stderr if getattr(sys.stderr, "rich_proxied_file", None) is self._stream else self._stream

    def _guarded(self, act: Callable[[], object]) -> None:
        if self._broken:
            return
        try:
            act()
        except BrokenPipeError:
            self._broken = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # the interpreter flushes it at exit
            os.kill(os.getpid(), signal.SIGTERM)
        except OSError:  # a full disk is no reason to stop the work, and there is nowhere to say it
            pass


class _ToStructlog(logging.Handler):
    """Hands a stdlib log record (librdkafka's and other libraries') to structlog, so that one format holds."""

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        log = getattr(structlog.get_logger(record.name), level, structlog.get_logger(record.name).info)
        log("library_log", logger=record.name, message=record.getMessage(), exc_info=record.exc_info or None)


class ClientErrors:
    """An ``error_cb`` that logs each kind of error once in `REPEAT_INTERVAL_S` seconds at most, and its repetitions.

    librdkafka reports each failed attempt to reconnect, twenty a second. The loop's own events say what an error means
    for the loop. ``tells_errors``: an error that ends the loop need not repeat the text of what was logged here.
    """

    tells_errors = True

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}
        self._repeated: dict[str, int] = {}

    def __call__(self, error: Any) -> None:
        """Log the KafkaError ``error`` unless its kind was logged within the interval."""
        kind, now = error.name(), time.monotonic()
        if kind in self._logged_at and now - self._logged_at[kind] < REPEAT_INTERVAL_S:
            self._repeated[kind] = self._repeated.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        repeated = self._repeated.pop(kind, 0)
        log = structlog.get_logger("eos_client")
        log.warning("client_error", kind=kind, error=error.str(), repeated=repeated)


def log_throttling(event: Any) -> None:
    """Log the ThrottleEvent ``event`` if a broker makes this client wait for seconds; for use as ``throttle_cb``."""
    if event.throttle_time >= _THROTTLED_S_MIN:
        structlog.get_logger("eos_client").warning(
            "client_throttled", broker=event.broker_name, wait_s=round(event.throttle_time), reason="a client quota"
        )
