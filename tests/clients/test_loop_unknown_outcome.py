"""A loop whose commit is not answered, and whose records another member has committed before anybody could find out."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client.errors import ClusterUnavailableError
from tests.clients.simulated_stage import SimulatedStage
from tests.clients.test_transaction_session_failed_in_rebalance import commit_for_another_member
from tests.support.protocols import COOPERATIVE

LOADED = 3
COMMIT_AT_S, FOUND_OUT_S = 8.0, 60.0


def refuse_the_first(message: Any) -> list[bytes]:
    if message.offset() == 0:
        raise ArithmeticError("no such order")
    return [message.value()]


def run(stop_at_s: float, **settings: Any) -> SimulatedStage:
    """Let the first commit, by its time or by the stop, get lost, and another member commit the same records."""
    stage = SimulatedStage(COOPERATIVE, records=LOADED)
    transform = {"transform": refuse_the_first} if settings else {}
    loop = stage.loop(commit_interval_s=COMMIT_AT_S, **settings, **transform)

    def lose_every_commit() -> None:
        for _ in range(40):
            stage.cluster.lose_request("EndTxn", "producer-1")

    stage.cluster.after(3.0, lose_every_commit)
    stage.cluster.after(min(stop_at_s, COMMIT_AT_S) + 1.0, lambda: commit_for_another_member(stage, LOADED))
    stage.cluster.after(stop_at_s, loop.stop)
    loop.run()
    return stage


def told(stage: SimulatedStage) -> list[Any]:
    reported = [event.error for event in stage.named("client_reported") if "cannot show its outcome" in event.error]
    outcomes = [event.outcome for event in stage.named("outcome_resolved")]
    return [len(reported), outcomes, stage.named("transaction_aborted")]


@pytest.mark.parametrize("stop_at_s", [6.0, FOUND_OUT_S], ids=["while it stops", "in a turn"])
def test_a_loop_reports_an_outcome_that_nothing_shows_and_ends_in_order(stop_at_s: float) -> None:
    stage = run(stop_at_s)
    assert told(stage) == [1, ["unknown"], []]
    (stopped,) = stage.named("loop_stopped")
    assert stopped.reason == "stop() was called"


def test_a_record_that_was_skipped_in_a_transaction_of_unknown_outcome_is_told_as_perhaps_skipped() -> None:
    stage = run(FOUND_OUT_S, on_error="skip")
    perhaps = [event.error for event in stage.named("client_reported") if event.client == "loop"]
    assert len(perhaps) == stage.partitions
    assert all("no such order" in error for error in perhaps)
    assert (stage.named("record_skipped"), stage.outputs) == ([], [])


def test_a_loop_that_stops_asks_no_longer_for_an_outcome_than_its_shutdown_may_take() -> None:
    stage = SimulatedStage(COOPERATIVE, records=LOADED)
    loop = stage.loop(commit_interval_s=COMMIT_AT_S, shutdown_timeout_s=10, recovery_timeout_s=600)

    def stop_without_an_answer() -> None:
        stage.cluster.lose_request("EndTxn", "producer-1")
        for _ in range(200):
            stage.cluster.lose_reply("OffsetFetch", "consumer-1")
        loop.stop()

    stage.cluster.after(3.0, stop_without_an_answer)
    with pytest.raises(ClusterUnavailableError, match=r"committed offsets .* could not be read"):
        loop.run()
    assert stage.cluster.clock() < 60.0
