"""A session of pytest inside a test, for tests of plugins: in a process and a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]


def run_pytest(folder: Path, tests: str, *plugins: str, processes: int) -> subprocess.CompletedProcess[str]:
    """Run ``tests`` in ``folder`` with ``plugins`` and xdist's alone."""
    (folder / "test_some.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    loaded = [argument for plugin in ("no:cacheprovider", "xdist.plugin", *plugins) for argument in ("-p", plugin)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *loaded, "--numprocesses", str(processes)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
