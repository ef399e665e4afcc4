"""Repeats tests beside busy processes, counts failures of each: ``python -m tests.support.flaky -- tests/loop``.

Each repetition is a pytest session of its own. Its output is kept, so that the first failure of a test can be read.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUSY = """
import os, sys
starter = int(sys.argv[1])
while os.getppid() == starter:
    sum(range(100_000))
"""
RECORD = "--record"
STARTED, FAILED, ENDED = "started", "failed", "ended"


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that never rest until the block ends; they also end when this process dies."""
    command = [sys.executable, "-S", "-c", BUSY, str(os.getpid())]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


class Recorder:
    """A pytest plugin that writes down at once what happens to each test, so that a crash leaves a record, too."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(STARTED, nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(FAILED, report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(ENDED, nodeid)

    def _write(self, event: str, nodeid: str) -> None:
        with self._path.open("a", encoding="utf-8") as record:
            record.write(f"{event} {nodeid}\n")


@dataclass
class Rates:
    """How often each test ran and failed, and where the output of its first failure is."""

    runs: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    first_failures: dict[str, Path] = field(default_factory=dict)

    def add(self, record: str, output: Path) -> None:
        """Count one session; a test that has started and not ended took the session down with it."""
        events: dict[str, set[str]] = {STARTED: set(), FAILED: set(), ENDED: set()}
        for line in record.splitlines():
            event, _, nodeid = line.partition(" ")
            events[event].add(nodeid)
        failed = events[FAILED] | (events[STARTED] - events[ENDED])
        self.runs.update(events[STARTED])
        self.failures.update(failed)
        for nodeid in failed:
            self.first_failures.setdefault(nodeid, output)

    def lines(self) -> list[str]:
        """One line for each test, the worst first."""
        lines = []
        for nodeid in sorted(self.runs, key=lambda each: (-self.failures[each] / self.runs[each], each)):
            failed, runs = self.failures[nodeid], self.runs[nodeid]
            where = f"  (first: {self.first_failures[nodeid]})" if failed else ""
            lines.append(f"{failed:4d} of {runs}  {failed / runs:6.1%}  {nodeid}{where}")
        return lines


def repeat(pytest_arguments: Sequence[str], *, runs: int, busy: int, logs: Path) -> Rates:
    """Run pytest that many times; SystemExit with its output when a session ran no test."""
    logs.mkdir(parents=True, exist_ok=True)
    rates = Rates()
    with busy_processes(busy):
        for number in range(1, runs + 1):
            output, record = logs / f"run-{number:03d}.log", logs / f"run-{number:03d}.tests"
            record.write_text("", encoding="utf-8")
            command = [sys.executable, "-m", "tests.support.flaky", RECORD, str(record), *pytest_arguments]
            with output.open("wb") as log:
                exit_code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
            recorded = record.read_text(encoding="utf-8")
            if not recorded:
                raise SystemExit(f"pytest ran no test (exit code {exit_code}):\n{output.read_text(errors='replace')}")
            rates.add(recorded, output)
            print(f"run {number} of {runs}: {'passed' if exit_code == 0 else f'failed, see {output}'}", flush=True)
    return rates


def main(arguments: Sequence[str]) -> int:
    """Repeat the tests, print the rates; 1 if any test has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.flaky", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="how often (N)")
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside the tests")
    parser.add_argument("--logs", type=Path, default=Path(".runs/flaky"), help="folder for the output of each run")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, pytest_arguments = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    if not pytest_arguments:
        parser.error("name the tests to repeat: python -m tests.support.flaky --runs 20 -- tests/loop")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that every block is left in order
    rates = repeat(pytest_arguments, runs=options.runs, busy=options.busy, logs=options.logs)
    print(f"failures in {options.runs} runs beside {options.busy} busy processes:")
    print("\n".join(rates.lines()))
    return 1 if rates.failures else 0


def record(path: Path, pytest_arguments: Sequence[str]) -> int:
    """Run pytest once in this process and write down what happens to each test."""
    return int(pytest.main(list(pytest_arguments), plugins=[Recorder(path)]))


if __name__ == "__main__":
    if sys.argv[1:2] == [RECORD]:
        sys.exit(record(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
