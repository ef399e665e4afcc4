"""Runs generated applications on the simulated cluster: ``python -m tests.applications --count 100000 --jobs 2``.

A seed that breaks a rule is printed at once, and the search goes on. ``--program`` runs one program as it was printed,
``--shrink`` makes failing ones as small as it can.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.applications.generator import INGREDIENTS
from tests.applications.program import parse
from tests.applications.search import Failure, Summary, judged, search, search_for_real, smallest


def main() -> int:
    """Return 0 when no rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--without", nargs="*", default=[], help="ingredients to leave out", choices=sorted(INGREDIENTS)
    )
    parser.add_argument(
        "--real", action="store_true", help="on a real broker behind a proxy, compared with the simulation"
    )
    parser.add_argument("--program", help="run this one program")
    parser.add_argument("--shrink", type=int, default=0, help="how many failing programs of each rule to shrink")
    options = parser.parse_args()
    if options.program:
        return _run_one(options.program, shrink=bool(options.shrink))
    began_at, ingredients = time.monotonic(), INGREDIENTS - frozenset(options.without)
    if options.real:
        summary = search_for_real(options.seed, options.count, _progress)
    else:
        summary = search(options.seed, options.count, jobs=options.jobs, ingredients=ingredients, told=_progress)
    _print(summary, options.seed, time.monotonic() - began_at, sorted(options.without))
    _print_failures(summary.failures, options.shrink)
    return 1 if summary.failures else 0


def _run_one(text: str, *, shrink: bool) -> int:
    program = parse(text)
    verdict = smallest(program) if shrink else judged(program)
    sys.stdout.write(f"{verdict.program!r}\n")
    sys.stdout.writelines(f"  {violation}\n" for violation in verdict.violations or ["holds"])
    sys.stdout.writelines(f"  {times:6} {what}\n" for what, times in verdict.counts.most_common())
    return 1 if verdict.violations else 0


def _progress(summary: Summary) -> None:
    """Say at once what has broken a rule, so that nothing is lost if the search is stopped; it goes on."""
    for failure in summary.failures_unsaid:
        sys.stdout.write(f"seed {failure.seed}: {_worst(failure)[:200]}\n")
    summary.failures_said = len(summary.failures)
    sys.stdout.flush()
    if summary.count % 1_000 == 0 or (summary.count < 1_000 and summary.count % 25 == 0):
        sys.stderr.write(f"{summary.count} applications, {len(summary.failures)} broke a rule\n")


def _print(summary: Summary, first: int, took_s: float, without: list[str]) -> None:
    out = sys.stdout.write
    out(f"{summary.count} applications (seeds {first} to {first + summary.count - 1}) in {took_s:.0f} s, ")
    out(f"{summary.simulated_s:.0f} simulated s; left out: {', '.join(without) or 'nothing'}\n")
    out("in how many applications:\n")
    out("".join(f"  {times:8} {part}\n" for part, times in sorted(summary.contained.items())))
    out("what happened in them:\n")
    out("".join(f"  {times:8} {part}\n" for part, times in sorted(summary.happened.items())))


def _worst(failure: Failure) -> str:
    return next(each for each in failure.violations if each.startswith(failure.rule))


def _print_failures(failures: list[Failure], shrunk_of_each: int) -> None:
    out = sys.stdout.write
    rules = Counter(failure.rule for failure in failures)
    out(f"{len(failures)} broke a rule: {dict(rules)}\n" if failures else "no rule was broken\n")
    shrunk = Counter[str]()
    for failure in sorted(failures, key=lambda each: each.seed):
        out(f"seed {failure.seed}: {_worst(failure)[:200]}\n")
        if shrunk[failure.rule] < shrunk_of_each:
            shrunk[failure.rule] += 1
            verdict = smallest(parse(failure.program))
            out(f"    {verdict.program!r}\n    {verdict.violations[:2]}\n")


if __name__ == "__main__":
    sys.exit(main())
