"""What a test on local Spark needs around a database's sink: a table, queries of a few batches, and what came out."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Engine, create_engine, text

from eos_client.integration.spark import EosDatabaseSink
from eos_client.observe import Event
from tests.spark.local_query import run_query
from tests.spark.rig.numbered_stream import consecutive_numbers
from tests.spark.spark_log import SparkLog


@dataclass
class TableQuery:
    """One table without any unique constraint, one sink id, one checkpoint."""

    spark: SparkSession
    url: str
    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    events: list[Event] = field(default_factory=list)
    sinks: list[EosDatabaseSink] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine: Engine = create_engine(self.url)
        self.table = self.new_table("rows")
        self.sink_id = f"sink-{self.mark}"
        self.checkpoint = str(self.folder / "checkpoint")
        self.spark_log = SparkLog(self.folder / "checkpoint")

    def new_table(self, prefix: str, columns: str = "key varchar(50), value varchar(50)") -> str:
        name = f"{prefix}_{self.mark}"
        number = {"postgresql": "bigserial", "sqlite": "integer primary key autoincrement"}.get(
            self.engine.dialect.name, "bigint auto_increment unique"
        )
        quoted = self.engine.dialect.identifier_preparer.quote("key")
        with self.engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {name} (seq {number}, {columns.replace('key', quoted, 1)})"))
        return name

    def sink(self, **options: Any) -> EosDatabaseSink:
        """A sink of this query; called outside a stream it goes by ``query_id`` ``"q"``."""
        options = {"sink_id": self.sink_id, "slots": 2, "key": "key", "hook": self.events.append, **options}
        made = EosDatabaseSink(options.pop("url", self.url), options.pop("table", self.table), **options)
        self.sinks.append(made)
        return made

    def direct(self, **options: Any) -> EosDatabaseSink:
        return self.sink(**{"query_id": "q", **options})

    def restart(self, **options: Any) -> EosDatabaseSink:
        """What a restarted query has: nothing of the one before but its id."""
        self.close()
        return self.direct(**options)

    def frame(self, rows: Any, schema: str = "key string, value string") -> DataFrame:
        return self.spark.createDataFrame(rows, schema)

    def numbers(self, first: int, last: int) -> DataFrame:
        return self.frame([(f"k{n % 7}", str(n)) for n in range(first, last)])

    def stream(self, sink: Any, until_batch: int, *, rows: int = 40, change: Any = None) -> Any:
        """Run a query over consecutive numbers until ``until_batch`` would begin; returns what stopped it before."""
        frame = consecutive_numbers(self.spark, rows)
        changed = frame if change is None else change(frame)
        return run_query(self.spark, sink, changed, until_batch, checkpointLocation=self.checkpoint)

    def answer(self, question: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(question))]

    def values(self, table: str | None = None) -> Counter[str]:
        return Counter(value for (value,) in self.answer(f"SELECT value FROM {table or self.table}"))

    def ledger(self) -> dict[int, int]:
        """The next batch of each slot."""
        found = self.answer(f"SELECT slot, next_batch FROM eos_batches WHERE sink_id = '{self.sink_id}' AND slot >= 0")
        return dict(sorted(found))

    def of_kind(self, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
