"""What a relay promises, one story each: numbers, take-over, deletes, restarts, failures of the database, refusals."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import MetaData, delete, event, select, text, update

from eos_client import EosConfig, OutputRecord
from eos_client.confluent.outbox.bucket_flows import BucketFlows
from eos_client.core.model import InputPartition
from eos_client.core.outbox_numbers import bucket_of
from eos_client.errors import ClusterUnfitError, ConfigurationError, TransformError
from eos_client.integration.sql import OutboxRelay, create_outbox, outbox_table, write_outbox
from eos_client.integration.sql.outbox_rows import SqlOutboxStore
from eos_client.observe import ClientReported
from eos_client.ports import Header
from tests.databases.outbox_stage import (
    GROUP,
    OUT,
    BreakableStore,
    OutboxStage,
    Relay,
    Written,
    breakable_stores,
    violations,
)
from tests.support.protocols import NAMES


@pytest.fixture
def stage(tmp_path: Path) -> OutboxStage:
    return OutboxStage(tmp_path)


def store_of(stage: OutboxStage, buckets: int = 4, *, group: str = GROUP, keep: bool = False) -> SqlOutboxStore:
    store = SqlOutboxStore(stage.engine, stage.table, group, buckets, keep=keep)
    store.prepare()
    return store


def turns(stage: OutboxStage, count: int = 40) -> None:
    for _ in range(count):
        for relay in list(stage.relays):
            stage.turn(relay)


def work(relay: Relay) -> None:
    for _ in range(40):
        relay.turn()


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_a_transaction_that_commits_late_loses_nothing_and_delays_nothing(stage: OutboxStage):
    stage.application.begin_late(b"ann", b"bob")
    stage.application.write(b"ann", b"bob", b"cyd")
    stage.start()
    turns(stage)
    assert len(stage.published()) == 3, "an open transaction delays nobody"
    stage.application.commit_late()
    turns(stage)
    assert len(stage.published()) == 5
    stage.finish()
    assert stage.violations() == []


def test_a_reader_that_remembers_the_last_id_loses_the_late_rows(stage: OutboxStage):
    """The control of the test above: this is what the numbers are for."""
    published: list[tuple[bytes, bytes]] = []
    last_id = 0
    for act in (lambda: None, stage.application.commit_late):
        if not published:
            stage.application.begin_late(b"ann")
            stage.application.write(b"ann", b"bob")
        act()
        with stage.engine.connect() as connection:
            columns = stage.table.c
            for row in connection.execute(select(stage.table).where(columns.id > last_id).order_by(columns.id)):
                published.append((row.record_key, row.record_value))
                last_id = row.id
    assert violations(stage.application.written, published) == ["b'row-1' is lost"]


def test_numbers_of_a_bucket_are_consecutive_and_follow_the_ids_of_one_pass(stage: OutboxStage):
    store = store_of(stage)
    stage.application.begin_late(b"ann")
    stage.application.write(b"ann", b"bob", b"ann")
    assert store.number() == 3
    stage.application.commit_late()
    stage.application.write(b"ann")
    assert store.number() == 2
    assert store.number() == 0
    ann = bucket_of(b"ann", 0, 4)
    rows = [row for row in store.read({ann: (0, 99)}) if row.key == b"ann"]
    assert [row.row_id for row in rows] == [2, 4, 1, 5]
    assert [row.seq for row in store.read({ann: (0, 99)})] == list(range(store.states([ann])[ann].next_seq))


def test_rows_without_a_key_are_spread(stage: OutboxStage):
    store = store_of(stage)
    with stage.engine.begin() as connection:
        write_outbox(connection, stage.table, [OutputRecord(value=b"v") for _ in range(8)])
    store.number()
    assert [state.next_seq for state in store.states(range(4)).values()] == [2, 2, 2, 2]


def test_rows_that_are_read_while_they_are_numbered_are_those_of_the_table(stage: OutboxStage):
    store = store_of(stage)
    with stage.engine.begin() as connection:
        records = [OutputRecord("t", key=b"ann", value=b"v", headers=[("a", b"1")]), OutputRecord(value=None)]
        write_outbox(connection, stage.table, records)
    rows = store.number_and_read()
    assert sorted(rows) == sorted(store.read(dict.fromkeys(range(4), (0, 9))))
    assert len(rows) == 2
    assert store.number_and_read() == []


def test_fewer_rows_are_read_at_once_where_they_are_large(stage: OutboxStage):
    store = store_of(stage)
    with stage.engine.begin() as connection:
        write_outbox(connection, stage.table, [OutputRecord(value=b"v" * 160_000) for _ in range(1200)])
    assert [len(store.number_and_read()) for _ in range(4)] == [1000, 100, 100, 0]


def test_rows_behind_those_that_another_relay_has_numbered_wait_for_them(stage: OutboxStage):
    """Else the other relay's rows, which are read later, would be overtaken."""
    partition = InputPartition("ledger", bucket_of(b"ann", 0, 4))
    first, second = store_of(stage), store_of(stage)
    flows = BucketFlows(first)
    flows.add({partition: 0})
    flows.look_up_starts(lambda _: {})
    assert not flows.read()
    stage.application.write(b"ann")
    second.number()
    stage.application.write(b"ann")
    flows.add_numbered(first.number_and_read())
    assert flows.take(9) == []
    assert flows.read()
    assert [message.value() for message in flows.take(9)] == [b"row-1", b"row-2"]


