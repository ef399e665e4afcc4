"""Starts Spark applications as processes of their own, strikes them, and never leaves one behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from eos_client.testing.process_session import members_of, send_signal, spark_executors
from tests.spark.rig.settings import StreamSettings
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

REPOSITORY = Path(__file__).parents[3]
LIFETIME_S = 600.0
KEEPER_START_TIMEOUT_S = 60.0
KEEPER_END_TIMEOUT_S = 60.0
TAIL_CHARACTERS = 4000


def spark_python_workers(session: int) -> list[int]:
    """Return the Python workers that run Spark tasks: children of a daemon."""
    members = {each.pid: each for each in members_of(session) if "pyspark.daemon" in each.command}
    return [pid for pid, each in members.items() if each.parent in members]


class SparkProcess:
    """One command with all the processes it starts: a session that ends with this object, at the latest."""

    def __init__(self, command: Sequence[str], log: Path, *, lifetime_s: float = LIFETIME_S) -> None:
        self.log = log
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(log.parent / "spark-work"),
        }
        keeper = [sys.executable, "-m", "tests.spark.rig.session_keeper", str(lifetime_s), str(log), *command]
        self._keeper = subprocess.Popen(  # unbuffered: a line that was read ahead would be hidden from select()
            keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=REPOSITORY, env=environment
        )
        self._exit_code: int | None = None
        said = self._said(KEEPER_START_TIMEOUT_S)
        if said is None:
            self.end()
            raise TimeoutError(f"{command} was not started within {KEEPER_START_TIMEOUT_S} s")
        self.session = int(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def exit_code(self) -> int | None:
        """Exit code of the driver's Python; None while it runs or is frozen."""
        if self._exit_code is None and (said := self._said(0.0)) is not None:
            self._exit_code = int(said.removeprefix("exited ")) if said else -signal.SIGKILL
        return self._exit_code

    def wait(self, timeout_s: float) -> int:
        """Exit code of the driver's Python. Raises TimeoutError with the end of its log."""
        self.until(lambda: self.exit_code() is not None, "the end of the application", timeout_s)
        assert self._exit_code is not None
        return self._exit_code

    def until(self, reached: Callable[[], object], what: str, timeout_s: float) -> None:
        """Wait for a condition. Raises TimeoutError with the end of the application's log."""
        wait_for(reached, lambda: f"{what}\n{self.tail()}", timeout_s=timeout_s)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-TAIL_CHARACTERS:]

    # -- faults --------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """SIGSTOP for every process, until none is left that runs (a frozen parent may have just had a child)."""
        for _ in range(2):
            send_signal(signal.SIGSTOP, self.members())

    def thaw(self) -> None:
        send_signal(signal.SIGCONT, self.members())

    def kill(self) -> None:
        """SIGKILL for every process at once."""
        send_signal(signal.SIGKILL, self.members())

    def kill_all_but_workers(self) -> list[int]:
        """SIGKILL for the driver and every JVM and daemon; the Python workers that run tasks stay, as orphans."""
        self.freeze()
        orphans = self.workers()
        send_signal(signal.SIGKILL, set(self.members()) - set(orphans))
        return orphans

    def members(self) -> list[int]:
        """Every living process of it."""
        return [each.pid for each in members_of(self.session)]

    def executors(self) -> list[int]:
        return spark_executors(self.session)

    def workers(self) -> list[int]:
        return spark_python_workers(self.session)

    def end(self) -> None:
        """Nothing of it is left after this."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        try:
            self._keeper.wait(KEEPER_END_TIMEOUT_S)
        finally:
            self._keeper.kill()
            self._stdout().close()

    def _said(self, wait_s: float) -> str | None:
        if not select.select([self._stdout()], [], [], wait_s)[0]:
            return None
        return self._stdout().readline().decode().strip()

    def _stdout(self) -> IO[bytes]:
        assert self._keeper.stdout is not None
        return self._keeper.stdout


class Application(SparkProcess):
    """One start of the rig's query; `label` tells the starts of one query apart."""

    def __init__(self, settings: StreamSettings, label: str, *, lifetime_s: float = LIFETIME_S) -> None:
        settings.directory.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.label = label
        self.started_s = time.time()
        command = [sys.executable, "-m", "tests.spark.rig.application", settings.to_json(), label]
        super().__init__(command, settings.directory / f"log-{label}.txt", lifetime_s=lifetime_s)

    def progress(self) -> list[dict[str, float]]:
        """A line for each micro-batch that this start has finished."""
        place = self.settings.directory / f"progress-{self.label}.jsonl"
        if not place.exists():
            return []
        return [json.loads(line) for line in place.read_text().splitlines() if line.endswith("}")]

    def failure(self) -> str:
        """What ended the query, if it failed."""
        place = self.settings.directory / f"failure-{self.label}.txt"
        return place.read_text() if place.exists() else ""
