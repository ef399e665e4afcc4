"""A pytest plugin for tests that cannot be judged because the broker itself broke atomicity: they are skipped, within
a budget.

A few such skips in a session are the broker's; with more, the tests have stopped to prove anything, and the session
fails.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

SKIPS_MAX = 2
_REASON = "the broker broke it"


def skip_broken_by_broker(explanation: str) -> NoReturn:
    """Skip the test, and count it."""
    pytest.skip(f"{_REASON}: {explanation}")


class SkipBudget:
    """Counts these skips in the whole session, of all its processes, and fails it when there are too many."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    @property
    def is_exceeded(self) -> bool:
        return len(self.skipped) > SKIPS_MAX

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and f"Skipped: {_REASON}" in str(report.longrepr):
            self.skipped.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.is_exceeded:
            terminalreporter.section("too many tests were skipped because the broker broke atomicity", red=True)
            terminalreporter.write_line(f"{len(self.skipped)} of them, {SKIPS_MAX} are allowed:")
            for nodeid in self.skipped:
                terminalreporter.write_line(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Count where the reports of all processes come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipBudget(), "broker-skip-budget")