# -- exactly once ------------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("request_name", ["EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "Produce"])
@pytest.mark.parametrize("fault", ["lose_reply", "lose_request", "delay"])
def test_a_lost_or_late_request_doubles_nothing(tmp_path: Path, protocol: str, request_name: str, fault: str):
    stage = OutboxStage(tmp_path, protocol=NAMES[protocol])
    stage.application.write(*[b"ann", b"bob"] * 5)
    getattr(stage.cluster, fault)(*((request_name, 20.0) if fault == "delay" else (request_name,)))
    stage.start()
    turns(stage, 20)
    stage.application.write(b"ann")
    turns(stage, 10)
    stage.finish()
    assert stage.violations() == []
    assert stage.left() == 0


def test_a_relay_that_is_killed_between_any_two_turns_is_taken_over(tmp_path: Path):
    for seed in range(12):
        stage = OutboxStage(tmp_path, seed)
        stage.application.write(*[b"ann", b"bob", b"cyd"] * 8)
        first = stage.start()
        for _ in range(seed):
            stage.turn(first)
        stage.kill(first)
        stage.start()
        turns(stage, 10)
        stage.finish()
        assert stage.violations() == []
        assert stage.left() == 0


@pytest.mark.parametrize("protocol", NAMES)
def test_two_relays_share_the_buckets_and_take_over_from_each_other(tmp_path: Path, protocol: str):
    stage = OutboxStage(tmp_path, protocol=NAMES[protocol])
    random = Random(5)
    stage.start()
    for number in range(30):
        stage.application.write(*random.choices([b"ann", b"bob", b"cyd", b"dan"], k=5))
        turns(stage, 3)
        if number == 8:
            stage.start()
        if number == 16:
            stage.cluster.rebalance()
        if number == 22:
            stage.close(stage.relays[0])
    turns(stage, 30)
    assert len({event.generation.member_id for event in stage.events if hasattr(event, "generation")}) >= 2
    stage.finish()
    assert stage.violations() == []
    assert stage.left() == 0


def test_a_zombie_that_wakes_publishes_nothing_more(stage: OutboxStage):
    stage.application.write(*[b"ann"] * 5)
    zombie = stage.start()
    for _ in range(3):
        stage.turn(zombie)
    stage.relays.remove(zombie)
    stage.cluster.advance(120)
    stage.application.write(*[b"ann"] * 5)
    stage.start()
    turns(stage, 30)
    for _ in range(20):
        zombie.turn()
    stage.finish()
    assert stage.violations() == []


