"""Under kills, freezes past the session timeout and a guest that comes and goes, every record is processed once.

The seeds are fixed, so that a failure can be run again; `make soak` runs the same for longer with new seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.verification.brokers import RunningBroker, direct_broker
from tests.verification.checker import Rule
from tests.verification.commands import Contender
from tests.verification.fault_run import FaultRun, perform
from tests.verification.protocols import LATEST_VERSION, VERSIONS, GroupProtocol

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

SECONDS = 9.0
SEED = 3
NAIVE_SEEDS = range(1, 11)


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with direct_broker(request.param) as running:
        yield running


@pytest.mark.parametrize("protocol", GroupProtocol, ids=lambda protocol: protocol.value)
def test_every_record_is_processed_once_under_faults(
    broker: RunningBroker, protocol: GroupProtocol, tmp_path: Path
) -> None:
    outcome = perform(FaultRun(Contender.OURS, protocol, SECONDS, SEED), broker, tmp_path)
    if outcome.judgement.inconclusive:
        pytest.skip(outcome.explain())
    assert outcome.judgement.passed, outcome.explain()


def test_the_same_faults_make_a_naive_loop_fail(broker: RunningBroker, tmp_path: Path) -> None:
    """Else the faults would prove nothing. A few runs may be lucky, ten are not; the first unlucky one ends this."""
    if broker.version != LATEST_VERSION:
        pytest.skip("one broker is enough to show it")
    told = []
    for seed in NAIVE_SEEDS:
        run = FaultRun(Contender.NAIVE, GroupProtocol.EAGER, SECONDS, seed)
        outcome = perform(run, broker, tmp_path / str(seed))
        told.append(outcome.explain())
        if outcome.judgement.verdict.count(Rule.LOST) + outcome.judgement.verdict.count(Rule.DOUBLED):
            return
    pytest.fail("\n".join(told))
