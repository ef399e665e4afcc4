"""Looks with atheris for inputs that reach new lines of a parser: ``python -m tests.fuzz [--seconds N] [--only WORD]``.

Each test of this folder runs for so many seconds in a process of its own, on inputs that atheris changes wherever a
change has reached new lines of the package. An input that breaks a promise ends the search, and Hypothesis prints it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    sys.exit("atheris is missing: pip install atheris (Linux, Python 3.11 to 3.13)")

with atheris.instrument_imports(include=["eos_client"]):
    from tests.fuzz import test_foreign_bytes

FOUND = Path(".runs/fuzz")
PROMISES: dict[str, Any] = {name: test for name, test in vars(test_foreign_bytes).items() if name.startswith("test_")}


def search(name: str, seconds: int) -> None:
    """Search in this process, which atheris ends."""
    FOUND.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={FOUND}/"]
    atheris.Setup([sys.argv[0], *options], PROMISES[name].hypothesis.fuzz_one_input)
    atheris.Fuzz()


def broken_promises(word: str, seconds: int) -> list[str]:
    """Search for each promise whose name holds ``word``, one after the other."""
    found = []
    for name in filter(lambda name: word in name, PROMISES):
        print(f"{seconds} s: {name}", flush=True)
        itself = [sys.executable, "-m", "tests.fuzz", "--seconds", str(seconds), "--promise", name]
        if subprocess.run(itself, check=False).returncode:
            found.append(name)
    return found


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=60, help="for each promise (%(default)s)")
    options.add_argument("--only", default="", metavar="WORD", help="promises whose name holds this word")
    options.add_argument("--promise", choices=PROMISES, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.promise:
        search(given.promise, given.seconds)
    elif broken := broken_promises(given.only, given.seconds):
        sys.exit("broken: " + ", ".join(broken))
