"""A transactional request that arrives when its client has given it up (KAFKA-17754), on a real broker.

First what it does to loops that are written by hand, so that the same proxy, the same request and the same moment mean
something when ours goes through them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from eos_client import Outcome
from eos_client.confluent.client_log import ClientLog
from eos_client.confluent.producer import bounded_calls
from eos_client.errors import AbortableError, ClusterUnavailableError
from eos_client.observe import OutcomeResolved
from tests.kafka.kafka_support import Stage
from tests.kafka.loop_support import Job
from tests.support.waiting import wait_for
from tests.verification.brokers import RunningBroker
from tests.verification.held_requests import HeldRequest
from tests.verification.late_end_txn import (
    COMMIT_TIMEOUT_S,
    FENCED_CODES,
    RECORDS,
    NaiveLoop,
    Ours,
    Reading,
    abort_of,
    arrive_late,
    arriving_before_the_commit,
    commit_of,
    doubled,
    endings,
    ids,
    sent_by,
    settled_offset,
)
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api

GOES_ON_WITHIN_S = 40.0
CONCURRENT_TRANSACTIONS = 51
"""What an InitProducerId is answered that ends an open transaction: it has fenced its producer all the same."""


@dataclass(frozen=True)
class Network:
    """A broker behind a proxy that can hold requests."""

    bootstrap: str
    proxy: KafkaProxy


@pytest.fixture
def network(proxied_broker: RunningBroker, proxy: KafkaProxy) -> Network:
    return Network(proxied_broker.bootstrap, proxy)


@pytest.fixture
def stage(network: Network) -> Iterator[Stage]:
    with Stage(network.bootstrap, partitions=1) as made:
        yield made


# -- loops that are written by hand ----------------------------------------------------------------------------------


def naive(stage: Stage, reading: Reading) -> NaiveLoop:
    return NaiveLoop(stage.bootstrap, stage.source, stage.sink, stage.group, reading)


@pytest.mark.parametrize("cuts_off", [False, True], ids=["timed out", "connection lost"])
def test_a_late_commit_tears_the_next_transaction_of_a_loop_that_waited_for_it(
    stage: Stage, proxy: KafkaProxy, cuts_off: bool
) -> None:
    stage.load(RECORDS)
    with naive(stage, Reading.UNFINISHED) as loop:
        loop.copy(4)
        held = proxy.hold_next(Api.END_TXN, commit_of(loop.transactional_id), cuts_off=cuts_off)
        loop.copy(4)
        assert (stage.outputs(), settled_offset(stage)) == (ids(0, 8), 8)

        def half_is_visible() -> None:
            assert arrive_late(held) == (0,)
            wait_for(lambda: stage.visible() == ids(0, 10), "half of the open transaction to be visible")
            assert settled_offset(stage) == 8

        loop.copy(4, after=2, meanwhile=half_is_visible)
    assert doubled(stage.outputs()) == {"0-8", "0-9"}
    assert settled_offset(stage) == RECORDS


def test_a_late_abort_takes_the_outputs_of_the_next_transaction_from_a_loop_that_waited_for_it(
    stage: Stage, proxy: KafkaProxy
) -> None:
    stage.load(RECORDS)
    with naive(stage, Reading.UNFINISHED) as loop:
        loop.copy(4)
        held = proxy.hold_next(Api.END_TXN, abort_of(loop.transactional_id), cuts_off=True)
        loop.abort(4)
        loop.copy(4, after=4, meanwhile=lambda: arrive_late(held))
        assert settled_offset(stage) == 8
        loop.copy(4)
    assert held.response is not None
    assert held.response.errors == (0,)
    assert stage.outputs() == ids(0, 4) + ids(8, 12)
    assert settled_offset(stage) == RECORDS


def test_late_offsets_take_back_the_next_transactions_offsets_of_a_loop_that_waited_for_them(
    stage: Stage, proxy: KafkaProxy
) -> None:
    stage.load(RECORDS)
    with naive(stage, Reading.UNFINISHED) as loop:
        loop.copy(4)
        held = proxy.hold_next(Api.TXN_OFFSET_COMMIT, sent_by(loop.transactional_id), cuts_off=True)
        loop.copy(4)
        assert settled_offset(stage) == 8
        with arriving_before_the_commit(proxy, loop.transactional_id, held):
            loop.copy(4)
    assert stage.outputs() == ids(0, RECORDS)
    assert settled_offset(stage) == 8


def test_a_loop_that_takes_an_unanswered_commit_for_failed_doubles_its_records(stage: Stage, proxy: KafkaProxy) -> None:
    stage.load(RECORDS)
    with naive(stage, Reading.FAILED) as loop:
        loop.copy(4)
        proxy.lose_next_answer(Api.END_TXN, commit_of(loop.transactional_id))
        loop.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S)
        loop.copy(8)
    assert doubled(stage.outputs()) == set(ids(4, 8))


def test_a_loop_that_takes_an_unanswered_commit_for_done_loses_its_records(stage: Stage, proxy: KafkaProxy) -> None:
    stage.load(RECORDS)
    with naive(stage, Reading.DONE) as loop:
        loop.copy(4)
        dropped = proxy.hold_next(Api.END_TXN, commit_of(loop.transactional_id))
        loop.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S)
        loop.copy(4)
        dropped.discard()
    assert stage.outputs() == ids(0, 4) + ids(8, 12)
    assert settled_offset(stage) == RECORDS


# -- ours ------------------------------------------------------------------------------------------------------------


def assert_refused(proxy: KafkaProxy, transactional_id: str, held: HeldRequest, *, aborts: int = 0) -> None:
    """The broker fenced the late request, and no handle has ended a transaction after a newer one."""
    assert held.response is not None
    assert set(held.response.errors) <= FENCED_CODES
    sent = endings(proxy, transactional_id)
    assert [commits for _, commits in sent].count(False) == aborts
    epochs = [epoch for epoch, _ in sent]
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[-1]


def test_a_late_commit_is_refused_because_ours_has_asked_the_log(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    assert ours.copy(4) is Outcome.COMMITTED
    held = proxy.hold_next(Api.END_TXN, commit_of(ours.transactional_id))
    assert ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S) is Outcome.ABORTED
    assert ours.resolved() == ["aborted"]

    def nothing_is_visible() -> None:
        assert set(arrive_late(held)) <= FENCED_CODES
        assert (stage.visible(), settled_offset(stage)) == (ids(0, 4), 4)

    assert ours.copy(4, after=2, meanwhile=nothing_is_visible) is Outcome.COMMITTED
    ours.assert_exactly_once()
    assert_refused(proxy, ours.transactional_id, held)


def test_a_commit_that_never_arrives_is_done_again_once(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    ours.copy(4)
    dropped = proxy.hold_next(Api.END_TXN, commit_of(ours.transactional_id))
    assert ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S) is Outcome.ABORTED
    assert ours.copy(4) is Outcome.COMMITTED
    dropped.discard()
    ours.assert_exactly_once()
    assert ours.resolved() == ["aborted"]
    assert all(commits for _, commits in endings(proxy, ours.transactional_id))


def test_a_commit_whose_answer_is_lost_counts_as_done(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    ours.copy(4)
    lost = proxy.lose_next_answer(Api.END_TXN, commit_of(ours.transactional_id))
    assert ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S) is Outcome.COMMITTED
    assert lost.wait_for_answer().errors == (0,)
    assert ours.resolved() == ["committed"]
    assert settled_offset(stage) == 8
    ours.assert_exactly_once()
    assert all(commits for _, commits in endings(proxy, ours.transactional_id))


@pytest.mark.soak
@pytest.mark.parametrize("arrives", [True, False], ids=["that took effect", "that never arrives"])
def test_a_commit_that_outlives_the_recovery_time_is_neither_doubled_nor_lost(
    stage: Stage, proxy: KafkaProxy, arrives: bool
) -> None:
    """The application catches the error and goes on with the same clients."""
    ours = Ours(stage)
    ours.copy(4)
    catch = proxy.lose_next_answer if arrives else proxy.hold_next
    commit = catch(Api.END_TXN, commit_of(ours.transactional_id))
    silence = proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(ours.transactional_id))
    with pytest.raises(ClusterUnavailableError, match="outcome of the last commit is unknown"):
        ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S, recovery_timeout_s=COMMIT_TIMEOUT_S)
    unknown = ours.last
    assert unknown.outcome is None
    assert "not known yet" in unknown.reason
    silence.wait_until_caught()
    if not arrives:
        commit.discard()
    assert ours.copy(2) is Outcome.COMMITTED
    assert unknown.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    assert ours.resolved() == ["committed" if arrives else "aborted"]
    silence.discard()
    ours.assert_exactly_once()


def test_an_init_that_was_sent_twice_and_takes_effect_late_costs_one_transaction(
    stage: Stage, proxy: KafkaProxy
) -> None:
    late = proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(f"ours-{stage.group}"), cuts_off=True)
    ours = Ours(stage)
    assert late.is_caught
    assert ours.copy(4) is Outcome.COMMITTED
    assert ours.copy(4, after=4, meanwhile=lambda: arrive_late(late)) is Outcome.ABORTED
    assert late.wait_for_answer().errors == (CONCURRENT_TRANSACTIONS,)
    ours.assert_exactly_once()


def test_a_late_abort_is_refused_because_ours_has_another_handle(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    ours.copy(4)
    held = proxy.hold_next(Api.END_TXN, abort_of(ours.transactional_id))
    ours.abort(4, commit_timeout_s=COMMIT_TIMEOUT_S)
    assert ours.copy(4, after=4, meanwhile=lambda: arrive_late(held)) is Outcome.COMMITTED
    ours.assert_exactly_once()
    assert_refused(proxy, ours.transactional_id, held, aborts=1)


def test_offsets_that_are_held_beyond_the_budget_are_left_behind_with_their_handle(
    stage: Stage, proxy: KafkaProxy
) -> None:
    ours = Ours(stage)
    ours.copy(2)
    held = proxy.hold_next(Api.TXN_OFFSET_COMMIT, sent_by(ours.transactional_id))
    began_s = time.monotonic()
    assert ours.copy(8, offsets_timeout_s=COMMIT_TIMEOUT_S) is Outcome.ABORTED
    assert time.monotonic() - began_s < GOES_ON_WITHIN_S
    assert len(stage.named("producer_rebuilt")) == 1
    with arriving_before_the_commit(proxy, ours.transactional_id, held):
        assert ours.copy(4) is Outcome.COMMITTED
    assert settled_offset(stage) == 6
    ours.assert_exactly_once()
    assert_refused(proxy, ours.transactional_id, held)


def test_offsets_that_timed_out_are_refused_even_if_only_the_table_knows_what_that_means(
    stage: Stage, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library tells of its own time-out, as an error that only asks for an abort.

    It does so when the socket's time-out ends just after the call's: the budget around the call, which mostly comes
    first, is longer here, and the log, which tells of it too, is not heard.
    """
    monkeypatch.setattr(bounded_calls, "_GRACE_S", GOES_ON_WITHIN_S)
    monkeypatch.setattr(ClientLog, "_reports_loss", lambda *_: False)
    monkeypatch.setattr(ClientLog, "understood", property(lambda _: True, lambda *_: None), raising=False)
    ours = Ours(stage, socket_timeout_ms=round(COMMIT_TIMEOUT_S * 1000) + 500)
    ours.copy(2)
    held = proxy.hold_next(Api.TXN_OFFSET_COMMIT, sent_by(ours.transactional_id))
    assert ours.copy(8, offsets_timeout_s=COMMIT_TIMEOUT_S) is Outcome.ABORTED
    with arriving_before_the_commit(proxy, ours.transactional_id, held):
        assert ours.copy(4) is Outcome.COMMITTED
    assert settled_offset(stage) == 6
    ours.assert_exactly_once()
    assert held.response is not None
    assert set(held.response.errors) <= FENCED_CODES
    (rebuilt,) = stage.named("producer_rebuilt")
    assert "Failed to commit offsets to transaction" in rebuilt.reason


