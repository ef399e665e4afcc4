"""Aggregations behind a window and a watermark: each result arrives once, whatever is stopped or run again.

The source gives ``ROWS`` numbers a batch and moves by ``ADVANCE_S``, so that the results can be worked out here.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from pyspark.sql import functions as F  # noqa: N812

from eos_client.observe import SparkBatchWritten
from tests.spark.local_query import STREAM_LIMIT_S, refusing_slot_1
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

ROWS = 40
KEYS = 7
ADVANCE_S, WINDOW_S, DELAY_S = 2, 4, 2
SPREAD = 3  # one batch's rows are of three successive seconds
BATCHES = 8


def source(local, partitions=2):
    reader = local.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    timed = reader.option("startTimestamp", 0).option("advanceMillisPerBatch", ADVANCE_S * 1000)
    return timed.option("numPartitions", partitions).load()


def stop_inside(local, frame, batch_id, mode):
    """Stop the query while slot 1 has written its rows of a batch and has not committed them."""
    reached = local.folder / "reached"

    def hang(step, slot, batch):
        if (step, slot, batch) == ("flushed", 1, batch_id):
            reached.touch()
            time.sleep(STREAM_LIMIT_S)

    writer = frame.writeStream.outputMode(mode).foreachBatch(local.sink(on_step=hang))
    query = writer.option("checkpointLocation", local.checkpoint).start()
    try:
        wait_for(lambda: reached.exists() or not query.isActive, "rows of slot 1", timeout_s=STREAM_LIMIT_S / 2)
    finally:
        query.stop()
    assert reached.exists()
    assert query.exception() is None
    assert local.ledger()[1] == batch_id


def half_write(local, frame, batch_id, mode="update"):
    """Run the query until slot 0 has committed a batch with rows, and slot 1 has not."""
    error = local.run(local.sink(on_step=refusing_slot_1(batch_id)), frame, batch_id + 1, mode)
    assert "stays unwritten" in str(error)
    assert local.ledger() == {0: batch_id + 1, 1: batch_id}


# -- windows and a watermark -----------------------------------------------------------------------------------------


def windowed(local):
    """Count and sum by window and key, as ``window|key`` and ``window|key|count|sum``."""
    second = F.expr(f"timestamp + make_interval(0, 0, 0, 0, 0, 0, value % {SPREAD})")
    timed = source(local).withColumn("at", second).withWatermark("at", f"{DELAY_S} seconds")
    grouped = timed.groupBy(F.window("at", f"{WINDOW_S} seconds"), F.expr(f"value % {KEYS}").alias("k"))
    found = grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    named = found.withColumn("key", F.concat_ws("|", F.unix_seconds("window.start"), "k"))
    return named.select("key", F.concat_ws("|", "key", "n", "total").alias("value"))


def expected(batches):
    """Return what the first batches say in update mode, in order, by window and key."""
    running: dict[str, tuple[int, int]] = {}
    said: dict[str, list[str]] = {}
    for batch in range(batches):
        touched = set()
        for n in range(batch * ROWS, (batch + 1) * ROWS):
            at = batch * ADVANCE_S + n % SPREAD
            key = f"{at // WINDOW_S * WINDOW_S}|{n % KEYS}"
            count, total = running.get(key, (0, 0))
            running[key] = count + 1, total + n
            touched.add(key)
        for key in touched:
            said.setdefault(key, []).append("|".join(map(str, (key, *running[key]))))
    return said


def closed(key):
    """Whether the last batch's watermark, from the rows of the batches before it, has passed the window's end."""
    watermark = (BATCHES - 2) * ADVANCE_S + SPREAD - 1 - DELAY_S
    return int(key.split("|")[0]) + WINDOW_S <= watermark


def assert_closed_windows_once(local):
    results = [said[-1] for key, said in expected(BATCHES).items() if closed(key)]
    assert local.values() == Counter(results)
    assert len(results) == 3 * KEYS


def assert_updates_once(local, batches=BATCHES):
    said = expected(batches)
    assert local.values() == Counter(line for lines in said.values() for line in lines)
    last = {(message.key() or b"").decode(): (message.value() or b"").decode() for message in local.read()}
    assert last == {key: lines[-1] for key, lines in said.items()}


def stop_repeat_and_half_write(local, mode):
    """Run all batches, of which 3 is run again when it is whole, and 5 when it is written by half."""
    assert local.run(local.sink(), windowed(local), 4, mode) is None
    local.spark_log.forget_commit(3)
    half_write(local, windowed(local), 5, mode)
    assert local.run(local.sink(), windowed(local), BATCHES, mode) is None
    written = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    told = [(e.batch_id, e.slots_written, e.slots_skipped) for e in written]
    assert told == [*((n, 2, 0) for n in range(4)), (3, 0, 2), (4, 2, 0), (5, 1, 1), (6, 2, 0), (7, 2, 0)]
    return {event.batch_id: event.rows for event in written}


def test_each_closed_window_arrives_once_in_append_mode(local):
    rows = stop_repeat_and_half_write(local, "append")
    assert_closed_windows_once(local)
    # Only these batches close a window; the others move the ledger without a row.
    assert {batch: count for batch, count in rows.items() if count} == dict.fromkeys((3, 5, 7), KEYS)


@pytest.mark.soak
def test_each_update_arrives_once_and_the_last_one_is_right_in_update_mode(local):
    stop_repeat_and_half_write(local, "update")
    assert_updates_once(local)


@pytest.mark.soak
def test_closed_windows_arrive_once_though_the_query_is_stopped_inside_a_batch(local):
    stop_inside(local, windowed(local), 3, "append")
    assert local.run(local.sink(), windowed(local), BATCHES, "append") is None
    assert_closed_windows_once(local)


@pytest.mark.soak
def test_updates_arrive_once_though_the_query_is_stopped_inside_a_batch(local):
    stop_inside(local, windowed(local), 3, "update")  # the first whose watermark has closed a window
    assert local.run(local.sink(), windowed(local), 5, "update") is None
    assert_updates_once(local, 5)


# -- sums that depend on the order of what is added ------------------------------------------------------------------

SUMS = {
    "raw": "sum(value * 0.7d)",
    "rounded": "round(sum(value * 0.7d), 6)",
    "decimal": "sum(cast(value * 0.7d as decimal(20, 6)))",
}


def summed(local, kind, partitions):
    """Sum by key; another number of source partitions adds the same doubles in another order."""
    grouped = source(local, partitions).groupBy(F.expr(f"concat('k', value % {KEYS})").alias("key"))
    found = grouped.agg(F.expr(SUMS[kind]).alias("total"), F.count("*").alias("n"))
    return found.select("key", F.concat_ws("|", "key", "n", "total").alias("value"))


def exact(batches):
    """Return what each batch says of each key, as key, count and the sum of the numbers themselves."""
    said = set()
    for last in range(ROWS, (batches + 1) * ROWS, ROWS):
        for key in range(KEYS):
            numbers = range(key, last, KEYS)
            said.add((f"k{key}", len(numbers), sum(numbers)))
    return said


def assert_each_sum_once(local, batches):
    """Each sum is there once, and is right but for what adding doubles in some order loses."""
    found = [line.split("|") for line in local.values().elements()]
    sums = [(key, int(count), float(total) / 0.7) for key, count, total in found]
    assert {(key, count, round(total)) for key, count, total in sums} == exact(batches)
    assert len(found) == len(exact(batches))
    assert all(abs(total - round(total)) < 1e-6 for _, _, total in sums)


def test_a_half_written_batch_of_sums_in_another_order_is_refused_and_ends_with_the_old_order(local):
    half_write(local, summed(local, "raw", 2), 1)
    before = local.values()
    for _ in range(2):
        error = local.run(local.sink(), summed(local, "raw", 1), 3, "update")
        assert "BatchContentError" in str(error)
        assert "slot 0 " in str(error)
        assert local.values() == before
        assert local.ledger() == {0: 2, 1: 1}
    assert local.run(local.sink(), summed(local, "raw", 2), 3, "update") is None
    assert_each_sum_once(local, 3)
    assert before <= local.values()


@pytest.mark.soak
def test_a_whole_batch_of_sums_in_another_order_is_refused_when_it_is_run_again(local):
    assert local.run(local.sink(), summed(local, "raw", 2), 2, "update") is None
    local.spark_log.forget_commit(1)
    assert "BatchContentError" in str(local.run(local.sink(), summed(local, "raw", 1), 3, "update"))
    assert_each_sum_once(local, 2)
    assert local.run(local.sink(), summed(local, "raw", 2), 3, "update") is None
    assert_each_sum_once(local, 3)


@pytest.mark.parametrize("kind", [pytest.param("rounded", marks=pytest.mark.soak), "decimal"])
def test_a_half_written_batch_of_rounded_sums_is_finished_whatever_their_order(local, kind):
    half_write(local, summed(local, kind, 2), 1)
    before = local.values()
    assert local.run(local.sink(), summed(local, kind, 1), 3, "update") is None
    assert_each_sum_once(local, 3)
    assert before <= local.values()
