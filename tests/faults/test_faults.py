"""Under kills, freezes past the session timeout and a guest that comes and goes, every record is processed once.

So it is while the leaders of all topics move between three brokers, or brokers are killed, and outputs are refused.

The seeds are fixed, so that a failure can be run again; `make soak` runs the same for longer with new seeds, with each
protocol on each kind of broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_skips import skip_broken_by_broker
from tests.support.brokers import SharedBrokers
from tests.verification.brokers import replicated_broker
from tests.verification.checker import Rule
from tests.verification.commands import Contender
from tests.verification.fault_run import FaultOutcome, FaultRun, perform
from tests.verification.protocols import LATEST_VERSION, STRICT_VERSION, GroupProtocol
from tests.verification.rig import Load

pytestmark = pytest.mark.timeout(600)

SECONDS = 9.0
MOVING_SECONDS = 30.0
LOAD = Load(partitions=4, rate_per_s=500)  # what a fault leaves unfinished is less than a second's, but never nothing
SEED = 3
NAIVE_SEEDS = range(1, 11)
BOTH_PROTOCOLS = pytest.mark.parametrize(
    "protocol", [GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE], ids=lambda each: each.value
)
# The two that have their commits checked in different ways: the stricter in each run of the tests, the other in soaks.
RUNS = [
    pytest.param(LATEST_VERSION, GroupProtocol.COOPERATIVE, marks=pytest.mark.soak),
    (STRICT_VERSION, GroupProtocol.KIP_848),
]


def assert_processed_once(outcome: FaultOutcome) -> None:
    if outcome.judgement.inconclusive:
        skip_broken_by_broker(outcome.explain())
    assert outcome.judgement.passed, outcome.explain()


@pytest.mark.parametrize(("version", "protocol"), RUNS, ids=lambda value: getattr(value, "value", value))
def test_every_record_is_processed_once_under_faults(
    brokers: SharedBrokers, version: str, protocol: GroupProtocol, tmp_path: Path
) -> None:
    outcome = perform(FaultRun(Contender.OURS, protocol, SECONDS, SEED, load=LOAD), brokers.direct(version), tmp_path)
    assert_processed_once(outcome)


def run_on_a_cluster(run: FaultRun, directory: Path) -> FaultOutcome:
    """Carry out a run that disturbs the brokers themselves, on three of them."""
    with replicated_broker(LATEST_VERSION) as cluster:
        outcome = perform(run, cluster, directory)
    print(outcome.explain())
    return outcome


@pytest.mark.soak
@BOTH_PROTOCOLS
def test_every_record_is_processed_once_while_leaders_move(protocol: GroupProtocol, tmp_path: Path) -> None:
    """Both outputs of each input are there once, in order; how long a partition stands still is told, not judged."""
    run = FaultRun(Contender.OURS, protocol, MOVING_SECONDS, SEED, load=LOAD, strikes_workers=False, moves_leaders=True)
    outcome = run_on_a_cluster(run, tmp_path)
    assert_processed_once(outcome)
    assert outcome.leader_moves >= MOVING_SECONDS / 3, outcome.explain()


@pytest.mark.soak
@BOTH_PROTOCOLS
def test_every_record_is_processed_once_while_brokers_and_workers_are_killed(
    protocol: GroupProtocol, tmp_path: Path
) -> None:
    """A broker that comes back cuts off what it had not replicated, of every topic.

    A guest may return while it still leaves, so each process has an id of its own.
    """
    run = FaultRun(Contender.OURS, protocol, MOVING_SECONDS, SEED, pinned_ids=False, load=LOAD, kills_brokers=True)
    outcome = run_on_a_cluster(run, tmp_path)
    assert_processed_once(outcome)
    assert outcome.broker_kills >= MOVING_SECONDS / 15, outcome.explain()


@pytest.mark.soak
@pytest.mark.parametrize("contender", [Contender.NAIVE, Contender.MUTANT], ids=lambda each: each.name.lower())
def test_moving_leaders_make_a_naive_loop_and_a_mutant_fail(contender: Contender, tmp_path: Path) -> None:
    run = FaultRun(contender, GroupProtocol.COOPERATIVE, MOVING_SECONDS, SEED, load=LOAD, moves_leaders=True)
    found = run_on_a_cluster(run, tmp_path).judgement.verdict
    assert found.count(Rule.LOST) + found.count(Rule.DOUBLED), found


def test_the_same_faults_make_a_naive_loop_fail(brokers: SharedBrokers, tmp_path: Path) -> None:
    """Else the faults would prove nothing. A few runs may be lucky, ten are not; the first unlucky one ends this."""
    broker = brokers.direct(STRICT_VERSION)
    told = []
    for seed in NAIVE_SEEDS:
        run = FaultRun(Contender.NAIVE, GroupProtocol.EAGER, SECONDS, seed, load=LOAD)
        outcome = perform(run, broker, tmp_path / str(seed))
        told.append(outcome.explain())
        if outcome.judgement.verdict.count(Rule.LOST) + outcome.judgement.verdict.count(Rule.DOUBLED):
            return
    pytest.fail("\n".join(told))
