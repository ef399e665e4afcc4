"""What may be written: the column contract of Spark's own Kafka sink, nulls, order, and what is refused."""

from __future__ import annotations

import pickle
import zlib

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812

from eos_client import errors
from eos_client.errors import ConfigurationError, FrameSchemaError
from eos_client.integration.spark import EosKafkaSink
from eos_client.integration.spark.content_count import FINGERPRINT
from eos_client.integration.spark.rows import (
    SLOT_FUNCTION_VERSION,
    project_columns,
    repartition_by_slot,
    slot_expression,
    slot_of,
)
from eos_client.integration.spark.settings import SinkSettings
from eos_client.observe import log_event
from tests.spark.local_query import each_once

HEADERS = "array<struct<key:string,value:binary>>"


# -- slots -----------------------------------------------------------------------------------------------------------

KEYS = [None, b"", b"k", b"\x00\xff", "Schlüssel".encode(), b"x" * 300]


def test_the_slot_function_is_the_same_in_spark_and_in_python(spark):
    rows = [(key, value) for key in KEYS for value in (None, b"", b"v1", b"v2")]
    frame = spark.createDataFrame(rows, "key binary, value binary")
    for slots in (1, 3, 8):
        found = frame.selectExpr("key", "value", f"{slot_expression(slots, keyed=True)} as s").collect()
        told = [(row.key and bytes(row.key), row.value and bytes(row.value), row.s) for row in found]
        expected = [slot_of(key, value, slots) for key, value in rows]
        assert [s for _, _, s in told] == expected


def test_the_slot_function_is_frozen():
    assert SLOT_FUNCTION_VERSION == 1
    assert [slot_of(key, b"v", 1000) for key in KEYS] == [
        zlib.crc32(b"v") % 1000,
        0,
        zlib.crc32(b"k") % 1000,
        *(zlib.crc32(key or b"") % 1000 for key in KEYS[3:]),
    ]
    assert slot_of(b"invoice-1", None, 16) == 9
    assert slot_of(None, None, 16) == 0


def test_rows_go_to_the_partition_of_their_slot_whatever_their_order(spark):
    frame = spark.range(200).selectExpr("cast(id % 13 as string) as key", "cast(id as string) as value")
    for partitions in (1, 5):
        rows, _ = project_columns(frame.repartition(partitions), ())
        spread = repartition_by_slot(rows, 4, keyed=True)
        placed = spread.select("key", F.spark_partition_id().alias("at")).distinct().collect()
        assert {(bytes(row.key), row["at"]) for row in placed} == {
            (str(n).encode(), slot_of(str(n).encode(), None, 4)) for n in range(13)
        }


def test_the_fingerprint_tells_a_null_from_its_neighbour(spark):
    rows = [(None, "a"), ("a", None), ("", "a"), ("a", ""), (None, None), ("a", "a")]
    frame = spark.createDataFrame(rows, "key string, value string")
    projected, _ = project_columns(frame, ())
    found = [row[FINGERPRINT] for row in projected.collect()]
    assert len(set(found)) == len(rows)


# -- columns ---------------------------------------------------------------------------------------------------------


def test_strings_and_binaries_keys_nulls_and_tombstones_arrive_as_they_are(local):
    rows = [(b"k", b"v"), (None, b"no key"), (b"tombstone", None), (None, None), (b"", b"")]
    local.direct()(local.frame(rows, "key binary, value binary"), 0)
    assert sorted(((m.key(), m.value()) for m in local.read()), key=repr) == sorted(rows, key=repr)


def test_a_frame_of_values_alone_is_enough(local):
    local.direct(slots=3)(local.frame([(str(n),) for n in range(20)], "value string"), 0)
    assert local.values() == each_once(0, 20)


def test_headers_an_explicit_partition_and_topic_are_honoured(local):
    other = local.new_topic("other")
    rows = [
        ("a", "1", None, 2, [("h", b"x"), ("h", b"y"), ("n", None)]),
        ("b", "2", other, 1, None),
        ("c", "3", None, None, []),
    ]
    frame = local.frame(rows, f"key string, value string, topic string, partition int, headers {HEADERS}")
    local.direct()(frame, 0)
    first, third = sorted(local.read(), key=lambda m: m.key())
    assert (first.partition(), first.headers()) == (2, [("h", b"x"), ("h", b"y"), ("n", None)])
    assert third.headers() is None
    (second,) = local.read(other)
    assert (second.partition(), second.key(), second.value(), second.headers()) == (1, b"b", b"2", None)


