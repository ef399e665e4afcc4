"""One worker of the demo: a process whose log is read, ``eos-client run`` or a loop that writes to a database."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from eos_client.cli.demo.job import invoice

_RUN = ("eos_client", "run", f"{Path(invoice.__file__)}:{invoice.invoice.__name__}")
_LOG_TAIL_LINES = 20
_REASON_LENGTH_MAX = 120
_KILL_TIMEOUT_S = 30.0


@dataclass
class Worker:
    """A worker of the demo: a process that can be started, killed and started again under one transactional.id.

    Its totals, over all its lives, are counted by its log line by line, so that they are exact even where the process
    was killed.

    :param options: the options of the program, which logs as JSON lines on stderr.
    :param program: the module that is run, and its first arguments.
    """

    name: str
    options: Sequence[str]
    program: Sequence[str] = _RUN
    lives: int = 0
    committed: int = 0
    skipped: int = 0
    aborted: int = 0
    rebalances: int = 0
    records_in: int = 0
    records_per_s: int = 0
    generation_id: int = -1
    partitions: int = 0
    failure: str = ""
    incidents: deque[str] = field(default_factory=deque)
    """What is still to be shown, oldest first."""
    log_tail: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_TAIL_LINES))
    child: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    @property
    def state(self) -> str:
        """What a person should read: waiting, joining, running, stopped, killed or failed."""
        if self.child is None:
            return "waiting"
        code = self.child.poll()
        if code is None:
            return "running" if self.partitions else "joining"
        if code == 0:
            return "stopped"
        return "killed" if code == -signal.SIGKILL else f"failed ({code})"

    def start(self) -> int:
        """Start the process and read its log; returns its id."""
        command = [sys.executable, "-m", *self.program, *self.options]
        self.lives += 1
        self.partitions = 0
        self.child = subprocess.Popen(  # noqa: S603  our own program
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read_log, args=(self.child,), daemon=True)
        self._reader.start()
        return self.child.pid

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to end its transaction or to leave the group."""
        if self.child is not None and self._reader is not None:
            self.child.kill()
            self.child.wait(_KILL_TIMEOUT_S)
            self._reader.join(timeout=2.0)
            self.partitions = self.records_per_s = 0

    def suspend(self) -> None:
        """SIGSTOP: the process notices nothing, as in a long pause of its machine."""
        if self.child is not None:
            self.child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on where it stood, whoever has its partitions now."""
        if self.child is not None:
            self.child.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, without waiting: it should finish or abort, leave the group and exit 0."""
        if self.child is not None:
            self.child.terminate()

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status, or ``None`` if it had to be killed after ``timeout_s``."""
        code = None
        if self.child is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self.child.wait(timeout_s)
            self.kill()
        return code

    def _read_log(self, child: subprocess.Popen[str]) -> None:
        for line in child.stderr or ():
            self.log_tail.append(line.rstrip())
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    self.apply(entry)

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Count one log line; lines about anything else change nothing."""
        match entry.get("event"):
            case "transaction_committed":
                self.committed += 1
                self.records_in += entry["records_in"]
            case "commit_skipped":
                self.skipped += 1
            case "transaction_aborted":
                self.aborted += 1
                reason = shorten(entry["reason"], _REASON_LENGTH_MAX, placeholder=" ...")
                self.incidents.append(f"aborted a transaction of {entry['records_in']} records: {reason}")
            case "producer_rebuilt":
                self.incidents.append(f"rebuilt its producer: {entry['reason']}")
            case "partitions_assigned":
                self.rebalances += 1
            case "loop_progress":
                self.records_per_s = entry["records_in_per_s"]
                self.generation_id = entry["generation_id"]
                self.partitions = entry["partitions"]
            case "command_failed":
                self.failure = entry["message"]
