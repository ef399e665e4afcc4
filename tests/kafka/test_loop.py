"""The loop on a real broker: every input exactly once, whatever the transform makes of it and whenever it commits."""

import time

from eos_client import EosConsumer, ExactlyOnceLoop, OutputRecord
from eos_client.observe import ClientReported, LoopStarted, LoopStopped, TransactionCommitted
from tests.kafka.loop_support import KIP_848, EventLog, Job
from tests.support.waiting import wait_for
from tests.verification.topics import delete_topics

REFRESH_OFTEN = {"topic.metadata.refresh.interval.ms": 300}


def await_report(running, topic):
    """Wait until the loop has told of an error with that topic, or has ended by one."""
    reports = running.events.of
    wait_for(lambda: running.error or any(topic in e.error for e in reports(ClientReported)), f"a report of {topic}")


def test_every_input_becomes_exactly_one_output_through_run_and_stop(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(3000)
        running = job.start()
        job.await_committed()
        running.stop()
        job.assert_exactly_once()
        counters = running.loop.counters
        assert (counters.records_in, counters.records_out, counters.aborted) == (3000, 3000, 0)
        assert running.events.of(LoopStopped)[0].reason == "stop() was called"


def test_goes_on_where_the_loop_before_it_stopped(kafka_broker):
    with Job(kafka_broker) as job:
        for _ in range(2):
            job.load(500)
            running = job.start()
            job.await_committed()
            running.stop()
        job.assert_exactly_once()


def test_commits_when_the_interval_is_over_although_few_records_came(kafka_broker):
    with Job(kafka_broker) as job:
        running = job.start(commit_interval_s=0.3, max_records=1000)
        running.events.wait_for(LoopStarted)
        for _ in range(3):
            job.load(1)
            job.await_committed()
        running.stop()
        assert len(running.events.of(TransactionCommitted, records_in=1)) == 3


def test_commits_at_max_records_long_before_the_interval_is_over(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(1000)
        running = job.start(commit_interval_s=60, max_records=100, batch_size=30)
        job.await_committed()
        running.stop()
        assert [e.records_in for e in running.events.of(TransactionCommitted)] == [100] * 10
        job.assert_exactly_once()


def test_what_is_open_is_committed_when_the_loop_stops(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(200)
        seen = []

        def transform(record):
            seen.append(record)
            return [record.value()]

        running = job.start(transform, commit_interval_s=60)
        running.events.wait_for(LoopStarted)
        wait_for(lambda: len(seen) == 200, "all records are in the open transaction")
        assert job.committed() == 0
        running.stop()
        job.assert_exactly_once()
        assert running.events.of(TransactionCommitted, records_in=200)


def test_writes_an_output_with_all_that_it_says(kafka_broker):
    with Job(kafka_broker) as job:
        other = job.more_topics("other")
        stamp_ms = int(time.time() * 1000) - 3_600_000

        def transform(record):
            yield OutputRecord(
                other,
                value=b"whole",
                key=b"its key",
                headers=[("one", b"1"), ("none", None), ("one", b"again")],
                partition=3,
                timestamp_ms=stamp_ms,
            )
            yield OutputRecord(value="text", key="text key", headers={"map": "text"})
            yield OutputRecord(value=None, key=b"tombstone", partition=2)
            yield b"plain bytes"

        job.load(1)
        running = job.start(transform)
        job.await_committed()
        running.stop()
        (whole,) = job.messages(other)
        assert (whole.value(), whole.key(), whole.partition()) == (b"whole", b"its key", 3)
        assert whole.headers() == [("one", b"1"), ("none", None), ("one", b"again")]
        assert whole.timestamp()[1] == stamp_ms
        by_key = {m.key(): m for m in job.messages()}
        assert by_key[b"text key"].value() == b"text"
        assert by_key[b"text key"].headers() == [("map", b"text")]
        assert (by_key[b"tombstone"].value(), by_key[b"tombstone"].partition()) == (None, 2)
        assert by_key[None].value() == b"plain bytes"
        assert running.loop.counters.records_out == 4


def test_a_transform_that_yields_nothing_still_moves_the_committed_offsets(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(300)
        running = job.start(lambda record: None if int(record.value()) % 2 else [])
        job.await_committed()
        running.stop()
        assert job.written() == 0
        assert running.loop.counters.records_out == 0


def test_reads_several_topics_and_patterns(kafka_broker):
    with Job(kafka_broker) as job:
        other = job.more_topics("second")
        job.load(10)
        running = job.start(topics=[job.source, f"^{other}.*"], kafka=REFRESH_OFTEN)
        job.await_committed()
        job.source, source = other, job.source
        job.load(10)
        job.await_committed(10)
        job.source = source
        running.stop()
        assert job.values() == [b"%d" % n for n in range(20)]


def test_a_pattern_that_matches_nothing_yet_is_reported_and_waited_for(kafka_broker):
    with Job(kafka_broker) as job:
        pattern = f"^later-{job.group}.*"
        running = job.start(topics=[pattern], kafka=REFRESH_OFTEN)
        await_report(running, pattern)
        job.source = job.more_topics("later")
        job.load(10)
        job.await_committed()
        running.stop()
        assert job.values() == [b"%d" % n for n in range(10)]


def assert_named(told, pattern, topic):
    assert f"no topic matches {pattern!r}" in told[0].error
    assert f"{pattern + '.*'!r} would match {topic!r}" in told[0].error


def test_a_pattern_that_brokers_match_as_a_whole_is_reported_with_the_one_that_was_meant(kafka_broker):
    with Job(kafka_broker) as job:
        topic, pattern = job.more_topics("whole"), f"^whole-{job.group[:-2]}"
        running = job.start(topics=[pattern], kafka=KIP_848)
        assert_named(running.events.wait_for(ClientReported), pattern, topic)
        running.stop()


def test_a_pattern_of_a_consumer_without_blocks_is_reported_as_well(kafka_broker):
    with Job(kafka_broker) as job:
        topic, pattern = job.more_topics("whole"), f"^whole-{job.group[:-2]}"
        events = EventLog()
        settings = {"bootstrap.servers": job.bootstrap, "group.id": job.group, **KIP_848}
        with EosConsumer(settings, hook=events) as consumer:
            consumer.subscribe([pattern])
            told = wait_for(lambda: events.of(ClientReported), "the report", lambda: consumer.poll(0.1))
        assert_named(told, pattern, topic)


def test_a_topic_that_a_pattern_matched_may_be_deleted(kafka_broker):
    with Job(kafka_broker) as job:
        deleted, kept = job.more_topics("some-deleted", "some-kept")
        running = job.start(topics=[f"^some-.*-{job.group}$"], kafka=REFRESH_OFTEN)
        job.source = kept
        job.load(10)
        job.await_committed()
        delete_topics(job.bootstrap, [deleted])
        await_report(running, deleted)
        job.load(10)
        job.await_committed()
        running.stop()
        assert job.values() == [b"%d" % n for n in range(20)]


def test_a_slow_transform_commits_on_time_and_puts_the_rest_of_its_batch_back(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(150)

        def slow(record):
            time.sleep(0.04)
            return [record.value()]

        running = job.start(slow, commit_interval_s=0.2)  # all 150 in one transaction would take 6 s
        job.await_committed()
        running.stop()
        job.assert_exactly_once()
        commits = running.events.of(TransactionCommitted)
        assert max(e.records_in for e in commits) < 20
        assert (running.loop.counters.aborted, running.loop.counters.producer_rebuilds) == (0, 0)


def test_a_generated_transactional_id_is_of_this_loop_alone_and_a_pinned_one_is_used_as_given(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4)
        first, second = job.start(), job.start()
        pinned = job.start(transactional_id=f"pinned-{job.group}")
        ids = [each.events.wait_for(LoopStarted)[0].transactional_id for each in (first, second, pinned)]
        assert ids[2] == f"pinned-{job.group}"
        assert len(set(ids)) == 3
        job.await_committed()
        for each in (first, second, pinned):
            each.stop()
        job.assert_exactly_once()


def test_stop_from_another_thread_ends_an_idle_loop_at_once(kafka_broker):
    with Job(kafka_broker) as job:
        running = job.start(commit_interval_s=600)
        running.events.wait_for(LoopStarted)
        running.stop()  # fails when that takes a tenth of the interval


def test_a_loop_that_was_stopped_before_run_returns_from_it(kafka_broker):
    with Job(kafka_broker) as job:
        events = EventLog()
        loop = job.loop(events=events)
        loop.stop("not wanted any more")
        loop.run()
        assert [e.reason for e in events.of(LoopStopped)] == ["not wanted any more"]


def test_a_context_manager_without_run_closes_quietly_even_without_a_broker():
    events = EventLog()
    job = Job.__new__(Job)
    job.bootstrap, job.group = "127.0.0.1:1", "nobody"
    began_at = time.monotonic()
    with ExactlyOnceLoop(job.config(), ["in"], lambda record: None, hook=events):
        pass
    assert time.monotonic() - began_at < 20
    assert [e.reason for e in events.of(LoopStopped)] == ["closed"]


def test_closing_a_loop_twice_does_nothing_more(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(10)
        running = job.start()
        job.await_committed()
        running.stop()
        running.loop.close()
        running.loop.close()
        assert len(running.events.of(LoopStopped)) == 1
        job.assert_exactly_once()
