"""Fault runs over brokers and group protocols, with one table of verdicts at the end: what `make soak` runs.

    python -m tests.verification.soak --seconds 60 [--seed N] [--naive] [--versions 4.3.1 4.1.2] [--protocols ...]
        [--moving-leaders] [--killed-brokers] [--unharmed]

Exit status: 0 all runs of the client hold, 1 one does not, 2 none is wrong but one is inconclusive (the broker itself
broke atomicity). `--naive` runs the baseline beside it, which is expected to fail and never decides the status.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.verification.brokers import direct_broker, replicated_broker
from tests.verification.checker import Rule
from tests.verification.commands import Contender
from tests.verification.fault_run import LOAD, MOVING_LOAD, FaultOutcome, FaultRun, perform
from tests.verification.protocols import VERSIONS, GroupProtocol
from tests.verification.tables import table

HEADS = (
    "contender", "broker", "protocol", "seed", "ids", "faults", "in", "out", "lost", "doubled", "reordered",
    "aborted seen", "offsets", "own exits", "gap s", "drained s", "verdict",
)  # fmt: skip


def parse(arguments: list[str]) -> argparse.Namespace:
    """Command line of the soak run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each fault phase")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first run; each further run adds one")
    parser.add_argument("--naive", action="store_true", help="run the naive baseline as well")
    parser.add_argument("--only-naive", action="store_true", help="run the naive baseline alone")
    parser.add_argument(
        "--ids",
        choices=("pinned", "generated", "mixed"),
        default="mixed",
        help="transactional ids: a killed worker's open transaction ends with its restart, or by its timeout",
    )
    parser.add_argument(
        "--moving-leaders",
        action="store_true",
        help="on three brokers, with leaders that move every second and outputs that are refused",
    )
    parser.add_argument(
        "--killed-brokers", action="store_true", help="likewise, with brokers that are killed and started again"
    )
    parser.add_argument("--unharmed", action="store_true", help="kill and freeze no worker, and let no guest join")
    parser.add_argument("--versions", nargs="+", default=list(VERSIONS))
    parser.add_argument("--protocols", nargs="+", default=[protocol.value for protocol in GroupProtocol])
    parser.add_argument(
        "--logs",
        type=Path,
        default=None,
        help="directory for the workers' logs and, where a run fails, a copy of the broker's data",
    )
    return parser.parse_args(arguments)


def verdict(outcome: FaultOutcome) -> str:
    """One word for the table."""
    if outcome.judgement.inconclusive:
        return "INCONCLUSIVE"
    return "holds" if outcome.judgement.passed else "FAILS"


def row(outcome: FaultOutcome) -> list[object]:
    """One line of the table."""
    found = outcome.judgement.verdict
    drained_s = outcome.judgement.drained_s
    run = outcome.run
    rules = (Rule.LOST, Rule.DOUBLED, Rule.REORDERED, Rule.ABORTED_VISIBLE, Rule.OFFSETS)
    return [
        run.contender.value, outcome.version, run.protocol.value, run.seed,
        "pinned" if run.pinned_ids else "generated", outcome.faults(), found.inputs,
        found.outputs, *[found.count(rule) for rule in rules], len(outcome.judgement.own_exits),
        f"{outcome.judgement.longest_gap_s:.1f}",
        "never" if drained_s is None else f"{drained_s:.1f}", verdict(outcome),
    ]  # fmt: skip


def run_all(options: argparse.Namespace, seed: int, logs: Path) -> list[FaultOutcome]:
    """Every version x protocol x contender, one after the other; the outcome of each is told as it ends."""
    contenders = [Contender.NAIVE] if options.only_naive else [Contender.OURS]
    contenders += [Contender.NAIVE] if options.naive and not options.only_naive else []
    outcomes: list[FaultOutcome] = []
    for version in options.versions:
        is_of_a_cluster = options.moving_leaders or options.killed_brokers
        started = replicated_broker if is_of_a_cluster else direct_broker
        with started(version) as broker:
            for name in options.protocols:
                pinned = options.ids == "pinned" or (options.ids == "mixed" and seed % 2 == 0)
                for contender in contenders:
                    always_pinned = contender is Contender.NAIVE
                    run = FaultRun(
                        contender,
                        GroupProtocol(name),
                        options.seconds,
                        seed,
                        pinned or always_pinned,
                        load=MOVING_LOAD if is_of_a_cluster else LOAD,
                        strikes_workers=not options.unharmed,
                        moves_leaders=options.moving_leaders,
                        kills_brokers=options.killed_brokers,
                    )
                    outcome = perform(run, broker, logs / version / f"{contender.value}-{name}")
                    outcomes.append(outcome)
                    if not outcome.judgement.passed and contender is Contender.OURS:
                        for number, kept in enumerate(broker.directories, 1):
                            shutil.copytree(kept, outcome.worker_logs / f"broker-{number}", dirs_exist_ok=True)
                    print(outcome.explain(), end="\n\n", flush=True)
                seed += 1
    return outcomes


def exit_status(outcomes: list[FaultOutcome]) -> int:
    """The verdict on the client's own runs; the baseline has none."""
    judged = [outcome for outcome in outcomes if outcome.run.contender is Contender.OURS]
    if any(not outcome.judgement.passed and not outcome.judgement.inconclusive for outcome in judged):
        return 1
    return 2 if any(outcome.judgement.inconclusive for outcome in judged) else 0


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    options = parse(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    logs = options.logs or Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {seed}, {options.seconds:g} s a run, worker logs in {logs}", flush=True)
    outcomes = run_all(options, seed, logs)
    print(table(HEADS, [row(outcome) for outcome in outcomes]))
    return exit_status(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
