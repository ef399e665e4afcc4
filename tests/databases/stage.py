"""A job that writes each order as a row, on the simulated cluster and a database of its own, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from eos_client import EosConfig
from eos_client.integration.sql import DatabaseConsumer, DatabaseLoop
from eos_client.observe import ProducerRebuilt, ProducerRecovered, TransactionAborted, TransactionCommitted
from eos_client.testing import SimulatedCluster
from tests.databases.breaking_connections import Driver

GROUP = "billing"
PARTITIONS = 2


def write_rows(connection: Any, records: list[Any]) -> None:
    rows = [{"p": r.partition(), "o": r.offset(), "v": r.value().decode()} for r in records]
    if rows:
        connection.execute(text("insert into rows (p, o, v) values (:p, :o, :v)"), rows)


class Stage:
    """A cluster with the topic ``orders``, and a database with the table ``rows``, which has no unique constraint."""

    def __init__(self, folder: Path, *, seed: int = 3, partitions: int = PARTITIONS, **engine: Any) -> None:
        self.path = folder / f"database-{seed}.db"
        self.driver = Driver()
        self.engine: Engine = self.driver.engine(self.path, **engine)
        with self.engine.begin() as connection:
            connection.execute(text("create table rows (seq integer primary key autoincrement, p int, o int, v text)"))
        self.cluster = SimulatedCluster(seed=seed)
        self.cluster.create_topic("orders", partitions)
        self.written = [0] * partitions
        self.events: list[Any] = []

    # -- the input -----------------------------------------------------------------------------------------------------

    def write(self, count: int = 1, partition: int = 0) -> None:
        before = self.written[partition]
        values = [f"{partition}:{before + number}".encode() for number in range(count)]
        self.cluster.write("orders", values, partition=partition)
        self.written[partition] += count

    def writes_for(self, seconds: float, every_s: float = 0.5) -> None:
        """Write to each partition in turn, for ``seconds`` from now."""
        for number in range(int(seconds / every_s)):
            partition = number % len(self.written)
            self.cluster.after(number * every_s, partial(self.write, 1, partition))

    # -- the job -------------------------------------------------------------------------------------------------------

    def loop(
        self, handler: Callable[..., Any] = write_rows, *, topics: Any = ("orders",), engine: Any = None, **options: Any
    ) -> DatabaseLoop:
        given = {"offsets_table"} & options.keys()
        passed = {name: options.pop(name) for name in given}
        options.setdefault("consumer", {"auto.offset.reset": "earliest"})
        options.setdefault("poll_timeout_s", 0.5)  # most of the time there is nothing to poll
        config = EosConfig({"bootstrap.servers": "simulated"}, group_id=options.pop("group_id", GROUP), **options)
        return DatabaseLoop(
            config,
            list(topics),
            handler,
            engine=self.engine if engine is None else engine,
            hook=self.events.append,
            clients=self.cluster,
            **passed,
        )

    def run(self, handler: Callable[..., Any] = write_rows, *, seconds: float = 30, **options: Any) -> DatabaseLoop:
        """Run a loop that is stopped after ``seconds``."""
        loop = self.loop(handler, **options)
        self.cluster.after(seconds, loop.stop)
        loop.run()
        return loop

    def consumer(self, engine: Any = None, **settings: Any) -> DatabaseConsumer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = DatabaseConsumer(
            {"bootstrap.servers": "simulated", "group.id": GROUP, "auto.offset.reset": "earliest", **named},
            engine=self.engine if engine is None else engine,
            hook=self.events.append,
            clients=self.cluster,
        )
        consumer.subscribe(["orders"])
        return consumer

    # -- what is there now ---------------------------------------------------------------------------------------------

    def query(self, sql: str, **parameters: Any) -> list[Any]:
        plan, self.driver.plan = self.driver.plan, lambda _: None
        try:
            with self.engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(sql), parameters)]
        finally:
            self.driver.plan = plan

    def rows(self) -> list[tuple[int, int, str]]:
        """The rows, in the order in which they were inserted."""
        return self.query("select p, o, v from rows order by seq")

    def offsets(self, group: str = GROUP) -> dict[int, int]:
        found = self.query(
            "select partition_id, next_offset from eos_offsets where consumer_group = :g and next_offset >= 0", g=group
        )
        return dict(found)

    def of_kind(self, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    # -- what must hold ------------------------------------------------------------------------------------------------

    def wrong_rows(self) -> list[str]:
        """What is wrong with the rows: records that are missing, doubled, or out of order."""
        wrong = []
        for partition, count in enumerate(self.written):
            found = [o for p, o, _ in self.rows() if p == partition]
            if found != list(range(count)):
                missing = sorted(set(range(count)) - set(found))
                doubled = sorted({o for o in found if found.count(o) > 1})
                wrong.append(f"orders[{partition}]: missing {missing}, doubled {doubled}, in order {found}")
        return wrong

    def assert_exact(self) -> None:
        assert self.wrong_rows() == []
        expected = {partition: count for partition, count in enumerate(self.written) if count}
        assert self.offsets() == expected
        leading = {p: o for (_, p), o in self.kafkas_offsets().items() if o > expected.get(p, 0)}
        assert leading == {}, "Kafka's offsets lead"

    def kafkas_offsets(self) -> dict[tuple[str, int], int]:
        return {(key.topic, key.partition): offset for key, offset in self.cluster.committed(GROUP).items()}

    def assert_told_the_truth(self) -> None:
        """Every row was told of once, in the event of its transaction."""
        assert sum(event.records_in for event in self.of_kind(TransactionCommitted)) == len(self.rows())

    def assert_undisturbed(self) -> None:
        assert self.of_kind((TransactionAborted, ProducerRebuilt, ProducerRecovered)) == []
