"""Whatever does not fit is refused before anything is written, and the error says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest
from pyspark import InheritableThread

from eos_client import errors
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.ledger_topic import LedgerTopic
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.integration.spark import check_spark, driver_run, preflight
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.spark_query import RunningQuery
from eos_client.observe import SparkRunStarted
from tests.spark.local_query import accepting_token, adoption_token, each_once
from tests.spark.rig.settings import NOTICES_OTHER_ROWS


def write_ledger(local, entries):
    """Overwrite ledger offsets, by partition, as a member of the group can."""
    lease = Lease(local.direct().settings)
    lease.acquire()
    lease.commit(entries)
    lease.release()


class Note:
    """What somebody else may have committed."""

    next_batch = 2

    def __init__(self, metadata):
        self._metadata = metadata

    def encode(self):
        return self._metadata


def two_batches(local, **options):
    sink = local.direct(**options)
    sink(local.numbers(0, 20), 0)
    sink(local.numbers(20, 40), 1)
    return sink


def test_a_batch_after_the_first_needs_a_ledger(local):
    with pytest.raises(errors.LedgerMissingError, match="adopt_ledger=") as refused:
        local.direct()(local.numbers(0, 20), 5)
    assert local.values() == {}
    local.restart(adopt_ledger=adoption_token(refused.value))(local.numbers(0, 20), 5)
    assert local.values() == each_once(0, 20)


def test_another_query_may_not_use_the_ledger(local):
    two_batches(local)
    local.close()
    with pytest.raises(errors.LedgerForeignError, match="sink_id of its own"):
        local.direct(query_id="other")(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 40)


@pytest.fixture
def unnoticing(spark):
    """The application's own session, with the defaults of PySpark 4.1."""
    for name in NOTICES_OTHER_ROWS:
        spark.conf.set(name, "false")
    yield spark
    for name in NOTICES_OTHER_ROWS:
        spark.conf.unset(name)


def test_a_session_in_which_spark_does_not_notice_other_rows_is_refused(local, unnoticing):
    with pytest.raises(errors.ConfigurationError, match=f"{'.*'.join(NOTICES_OTHER_ROWS)} to true.*stable_input"):
        local.direct()(local.numbers(0, 20), 0)
    unnoticing.conf.set(NOTICES_OTHER_ROWS[0], "true")
    with pytest.raises(errors.ConfigurationError, match=f"Set {NOTICES_OTHER_ROWS[1]} to true"):
        local.direct()(local.numbers(0, 20), 0)
    unnoticing.conf.set(NOTICES_OTHER_ROWS[1], "true")
    local.direct()(local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 20)


def test_staged_rows_are_the_same_when_they_are_made_again_so_nothing_need_be_noticed(local, unnoticing):
    local.direct(stable_input="stage", stage_dir=str(local.folder))(local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 20)


def refused(local, sink, frame, batch_id):
    with pytest.raises(errors.LedgerForeignError):
        sink(frame, batch_id)


def test_a_query_that_is_refused_leaves_the_driver_at_work_alone(local):
    ours = two_batches(local)
    refused(local, local.direct(query_id="other", slots=5), local.numbers(0, 1), 0)
    ours(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)
    assert [event.run for event in local.events if isinstance(event, SparkRunStarted)] == [1]
    # More partitions would move the lease of the driver at work.
    with ClusterAdmin(local.servers) as admin:
        assert LedgerTopic(admin, f"{local.sink_id}-ledger").capacity() == 2


