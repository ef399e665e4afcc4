"""Each cause once, with workers running; `python -m tests.recovery.soak` does it two hundred times."""

from __future__ import annotations

import pytest

from tests.kafka.loop_support import Job
from tests.recovery.forced_recoveries import BROKER, QUICK, RECOVERY_S, SLOW, ForcedRecoveries, opened
from tests.support.waiting import wait_for

SLACK = 6


def opened_since(before):
    """How many more there are, of threads or of handles."""
    now = opened()
    return max(now[name] - before[name] for name in ("threads", "handles"))


@pytest.mark.soak
def test_after_every_cause_the_loops_go_on_by_themselves_and_each_record_counts_once(make_kafka_broker):
    broker = make_kafka_broker(properties=BROKER)
    with Job(broker) as job, ForcedRecoveries(broker, job, seed=1) as forced:
        forced.await_work()
        forced.expire()
        before = opened()
        for name, cause in (QUICK | SLOW).items():
            forced.one(name, cause)
        forced.await_work()
        # Handles that were left behind are still on their way out.
        wait_for(
            lambda: opened_since(before) <= SLACK, f"few more threads and handles than {before}", timeout_s=RECOVERY_S
        )
        forced.finish()
        job.assert_exactly_once()
    for worker in forced.workers:
        assert worker.running.loop.counters.recoveries >= len(worker.recovered) > 0
