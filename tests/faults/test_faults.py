"""Under kills, freezes past the session timeout and a guest that comes and goes, every record is processed once.

So it is while the leaders of all topics move between three brokers and outputs are refused.

The seeds are fixed, so that a failure can be run again; `make soak` runs the same for longer with new seeds, with each
protocol on each kind of broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_skips import skip_broken_by_broker
from tests.support.brokers import SharedBrokers
from tests.verification.brokers import replicated_broker
from tests.verification.checker import Rule, Status
from tests.verification.commands import Contender
from tests.verification.fault_run import FaultRun, perform
from tests.verification.protocols import LATEST_VERSION, STRICT_VERSION, GroupProtocol
from tests.verification.rig import Load

pytestmark = pytest.mark.timeout(600)

SECONDS = 9.0
MOVING_SECONDS = 30.0
LOAD = Load(partitions=4, rate_per_s=500)  # what a fault leaves unfinished is less than a second's, but never nothing
SEED = 3
NAIVE_SEEDS = range(1, 11)
# The two that have their commits checked in different ways: the stricter in each run of the tests, the other in soaks.
RUNS = [
    pytest.param(LATEST_VERSION, GroupProtocol.COOPERATIVE, marks=pytest.mark.soak),
    (STRICT_VERSION, GroupProtocol.KIP_848),
]


@pytest.mark.parametrize(("version", "protocol"), RUNS, ids=lambda value: getattr(value, "value", value))
def test_every_record_is_processed_once_under_faults(
    brokers: SharedBrokers, version: str, protocol: GroupProtocol, tmp_path: Path
) -> None:
    outcome = perform(FaultRun(Contender.OURS, protocol, SECONDS, SEED, load=LOAD), brokers.direct(version), tmp_path)
    if outcome.judgement.inconclusive:
        skip_broken_by_broker(outcome.explain())
    assert outcome.judgement.passed, outcome.explain()


@pytest.mark.soak
@pytest.mark.parametrize("protocol", [GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE], ids=lambda each: each.value)
def test_every_record_is_processed_once_while_leaders_move(protocol: GroupProtocol, tmp_path: Path) -> None:
    """Both outputs of each input are there once, in order; how a worker may end meanwhile is told, not judged."""
    run = FaultRun(Contender.OURS, protocol, MOVING_SECONDS, SEED, load=LOAD, strikes_workers=False, moves_leaders=True)
    with replicated_broker(LATEST_VERSION) as cluster:
        outcome = perform(run, cluster, tmp_path)
    if outcome.judgement.inconclusive:
        skip_broken_by_broker(outcome.explain())
    print(outcome.explain())
    assert outcome.judgement.verdict.status is Status.HOLDS, outcome.explain()
    assert outcome.judgement.drained_s is not None, outcome.explain()
    assert outcome.leader_moves >= MOVING_SECONDS / 3, outcome.explain()


def test_the_same_faults_make_a_naive_loop_fail(brokers: SharedBrokers, tmp_path: Path) -> None:
    """Else the faults would prove nothing. A few runs may be lucky, ten are not; the first unlucky one ends this."""
    broker = brokers.direct(LATEST_VERSION)
    told = []
    for seed in NAIVE_SEEDS:
        run = FaultRun(Contender.NAIVE, GroupProtocol.EAGER, SECONDS, seed, load=LOAD)
        outcome = perform(run, broker, tmp_path / str(seed))
        told.append(outcome.explain())
        if outcome.judgement.verdict.count(Rule.LOST) + outcome.judgement.verdict.count(Rule.DOUBLED):
            return
    pytest.fail("\n".join(told))
