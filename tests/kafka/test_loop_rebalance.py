"""Loops that come and go: partitions change hands between commits, and every record still counts once."""

import pytest

from eos_client.observe import CommitSkipped, PartitionsAssigned, TransactionCommitted
from tests.kafka.loop_support import COOPERATIVE, PROTOCOLS, Job, await_true

STORM_JOINS = 3
JOINS_MAX = 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_open_work_is_committed_inside_the_revoke_callback_when_a_second_loop_joins(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        job.hasten_rebalances()
        job.load(400)
        seen = []

        def transform(record):
            seen.append(record.offset())
            return [record.value()]

        first = job.start(
            transform,
            kafka=PROTOCOLS[protocol],
            commit_interval_s=60,
        )
        await_true(lambda: len(seen) == 400, "the first loop has processed everything")
        assert job.committed() == 0
        second = job.start(kafka=PROTOCOLS[protocol])
        (commit,) = first.events.wait_for(TransactionCommitted, inside_revoke=True)
        assert commit.records_in == 400
        job.await_committed()
        second.events.wait_for(PartitionsAssigned)
        job.load(40)
        await_true(lambda: second.loop.counters.records_in > 0, "the second loop has its share")
        first.stop()
        job.await_committed()
        second.stop()
        assert len(seen) < 440, "nothing was processed again"
        assert first.loop.counters.aborted == second.loop.counters.aborted == 0
        job.assert_exactly_once()


@pytest.mark.parametrize("policy", ["skip", "hold", "block"])
@pytest.mark.parametrize("protocol", ["kip848", "cooperative"])
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

            await_true(guest_works, "the guest has its share")
            guest.stop()
        job.await_committed()
        steady.stop()
        job.assert_exactly_once()


def test_sends_no_commit_between_a_revocation_and_the_next_generation(kafka_broker):
    with Job(kafka_broker) as job:
        steady = job.start(kafka=COOPERATIVE, commit_interval_s=0.01)
        steady.events.wait_for(PartitionsAssigned)
        for _ in range(JOINS_MAX):
            # The next generation needs the guest, which hears of it by its next heartbeat: mostly a second from now.
            guest = job.start(kafka={**COOPERATIVE, "heartbeat.interval.ms": 1000})

            def guest_works(guest=guest):
                job.load(4)
                return guest.loop.counters.records_in

            await_true(guest_works, "the guest has its share")
            guest.stop()
            if steady.events.of(CommitSkipped):
                break
        skipped = steady.events.of(CommitSkipped)[0]
        assert skipped.generation == skipped.revocation_generation
        job.await_committed()
        steady.stop()
        job.assert_exactly_once()
