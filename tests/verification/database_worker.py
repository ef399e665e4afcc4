"""A worker of `database_soak`: writes one row for each record, by DatabaseLoop or by a hand-written loop.

    python -m tests.verification.database_worker BOOTSTRAP DATABASE_URL PROTOCOL KIND COMMIT_INTERVAL_S

KIND: "eos", or what people write by hand: "commit-after" (rows, then offsets), "commit-before" (offsets, then rows),
"own-table" (offsets in the same transaction, without a fence), "upsert-only" (as commit-after, but rows are replaced by
their key, so that the last value of each key is what is left).
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from eos_client import EosConfig
from eos_client.integration.sql import DatabaseLoop
from eos_client.observe import Event, TransactionCommitted, log_event

TOPIC = "soak-rows"
COMMITTED = "transaction committed"
EXACTLY_ONCE = "eos"
INSERT = text("INSERT INTO soak_rows (part, off, val, worker) VALUES (:part, :off, :val, :worker)")
MOVE = text(
    "INSERT INTO soak_offsets (part, next) VALUES (:part, :next) ON CONFLICT (part) DO UPDATE SET next = excluded.next"
)
UPSERT = text(
    "INSERT INTO soak_state (entity, part, off, val) VALUES (:entity, :part, :off, :val) "
    "ON CONFLICT (entity) DO UPDATE SET off = excluded.off, val = excluded.val"
)
ENTITIES = 60
COMMITTING_AFTER = ("commit-after", "upsert-only")
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


def upsert(connection: Connection, records: list[Any]) -> None:
    """Replace the rows of the records' keys."""
    rows = [
        {"entity": int(r.value()) % ENTITIES, "part": r.partition(), "off": r.offset(), "val": int(r.value())}
        for r in records
    ]
    connection.execute(UPSERT, rows)
    time.sleep(WORK_S)


def report(event: Event) -> None:
    """Log events, and commits by a line that can be counted."""
    if isinstance(event, TransactionCommitted):
        print(COMMITTED, flush=True)
    log_event(event)


def exactly_once(bootstrap: str, url: str, protocol: str, commit_interval_s: float) -> None:
    """Run a DatabaseLoop until SIGTERM; a supervisor starts it again when it fails."""
    config = EosConfig(
        {"bootstrap.servers": bootstrap},
        group_id="soak",
        consumer=settings_of(protocol),
        batch_size=30,
        commit_interval_s=commit_interval_s,
        recovery_timeout_s=15.0,
    )
    engine = create_engine(url, connect_args={"connect_timeout": 3})
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
    try:
        while True:
            if records := [r for r in consumer.consume(50, 0.1) if r.error() is None]:
                work(engine, consumer, records, kind)
    finally:
        consumer.close()  # else its partitions stand still until its session has timed out


def work(engine: Engine, consumer: Consumer, records: list[Any], kind: str) -> None:
    """Write the rows of a batch, and its offsets in the order of ``kind``."""
    if kind == "commit-before":
        consumer.commit(asynchronous=False)
    with engine.begin() as connection:
        (upsert if kind == "upsert-only" else insert)(connection, records)
        if kind == "own-table":
            move(connection, records)
    print(COMMITTED, flush=True)
    if kind in COMMITTING_AFTER:
        consumer.commit(asynchronous=False)


def move(connection: Connection, records: list[Any]) -> None:
    """Write how far each partition was read, as the table's readers find it."""
    following = {record.partition(): int(record.offset() or 0) + 1 for record in records}
    connection.execute(MOVE, [{"part": part, "next": following[part]} for part in sorted(following)])


def main(bootstrap: str, url: str, protocol: str, kind: str, commit_interval: str) -> int:
    """Work until SIGTERM."""
    try:
        if kind == EXACTLY_ONCE:
            exactly_once(bootstrap, url, protocol, float(commit_interval))
        else:
            by_hand(bootstrap, url, protocol, kind)
    except (SQLAlchemyError, KafkaException) as error:
        print(f"ended: {type(error).__name__}: {error}", flush=True)
        if kind != EXACTLY_ONCE:
            os._exit(1)  # librdkafka may wait for ever for a callback that has failed
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:6]))
