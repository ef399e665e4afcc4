"""What the driver tells of a batch: what its tasks have told, counted."""

from __future__ import annotations

import re

import pytest

from eos_client.errors import RetriableError
from eos_client.integration.spark.progress import SinkProgress
from eos_client.integration.spark.status import SlotOutcome, SlotStatus, check_statuses

STATUSES = (
    SlotStatus(0, SlotOutcome.WRITTEN, 5, reused=True, seconds={"committed": 0.5}),
    SlotStatus(1, SlotOutcome.WRITTEN, 4, repeated=True, resolved=True, seconds={"committed": 0.75}),
    SlotStatus(2, SlotOutcome.SKIPPED, 3, repeated=True),
    SlotStatus(3, SlotOutcome.SIBLING_DONE, 0),
)


def test_what_the_tasks_tell_comes_back_as_they_told_it():
    assert [SlotStatus.decode(status.slot, status.encode()) for status in STATUSES] == list(STATUSES)


def test_a_batch_is_told_by_its_slots_and_added_to_the_totals():
    progress = SinkProgress("sink", "q")
    for batch_id in (7, 8):
        event = progress.count(batch_id, STATUSES, {"job": 1.0})
        assert progress.last is event
        assert event.as_dict() == {
            "sink_id": "sink",
            "batch_id": batch_id,
            "rows": 12,
            "slots_written": 2,
            "slots_skipped": 2,
            "handles_started": 3,
            "tasks_repeated": 2,
            "commits_resolved": 1,
            "duration_s": 1.0,
            "seconds": {"job": 1.0, "task_committed": 0.75},
        }
    assert progress.as_dict() == {
        "sink_id": "sink",
        "query_id": "q",
        "last_batch_id": 8,
        "batches": 2,
        "rows": 24,
        "slots_written": 4,
        "slots_skipped": 4,
        "handles_started": 6,
        "tasks_repeated": 4,
        "commits_resolved": 2,
        "leases_renewed": 0,
        "seconds": {"job": 2.0, "task_committed": 1.5},
    }


@pytest.mark.parametrize("reported", [[0], [1, 0, 2], [0, 2]])
def test_a_job_that_reports_other_slots_than_its_own_is_to_be_repeated(reported):
    found = [SlotStatus(slot, SlotOutcome.WRITTEN) for slot in reported]
    with pytest.raises(RetriableError, match=re.escape(f"the job reported slots {sorted(reported)} of 2")):
        check_statuses(found, 2)


def test_the_reports_of_a_job_are_in_the_order_of_their_slots():
    assert check_statuses(reversed(STATUSES), 4) == list(STATUSES)
