"""Loops that come and go: partitions change hands between commits, and every record still counts once."""

import pytest
from confluent_kafka import Consumer

from eos_client.observe import CommitSkipped, PartitionsAssigned, PartitionsRevoked, TransactionCommitted
from tests.kafka.loop_support import COOPERATIVE, PROTOCOLS, Job
from tests.support.waiting import TICK_S, wait_for
from tests.verification.leaving import leave

STORM_JOINS = 3
SKIPS = 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_open_work_is_committed_inside_the_revoke_callback_when_a_second_loop_joins(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        job.hasten_rebalances()
        seen = []

        def transform(record):
            seen.append(record.offset())
            return [record.value()]

        first = job.start(
            transform,
            kafka=PROTOCOLS[protocol],
            commit_interval_s=60,
        )
        first.events.wait_for(PartitionsAssigned)
        job.load(400)  # now: an epoch that moves after the first record lets the revocation abort
        wait_for(lambda: len(seen) == 400, "the first loop has processed everything")
        assert job.committed() == 0
        second = job.start(kafka=PROTOCOLS[protocol])
        (commit,) = first.events.wait_for(TransactionCommitted, inside_revoke=True)
        assert commit.records_in == 400
        job.await_committed()
        second.events.wait_for(PartitionsAssigned)
        job.load(40)
        wait_for(lambda: second.loop.counters.records_in > 0, "the second loop has its share")
        first.stop()
        job.await_committed()
        second.stop()
        assert len(seen) < 440, "nothing was processed again"
        assert first.loop.counters.aborted == 0
        job.assert_exactly_once()


@pytest.mark.parametrize(("protocol", "policy"), [("kip848", "skip"), ("kip848", "block"), ("cooperative", "hold")])
def test_every_policy_keeps_exactly_once_while_loops_join_and_leave(kafka_broker, protocol, policy):
    with Job(kafka_broker) as job:
        job.hasten_rebalances(100)
        options = {"kafka": PROTOCOLS[protocol], "policy": policy, "commit_interval_s": 0.01}
        steady = job.start(**options)
        steady.events.wait_for(PartitionsAssigned)
        for _ in range(STORM_JOINS):
            guest = job.start(**options)

            def guest_works(guest=guest):
                job.load(20)
                return guest.loop.counters.records_in

            wait_for(guest_works, "the guest has its share")
            guest.stop()
        job.await_committed()
        steady.stop()
        job.assert_exactly_once()


def test_sends_no_commit_between_a_revocation_and_the_next_generation(kafka_broker):
    with Job(kafka_broker) as job:
        steady = job.start(kafka=COOPERATIVE, commit_interval_s=0.01)
        steady.events.wait_for(PartitionsAssigned)
        # The library joins by itself, but a member that is not polled takes part in no rebalance after that: the
        # generation of the revocation stays until then, with records to commit all the time.
        guest = Consumer(job.config(kafka=COOPERATIVE).consumer_config())
        try:
            guest.subscribe([job.source])
            wait_for(lambda: job.load(4) and len(steady.events.of(CommitSkipped)) >= SKIPS, "commits are skipped")
            so_far = list(steady.events.events)
            wait_for(lambda: guest.poll(TICK_S) or guest.assignment(), "the guest has its share")
        finally:  # a consumer that is dropped open may hang in its destruction, in whatever test collects it
            leave(guest)
        job.await_committed()
        steady.stop()
        revoked = next(event for event in so_far if isinstance(event, PartitionsRevoked))
        afterwards = so_far[so_far.index(revoked) + 1 :]
        assert {e.generation for e in afterwards if isinstance(e, CommitSkipped)} == {revoked.generation}
        assert not [event for event in afterwards if isinstance(event, TransactionCommitted)]
        job.assert_exactly_once()
