"""Worker processes that can be killed, frozen, thawed and asked to leave, and that are restarted when they die."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

Command = Callable[[int], Sequence[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
LEAVE_TIMEOUT_S = 45.0
RESTART_DELAY_S = 0.5
OWN_EXITS_MAX = 100
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """In the new process: SIGKILL when the harness ends, however it ends (Linux only)."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class OwnExit:
    """A worker that ended unasked, or not with 0 and in time when asked: a finding, whatever the records say."""

    slot: int
    status: int
    at_s: float
    log_tail: str

    def __str__(self) -> str:
        return f"worker {self.slot} exited with {self.status} at {self.at_s:.1f} s: ...{self.log_tail[-600:]}"


class WorkerPool:
    """Processes by slot number; `command(slot)` is the argument list of one worker.

    Each start of a slot writes stdout and stderr to `log_directory`/worker-SLOT.log, appended. A context manager:
    leaving it kills what still runs.
    """

    def __init__(self, command: Command, log_directory: Path) -> None:
        self._command = command
        self._log_directory = log_directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._frozen: set[int] = set()
        self._leaving: list[tuple[int, subprocess.Popen[bytes], float]] = []
        self._restart_at_s: dict[int, float] = {}
        self._log_starts: dict[subprocess.Popen[bytes], int] = {}
        self._started_s = time.monotonic()
        self.own_exits: list[OwnExit] = []
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """SIGKILL whatever still runs."""
        for slot in tuple(self._running):
            self.kill(slot)
        for _, process, _ in self._leaving:
            process.kill()
            process.wait()

    def running(self, slot: int) -> bool:
        return slot in self._running

    def pid(self, slot: int) -> int:
        """The process id of a slot that is running."""
        return self._running[slot].pid

    def log_path(self, slot: int) -> Path:
        return self._log_directory / f"worker-{slot}.log"

    def log_tail(self, slot: int, chars_max: int = 4000) -> str:
        """The end of what the worker of that slot wrote."""
        with contextlib.suppress(FileNotFoundError):
            return self.log_path(slot).read_text(errors="replace")[-chars_max:]
        return ""

    def start(self, slot: int) -> None:
        """Start the slot's worker unless it runs."""
        self._restart_at_s.pop(slot, None)
        if slot in self._running:
            return
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        with self.log_path(slot).open("ab") as log:
            process = subprocess.Popen(
                list(self._command(slot)),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=environment,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  it only makes one system call
            )
            self._log_starts[process] = log.tell()
        self._running[slot] = process
        self.starts += 1

    def kill(self, slot: int) -> None:
        """SIGKILL, and no restart until start() is called."""
        self._restart_at_s.pop(slot, None)
        self._frozen.discard(slot)
        process = self._running.pop(slot, None)
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self, slot: int) -> None:
        """SIGSTOP: the process keeps its sockets and its belief that it owns its partitions."""
        if slot in self._running:
            self._running[slot].send_signal(signal.SIGSTOP)
            self._frozen.add(slot)

    def thaw(self, slot: int) -> None:
        """SIGCONT."""
        if slot in self._frozen:
            self._frozen.discard(slot)
            self._running[slot].send_signal(signal.SIGCONT)

    def ask_to_leave(self, slot: int) -> None:
        """SIGTERM, without waiting: the slot is free for a new start, supervise() collects the process."""
        self.thaw(slot)
        self._restart_at_s.pop(slot, None)
        process = self._running.pop(slot, None)
        if process is not None:
            process.send_signal(signal.SIGTERM)
            self._leaving.append((slot, process, time.monotonic() + LEAVE_TIMEOUT_S))

    def leave_all(self) -> None:
        """SIGTERM to all, and wait until each has ended or overstayed its time."""
        for slot in tuple(self._running):
            self.ask_to_leave(slot)
        while self._leaving:
            self._collect_leaving()
            time.sleep(0.02)

    def supervise(self) -> None:
        """Record and restart workers that ended by themselves; call often."""
        self._collect_leaving()
        now_s = time.monotonic()
        for slot, process in tuple(self._running.items()):
            status = process.poll()
            if status is not None:
                del self._running[slot]
                self._frozen.discard(slot)
                self._record_exit(slot, status)
                self._restart_at_s[slot] = now_s + RESTART_DELAY_S
        for slot, due_s in tuple(self._restart_at_s.items()):
            if due_s <= now_s and len(self.own_exits) < OWN_EXITS_MAX:
                self.start(slot)

    def _collect_leaving(self) -> None:
        """A worker that answers SIGTERM with another status than 0, or not in time, is on record as well.

        Not one that was asked before it had said a word: SIGTERM ends a program that is still being loaded.
        """
        for leaving in tuple(self._leaving):
            slot, process, due_s = leaving
            status = process.poll()
            if status is None and time.monotonic() < due_s:
                continue
            if status is None:
                process.kill()
                process.wait()
            self._leaving.remove(leaving)
            unheard = status == -signal.SIGTERM and self._is_silent(slot, process)
            if status != 0 and not unheard:
                self._record_exit(slot, -signal.SIGKILL if status is None else status)

    def _is_silent(self, slot: int, process: subprocess.Popen[bytes]) -> bool:
        return self.log_path(slot).stat().st_size <= self._log_starts[process]

    def _record_exit(self, slot: int, status: int) -> None:
        at_s = time.monotonic() - self._started_s
        self.own_exits.append(OwnExit(slot, status, at_s, self.log_tail(slot)))
