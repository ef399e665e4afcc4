"""Lines for whoever watches a pytest session, also while a fixture is being made and output is captured."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def write_terminal_line(config: pytest.Config, line: str) -> None:
    """Write a line of its own to the terminal, if this session has one."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    with ExitStack() as stack:
        if capture is not None:
            stack.enter_context(capture.global_and_fixture_disabled())
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(line)