@pytest.mark.parametrize(
    ("order", "verdict"), [("publish, then mark", "is there 2 times"), ("mark, then publish", "is lost")]
)
def test_a_naive_relay_is_found_out(stage: OutboxStage, order: str, verdict: str):
    """The control of the oracle: a relay without positions that is killed once between its two steps."""
    stage.application.write(*[b"ann", b"bob"] * 10)
    rows, published, marked, is_killed = stage.application.written, [], 0, False
    while marked < len(rows):
        batch = rows[marked : marked + 5]
        for step in order.split(", then "):
            if step == "mark":
                marked += len(batch)
            else:
                published += [(row.key, row.value) for row in batch]
            if not is_killed:
                is_killed = True
                break
    assert any(verdict in violation for violation in violations(rows, published))


def test_the_oracle_sees_an_order_that_is_wrong():
    rows = [Written(1, b"ann", b"row-1", 1), Written(2, b"ann", b"row-2", 2), Written(3, b"bob", b"row-3", 2)]
    assert violations(rows, [(b"ann", b"row-2"), (b"bob", b"row-3"), (b"ann", b"row-1")]) == [
        "b'row-2' overtook b'row-1'"
    ]
    assert violations(rows, [(b"bob", b"row-3"), (b"ann", b"row-1"), (b"ann", b"row-2")]) == []


# -- published rows ----------------------------------------------------------------------------------------------------


def test_rows_are_deleted_behind_the_commit_and_never_before(stage: OutboxStage):
    stage.application.write(*[b"ann"] * 20)
    relay = stage.start()
    for _ in range(60):
        stage.turn(relay)
        stage.cluster.advance(0.2)
        gone = len(stage.application.written) - stage.left()
        assert gone <= sum(stage.cluster.committed(GROUP).values())
    assert stage.left() == 0


def test_deletes_that_lag_are_made_up_by_the_next_relay(stage: OutboxStage):
    with breakable_stores():
        stage.application.write(*[b"ann", b"bob"] * 10)
        BreakableStore.faults += [("clear", "request")] * 1000
        stage.start()
        turns(stage, 40)
        assert stage.left() == 20
        assert len(stage.published()) == 20
        stage.finish()
        assert stage.violations() == []
        assert stage.left() == 0


def test_kept_rows_stay_and_are_not_published_again(tmp_path: Path):
    stage = OutboxStage(tmp_path, keep=True)
    stage.application.write(*[b"ann", b"bob"] * 10)
    stage.finish()
    stage.finish()
    assert stage.violations() == []
    assert stage.left() == 20
    states = store_of(stage, keep=True).states(range(4)).values()
    assert [state.published for state in states] == [state.next_seq for state in states]


def test_rows_that_somebody_has_deleted_are_passed(stage: OutboxStage):
    store = store_of(stage)
    stage.application.write(*[b"ann"] * 6)
    store.number()
    with stage.engine.begin() as connection:
        connection.execute(delete(stage.table).where(stage.table.c.id.in_([1, 2, 4])))
    stage.finish()
    assert [record.value for record in stage.published()] == [b"row-3", b"row-5", b"row-6"]
    stage.application.write(b"ann")
    with stage.engine.begin() as connection:
        store.number()
        connection.execute(delete(stage.table).where(stage.table.c.id == 7))
    stage.finish()
    assert sum(stage.cluster.committed(GROUP).values()) == 7, "a number without a row is passed, and committed"


# -- the database fails ------------------------------------------------------------------------------------------------


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("request_name", ["states", "number", "read", "clear"])
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_connection_that_is_lost_loses_and_doubles_nothing(tmp_path: Path, request_name: str, lost: str):
    with breakable_stores():
        stage = OutboxStage(tmp_path)
        stage.start()
        for _ in range(10):
            stage.application.write(b"ann", b"bob")
            BreakableStore.faults.append((request_name, lost))
            turns(stage, 8)
            stage.cluster.advance(1)
        stage.finish()
    assert stage.violations() == []
    assert stage.left() == 0


