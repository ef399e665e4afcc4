"""What cannot keep rows and positions together is refused, and named, before the first record."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool, StaticPool

from eos_client import EosConfig
from eos_client.errors import ClusterUnfitError, ConfigurationError
from eos_client.integration.sql import DatabaseConsumer, OutboxRelay
from eos_client.integration.sql.database_errors import commit_was_refused, is_conflict, is_databases_fault, is_lost
from eos_client.integration.sql.sql_store import SqlPositionStore
from eos_client.integration.sql.table_checks import check_engine
from tests.databases.breaking_connections import error


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true", "sqlite:///file:x?mode=memory&uri=true"],
)
def test_a_database_in_memory(stage, url):
    with pytest.raises(ConfigurationError, match="in memory"):
        stage.loop(engine=create_engine(url))


@pytest.mark.parametrize("engine", ["sqlite:///x.db", None, object()])
def test_what_is_no_engine(engine):
    with pytest.raises(ConfigurationError, match="must be a SQLAlchemy Engine"):
        check_engine(engine)


def test_an_async_engine_and_its_sync_engine(stage, monkeypatch):
    engine = create_engine(f"sqlite:///{stage.path}")
    monkeypatch.setattr(engine.dialect, "is_async", True)
    with pytest.raises(ConfigurationError, match="not async"):
        stage.loop(engine=engine)


def test_a_relay_refuses_an_async_engine_as_a_loop_does(stage, monkeypatch):
    engine = create_engine(f"sqlite:///{stage.path}")
    monkeypatch.setattr(engine.dialect, "is_async", True)
    with pytest.raises(ConfigurationError, match="not async"):
        OutboxRelay(engine, "outbox", EosConfig({"bootstrap.servers": "simulated"}, group_id="relay"))


def test_a_group_with_a_long_name(stage):
    with pytest.raises(ConfigurationError, match="249 characters"):
        stage.loop(group_id="g" * 250)


@pytest.mark.parametrize("name", ["", " ", "schema.", 5, None])
def test_a_table_without_a_name(stage, name):
    with pytest.raises(ConfigurationError, match="offsets_table="):
        stage.loop(offsets_table=name)


def test_dead_letters_in_the_offsets_table(stage):
    with pytest.raises(ConfigurationError, match="is the offsets table"):
        stage.loop(on_error="dead_letter", dead_letter_topic="eos_offsets")


def test_a_schema_is_that_of_its_own_name(stage):
    store = SqlPositionStore(stage.engine, "g", "ledger.eos_offsets", "public.letters")
    assert sorted(store._metadata.tables) == ["ledger.eos_offsets", "public.letters"]


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": "t"},
        {"producer": {"linger.ms": 5}},
        {"value_serializer": lambda value, _: value},
        {"key_serializer": lambda value, _: value},
    ],
)
def test_settings_of_a_producer(stage, options):
    with pytest.raises(
        ConfigurationError, match=f"{next(iter(options))} of the config: a DatabaseLoop has no producer"
    ):
        stage.loop(**options)


def ends_with(stage, match, **options):
    with pytest.raises(ClusterUnfitError, match=match) as raised:
        stage.run(**options)
    assert "transactional.id" not in str(raised.value)
    assert "broker" not in str(raised.value)


def test_a_table_of_another_shape(stage):
    ends_with(stage, "lacks the columns attempt, consumer_group", offsets_table="rows")


def test_a_table_without_its_key(stage):
    stage.run()
    with stage.engine.begin() as connection:
        connection.execute(text("create table other as select * from eos_offsets"))
    ends_with(stage, "has no primary key", offsets_table="other")


@pytest.mark.parametrize("options", [{"isolation_level": "AUTOCOMMIT"}, {"connect_args": {"isolation_level": None}}])
def test_an_engine_that_commits_each_statement(stage, options):
    """SQLite is begun by hand, so that these are no hindrance; what is, is seen by what it does."""
    stage.write(3)
    stage.run(engine=create_engine(f"sqlite:///{stage.path}", **options))
    stage.assert_exact()


def test_what_is_not_undone_by_a_rollback(stage, monkeypatch):
    monkeypatch.setattr(stage.engine.dialect, "do_rollback", lambda connection: connection.commit())
    ends_with(stage, "not undone by ROLLBACK")


def test_a_pool_that_gives_out_one_connection_twice(stage):
    ends_with(stage, "one connection twice", engine=create_engine(f"sqlite:///{stage.path}", poolclass=StaticPool))


def test_a_pool_without_connections_and_the_applications_own_listeners(stage):
    from sqlalchemy import event  # noqa: PLC0415

    engine = create_engine(f"sqlite:///{stage.path}", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def connected(connection, _):
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection):
        connection.exec_driver_sql("BEGIN")

    stage.write(3)
    stage.run(engine=engine)
    stage.assert_exact()


def test_a_pooled_connection_is_as_it_was(stage):
    engine = create_engine(f"sqlite:///{stage.path}", connect_args={"isolation_level": "EXCLUSIVE"})
    stage.write(3)
    stage.run(engine=engine)
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        assert raw.isolation_level == "EXCLUSIVE"
        assert not raw.in_transaction


def test_blocks_are_refused_as_loops_are(stage):
    with pytest.raises(ConfigurationError, match="in memory"):
        DatabaseConsumer(
            {"bootstrap.servers": "simulated", "group.id": "g"},
            engine=create_engine("sqlite://"),
            clients=stage.cluster,
        )


def test_a_group_that_was_deleted_is_named_once_its_generations_begin_anew(stage):
    stage.write(2)
    stage.run()
    with stage.engine.begin() as connection:
        connection.execute(text("update eos_offsets set generation = 1000"))
    stage.write(2)
    with pytest.raises(ClusterUnfitError, match="its generations begin anew"):
        stage.run(seconds=200)
    with stage.engine.begin() as connection:
        connection.execute(text("update eos_offsets set generation = 0"))
    stage.run()
    stage.assert_exact()


# -- the names of errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["08006", "57P01", "57P03", "HYT00", ""])
def test_a_lost_connection(code):
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415

    raised = OperationalError("x", {}, error("x", code)) if code else OperationalError("x", {}, Exception("x"))
    assert is_lost(raised)
    assert is_databases_fault(raised)
    assert not commit_was_refused(raised)


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_conflict(code):
    assert is_conflict(error("x", code))
    assert commit_was_refused(error("x", code))
    assert is_databases_fault(error("x", code))


@pytest.mark.parametrize("code", ["53100", "25006", "57014", "58030", "SQLITE_FULL", "SQLITE_IOERR_WRITE"])
def test_a_server_in_need_is_no_records_fault_and_its_commit_is_not_refused_for_certain(code):
    assert is_databases_fault(error("x", code))
    assert not commit_was_refused(error("x", code))


@pytest.mark.parametrize("code", ["22003", "23505", "42P01", "P0001", "SQLITE_ERROR", "SQLITE_CONSTRAINT_UNIQUE"])
def test_a_records_fault(code):
    assert not is_databases_fault(error("x", code))