def test_a_replay_whose_commit_never_arrives_is_not_told_committed_because_the_offsets_were_before(
    stage: Stage, proxy: KafkaProxy
) -> None:
    ours = Ours(stage)
    ours.copy(4)
    ours.replay_from(0)
    dropped = proxy.hold_next(Api.END_TXN, commit_of(ours.transactional_id))
    assert ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S) is Outcome.ABORTED
    assert ours.resolved() == ["aborted"]
    assert ours.copy(4) is Outcome.COMMITTED
    dropped.discard()
    assert stage.outputs() == ids(0, 4) * 2
    assert settled_offset(stage) == 4


def test_a_replay_whose_answer_is_lost_is_told_committed(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    ours.copy(4)
    ours.replay_from(0)
    proxy.lose_next_answer(Api.END_TXN, commit_of(ours.transactional_id))
    assert ours.copy(4, commit_timeout_s=COMMIT_TIMEOUT_S) is Outcome.COMMITTED
    assert ours.resolved() == ["committed"]
    assert stage.outputs() == ids(0, 4) * 2


# -- what the client library sends a second time by itself -----------------------------------------------------------


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_a_commit_that_was_sent_twice_cannot_tear_the_next_transaction(
    stage: Stage, proxy: KafkaProxy, losses: int
) -> None:
    """``losses`` before it: the client library suppresses the public line of one that looks like the last."""
    ours = Ours(stage)
    ours.copy(4)
    for _ in range(losses):
        ours.lose_connections(proxy)
    held = proxy.hold_next(Api.END_TXN, commit_of(ours.transactional_id), cuts_off=True)
    assert ours.copy(4) is Outcome.COMMITTED

    def torn_if_accepted() -> None:
        if arrive_late(held) == (0,):
            wait_for(lambda: stage.visible() == ids(0, 10), "half of the open transaction to be visible")

    ours.copy(4, after=2, meanwhile=torn_if_accepted)
    ours.assert_exactly_once()
    assert_refused(proxy, ours.transactional_id, held)


def test_an_abort_that_was_sent_twice_cannot_take_the_next_transactions_outputs(
    stage: Stage, proxy: KafkaProxy
) -> None:
    ours = Ours(stage)
    ours.copy(4)
    held = proxy.hold_next(Api.END_TXN, abort_of(ours.transactional_id), cuts_off=True)
    ours.abort(4)
    ours.copy(4, after=4, meanwhile=lambda: arrive_late(held))
    ours.assert_exactly_once()
    assert_refused(proxy, ours.transactional_id, held, aborts=2)


def test_offsets_that_were_sent_twice_cannot_take_back_the_next_transactions(stage: Stage, proxy: KafkaProxy) -> None:
    ours = Ours(stage)
    ours.copy(4)
    held = proxy.hold_next(Api.TXN_OFFSET_COMMIT, sent_by(ours.transactional_id), cuts_off=True)
    assert ours.copy(4) is Outcome.COMMITTED
    with arriving_before_the_commit(proxy, ours.transactional_id, held):
        assert ours.copy(4) is Outcome.COMMITTED
    assert stage.outputs() == ids(0, RECORDS)
    assert settled_offset(stage) == RECORDS
    assert_refused(proxy, ours.transactional_id, held)


def test_offsets_that_were_sent_twice_cannot_take_back_later_ones_of_their_own_transaction(
    stage: Stage, proxy: KafkaProxy
) -> None:
    """Within a transaction the epoch stays: whoever sends offsets several times is told to abort."""
    ours = Ours(stage)
    held = proxy.hold_next(Api.TXN_OFFSET_COMMIT, sent_by(ours.transactional_id), cuts_off=True)
    ours.begin()
    ours.send_offsets(2)
    with pytest.raises(AbortableError, match="take back those that follow"):
        ours.send_offsets(8)
    ours.abort_by_hand()
    ours.begin()
    ours.send_offsets(8)
    with arriving_before_the_commit(proxy, ours.transactional_id, held):
        ours.commit_by_hand()
    assert settled_offset(stage) == 8


# -- the loop --------------------------------------------------------------------------------------------------------


def test_the_loop_goes_on_by_itself_and_the_late_commit_finds_it_in_its_next_transaction(network: Network) -> None:
    with Job(network.bootstrap, partitions=1) as job:
        transactional_id = f"loop-{job.group}"
        held: list[HeldRequest] = []

        def copy(record: Any) -> list[bytes]:
            if held and held[0].is_caught and held[0].response is None:
                running.loop._producer.limits = patient
                with contextlib.suppress(TimeoutError):  # the first record of the next transaction finds none open
                    wait_for(
                        lambda: not job.is_settled(), "outputs of the next transaction at the broker", timeout_s=1.0
                    )
                    arrive_late(held[0])
            return [record.value()]

        job.load(4)
        running = job.start(
            copy,
            transactional_id=transactional_id,
            commit_interval_s=2.0,  # however the records are fetched, the next transaction has more than its first
        )
        job.await_committed()
        patient = running.loop._producer.limits
        held.append(network.proxy.hold_next(Api.END_TXN, commit_of(transactional_id)))
        running.loop._producer.limits = replace(patient, commit_timeout_s=COMMIT_TIMEOUT_S)
        job.load(8)
        job.await_committed()
        running.stop()
        assert [event.outcome for event in running.events.of(OutcomeResolved)] == ["aborted"]
        job.assert_exactly_once()
        assert_refused(network.proxy, transactional_id, held[0])
