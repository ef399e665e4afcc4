"""What a client library writes to the process's stderr, kept whole.

pytest's ``capfd`` forgets what it has read by truncating its file, and with it a line that a thread of the library
writes just then: a test that looks again and again may never see it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_STDERR = 2


@contextmanager
def stderr_in(file: Path) -> Iterator[Callable[[], str]]:
    """Write the process's stderr to ``file`` meanwhile; give a function that returns all of it so far."""
    before = os.dup(_STDERR)
    with file.open("ab") as written:
        os.dup2(written.fileno(), _STDERR)
    try:
        yield lambda: file.read_text(errors="replace")
    finally:
        os.dup2(before, _STDERR)
        os.close(before)
