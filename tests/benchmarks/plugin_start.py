"""What the pytest plugin costs every session in whose environment this package is, in milliseconds of processor time.

    python -m tests.benchmarks.plugin_start [--rounds 31]

Each round starts two interpreters: one imports pytest, the other also what the entry points name. Status 1 if the
median of the differences is not below the target.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from importlib.metadata import entry_points

from tests.verification.tables import table

TARGET_MS = 20.0
HEADS = ("imported", "processor time, ms")


def imports_of_the_plugin() -> str:
    """What pytest imports at its start because of this package: its entry points, and the plugins that these name."""
    modules = [each.module for each in entry_points(group="pytest11") if each.module.startswith("eos_client.")]
    named = "for name in importlib.import_module(each).pytest_plugins"
    return f"import importlib, pytest; [importlib.import_module(name) for each in {modules} {named}]"


def cpu_ms(statements: str) -> float:
    """Processor time of an interpreter that runs ``statements``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statements], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main(arguments: list[str]) -> int:
    """Measure in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args(arguments)
    without, with_plugin = [], []
    for _ in range(options.rounds):
        without.append(cpu_ms("import importlib, pytest"))
        with_plugin.append(cpu_ms(imports_of_the_plugin()))
    cost_ms = statistics.median(each - bare for each, bare in zip(with_plugin, without, strict=True))
    rows = [("pytest", statistics.median(without)), ("pytest and the plugin", statistics.median(with_plugin))]
    print(table(HEADS, [(name, f"{found_ms:.1f}") for name, found_ms in [*rows, ("the plugin", cost_ms)]]))
    return int(cost_ms >= TARGET_MS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