def test_a_column_that_the_sink_does_not_know_is_refused_by_name(spark):
    frame = spark.createDataFrame([], "value string, offset bigint, header string, `odd name` int")
    with pytest.raises(FrameSchemaError, match=r"columns 'header', 'odd name'.*drop them"):
        project_columns(frame, ("offset",))


@pytest.fixture
def cases_matter(spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


def test_column_names_are_matched_as_spark_matches_them(local):
    other = local.new_topic("other")
    rows = [("a", "1", other, 1), ("b", "2", other, 2)]
    frame = local.frame(rows, "Key string, VALUE string, Topic string, Partition int")
    local.direct(order_by="value")(frame, 0)
    found = sorted((m.partition(), m.key(), m.value()) for m in local.read(other))
    assert found == [(1, b"a", b"1"), (2, b"b", b"2")]
    assert local.values() == {}


def test_a_name_in_another_case_is_refused_where_cases_matter(spark, cases_matter):
    with pytest.raises(FrameSchemaError, match=r"column 'Key'.*'key' is meant.*spark.sql.caseSensitive"):
        project_columns(spark.createDataFrame([], "Key string, value string"), ())
    with pytest.raises(FrameSchemaError, match="order_by names 'Offset'"):
        project_columns(spark.createDataFrame([], "value string, offset bigint"), ("Offset",))


def test_two_columns_for_one_are_refused(spark, cases_matter):
    frame = spark.createDataFrame([], "key string, KEY string, value string")
    spark.conf.set("spark.sql.caseSensitive", "false")
    with pytest.raises(FrameSchemaError, match=r"columns 'key', 'KEY'.*rename or drop"):
        project_columns(frame, ())


def test_the_rows_of_a_key_keep_the_order_that_was_asked_for(local):
    frame = local.numbers(0, 300).withColumn("at", -F.col("value").cast("int")).repartition(5)
    local.direct(order_by="at")(frame, 0)
    by_key: dict[bytes, list[int]] = {}
    for message in local.read():
        by_key.setdefault(message.key(), []).append(int(message.value()))
    assert len(by_key) == 7
    assert all(values == sorted(values, reverse=True) for values in by_key.values())


def test_a_batch_without_rows_moves_the_ledger_of_every_slot(local):
    sink = local.direct(slots=3)
    sink(local.numbers(0, 0), 0)
    sink(local.numbers(0, 1), 1)
    assert local.ledger(3) == {0: 2, 1: 2, 2: 2}
    assert local.values() == each_once(0, 1)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("key string", "no column 'value'"),
        ("value int", "column 'value' is of type int; it must be binary or string"),
        ("value string, key bigint", "column 'key'"),
        ("value string, topic binary", "column 'topic'"),
        ("value string, partition bigint", "column 'partition' is of type bigint; it must be int"),
        ("value string, headers map<string,binary>", "column 'headers'"),
        ("value string, headers array<struct<key:string,value:string>>", "array<struct<key:string,value:binary>>"),
    ],
)
def test_a_wrong_column_is_named_with_the_types_that_will_do(spark, schema, words):
    with pytest.raises(FrameSchemaError, match=words.replace("(", r"\(")):
        project_columns(spark.createDataFrame([], schema), ())


def test_an_order_by_column_must_be_there(spark):
    with pytest.raises(FrameSchemaError, match="order_by names 'offset'"):
        project_columns(spark.createDataFrame([], "value string"), ("offset",))


@pytest.mark.parametrize("kind", ["map<string,int>", "variant", "array<map<int,int>>", "struct<a:int,b:variant>"])
def test_an_order_by_column_must_be_of_a_type_that_has_an_order(spark, kind):
    with pytest.raises(FrameSchemaError, match="order_by names 'At', which is of type"):
        project_columns(spark.sql(f"select 'v' as value, cast(null as {kind}) as at"), ("At",))


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("'' as topic", "no broker takes the name of its topic; null stands for the sink's topic"),
        ("-1 as partition", "its partition is -1"),
        (
            f"cast(array(named_struct('key', null, 'value', null)) as {HEADERS}) as headers",
            "a header, or its key, is null",
        ),
        (f"cast(array(null) as {HEADERS}) as headers", "a header, or its key, is null"),
    ],
)
def test_what_sparks_own_sink_refuses_of_a_row_is_refused_by_its_name(local, column, problem):
    with pytest.raises(errors.OutputRefusedError, match=f"cannot be written: {problem}"):
        local.direct()(local.frame([("k", "v")]).selectExpr("*", column), 0)
    assert local.values() == {}


