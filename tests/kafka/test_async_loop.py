"""An async transform on a real broker: two loops of one event loop share the work and, cancelled, leave."""

import asyncio

import pytest

from eos_client import AsyncExactlyOnceLoop
from eos_client.observe import LoopStopped
from tests.kafka.loop_support import EventLog, Job


def test_two_loops_of_one_event_loop_make_one_output_of_each_input_and_leave_when_they_are_cancelled(kafka_broker):
    async def copy_later(record):
        await asyncio.sleep(0)
        return [record.value()]

    async def main(job):
        events = EventLog()
        loops = [
            AsyncExactlyOnceLoop(job.config(), [job.source], copy_later, output_topic=job.sink, hook=events)
            for _ in range(2)
        ]
        running = [asyncio.create_task(loop.run()) for loop in loops]
        await asyncio.to_thread(job.await_committed)
        for each in running:
            each.cancel()
        for each in running:
            with pytest.raises(asyncio.CancelledError):
                await each
        return events

    with Job(kafka_broker) as job:
        job.load(2000)
        events = asyncio.run(main(job))
        job.assert_exactly_once()
        assert [event.reason for event in events.of(LoopStopped)] == ["the task that runs the loop was cancelled"] * 2
