"""Rows of transactions that commit late, on PostgreSQL: ids are drawn by its sequence, visibility is its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, func, select

from eos_client import OutputRecord
from eos_client.integration.sql import create_outbox, write_outbox
from eos_client.integration.sql.outbox_table import buckets_table
from eos_client.testing.embedded_postgres import EmbeddedPostgres
from tests.databases.outbox_stage import OutboxStage


@pytest.fixture
def stage(tmp_path: Path, postgres_server: EmbeddedPostgres) -> OutboxStage:
    stage = OutboxStage(tmp_path)
    stage.engine = create_engine(postgres_server.url)
    for table in (stage.table, buckets_table(stage.table)):  # the server is shared by the tests of a process
        table.drop(stage.engine, checkfirst=True)
    create_outbox(stage.engine, stage.table)
    return stage


def insert(engine: Engine, stage: OutboxStage, *values: str) -> None:
    with engine.begin() as connection:
        write_outbox(connection, stage.table, [OutputRecord(key=b"ann", value=value) for value in values])


def work(stage: OutboxStage) -> None:
    for relay in list(stage.relays):
        for _ in range(40):
            stage.turn(relay)


def values(stage: OutboxStage) -> list[bytes | None]:
    return [record.value for record in stage.published()]


def test_a_row_that_commits_late_on_postgres_is_published(stage: OutboxStage):
    stage.start()
    with stage.engine.connect() as late, late.begin():
        write_outbox(late, stage.table, [OutputRecord(key=b"ann", value=b"late")])
        insert(stage.engine, stage, "early-1", "early-2")
        work(stage)
        assert values(stage) == [b"early-1", b"early-2"], "an open transaction delays nobody"
        assert stage.left() in {0, 2}, "the late row is not visible yet"
    with stage.engine.connect() as connection:
        assert connection.execute(select(func.min(stage.table.c.id))).scalar_one() == 1, "its id is the lowest"
    insert(stage.engine, stage, "last")
    work(stage)
    assert values(stage) == [b"early-1", b"early-2", b"late", b"last"]


def test_rows_of_interleaved_commits_on_postgres_are_each_published_once(stage: OutboxStage):
    """Every transaction but the first commits after one that began later, between passes of two relays."""
    stage.start()
    stage.start()
    before = stage.engine.connect()
    opened = before.begin()
    write_outbox(before, stage.table, [OutputRecord(key=b"ann", value=b"row-0")])
    for number in range(1, 12):
        following = stage.engine.connect()
        following_opened = following.begin()
        write_outbox(following, stage.table, [OutputRecord(key=b"ann", value=b"row-%d" % number)])
        if number % 2:  # the later one commits first
            before, following, opened, following_opened = following, before, following_opened, opened
        opened.commit()
        before.close()
        work(stage)
        before, opened = following, following_opened
    opened.commit()
    before.close()
    stage.finish()
    assert sorted(values(stage), key=str) == sorted((b"row-%d" % number for number in range(12)), key=str)
    assert stage.left() == 0
