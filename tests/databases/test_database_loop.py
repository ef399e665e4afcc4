"""A DatabaseLoop writes each record's row once, whatever the group, the handler and the caller do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from eos_client import EosConsumer
from eos_client.errors import ConfigurationError, EosError, TransformError
from eos_client.integration.sql.header_texts import decode_headers
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionCommitted
from tests.databases.stage import GROUP, Stage, write_rows
from tests.support.protocols import PROTOCOLS, settings_of


def failing_on(*values, after_writing=True):
    """A handler that raises for these values, once it has written the rows of its batch."""

    def handler(connection, records):
        if after_writing:
            write_rows(connection, records)
        for record in records:
            if record.value().decode() in values:
                raise ValueError(record.value().decode())
        if not after_writing:
            write_rows(connection, records)

    return handler


# -- the group ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_record_becomes_one_row_and_nothing_is_aborted(stage, protocol):
    stage.writes_for(20)
    loop = stage.run(consumer={"auto.offset.reset": "earliest", **settings_of(protocol)})
    stage.assert_exact()
    stage.assert_told_the_truth()
    stage.assert_undisturbed()
    assert loop.counters.records_in == 40
    assert stage.kafkas_offsets() == {("orders", 0): 20, ("orders", 1): 20}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_lose_and_double_nothing(stage, protocol):
    stage.writes_for(30, every_s=0.1)
    for second in (5, 9, 14, 20):
        stage.cluster.after(second, partial(stage.cluster.revoke, ("orders", second % 2)))
        stage.cluster.after(second + 2.2, stage.cluster.give_back)
    stage.run(seconds=60, consumer={"auto.offset.reset": "earliest", **settings_of(protocol)})
    stage.assert_exact()
    stage.assert_told_the_truth()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_evicted_goes_on_at_its_rows(stage, protocol):
    stage.writes_for(30, every_s=0.1)
    stage.cluster.after(6, stage.cluster.lose)
    stage.cluster.after(15, stage.cluster.rebalance)
    stage.run(seconds=60, consumer={"auto.offset.reset": "earliest", **settings_of(protocol)})
    stage.assert_exact()
    stage.assert_told_the_truth()


def test_a_revocation_commits_before_it_returns(stage):
    stage.writes_for(10)
    stage.cluster.after(5, lambda: stage.cluster.revoke(("orders", 1)))
    stage.run(seconds=20, commit_interval_s=60)
    inside = [event for event in stage.of_kind(TransactionCommitted) if event.inside_revoke]
    assert inside
    assert stage.offsets()[0] == 10


# -- where it starts ---------------------------------------------------------------------------------------------------


def test_the_groups_offsets_in_kafka_are_the_first_start_and_not_read_again(stage):
    stage.write(10)
    with EosConsumer(
        {"bootstrap.servers": "simulated", "group.id": GROUP, "auto.offset.reset": "earliest"},
        factory=stage.cluster.consumer,
        clock=stage.cluster.clock,
    ) as before:
        before.subscribe(["orders"])
        for _ in range(4):
            assert before.poll(5) is not None
        before.commit(asynchronous=False)
    stage.run()
    assert [o for p, o, _ in stage.rows() if p == 0] == list(range(4, 10))
    with stage.engine.begin() as connection:
        connection.execute(text("update eos_offsets set next_offset = 7 where partition_id = 0"))
    stage.run()
    assert [o for p, o, _ in stage.rows() if p == 0] == [*range(4, 10), *range(7, 10)]


def test_latest_begins_at_the_end_that_the_first_owner_saw(stage):
    stage.write(5)
    stage.cluster.after(3, lambda: stage.write(2))
    stage.run(consumer={"auto.offset.reset": "latest"}, seconds=10)
    stage.write(3)
    stage.run(consumer={"auto.offset.reset": "latest"}, seconds=10)
    assert [o for _, o, _ in stage.rows()] == [5, 6, 7, 8, 9]


def test_a_row_that_is_missing_begins_anew(stage):
    stage.write(4)
    stage.run()
    with stage.engine.begin() as connection:
        connection.execute(text("delete from eos_offsets"))
    stage.write(3)
    stage.run()
    stage.assert_exact()  # where Kafka's offsets of the group are, which had followed


def test_groups_share_a_table(stage):
    stage.write(4)
    stage.run()
    stage.run(group_id="audit")
    assert stage.offsets() == stage.offsets("audit") == {0: 4}
    assert len(stage.rows()) == 8


def test_until_end_returns_at_the_end_and_with_an_empty_topic(stage):
    assert stage.loop().run(until_end=True)
    stage.write(7)
    assert stage.loop().run(until_end=True)
    stage.assert_exact()


def test_offsets_without_records_are_moved_as_well(stage):
    producer = stage.cluster.producer({"transactional.id": "other"})
    producer.init_transactions(10)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.commit_transaction(10)
    stage.run(lambda connection, records: None)
    assert stage.offsets() == {0: 4}


# -- records that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_writing", [False, True])
def test_stop_ends_the_loop_and_leaves_nothing_of_the_transaction(stage, after_writing):
    stage.write(6)
    with pytest.raises(TransformError) as raised:
        stage.run(failing_on("0:3", after_writing=after_writing))
    assert raised.value.offset == 3
    assert stage.rows() == []


@pytest.mark.parametrize("after_writing", [False, True])
def test_skip_leaves_no_row_of_the_record_and_all_of_the_others(stage, after_writing):
    stage.write(9)
    loop = stage.run(failing_on("0:3", "0:7", after_writing=after_writing), on_error="skip")
    assert [o for _, o, _ in stage.rows()] == [0, 1, 2, 4, 5, 6, 8]
    assert loop.counters.records_failed == len(stage.of_kind(RecordSkipped)) == 2
    assert stage.offsets() == {0: 9}


def test_a_dead_letter_keeps_headers_that_share_a_name(stage):
    given = [("trace", b"1"), ("trace", b"2"), ("raw", b"\xff"), ("none", None)]
    producer = stage.cluster.producer({"bootstrap.servers": "simulated"})
    producer.produce("orders", b"0:0", partition=0, headers=given)
    producer.flush()
    stage.written[0] += 1
    stage.run(failing_on("0:0"), on_error="dead_letter", dead_letter_topic="letters")
    [(text,)] = stage.query("select headers from letters")
    found = decode_headers(text)
    assert found[:4] == given
    assert dict(found)["eos.offset"] == b"0"


def test_headers_of_earlier_dead_letters_can_be_read():
    assert decode_headers('{"eos.topic": "orders", "trace": ""}') == [("eos.topic", b"orders"), ("trace", b"")]


def test_dead_letters_are_rows_of_the_same_transaction(stage):
    stage.write(5)
    stage.run(failing_on("0:2"), on_error="dead_letter", dead_letter_topic="letters")
    assert stage.query("select topic, partition_id, record_offset, record_value from letters") == [
        ("orders", 0, 2, b"0:2")
    ]
    assert [o for _, o, _ in stage.rows()] == [0, 1, 3, 4]
    (told,) = stage.of_kind(RecordDeadLettered)
    assert told.dead_letter_topic == "letters"
    stage.assert_undisturbed()


def test_attempts_leave_nothing_behind(stage):
    stage.write(4)
    calls = []

    def handler(connection, records):
        write_rows(connection, records)
        calls.append(len(records))
        if len(calls) < 4:
            raise ValueError("not yet")

    stage.run(handler, transform_attempts_max=5)
    stage.assert_exact()


def test_a_handler_that_fails_now_and_then_doubles_nothing(stage):
    """Once a batch has failed it is handed over by halves, in the transaction in which it has failed."""
    stage.write(8)
    failures = [True, True]

    def handler(connection, records):
        write_rows(connection, records)
        if failures:
            raise ValueError(failures.pop())

    stage.run(handler)
    stage.assert_exact()


# -- what a handler may and may not do ---------------------------------------------------------------------------------


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"
    seq: Mapped[int] = mapped_column(primary_key=True)
    p: Mapped[int]
    o: Mapped[int]
    v: Mapped[str]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_session_of_the_orm_writes_on_the_connection(stage, on_error):
    def handler(connection, records):
        with Session(connection) as session:
            session.add_all(Row(p=r.partition(), o=r.offset(), v=r.value().decode()) for r in records)
            session.commit()  # of the session alone: the transaction stays open

    stage.writes_for(5)
    stage.run(handler, on_error=on_error)
    stage.assert_exact()
    stage.assert_undisturbed()


def ends_by_commit(connection):
    connection.commit()


def ends_by_rollback(connection):
    connection.rollback()


def ends_by_close(connection):
    connection.close()


def ends_by_its_transaction(connection):
    connection.get_transaction().commit()


def ends_by_sql(connection):
    connection.exec_driver_sql("ROLLBACK")


ENDS = [ends_by_commit, ends_by_rollback, ends_by_close, ends_by_its_transaction, ends_by_sql]


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("ends", ENDS)
def test_a_handler_that_ends_the_transaction_ends_the_loop_and_tears_nothing(stage, ends, on_error, swallows):
    def handler(connection, records):
        write_rows(connection, records)
        try:
            ends(connection)
        except EosError:
            if not swallows:
                raise

    stage.write(5)
    with pytest.raises(EosError) as raised:
        stage.run(handler, on_error=on_error)
    assert "ended inside the handler" in str(raised.value)
    assert "transactional.id" not in str(raised.value)
    assert stage.rows() == []
    assert stage.offsets() == {}


def test_a_commit_by_sql_ends_the_loop_at_once(stage):
    """Nothing can keep that from tearing the rows from their offsets; it happens once, and is named."""

    def handler(connection, records):
        write_rows(connection, records)
        connection.exec_driver_sql("COMMIT")

    stage.write(5)
    with pytest.raises(EosError, match="ended inside the handler"):
        stage.run(handler)
    assert len(stage.rows()) == 5


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_commit_by_sql_before_the_handler_raises_is_no_failure_of_a_record(stage, on_error):
    """It would be told as aborted, and the rows be written once more after each start."""

    def handler(connection, records):
        write_rows(connection, records)
        connection.exec_driver_sql("COMMIT")
        raise ArithmeticError("bad record")

    stage.write(5)
    with pytest.raises(ConfigurationError, match="ended inside the handler"):
        stage.run(handler, on_error=on_error)
    assert len(stage.rows()) == 5


def test_a_record_that_fails_leaves_the_transaction_to_those_after_it(stage):
    def handler(connection, records):
        write_rows(connection, records)
        if any(record.offset() == 2 for record in records):
            raise ArithmeticError("bad record")

    stage.write(5)
    stage.run(handler, on_error="skip")
    assert sorted(row[1] for row in stage.rows()) == [0, 1, 3, 4]


def test_a_connection_that_was_kept_writes_nothing_later(stage):
    kept = []

    def handler(connection, records):
        write_rows(connection, records)
        kept.append(connection)

    stage.writes_for(5)
    stage.run(handler)
    for connection in kept:
        with pytest.raises(Exception, match="closed"):
            connection.execute(text("insert into rows (p, o, v) values (9, 9, '')"))
    stage.assert_exact()


def test_a_savepoint_that_is_left_open_is_committed_with_the_rest(stage):
    def handler(connection, records):
        connection.begin_nested()
        write_rows(connection, records)

    stage.write(3)
    stage.run(handler)
    stage.assert_exact()


async def never_awaited(connection, records):
    write_rows(connection, records)


def never_iterated(connection, records):
    write_rows(connection, records)
    yield


@pytest.mark.parametrize("handler", [never_awaited, never_iterated, "text", lambda records: None])
def test_what_would_not_run_as_a_handler_is_refused(stage, handler):
    with pytest.raises(ConfigurationError, match="handler="):
        stage.loop(handler)


@pytest.mark.parametrize("hidden", [never_awaited, never_iterated])
def test_what_turns_out_not_to_have_run_ends_the_loop(stage, hidden):
    stage.write(3)
    with pytest.raises(ConfigurationError, match="not run to its end"):
        stage.run(lambda connection, records: hidden(connection, records), on_error="skip")  # noqa: PLW0108
    assert stage.offsets() == {}


# -- stopped and closed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hundredths", [*range(0, 120, 20), *(pytest.param(n, marks=pytest.mark.soak) for n in range(10, 120, 20))]
)
def test_wherever_it_is_stopped_the_next_loop_goes_on(tmp_path, hundredths):
    stage = Stage(tmp_path, seed=hundredths)
    stage.writes_for(1.5, every_s=0.01)
    stage.run(seconds=hundredths / 100)
    loop = stage.loop()
    stage.cluster.after(hundredths / 100, loop.close)
    loop.run()
    stage.run(seconds=10)
    stage.assert_exact()


def test_a_handler_that_closes_the_loop_or_raises_out_of_it_loses_nothing(stage):
    class OutsideError(BaseException):
        pass

    def raising(connection, records):
        write_rows(connection, records)
        raise OutsideError

    stage.write(5)
    with pytest.raises(OutsideError):
        stage.run(raising)
    assert stage.rows() == []
    loops: list[Any] = []

    def closing(connection, records):
        write_rows(connection, records)
        loops[0].close()

    loops.append(stage.loop(closing))
    loops[0].run()
    stage.assert_exact()


def test_closed_before_it_has_run(stage):
    loop = stage.loop()
    loop.close()
    with pytest.raises(EosError, match="ended"):
        loop.run()
