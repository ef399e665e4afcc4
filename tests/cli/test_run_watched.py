"""``eos-client run`` as somebody watches it: at a terminal, in a file, and by a program that reads it."""

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer
from rich.console import Console

from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.live_screen import LiveScreen
from eos_client.cli.logs import LogFormat, configure_logs
from eos_client.cli.progress import progress_of
from eos_client.observe import Counters
from tests.recovery.mock_cluster import mock_cluster
from tests.support.waiting import wait_for

RUN = ["--from", "orders", "--to", "invoices"]
STAYS = (
    "import pathlib, time\n"
    "def stay(record):\n"
    "    print('at work', flush=True)\n"
    "    while not pathlib.Path('go').exists():\n"
    "        time.sleep(0.01)\n"
    "    return record.value()\n"
)
CTRL_C = b"\x03"
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Terminal:
    """A program at a terminal of its own, with what that has been told to show."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._end, of_program = pty.openpty()
        fcntl.ioctl(of_program, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))

        def take_terminal() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            fcntl.ioctl(of_program, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "eos_client", *arguments],
            stdin=of_program,
            stdout=of_program,
            stderr=of_program,
            cwd=folder,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509
        )
        os.close(of_program)
        self.shown = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the program has ended
            while told := os.read(self._end, 65536):
                self.shown += told.decode(errors="replace")

    def type(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def wait_for(self, text: str) -> None:
        wait_for(lambda: text in " ".join(self.shown.split()), lambda: f"{text!r}: {self.shown}", timeout_s=60)

    def wait(self) -> int:
        status = self.process.wait(60)
        self._reader.join(10)
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._end)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A mock cluster with three orders."""
    with mock_cluster(1) as cluster:
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for value in (b"a", b"b", b"c"):
            producer.produce("orders", value)
        assert producer.flush(30) == 0
        yield cluster.bootstrap


@pytest.fixture
def stays(tmp_path: Path) -> str:
    """A transform that does not return before a file is there."""
    (tmp_path / "stays.py").write_text(STAYS)
    return "stays.py:stay"


@pytest.fixture
def at_terminal(tmp_path: Path) -> Iterator[Any]:
    terminals: list[Terminal] = []

    def at_terminal(*arguments: str) -> Terminal:
        terminals.append(Terminal(list(arguments), tmp_path))
        return terminals[-1]

    yield at_terminal
    for each in terminals:
        each.close()


def test_ctrl_c_at_a_terminal_says_how_to_end_at_once(bootstrap: str, stays: str, at_terminal: Any) -> None:
    terminal = at_terminal("run", stays, *RUN, "--group", "g", "--bootstrap", bootstrap)
    terminal.wait_for("g: orders -> invoices running")
    terminal.wait_for("at work")
    terminal.type(CTRL_C)
    terminal.wait_for("Ctrl-C again ends at once")
    terminal.wait_for("finishing (SIGINT)")
    terminal.type(CTRL_C)
    assert terminal.wait() == -signal.SIGINT
    assert terminal.shown.rindex(SHOW_CURSOR) > terminal.shown.rindex(HIDE_CURSOR)


def ours(worker: Any) -> list[str]:
    """The lines of a worker's log that librdkafka itself has not written."""
    return [line for line in worker.err.splitlines() if "rdkafka" not in line]


def test_without_a_terminal_a_run_ends_with_a_summary(
    bootstrap: str, stays: str, tmp_path: Path, eos_client: Any
) -> None:
    kinds = {"lines": ["--progress-interval", "0.2"], "fields": ["--log-format", "json"], "quiet": ["--quiet"]}
    workers = {
        kind: eos_client("run", stays, *RUN, "--group", kind, "--bootstrap", bootstrap, *options)
        for kind, options in kinds.items()
    }
    for worker in workers.values():
        worker.wait_for(lambda worker=worker: "at work" in worker.out, "a record")
        worker.process.send_signal(signal.SIGTERM)
    lines, fields, quiet = workers.values()
    lines.wait_for(lambda: "SIGTERM: finishing the open transaction" in lines.err, "what the signal does")
    assert fields.wait_for_event("loop_stopping")["reason"] == "SIGTERM"
    (tmp_path / "go").touch()
    assert [worker.wait() for worker in workers.values()] == [0, 0, 0]
    assert any("no partitions, 0 records/s" in line for line in ours(lines)) or " records/s, " in lines.err
    assert re.search(r"ended after [\d.]+ s: \d records? in 1 commit, \d out$", ours(lines)[-1])
    assert "\x1b" not in lines.err
    assert (fields.events[-1]["event"], fields.events[-1]["committed"]) == ("loop_summary", 1)
    assert ours(quiet) == []


def test_log_lines_appear_above_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    configure_logs(LogFormat.CONSOLE, verbose=False)
    with LiveScreen(Console(stderr=True, width=80)) as screen:
        screen.show("the view")
        structlog.get_logger().warning("first")
        structlog.get_logger().warning("second")
    assert re.search(r"first.*\x1b\[2K.*second.*\x1b\[2Kthe view", terminal.getvalue(), re.DOTALL)  # [2K: erased


@pytest.mark.parametrize(
    ("log_format", "quiet", "terminal", "is_live"),
    [
        (LogFormat.CONSOLE, False, "xterm", True),
        (LogFormat.CONSOLE, True, "xterm", False),
        (LogFormat.CONSOLE, False, "dumb", False),
        (LogFormat.JSON, False, "xterm", False),
    ],
)
def test_only_a_person_at_a_capable_terminal_has_a_live_view(
    monkeypatch: pytest.MonkeyPatch, log_format: LogFormat, quiet: bool, terminal: str, is_live: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", terminal)
    loop: Any = SimpleNamespace(counters=Counters(), stop_reason=None)
    with progress_of("billing", log_format, None, quiet=quiet).watch(loop):
        pass
    assert ("billing" in screen.getvalue()) is is_live


def test_quiet_and_verbose_together_are_a_wrong_command_line(typed: Any, upper_file: Path) -> None:
    ended = typed("run", "shout.py:upper", *RUN, "--group", "g", "--bootstrap", "127.0.0.1:1", "--quiet", "--verbose")
    assert ended.status == ExitCode.USAGE
    assert "--quiet and --verbose" in ended.err
