"""Whether transactions can use the internal logs, by what brokers tell about them."""

import pytest

from eos_client.core.internal_logs import INTERNAL_LOGS, judge_internal_log
from eos_client.core.model import TopicDescription

HIDDEN: dict[str, str] = {}
DENIED, MISSING = "may not be described", None


def settings(factor: int, min_isr: int) -> dict[str, str]:
    return {
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(min_isr),
        "offsets.topic.replication.factor": str(factor),
        "min.insync.replicas": str(min_isr),
    }


@pytest.mark.parametrize("log", INTERNAL_LOGS)
@pytest.mark.parametrize(
    ("shown", "broker_count", "found", "is_usable", "said"),
    [
        # A log that exists is judged by its own replicas, whatever the settings ask of a new one.
        (settings(3, 2), 1, (3, 2), True, ""),
        (settings(3, 2), 3, (3, 1), False, "a partition with 1 of 3 replicas in sync"),
        (settings(3, 1), 3, (1, 1), True, "a single copy"),
        (HIDDEN, 3, (3, 3), True, "cannot be read"),
        # One that has to be created needs as many brokers as replicas.
        (settings(3, 2), 3, MISSING, True, ""),
        (settings(3, 2), 2, MISSING, False, "cannot be created"),
        (settings(2, 3), 3, MISSING, True, ""),
        (settings(1, 2), 1, MISSING, True, "a single copy"),
        (settings(3, 4), 3, (3, 2), False, "a partition with 2 of 3 replicas in sync"),
        (settings(1, 1), 1, MISSING, True, "a single copy"),
        (HIDDEN, 3, MISSING, True, "cannot be read"),
        # One that may not be described exists, or would have to be created.
        (settings(3, 2), 3, DENIED, True, ""),
        (settings(3, 2), 2, DENIED, None, "could not be created now"),
        (settings(3, 2), 1, DENIED, False, "it takes no writes"),
        (HIDDEN, 1, DENIED, True, "cannot be read"),
    ],
)
def test_a_log_is_judged_by_its_replicas_and_by_the_brokers_where_it_has_to_be_created(
    log, shown, broker_count, found, is_usable, said
):
    described = TopicDescription(log, 50, found[0], found[1], ()) if isinstance(found, tuple) else None
    logs = {} if found == DENIED else {log: described}
    verdict = judge_internal_log(log, shown, broker_count, logs)
    assert (verdict.is_usable, verdict.is_missing) == (is_usable, found == MISSING)
    assert said in verdict.text
    assert bool(verdict.way_out) == bool(said)
