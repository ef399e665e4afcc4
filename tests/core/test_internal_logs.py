"""Whether transactions can use the internal logs, by what brokers tell about them."""

import pytest

from eos_client.core.internal_logs import OFFSETS_LOG, TRANSACTION_LOG, Usability, judge_internal_logs
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


@pytest.mark.parametrize("log", [TRANSACTION_LOG, OFFSETS_LOG])
@pytest.mark.parametrize(
    ("shown", "broker_count", "found", "usability"),
    [
        # A log that exists is judged by its own replicas, whatever the settings ask of a new one.
        (settings(3, 2), 1, (3, 2), Usability.USABLE),
        (settings(3, 2), 3, (3, 1), Usability.NOT_WRITABLE),
        (settings(3, 1), 3, (1, 1), Usability.SINGLE_COPY),
        (HIDDEN, 3, (3, 3), Usability.HIDDEN),
        # One that has to be created needs as many brokers as replicas.
        (settings(3, 2), 3, MISSING, Usability.USABLE),
        (settings(3, 2), 2, MISSING, Usability.UNFIT),
        (settings(2, 3), 3, MISSING, Usability.UNFIT),
        (settings(1, 1), 1, MISSING, Usability.SINGLE_COPY),
        (HIDDEN, 3, MISSING, Usability.HIDDEN),
        # One that may not be described exists, or would have to be created.
        (settings(3, 2), 3, DENIED, Usability.USABLE),
        (settings(3, 2), 2, DENIED, Usability.PERHAPS_MISSING),
        (settings(3, 2), 1, DENIED, Usability.NOT_WRITABLE),
        (HIDDEN, 1, DENIED, Usability.HIDDEN),
    ],
)
def test_a_log_is_judged_by_its_replicas_and_by_the_brokers_where_it_has_to_be_created(
    log, shown, broker_count, found, usability
):
    described = TopicDescription(log, 50, found[0], found[1], ()) if isinstance(found, tuple) else None
    logs = {} if found == DENIED else {log: described}
    verdict = next(each for each in judge_internal_logs(shown, broker_count, logs) if each.log == log)
    assert verdict.usability is usability
    assert bool(verdict.way_out) == (usability is not Usability.USABLE)