def test_a_database_that_does_not_answer_is_reported_and_makes_the_relay_unready(stage: OutboxStage):
    with breakable_stores():
        relay = stage.start()
        turns(stage, 5)
        assert relay.outbox_relay.health().ready
        BreakableStore.faults += [("states", "request")] * 2000
        turns(stage, 40)
        health = relay.outbox_relay.health()
        assert health.live
        assert not health.ready
        assert "The outbox cannot be read" in health.reasons[-1]
        reports = [event for event in stage.events if isinstance(event, ClientReported)]
        assert "the outbox cannot be read" in reports[-1].error
        assert len(reports) == 1
        BreakableStore.faults.clear()
        stage.application.write(b"ann")
        turns(stage, 20)
        assert relay.outbox_relay.health().ready
        assert len(stage.published()) == 1


def test_a_database_that_was_set_back_stops_the_relay(stage: OutboxStage):
    stage.application.write(*[b"ann"] * 5)
    relay = stage.start()
    turns(stage)
    with stage.engine.begin() as connection:
        connection.execute(text("UPDATE outbox_buckets SET next_seq = 2, published = 0 WHERE next_seq > 0"))
    stage.application.write(b"ann")
    with pytest.raises(ClusterUnfitError, match="set back to an earlier state"):
        work(relay)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_another_number_of_buckets_is_refused_while_rows_are_unpublished(stage: OutboxStage):
    store_of(stage)
    stage.application.write(b"ann")
    store_of(stage).number()
    stage.cluster.brokers.create_topic("other-outbox", 8)
    with pytest.raises(ClusterUnfitError, match=r"has 4 buckets, and rows in 1 of them are not published yet"):
        stage.start(buckets=8, ledger_topic="other-outbox").outbox_relay.run(until_end=True)
    stage.finish()
    store_of(stage, 8)
    store_of(stage, 4)


def test_rows_are_published_in_order_after_the_number_of_buckets_was_changed(tmp_path: Path):
    stage = OutboxStage(tmp_path, buckets=8)
    for buckets in (4, 8, 3, 8):
        stage.application.write(*[b"ann", b"bob", b"cyd", b"dan", b"eve"] * 4)
        stage.finish(buckets=buckets)
        assert stage.violations() == []
        assert stage.left() == 0


def test_a_relay_with_the_old_number_of_buckets_ends(stage: OutboxStage):
    relay = stage.start()
    turns(stage, 5)
    store_of(stage, 2)
    stage.application.write(b"ann")
    with pytest.raises(ClusterUnfitError, match="has 2 buckets by now"):
        work(relay)


def test_another_group_is_refused(stage: OutboxStage):
    store_of(stage)
    with pytest.raises(Exception, match="is relayed by the group 'shop-relay'"):
        store_of(stage, group="other")


def test_a_group_without_its_offsets_is_refused(tmp_path: Path):
    stage = OutboxStage(tmp_path)
    stage.application.write(*[b"ann"] * 5)
    stage.finish()
    later = OutboxStage(tmp_path / "..", 99)
    later.engine, later.table = stage.engine, stage.table  # the same database, and a cluster that knows no group
    with pytest.raises(ClusterUnfitError, match="the group has no committed offset, and the rows below 5"):
        later.start().outbox_relay.run(until_end=True)


def test_a_missing_outbox_is_named(stage: OutboxStage):
    stage.table = outbox_table("outbux", MetaData())
    with pytest.raises(ClusterUnfitError, match="has no table 'outbux'"):
        stage.start().outbox_relay.run()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"buckets": 0}, "buckets=0"),
        ({"poll_interval_s": 0}, "poll_interval_s=0"),
        ({"engine": SimpleNamespace()}, "SQLAlchemy Engine"),
    ],
)
def test_a_wrong_option_is_named(stage: OutboxStage, change: dict[str, Any], words: str):
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id=GROUP)
    given: dict[str, Any] = {
        "engine": stage.engine,
        "table": "outbox",
        "config": config,
        "clients": stage.cluster,
        **change,
    }
    with pytest.raises(ConfigurationError, match=words):
        OutboxRelay(**given)


