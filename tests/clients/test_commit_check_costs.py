"""The claim of KAFKA-19779, shown: what a check of commits refuses to whom."""

from __future__ import annotations

import pytest

from tests.benchmarks.commit_checks import CHECKS, Cost, costs

STORIES = range(2)
ASSIGNMENT, MEMBER, PARTITION, EXACT = (
    f"KIP-848 {check}"
    for check in ("assignment_epoch", "revocation_epoch_member", "revocation_epoch_partition", "exact")
)


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], Cost]:
    return costs(STORIES)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("client", ["ungated", "gated"])
def test_no_check_accepts_a_zombie_of_a_client_that_filters_ownership(
    found: dict[tuple[str, str], Cost], check: str, client: str
) -> None:
    """P1: no variant accepts a zombie."""
    assert found[check, client].zombies == 0
    assert found[check, client].wrong == 0
    assert found[check, client].accepted > 0


def test_the_exact_check_refuses_what_the_epochs_of_partitions_accept(found: dict[tuple[str, str], Cost]) -> None:
    """P1: a strict check refuses harmless commits: the epoch is bumped while a heartbeat is in flight."""
    refused = {check: found[check, "ungated"].refused for check in CHECKS}
    assert refused[EXACT] > refused[MEMBER] > refused[PARTITION] == refused[ASSIGNMENT] == 0


def test_the_gate_leaves_nothing_to_refuse(found: dict[tuple[str, str], Cost]) -> None:
    """P1: result in the normal case: zero refused commits."""
    assert {check: found[check, "gated"].refused for check in (MEMBER, PARTITION, ASSIGNMENT)} == {
        MEMBER: 0,
        PARTITION: 0,
        ASSIGNMENT: 0,
    }


def test_under_the_exact_check_only_bumps_that_nobody_was_told_of_are_refused_to_the_gated_client(
    found: dict[tuple[str, str], Cost],
) -> None:
    assert found[EXACT, "gated"].refused < found[EXACT, "ungated"].refused / 2
