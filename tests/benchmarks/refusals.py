"""Commits refused under a join/leave storm behind added latency: ours beside a naive loop with the same interval.

    python -m tests.benchmarks.refusals [--seconds 30] [--rtt 0.06] [--seed 1]

Exit status: 0 when ours has no refusal on the broker with assignment epochs under KIP-848, no avoidable one elsewhere,
nothing anonymous, and every record once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.verification.brokers import proxied_broker
from tests.verification.commands import Contender
from tests.verification.protocols import LATEST_VERSION, STRICT_VERSION, GroupProtocol
from tests.verification.storm import Storm, StormOutcome, perform
from tests.verification.tables import table

CELLS = {
    LATEST_VERSION: (GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE),
    STRICT_VERSION: (GroupProtocol.KIP_848,),
}
HEADS = (
    "contender", "broker", "protocol", "commits", "rebalances", "refused", "per 100 rebalances", "per 100 commits",
    "avoidable", "unavoidable", "anonymous", "lost or doubled",
)  # fmt: skip


def row(outcome: StormOutcome) -> list[object]:
    """One line of the table."""
    report = outcome.report
    return [
        outcome.storm.contender.value, outcome.version, outcome.storm.protocol.value, report.commits,
        report.rebalances, len(report.refusals), f"{report.per_100_rebalances():.1f}",
        f"{report.per_100_commits():.1f}",
        len(report.avoidable), len(report.unavoidable), report.anonymous,
        sum(violation.count for violation in outcome.judgement.verdict.violations),
    ]  # fmt: skip


def holds(outcome: StormOutcome) -> bool:
    """The promise for our own loop."""
    report = outcome.report
    never_refused = (outcome.version, outcome.storm.protocol) == (LATEST_VERSION, GroupProtocol.KIP_848)
    forbidden = report.refusals if never_refused else report.avoidable
    return not forbidden and not report.anonymous and outcome.judgement.passed


def main(arguments: list[str]) -> int:
    """Run every cell and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each storm")
    parser.add_argument("--rtt", type=float, default=0.06, help="added round trip, seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    outcomes: list[StormOutcome] = []
    with tempfile.TemporaryDirectory(prefix="refusals-") as logs:
        for version, protocols in CELLS.items():
            with proxied_broker(version, added_rtt_s=options.rtt) as broker:
                for protocol, contender in [(protocol, contender) for protocol in protocols for contender in Contender]:
                    storm = Storm(contender, protocol, options.seconds, options.seed)
                    directory = Path(logs) / f"{version}-{protocol.value}-{contender.value}"
                    outcomes.append(perform(storm, broker, directory))
                    print(outcomes[-1].explain(), end="\n\n", flush=True)
    print(f"{options.seconds:g} s a cell, {options.rtt * 1000:g} ms added round trip, commit every 100 ms")
    print(table(HEADS, [row(outcome) for outcome in outcomes]))
    return 0 if all(holds(outcome) for outcome in outcomes if outcome.storm.contender is Contender.OURS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