def test_a_query_that_is_refused_in_another_process_does_not_push_out_the_driver_at_work(local):
    ours = two_batches(local)
    stranger = driver_run.DriverRun(
        local.direct(query_id="other").settings,
        RunningQuery("other", "r"),
        hook=local.events.append,
        on_step=None,
        on_driver_step=None,
    )
    with ClusterAdmin(local.servers) as admin, pytest.raises(errors.LedgerForeignError):
        stranger.prepare(admin, local.numbers(0, 1), 0)
    ours(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


@pytest.mark.soak  # a row of a table of the core
def test_a_token_that_was_left_in_the_code_adopts_nothing_later(local):
    two_batches(local)
    local.close()
    with pytest.raises(errors.LedgerForeignError) as refused:
        local.direct(query_id="other")(local.numbers(0, 20), 0)
    token = adoption_token(refused.value)
    local.restart(query_id="other", adopt_ledger=token)(local.numbers(0, 20), 0)
    with pytest.raises(errors.LedgerForeignError) as refused:
        local.restart()(local.numbers(40, 60), 2)
    local.restart(adopt_ledger=adoption_token(refused.value))(local.numbers(40, 60), 2)
    with pytest.raises(errors.LedgerForeignError, match="another state"):
        local.restart(query_id="other", adopt_ledger=token)(local.numbers(20, 40), 1)


def test_two_sinks_of_one_query_need_two_ids(local):
    other = local.new_topic("other")
    first, second = local.direct(), local.direct(topic=other)
    first(local.numbers(0, 20), 0)
    with pytest.raises(errors.ConfigurationError, match=f"'{local.sink_id}'.*topic='{local.topic}'.*id of its own"):
        second(local.numbers(0, 20), 0)
    first(local.numbers(20, 40), 1)
    assert local.values() == each_once(0, 40)
    assert local.values(other) == {}


def test_a_second_call_for_one_batch_is_refused_whatever_its_rows_are(local):
    sink = two_batches(local)
    for rows in ((20, 40), (40, 60)):
        with pytest.raises(errors.ConfigurationError, match=r"second time for batch 1.*unionByName.*own"):
            sink(local.numbers(*rows), 1)
    sink(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


def test_a_call_that_has_failed_may_be_repeated(local):
    due = [OSError("the marker was not written")]

    def strike(step, batch_id):
        if step == "job_done" and due:
            raise due.pop()

    sink = local.direct(on_driver_step=strike)
    with pytest.raises(OSError, match="the marker"):
        sink(local.numbers(0, 20), 0)
    sink(local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 20)


def half_written_in_one_call(local):
    """A sink whose batch 1 was committed by slot 0 alone, in a call that its application has survived."""

    mended = local.folder / "mended"

    def strike(step, slot, batch_id):
        if (step, slot, batch_id) == ("begun", 1, 1) and not mended.exists():
            raise errors.ConfigurationError("slot 1 stays unwritten")

    sink = local.direct(on_step=strike)
    sink(local.numbers(0, 20), 0)
    with pytest.raises(errors.ConfigurationError):
        sink(local.numbers(20, 40), 1)
    mended.touch()
    assert set(local.ledger().items()) == {(0, 2), (1, 1)}
    return sink


def test_rows_that_are_others_when_a_failed_call_is_repeated_are_refused_before_any_slot_is_written(local):
    sink = half_written_in_one_call(local)
    before = local.values()
    for _ in range(2):
        with pytest.raises(errors.BatchContentError, match="Nothing was written now"):
            sink(local.numbers(21, 41), 1)
        assert local.values() == before
    sink(local.numbers(20, 40), 1)
    sink(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


def test_a_batch_that_was_left_half_written_is_named_when_the_next_one_comes(local):
    sink = half_written_in_one_call(local)
    before = local.values()
    words = r"batch 1 was written only by slots 0.*adopt_ledger="
    with pytest.raises(errors.BatchUnfinishedError, match=words):
        sink(local.numbers(40, 60), 2)
    with pytest.raises(errors.BatchUnfinishedError, match=words):
        local.restart()(local.numbers(40, 60), 2)
    assert local.values() == before
    local.restart()(local.numbers(20, 40), 1)
    local.restart()(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


def test_a_half_written_batch_holds_the_same_rows_with_and_without_a_column_of_nulls(local):
    written_by_half(local, 20, 40)
    local.restart()(
        local.numbers(20, 40).selectExpr("*", "cast(null as int) partition", "cast(null as string) topic"), 1
    )
    assert local.values() == each_once(0, 40)


def test_a_row_that_is_too_large_is_named_with_both_settings(local):
    rows = local.frame([("k", "v" * 1_100_000)])
    words = (
        rf"a row \(topic '{local.topic}', .* cannot be written.*MSG_SIZE_TOO_LARGE"
        r".*\"message.max.bytes\" in config.*max.message"
    )
    with pytest.raises(errors.OutputRefusedError, match=words):
        local.direct()(rows, 0)
    assert local.values() == {}


def test_a_row_for_a_partition_that_does_not_exist_is_refused_at_once_by_its_name(local):
    rows = local.frame([("k", "v", 7)], "key string, value string, partition int")
    # In the call that writes it, where the topic's partitions are known by then, or else in its delivery report.
    place = rf"{local.topic}\[7\]"
    words = rf"row of batch 0.*{place}: _UNKNOWN|a row .*, partition 7, .* cannot be written: .*_UNKNOWN_PARTITION"
    with pytest.raises(errors.OutputRefusedError, match=words):
        local.direct()(rows, 0)
    assert local.values() == {}


@pytest.mark.parametrize("kind", [threading.Thread, InheritableThread])
def test_a_thread_inside_foreach_batch_needs_what_spark_knows_of_the_query(local, kind):
    sink, told = local.sink(), []

    def in_a_thread(frame, batch_id):
        def write():
            try:
                sink(frame, batch_id)
            except errors.ConfigurationError as error:
                told.append(str(error))

        thread = kind(target=write)
        thread.start()
        thread.join()

    assert local.stream(in_a_thread, 1) is None
    if kind is InheritableThread:
        assert (told, local.values()) == ([], each_once(0, 40))
    else:
        assert "in another thread inside foreachBatch" in told[0]
        assert "InheritableThread" in told[0]


def half_written(local):
    """A batch 1 of which slot 0 was committed, and slot 1 was not."""
    ours = two_batches(local)
    reader = local.reader()
    entry = reader.slots([1], 30)[1]
    reader.close()
    local.close()
    write_ledger(local, {2: LedgerEntry(1, entry.identity), 0: LedgerEntry(1, entry.identity)})
    return ours


@pytest.mark.soak  # a row of a table of the core
def test_another_topic_must_wait_until_the_batch_is_whole(local):
    half_written(local)
    other = local.new_topic("other")
    with pytest.raises(errors.TopicChangedError, match=f"start with topic='{local.topic}'"):
        local.direct(topic=other)(local.numbers(20, 40), 1)
    assert local.values(other) == {}


def test_another_topic_takes_over_between_two_batches(local):
    two_batches(local)
    local.close()
    other = local.new_topic("other")
    moved = local.direct(topic=other)
    moved(local.numbers(20, 40), 1)  # which was written before
    moved(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 40)
    assert local.values(other) == each_once(40, 60)


@pytest.mark.soak  # a row of a table of the core
def test_other_rows_are_refused_after_a_change_of_the_topic_too(local):
    two_batches(local)
    local.close()
    with pytest.raises(errors.BatchContentError):
        local.direct(topic=local.new_topic("other"))(local.numbers(21, 41), 1)


def test_an_old_checkpoint_is_noticed(local):
    two_batches(local)
    with pytest.raises(errors.LedgerAheadError, match="newest checkpoint"):
        local.restart()(local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 40)


def test_a_ledger_that_went_back_is_noticed_by_a_starting_query(local):
    two_batches(local)
    entry = LedgerEntry(1, SinkIdentity("q", 2, 1, local.topic))
    write_ledger(local, {1: entry})
    with pytest.raises(errors.LedgerRegressionError, match="reset or lost"):
        local.restart()(local.numbers(20, 40), 1)


def test_another_number_of_slots_must_wait_until_the_batch_is_whole(local):
    two_batches(local)
    reader = local.reader()
    entries = reader.slots(range(2), 30)
    reader.close()
    write_back = LedgerEntry(1, entries[0].identity)
    write_ledger(local, {0: write_back, 1: write_back})
    local.close()
    with pytest.raises(errors.SlotsChangedError, match="start with slots=2"):
        local.direct(slots=3)(local.numbers(20, 40), 1)


def test_other_rows_in_a_batch_that_was_committed_are_refused(local):
    two_batches(local)
    with pytest.raises(errors.BatchContentError, match="not deterministic"):
        local.restart()(local.numbers(21, 41), 1)
    assert local.values() == each_once(0, 40)
    local.restart()(local.numbers(20, 40).repartition(5), 1)
    assert local.values() == each_once(0, 40)


def written_by_half(local, first, last):
    """Batch 1 with the rows ``first`` .. ``last - 1``, of which slot 0 was committed and slot 1 was not."""

    def strike(step, slot, batch_id):
        if (step, slot, batch_id) == ("offsets_sent", 1, 1):
            raise OSError

    sink = local.direct(on_step=strike)
    sink(local.numbers(0, 20), 0)
    with pytest.raises(Exception, match="OSError"):
        sink(local.numbers(first, last), 1)
    local.close()
    assert set(local.ledger().items()) == {(0, 2), (1, 1)}
    return local.values()


def test_other_rows_in_a_half_written_batch_are_refused_before_any_slot_is_written(local):
    before = written_by_half(local, 20, 40)
    for _ in range(2):
        with pytest.raises(errors.BatchContentError, match=r"slot 0 .*Nothing was written now.*accept_batch="):
            local.restart()(local.numbers(21, 41), 1)
        assert local.values() == before
    local.restart()(local.numbers(20, 40), 1)
    assert local.values() == each_once(0, 40)


def test_a_half_written_batch_with_other_rows_can_be_ended_and_the_token_is_of_no_use_later(local):
    before = written_by_half(local, 20, 40)
    with pytest.raises(errors.BatchContentError) as refused:
        local.restart()(local.numbers(120, 140), 1)
    token = accepting_token(refused.value)
    ended = local.restart(accept_batch=token)
    ended(local.numbers(120, 140), 1)
    found = local.values()
    assert found >= before
    assert all(int(value) >= 120 for value in (found - before))
    assert 0 < (found - before).total() < 20
    ended(local.numbers(140, 160), 2)
    local.close()
    with pytest.raises(errors.BatchContentError, match="accept_batch="):
        local.direct(accept_batch=token)(local.numbers(141, 161), 2)


@pytest.mark.soak  # a row of a table of the core
def test_a_whole_batch_with_other_rows_can_be_ended_with_what_it_has(local):
    two_batches(local)
    with pytest.raises(errors.BatchContentError) as refused:
        local.restart()(local.numbers(21, 41), 1)
    token = accepting_token(refused.value)
    local.restart(accept_batch=token)(local.numbers(21, 41), 1)
    assert local.values() == each_once(0, 40)


def test_other_rows_are_refused_after_a_change_of_the_slots_too(local):
    two_batches(local)
    local.close()
    for _ in range(2):
        with pytest.raises(errors.BatchContentError, match="other rows"):
            local.restart(slots=3)(local.numbers(21, 41), 1)
    local.restart(slots=3)(local.numbers(20, 40), 1)
    assert local.values() == each_once(0, 40)


@pytest.mark.soak  # a row of a table of the core
def test_an_empty_run_of_a_batch_that_held_rows_is_refused(local):
    two_batches(local)
    with pytest.raises(errors.BatchContentError, match="0 rows now"):
        local.restart()(local.numbers(20, 20), 1)


def test_a_ledger_whose_offsets_somebody_has_reset_can_be_adopted(local):
    two_batches(local)
    write_ledger(local, {1: Note("")})
    with pytest.raises(errors.LedgerUnreadableError, match=r"somebody has reset.*adopt_ledger=") as refused:
        local.restart()(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 40)
    local.restart(adopt_ledger=adoption_token(refused.value))(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


@pytest.mark.soak  # a row of a table of the core
def test_a_group_that_somebody_else_uses_is_told_from_a_ledger(local):
    two_batches(local)
    write_ledger(local, {1: Note("somebody's note")})
    with pytest.raises(errors.LedgerUnreadableError, match="no entry of a Spark sink"):
        local.restart()(local.numbers(40, 60), 2)


@pytest.mark.parametrize(
    ("granted_ms", "config", "timeout_s"),
    [
        (50_000, {}, 50.0),
        (900_000, {}, 900.0),
        (7_200_000, {}, 900.0),
        (0, {}, 60.0),
        (900_000, {"transaction.timeout.ms": 20_000}, 20.0),
    ],
)
def test_a_slot_gets_as_long_as_the_brokers_allow_unless_it_was_told(granted_ms, config, timeout_s):
    settings = SinkSettings("nowhere:1", "out", "s", 1, "s-ledger", config).within(granted_ms, 0)
    assert settings.transaction_timeout_s == timeout_s


@pytest.mark.parametrize(("id_expiration_ms", "idle_s"), [(604_800_000, 3600.0), (5_000, 2.5), (0, 3600.0)])
def test_a_producer_is_kept_only_for_as_long_as_brokers_surely_remember_its_id(id_expiration_ms, idle_s):
    settings = SinkSettings("nowhere:1", "out", "s", 1, "s-ledger").within(0, id_expiration_ms)
    assert settings.handle_idle_s == idle_s


@pytest.mark.soak  # a row of a table of the core
def test_brokers_that_allow_little_time_are_fit_for_a_sink_that_asks_for_none(local, make_kafka_broker):
    strict = make_kafka_broker(properties={"transaction.max.timeout.ms": "30000"})
    local.servers = strict.bootstrap_servers
    local.new_topic("out")
    local.direct()(local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 20)


def test_a_transaction_timeout_that_the_brokers_do_not_grant_is_named(local):
    with pytest.raises(errors.ClusterUnfitError, match=r"900000 ms \(transaction\.max\.timeout\.ms\)"):
        local.direct(config={"transaction.timeout.ms": 2_000_000})(local.numbers(0, 1), 0)


def test_an_unreachable_cluster_is_told_within_the_limit(local):
    sink = local.direct(servers="127.0.0.1:9", start_timeout_s=2)
    with pytest.raises(errors.ClusterUnavailableError, match=r"127\.0\.0\.1:9"):
        sink(local.numbers(0, 1), 0)


@pytest.mark.parametrize("version", ["3.5.8", "4.0.1", "4.1.0", "4.4.0", "5.0.0.dev1"])
def test_only_the_pyspark_versions_that_have_what_is_needed_are_taken(version):
    with pytest.raises(errors.ConfigurationError, match=f"PySpark {re.escape(version)}"):
        check_spark(version)
    for taken in ("4.1.1", "4.1.1+vendor.9", "4.3.7"):
        check_spark(taken)


def test_an_earlier_pyspark_is_refused_by_name_though_it_lacks_what_the_sink_imports():
    program = """
import pyspark, pyspark.util
pyspark.__version__ = "3.5.3"
del pyspark.util.PythonEvalType
from eos_client.integration.spark import EosKafkaSink
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "ConfigurationError: PySpark 3.5.3 is installed; the sink needs 4.1.1 or later, and below 4.4" in done.stderr


def test_executions_whose_batches_are_not_fixed_beforehand_are_refused():
    with pytest.raises(errors.ConfigurationError, match="asyncProgressTrackingEnabled"):
        preflight.check_query(RunningQuery("q", "r", execution="AsyncProgressTrackingMicroBatchExecution"))
    with pytest.raises(errors.ConfigurationError, match="real-time mode"):
        preflight.check_query(RunningQuery("q", "r", execution="MicroBatchExecution", trigger="RealTimeTrigger"))
    preflight.check_query(RunningQuery("q", "r", execution="MicroBatchExecution", trigger="ProcessingTimeTrigger"))


def test_what_the_executors_lack_is_said(spark, monkeypatch):
    monkeypatch.setattr(preflight, "_NEEDED_BY_EXECUTORS", ("pyarrow", "no_such_package"))
    with pytest.raises(errors.ConfigurationError, match=r"No module named 'no_such_package'\. .*PYSPARK_PYTHON"):
        preflight.check_executors(spark.range(1), 2)


def test_the_executors_here_lack_nothing(spark):
    preflight.check_executors(spark.range(1), 2)