def test_a_record_that_cannot_be_written_stops_the_query_at_once(local):
    with pytest.raises(errors.OutputRefusedError, match="MSG_SIZE_TOO_LARGE"):
        local.direct()(local.frame([("k", "x" * 2_000_000)]), 0)
    assert local.values() == {}
    assert local.ledger() == {0: 0, 1: 0} or 1 in local.ledger().values()  # the other slot may have been written


def test_a_missing_topic_is_named_before_the_first_batch(local):
    with pytest.raises(errors.ClusterUnfitError, match=f"output topic 'no-{local.mark}' does not exist"):
        local.direct(topic=f"no-{local.mark}")(local.numbers(0, 5), 0)


# -- the sink as a value ---------------------------------------------------------------------------------------------


def test_the_sink_is_a_plain_value_that_travels():
    sink = EosKafkaSink("localhost:9092", "out", sink_id="s", slots=3, config={"linger.ms": 5}, order_by=["a", "b"])
    for copy in (pickle.loads(pickle.dumps(sink)), pickle.loads(cloudpickle.dumps(sink))):
        assert copy.settings == sink.settings
        assert copy._hook is log_event
    assert sink.settings.order_by == ("a", "b")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sink_id": ""}, "sink_id=''"),
        ({"sink_id": "a b"}, "letters, digits"),
        ({"slots": 0}, "slots=0"),
        ({"slots": True}, "slots=True"),
        ({"slots": 2.0}, "slots=2.0"),
        ({"kept_producers": -1}, "kept_producers=-1 must be a whole number from 0 to 10000"),
        ({"kept_producers": None}, "kept_producers=None"),
        ({"adopt_ledger": True}, "the token that a refusal prints"),
        ({"accept_batch": 7}, "the token that a refusal prints"),
        ({"stable_input": "yes"}, 'must be None or "stage"'),
        ({"ledger_topic": "no/slash"}, "ledger_topic"),
        ({"topic": "t" * 250}, "must be 1 to 249"),
        ({"sink_id": "s" * 201}, "must be 1 to 200"),
        ({"ledger_topic": "out"}, "ledger_topic='out' is the output topic"),
        ({"config": {"session.timeout.ms": 5000}}, "session.timeout.ms=5000 leaves no time for a second heartbeat"),
        ({"config": {"heartbeat.interval.ms": 30_000}}, "heartbeat.interval.ms=30000"),
        ({"config": {"session.timeout.ms": "long"}}, "session.timeout.ms.*'long' is not a number of milliseconds"),
        ({"commit_timeout_s": 0}, "commit_timeout_s=0"),
        ({"config": {"transactional.id": "x"}}, "set by the sink itself"),
        ({"config": {"group.protocol": "consumer"}}, "must be classic"),
        ({"config": {"enable.idempotence": False}}, "breaks exactly-once"),
        ({"config": {"isolation.level": "read_uncommitted"}}, "breaks exactly-once"),
        ({"config": {"error_cb": print}}, "which are not served on executors"),
    ],
)
def test_what_would_break_the_sink_is_refused_when_it_is_made(options, words):
    with pytest.raises(ConfigurationError, match=words):
        EosKafkaSink("localhost:9092", **{"topic": "out", "sink_id": "s", **options})


def test_bootstrap_servers_must_be_given():
    with pytest.raises(ConfigurationError, match="bootstrap_servers is empty"):
        EosKafkaSink("", "out", sink_id="s")


def test_the_settings_say_which_names_the_sink_uses_on_the_cluster():
    settings = SinkSettings("h:1", "out", "s", 2, "s-ledger")
    assert (settings.group_id, settings.transactional_id(1), settings.ledger_topic) == ("s-ledger", "s-1", "s-ledger")


def test_the_sink_needs_a_query_or_a_name_for_one(local):
    with pytest.raises(ConfigurationError, match="outside a streaming query"):
        local.sink()(local.numbers(0, 1), 0)
