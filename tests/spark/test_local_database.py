"""A query into a table of PostgreSQL, on real Spark: each row once, through replays, restarts and changes."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eos_client import errors
from eos_client.integration.spark import EosDatabaseSink
from eos_client.observe import SparkBatchWritten, SparkRunFenced, SparkRunStarted
from tests.spark.local_query import accepting_token, adoption_token, each_once, refusing_slot_1
from tests.spark.table_query import TableQuery


@pytest.fixture
def query(spark, postgres_server, tmp_path):
    made = TableQuery(spark, postgres_server.url, tmp_path)
    yield made
    made.close()


def test_a_stream_writes_each_row_once_and_each_key_in_order(query):
    assert query.stream(query.sink(order_by="value", slots=3), 4, rows=100) is None
    assert query.values() == each_once(0, 400)
    for key in range(7):
        found = query.answer(f"SELECT value FROM {query.table} WHERE key = 'k{key}' ORDER BY seq")
        batches = [[value for (value,) in found if int(value) // 100 == batch] for batch in range(4)]
        assert [value for (value,) in found] == [value for batch in batches for value in sorted(batch)]
    assert query.ledger() == dict.fromkeys(range(3), 4)
    assert [event.rows for event in query.of_kind(SparkBatchWritten)] == [100] * 4
    assert [event.ledger for event in query.of_kind(SparkRunStarted)] == ["initialise"]


def test_the_ledger_has_a_row_for_each_slot_and_not_for_each_batch(query):
    assert query.stream(query.sink(), 3) is None
    assert query.answer(f"SELECT count(*) FROM eos_batches WHERE sink_id = '{query.sink_id}'") == [(3,)]
    progress = query.sinks[0].progress()
    assert progress is not None
    assert (progress.batches, progress.rows, progress.handles_started) == (3, 120, 0)


def append(query):
    """What a foreachBatch function without protection does."""

    def write(frame, _):
        rows = [{"k": row["key"], "v": row["value"]} for row in frame.select("key", "value").collect()]
        with query.engine.begin() as connection:
            connection.execute(sa.text(f"INSERT INTO {query.table} (key, value) VALUES (:k, :v)"), rows)

    return write


def test_a_batch_that_spark_runs_again_is_skipped(query):
    assert query.stream(query.sink(), 2) is None
    query.close()
    query.spark_log.forget_commit(1)
    assert query.stream(query.sink(), 3, change=lambda frame: frame.repartition(5)) is None
    assert query.values() == each_once(0, 120)
    assert [event.slots_skipped for event in query.of_kind(SparkBatchWritten)] == [0, 0, 2, 0]


def test_the_same_replay_doubles_the_rows_of_a_plain_append(query):
    assert query.stream(append(query), 2) is None
    query.spark_log.forget_commit(1)
    assert query.stream(append(query), 3) is None
    assert query.values() == each_once(0, 120) + each_once(40, 80)


def test_a_batch_that_is_half_written_is_finished_by_a_restart_under_another_plan(query):
    assert "slot 1 stays unwritten" in str(query.stream(query.sink(on_step=refusing_slot_1(1)), 3))
    query.close()
    assert sorted(query.ledger().values()) == [1, 2]
    assert query.stream(query.sink(), 3, change=lambda frame: frame.repartition(5)) is None
    assert query.values() == each_once(0, 120)


def test_without_a_key_rows_are_spread_by_their_content(query):
    sink = query.direct(key=None)
    sink(query.frame([("k", str(n)) for n in range(50)]), 0)
    query.restart(key=None)(query.frame([("k", str(n)) for n in reversed(range(50))]).repartition(3), 0)
    assert query.values() == each_once(0, 50)
    (written, skipped) = query.of_kind(SparkBatchWritten)
    assert (written.slots_written, skipped.slots_skipped) == (2, 2)


def test_a_batch_without_rows_moves_the_ledger(query):
    sink = query.direct()
    sink(query.frame([]), 0)
    sink(query.numbers(0, 5).where("false"), 1)
    assert query.ledger() == {0: 2, 1: 2}
    sink(query.numbers(0, 5), 2)
    assert query.values() == each_once(0, 5)


@pytest.mark.soak  # a row of a table of the core
def test_the_number_of_slots_may_change_between_whole_batches(query):
    query.direct(slots=3)(query.numbers(0, 20), 0)
    query.restart(slots=2)(query.numbers(0, 20), 0)
    query.restart(slots=5)(query.numbers(20, 40), 1)
    assert query.values() == each_once(0, 40)
    assert query.ledger() == dict.fromkeys(range(5), 2)


def half_written(query, **options):
    sink = query.direct(on_step=refusing_slot_1(0), **options)
    with pytest.raises(errors.ConfigurationError, match="slot 1 stays unwritten"):
        sink(query.numbers(0, 20), 0)


@pytest.mark.soak  # a row of a table of the core
def test_slots_and_table_of_a_half_written_batch_may_not_change(query):
    half_written(query)
    with pytest.raises(errors.SlotsChangedError, match="start with slots=2 until the batch is whole"):
        query.restart(slots=3)(query.numbers(0, 20), 0)
    with pytest.raises(errors.TableChangedError, match=f"start with table='{query.table}'"):
        query.restart(table=query.new_table("others"))(query.numbers(0, 20), 0)
    query.restart()(query.numbers(0, 20), 0)
    assert query.values() == each_once(0, 20)


@pytest.mark.soak  # a row of a table of the core
def test_the_table_may_change_between_whole_batches(query):
    query.direct()(query.numbers(0, 20), 0)
    others = query.new_table("others")
    query.restart(table=others)(query.numbers(20, 40), 1)
    assert query.values() == each_once(0, 20)
    assert query.values(others) == each_once(20, 40)


def test_other_rows_for_a_written_batch_are_refused_until_they_are_accepted(query):
    half_written(query)
    with pytest.raises(errors.BatchContentError, match="other rows") as raised:
        query.restart()(query.numbers(0, 60), 0)
    before = query.values()
    query.restart(accept_batch=accepting_token(raised.value))(query.numbers(0, 60), 0)
    assert sum(before.values()) < 20
    assert query.values() >= before
    assert max(query.values().values()) == 1
    assert query.ledger() == {0: 1, 1: 1}


@pytest.mark.soak  # a row of a table of the core
def test_another_querys_ledger_is_refused_until_it_is_adopted(query):
    sink = query.direct()
    for batch_id in range(3):
        sink(query.numbers(20 * batch_id, 20 * batch_id + 20), batch_id)
    with pytest.raises(errors.LedgerForeignError, match="sink_id of its own") as raised:
        query.restart(query_id="a new checkpoint")(query.numbers(60, 80), 0)
    assert "topic" not in str(raised.value)
    adopting = query.restart(query_id="a new checkpoint", adopt_ledger=adoption_token(raised.value))
    adopting(query.numbers(60, 80), 0)
    assert query.values() == each_once(0, 80)


@pytest.mark.soak  # a row of a table of the core
def test_batch_ids_that_jump_backward_are_refused(query):
    sink = query.direct()
    for batch_id in range(3):
        sink(query.numbers(20 * batch_id, 20 * batch_id + 20), batch_id)
    with pytest.raises(errors.LedgerAheadError, match="restore the newest checkpoint"):
        query.restart()(query.numbers(0, 20), 0)
    with pytest.raises(errors.LedgerAheadError):
        sink(query.numbers(0, 20), 1)
    assert query.values() == each_once(0, 60)


def test_a_ledger_that_was_lost_is_noticed_beside_the_checkpoint(query):
    assert query.stream(query.sink(), 1) is None
    query.close()
    with query.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM eos_batches WHERE sink_id = :s"), {"s": query.sink_id})
    query.spark_log.forget_commit(0)
    assert "LedgerMissingError" in str(query.stream(query.sink(), 1))
    assert query.values() == each_once(0, 40)


def test_a_restored_backup_of_the_ledger_is_noticed_beside_the_checkpoint(query):
    assert query.stream(query.sink(), 1) is None
    query.close()
    backup = query.answer(f"SELECT slot, next_batch, run FROM eos_batches WHERE sink_id = '{query.sink_id}'")
    assert query.stream(query.sink(), 2) is None
    query.close()
    with query.engine.begin() as connection:
        for slot, next_batch, run in backup:
            connection.execute(
                sa.text("UPDATE eos_batches SET next_batch = :b, run = :r WHERE sink_id = :i AND slot = :s"),
                {"b": next_batch, "r": run, "i": query.sink_id, "s": slot},
            )
    assert "a backup of the database was restored" in str(query.stream(query.sink(), 3))


@pytest.mark.soak  # the stage is the one of test_local_staging.py
def test_frames_that_are_not_deterministic_are_staged(query):
    def drawn(frame):
        return frame.selectExpr("concat('k', cast(rand() * 7 as int)) as key", "value")

    refused = query.sink(on_step=refusing_slot_1(1), stable_input="stage")
    assert "slot 1 stays unwritten" in str(query.stream(refused, 2, change=drawn))
    query.close()
    assert query.stream(query.sink(stable_input="stage"), 2, change=drawn) is None
    assert query.values() == each_once(0, 80)


# -- rows and columns --------------------------------------------------------------------------------------------------

TYPES = (
    "key text, b bytea, n bigint, d double precision, x numeric(20, 5), t timestamptz, u timestamp, day date, "
    "yes boolean"
)
SCHEMA = "key string, b binary, n long, d double, x decimal(20, 5), t timestamp, u timestamp_ntz, day date, yes boolean"
MOMENT = datetime(2026, 3, 29, 0, 30, 0, 123456, tzinfo=timezone.utc)
DAY, FIRST_DAY = datetime(2026, 1, 2), datetime(1, 1, 1)  # noqa: DTZ001  # of a column without a time zone
TEXT = '"a",\t\\N\n'
ROWS = [
    (TEXT, bytes(range(256)), -(2**63), float("inf"), Decimal("1.50000"), MOMENT, DAY, None, True),
    ("", b"", 0, -0.1, Decimal("-99999999.00001"), MOMENT, FIRST_DAY, date(1, 1, 1), False),
    (None, None, None, None, None, None, None, None, None),
]  # fmt: skip


@pytest.mark.parametrize("use_copy", [True, False], ids=["copy", "insert"])
def test_values_arrive_as_they_are_whatever_the_sessions_time_zone(query, spark, use_copy):
    table = query.new_table("types", TYPES)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        query.direct(table=table, use_copy=use_copy)(query.frame(ROWS, SCHEMA), 0)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    found = query.answer(f"SELECT key, b, n, d, x, t, u, day, yes FROM {table}")
    assert Counter(found) == Counter(ROWS)


def test_a_row_that_the_database_refuses_is_named_and_its_slot_stays_unwritten(query):
    table = query.new_table("numbers", "key text, value text CHECK (value <> '13')")
    for use_copy in (True, False):
        with pytest.raises(errors.OutputRefusedError, match=r"batch 0 cannot be written into 'numbers_.*check"):
            query.restart(table=table, use_copy=use_copy)(query.numbers(0, 20), 0)
        assert "13" not in query.values(table)
        assert sorted(query.ledger().values()) == [0, 1]
    query.restart(table=query.table, sink_id=f"{query.sink_id}-2")(query.numbers(0, 20), 0)
    assert query.values() == each_once(0, 20)


def test_columns_that_the_table_does_not_have_are_named(query):
    frame = query.numbers(0, 5)
    wrong = {
        "no columns 'Value'": frame.withColumnRenamed("value", "Value"),
        "key names 'key', which the frame does not have": frame.drop("key"),
        "no columns 'more'": frame.selectExpr("*", "1 as more"),
        "column 'value' is of type array<string>.*to_json": frame.selectExpr("key", "array(value) as value"),
        "columns 'eos_slot' of the frame are ambiguous": frame.selectExpr("*", "1 as eos_slot"),
    }
    for said, given in wrong.items():
        with pytest.raises(errors.FrameSchemaError, match=said):
            query.restart()(given, 0)
    with pytest.raises(errors.FrameSchemaError, match="order_by names 'at'"):
        query.restart(order_by="at")(frame, 0)
    query.restart(order_by="at")(frame.selectExpr("*", "1 as at"), 0)
    assert query.values() == each_once(0, 5)


def test_tables_that_lose_their_rows_are_refused(query):
    with query.engine.begin() as connection:
        connection.execute(sa.text(f"CREATE UNLOGGED TABLE fast_{query.mark} (key text, value text)"))
    with pytest.raises(errors.ClusterUnfitError, match="so a crash empties it"):
        query.direct(table=f"fast_{query.mark}")(query.numbers(0, 5), 0)
    with pytest.raises(errors.ClusterUnfitError, match="gone_"):
        query.restart(table=f"gone_{query.mark}").check()


def test_a_database_that_is_away_is_named(query):
    away = "postgresql+psycopg://nobody@127.0.0.1:1/nowhere"
    with pytest.raises(errors.ClusterUnavailableError, match="did not answer"):
        query.direct(url=away, timeout_s=0.5).check()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": 0}, "slots=0"),
        ({"sink_id": "a b"}, "sink_id='a b'"),
        ({"stable_input": "often"}, "stable_input"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"ledger_table": "rows"}, "name another one"),
        ({"table": ""}, "table=''"),
        ({"database": sa.create_engine("sqlite:///x.db")}, "an Engine cannot go to executors"),
        ({"database": 5}, "database=5"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options, said):
    given = {"database": "sqlite:///x.db", "table": "rows", "sink_id": "s", **options}
    with pytest.raises(errors.ConfigurationError, match=said):
        EosDatabaseSink(given.pop("database"), given.pop("table"), **given)


def test_the_settings_show_no_password():
    sink = EosDatabaseSink("postgresql+psycopg://u:hush@h/d", "rows", sink_id="s")
    assert "hush" not in repr(sink.settings)
    assert (
        EosDatabaseSink(sa.make_url("postgresql+psycopg://u:hush@h/d"), "rows", sink_id="s").settings == sink.settings
    )


def test_an_engine_may_come_from_a_function(query):
    url = query.url

    def make():
        return sa.create_engine(url, pool_size=1)

    query.direct(url=make)(query.numbers(0, 20), 0)
    assert query.values() == each_once(0, 20)


def test_a_second_call_or_a_second_sink_for_one_batch_is_refused(query):
    sink = query.direct()
    sink(query.numbers(0, 20), 0)
    with pytest.raises(errors.ConfigurationError, match="a second time for batch 0"):
        sink(query.numbers(20, 40), 0)
    with pytest.raises(errors.ConfigurationError, match="in use by another sink of this query"):
        query.direct(table=query.new_table("others"))(query.numbers(0, 20), 0)
    assert query.values() == each_once(0, 20)


def test_a_sink_that_failed_looks_at_the_ledger_before_its_next_batch(query):
    sink = query.direct(on_step=refusing_slot_1(0))
    with pytest.raises(errors.ConfigurationError):
        sink(query.numbers(0, 20), 0)
    with pytest.raises(errors.BatchUnfinishedError, match="are not in the table"):
        sink(query.numbers(20, 40), 1)
    assert not query.of_kind(SparkRunFenced)


# -- other databases ---------------------------------------------------------------------------------------------------


@pytest.mark.soak  # without Spark: test_database_task.py
@pytest.mark.parametrize("name", ["mysql", "sqlite"])
def test_other_databases_get_each_row_once(spark, tmp_path, name, request):
    url = request.getfixturevalue("mysql_server").url if name == "mysql" else f"sqlite:///{tmp_path}/rows.db"
    query = TableQuery(spark, url, tmp_path)
    assert "slot 1 stays unwritten" in str(query.stream(query.sink(on_step=refusing_slot_1(1)), 3))
    query.close()
    assert query.stream(query.sink(), 3, change=lambda frame: frame.repartition(5)) is None
    assert query.values() == each_once(0, 120)
    query.close()


def test_a_storage_engine_without_transactions_is_refused(spark, tmp_path, mysql_server):
    query = TableQuery(spark, mysql_server.url, tmp_path)
    with query.engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE old_{query.mark} (value text) ENGINE = MyISAM"))
    with pytest.raises(errors.ClusterUnfitError, match="storage engine MyISAM, which has no transactions"):
        query.direct(table=f"old_{query.mark}").check()
