"""Dead letters of a DatabaseLoop reach a topic by an outbox, as database.md shows it for PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, Table, create_engine, text

from eos_client import EosConfig
from eos_client.integration.sql import DatabaseLoop, OutboxRelay, create_outbox, outbox_table
from eos_client.testing import SimulatedCluster
from eos_client.testing.embedded_postgres import EmbeddedPostgres
from tests.support.code_blocks import REPOSITORY, code_blocks

TABLES = ("outbox_buckets", "outbox", "letters", "letter_offsets", "bookings")


@pytest.fixture
def engine(postgres_server: EmbeddedPostgres) -> Engine:
    made = create_engine(postgres_server.url)
    with made.begin() as connection:  # the server is shared by the tests of a process
        connection.execute(text("DROP FUNCTION IF EXISTS letter_to_outbox CASCADE"))
        for name in TABLES:
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        connection.execute(text("CREATE TABLE bookings (amount INT)"))
    return made


def book(connection: Any, records: list[Any]) -> None:
    rows = [{"amount": int(record.value())} for record in records]
    connection.execute(text("INSERT INTO bookings VALUES (:amount)"), rows)


def run_loop(cluster: SimulatedCluster, engine: Engine) -> None:
    config: EosConfig[Any, Any] = EosConfig(
        {"bootstrap.servers": "simulated"}, group_id="billing", on_error="dead_letter", dead_letter_topic="letters"
    )
    loop = DatabaseLoop(
        config, ["orders"], book, engine=engine, offsets_table="letter_offsets", hook=lambda _: None, clients=cluster
    )
    assert loop.run(until_end=True)


def run_relay(cluster: SimulatedCluster, engine: Engine, outbox: Table) -> None:
    config: EosConfig[Any, Any] = EosConfig({"bootstrap.servers": "simulated"}, group_id="letters")
    relay = OutboxRelay(engine, outbox, config, buckets=2, hook=lambda _: None, clients=cluster)
    assert relay.run(until_end=True)


def test_a_dead_letter_reaches_its_topic_once_by_an_outbox(engine: Engine) -> None:
    cluster = SimulatedCluster(seed=5)
    for topic, partitions in (("orders", 1), ("orders-dead", 1), ("letters-outbox", 2)):
        cluster.create_topic(topic, partitions)
    outbox = outbox_table("outbox", MetaData())
    create_outbox(engine, outbox)
    run_loop(cluster, engine)  # creates the table of letters
    (recipe,) = code_blocks(REPOSITORY / "docs" / "how-to" / "database.md", "sql")
    with engine.begin() as connection:
        connection.execute(text(recipe.code))
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    for value in ("7", "seven", "9"):
        producer.produce("orders", value, "ann", headers=[("trace", b"1"), ("trace", b"2")])
    producer.flush()
    run_loop(cluster, engine)
    for _ in range(2):
        run_relay(cluster, engine, outbox)
    (letter,) = cluster.read("orders-dead")
    assert (letter.key, letter.value) == (b"ann", b"seven")
    headers = list(letter.headers)
    assert headers[:2] == [("trace", b"1"), ("trace", b"2")]
    assert dict(headers)["eos.offset"] == b"1"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT amount FROM bookings")).scalars().all() == [7, 9]