# -- rows ------------------------------------------------------------------------------------------------------------


def test_a_row_becomes_the_record_that_was_written(stage: OutboxStage):
    stage.cluster.create_topic("other")
    with stage.engine.begin() as connection:
        headers: list[Header] = [("text", "ü"), ("bytes", b"\xff\x00"), ("none", None), ("text", b"twice")]
        write_outbox(connection, stage.table, [OutputRecord("other", key="k", value=bytearray(b"v"), headers=headers)])
        write_outbox(connection, stage.table, [OutputRecord(value=None, key=b"gone")])
        write_outbox(connection, stage.table, [])
    stage.finish()
    (record,) = stage.cluster.read("other")
    assert (record.key, record.value) == (b"k", b"v")
    assert list(record.headers) == [("text", "ü".encode()), ("bytes", b"\xff\x00"), ("none", None), ("text", b"twice")]
    (record,) = stage.cluster.read(OUT)
    assert (record.key, record.value, record.headers) == (b"gone", None, ())


def test_objects_and_places_are_refused_by_write_outbox(stage: OutboxStage):
    with stage.engine.begin() as connection:
        with pytest.raises(TypeError, match="serialise it"):
            write_outbox(connection, stage.table, [OutputRecord(value={"a": 1})])
        with pytest.raises(ConfigurationError, match="neither the partition nor the timestamp"):
            write_outbox(connection, stage.table, [OutputRecord(value=b"v", partition=1)])


@pytest.mark.parametrize("headers", ["no json", "[1]", '[["a", 1]]', '{"a": {"base64": "?"}}', "7"])
def test_a_poison_row_becomes_a_dead_letter(stage: OutboxStage, headers: str):
    stage.application.write(b"ann", b"ann", b"ann")
    with stage.engine.begin() as connection:
        connection.execute(update(stage.table).where(stage.table.c.id == 2).values(headers=headers))
    stage.cluster.create_topic("letters")
    config = EosConfig(
        {"bootstrap.servers": "simulated"}, group_id=GROUP, on_error="dead_letter", dead_letter_topic="letters"
    )
    relay = OutboxRelay(stage.engine, "outbox", config, buckets=4, default_topic=OUT, clients=stage.cluster)
    relay.run(until_end=True)
    assert [record.value for record in stage.published()] == [b"row-1", b"row-3"]
    (letter,) = stage.cluster.read("letters")
    assert letter.value == b"row-2"
    assert dict(letter.headers)["eos.outbox.id"] == b"2"
    assert stage.left() == 0


def test_a_row_without_a_topic_stops_a_relay_without_a_default(stage: OutboxStage):
    stage.application.write(b"ann")
    with pytest.raises(TransformError, match="row 1 of the outbox names no topic"):
        stage.start(default_topic=None).outbox_relay.run(until_end=True)
    assert stage.left() == 1


def test_the_outbox_of_a_schema_has_its_buckets_there(stage: OutboxStage, tmp_path: Path):
    @event.listens_for(stage.engine, "connect")
    def _attach(connection, _record):
        connection.execute(f"ATTACH DATABASE '{tmp_path / 'shop.db'}' AS shop")

    stage.engine.dispose()
    stage.table = outbox_table("outbox", MetaData(schema="shop"))
    create_outbox(stage.engine, stage.table)
    with stage.engine.begin() as connection:
        write_outbox(connection, stage.table, [OutputRecord(value=b"v", key=b"k")])
    stage.table = "shop.outbox"
    stage.finish()
    assert [record.value for record in stage.published()] == [b"v"]
    with stage.engine.connect() as connection:
        assert connection.execute(text("SELECT sum(published) FROM shop.outbox_buckets")).scalar_one() == 1
