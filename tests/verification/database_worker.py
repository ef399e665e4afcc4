"""A worker of `database_soak`: writes one row for each record, by DatabaseLoop or by a hand-written loop.

    python -m tests.verification.database_worker BOOTSTRAP DATABASE_URL PROTOCOL KIND

KIND: "eos", or what people write by hand: "commit-after" (rows, then offsets), "commit-before" (offsets, then rows),
"own-table" (offsets in the same transaction, without a fence).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from eos_client import EosConfig
from eos_client.integration.sql import DatabaseLoop
from eos_client.observe import Event, TransactionCommitted, log_event

TOPIC = "soak-rows"
COMMITTED = "transaction committed"
INSERT = text("INSERT INTO soak_rows (part, off, val, worker) VALUES (:part, :off, :val, :worker)")
WORK_S = 0.002
"""What each batch takes besides: an overtaken worker is most often inside it."""


def settings_of(protocol: str) -> dict[str, Any]:
    """The settings of a member that is soon evicted."""
    common: dict[str, Any] = {"auto.offset.reset": "earliest"}
    if protocol == "consumer":
        return {**common, "group.protocol": "consumer"}
    return {**common, "session.timeout.ms": 6000, "partition.assignment.strategy": protocol}


def insert(connection: Connection, records: list[Any]) -> None:
    """Write the rows of a batch."""
    rows = [{"part": r.partition(), "off": r.offset(), "val": int(r.value()), "worker": os.getpid()} for r in records]
    connection.execute(INSERT, rows)
    time.sleep(WORK_S)


def report(event: Event) -> None:
    """Log events, and commits by a line that can be counted."""
    if isinstance(event, TransactionCommitted):
        print(COMMITTED, flush=True)
    log_event(event)


def exactly_once(bootstrap: str, url: str, protocol: str) -> None:
    """Run a DatabaseLoop until SIGTERM; a supervisor starts it again when it fails."""
    config = EosConfig(
        {"bootstrap.servers": bootstrap},
        group_id="soak",
        consumer=settings_of(protocol),
        batch_size=50,
        recovery_timeout_s=15.0,
    )
    engine = create_engine(url, pool_pre_ping=False, connect_args={"connect_timeout": 3})
    with DatabaseLoop(config, [TOPIC], insert, engine=engine, hook=report) as loop:
        loop.run()


def by_hand(bootstrap: str, url: str, protocol: str, kind: str) -> None:
    """Run the loop that people write; errors end the process, and a supervisor starts it again."""
    engine = create_engine(url, connect_args={"connect_timeout": 3})
    consumer = Consumer({
        **settings_of(protocol), "bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False,
    })  # fmt: skip

    def start_at_table(member: Any, partitions: list[Any]) -> None:
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT part, next FROM soak_offsets")).all()
        found = {row.part: row.next for row in rows}
        starts = [TopicPartition(TOPIC, p.partition, found.get(p.partition, 0)) for p in partitions]
        if protocol == "range":
            member.assign(starts)
        else:
            member.incremental_assign(starts)

    consumer.subscribe([TOPIC], **({"on_assign": start_at_table} if kind == "own-table" else {}))
    while True:
        records = [r for r in consumer.consume(50, 0.1) if r.error() is None]
        if not records:
            continue
        if kind == "commit-before":
            consumer.commit(asynchronous=False)
        with engine.begin() as connection:
            insert(connection, records)
            if kind == "own-table":
                for record in records:
                    moved = {"part": record.partition(), "next": int(record.offset() or 0) + 1}
                    changed = connection.execute(
                        text("UPDATE soak_offsets SET next = :next WHERE part = :part"), moved
                    ).rowcount
                    if not changed:
                        connection.execute(text("INSERT INTO soak_offsets (part, next) VALUES (:part, :next)"), moved)
        print(COMMITTED, flush=True)
        if kind == "commit-after":
            consumer.commit(asynchronous=False)


def main(bootstrap: str, url: str, protocol: str, kind: str) -> int:
    """Work until SIGTERM."""
    try:
        if kind == "eos":
            exactly_once(bootstrap, url, protocol)
        else:
            by_hand(bootstrap, url, protocol, kind)
    except (SQLAlchemyError, KafkaException) as error:
        print(f"ended: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:5]))
