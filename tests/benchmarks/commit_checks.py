"""What each check of offset commits costs a client that has the gate, and one that has not (KAFKA-19779).

    python -m tests.benchmarks.commit_checks [--stories 40]

The same stories are told under every check: members come and go, partitions move, answers to heartbeats are lost, and
nothing else fails. Status 1 if a zombie's commit is accepted, a record is lost or doubled, or the gated client is
refused a commit where Kafka 4.3 runs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.clients.group_story import BlockMember, Build, Setting
from tests.clients.storytellers import tell_of_heartbeats
from tests.clients.ungated import UngatedMember
from tests.verification.tables import table

CHECKS = {
    "classic eager": Setting("classic", "range", request_timeout_s=1.0),
    "classic cooperative": Setting("classic", "cooperative-sticky", request_timeout_s=1.0),
    **{
        f"KIP-848 {check}": Setting("consumer", commit_validation=check, request_timeout_s=1.0)
        for check in ("exact", "revocation_epoch_member", "revocation_epoch_partition", "assignment_epoch")
    },
}
CLIENTS: dict[str, Build] = {"ungated": UngatedMember, "gated": BlockMember}


@dataclass(frozen=True)
class Cost:
    """What a client was refused, had to do again, and did wrong, in all its stories."""

    accepted: int
    refused: int
    done_again: int
    zombies: int
    wrong: int

    @property
    def row(self) -> tuple[int, ...]:
        return self.accepted, self.refused, self.done_again, self.zombies, self.wrong


def cost_of(setting: Setting, build: Build, seeds: Iterable[int]) -> Cost:
    """Tell the stories of ``seeds`` and add up."""
    total = Counter[str]()
    for seed in seeds:
        oracle = tell_of_heartbeats(seed, setting, build).oracle
        zombies = sum(violation.startswith("O3") for violation in oracle.violations)
        total.update(oracle.commits)
        total.update(again=oracle.done_again, zombies=zombies, wrong=len(oracle.violations) - zombies)
    return Cost(total["accepted"], total["refused"], total["again"], total["zombies"], total["wrong"])


def costs(seeds: range) -> dict[tuple[str, str], Cost]:
    """Return the cost of every check for either client."""
    return {
        (check, client): cost_of(setting, build, seeds)
        for check, setting in CHECKS.items()
        for client, build in CLIENTS.items()
    }


def main(arguments: list[str]) -> int:
    """Tell the stories and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=int, default=40)
    found = costs(range(parser.parse_args(arguments).stories))
    heads = ("check, client", "accepted", "refused", "records done again", "zombies accepted", "lost or doubled")
    print(table(heads, [(f"{check}, {client}", *cost.row) for (check, client), cost in found.items()]))
    failed = any(cost.zombies or cost.wrong for cost in found.values())
    return int(failed or found["KIP-848 assignment_epoch", "gated"].refused > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
