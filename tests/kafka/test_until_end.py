"""A batch job that reads its input to the end, on a real broker."""

from __future__ import annotations

import asyncio
import time
from threading import Thread
from typing import Any

from eos_client import AsyncExactlyOnceLoop, ExactlyOnceLoop
from eos_client.loop.until_end import READ_TO_THE_END
from eos_client.observe import LoopStopped
from tests.kafka.loop_support import COOPERATIVE, ONE_PROTOCOL, EventLog, Job
from tests.kafka.test_passed_offsets import Upstream
from tests.support.waiting import wait_for


def read_to_the_end(loop: ExactlyOnceLoop) -> bool:
    with loop:
        return loop.run(until_end=True)


@ONE_PROTOCOL
def test_it_reads_what_is_there_and_stops_and_the_next_run_reads_the_rest(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        assert read_to_the_end(job.loop(kafka=protocol)), "an empty topic"
        job.load(2000)
        assert read_to_the_end(job.loop(kafka=protocol))
        job.assert_exactly_once()
        job.load(3)
        loop = job.loop(kafka=protocol)
        assert read_to_the_end(loop)
        assert loop.counters.records_in == 3
        job.assert_exactly_once()


@ONE_PROTOCOL
def test_it_stops_behind_markers_and_before_an_open_transaction(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        upstream = Upstream(job)
        upstream.commit(20)
        upstream.abort(8)
        values = upstream.begin(4)
        assert read_to_the_end(job.loop(kafka=protocol))
        assert job.committed() == 20 + 4 + 8 + 4, "records and markers, of each partition"
        assert job.values() == upstream.committed
        upstream.commit_begun(values)
        assert read_to_the_end(job.loop(kafka=protocol))
        assert job.values() == upstream.committed


@ONE_PROTOCOL
def test_workers_share_the_input_and_each_stops(kafka_broker, protocol):
    def slowly(record: Any) -> list[bytes]:
        time.sleep(0.005)
        return [record.value()]

    with Job(kafka_broker) as job:
        job.hasten_rebalances()
        job.load(2000)
        results: list[bool] = []
        loops = [job.loop(slowly, kafka=protocol) for _ in range(2)]
        threads = [Thread(target=lambda loop=loop: results.append(read_to_the_end(loop))) for loop in loops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True, True]
        job.assert_exactly_once()


def test_one_success_is_that_of_the_job_where_a_worker_is_killed(kafka_broker):
    kafka = COOPERATIVE | {"session.timeout.ms": 6000}
    with Job(kafka_broker) as job:
        job.load(400)
        killed = job.start_process("slow", kafka=kafka, max_records=10)
        wait_for(lambda: job.committed() > 0, "the other worker has committed")
        killed.close()
        assert read_to_the_end(job.loop(kafka=kafka))
        job.assert_exactly_once()


def test_an_async_loop_too(kafka_broker):
    async def copy(record: Any) -> list[bytes]:
        return [record.value()]

    with Job(kafka_broker) as job:
        job.load(100)
        events = EventLog()
        loop = AsyncExactlyOnceLoop(job.config(), [job.source], copy, output_topic=job.sink, hook=events)
        assert asyncio.run(loop.run(until_end=True))
        job.assert_exactly_once()
        assert [event.reason for event in events.of(LoopStopped)] == [READ_TO_THE_END]
