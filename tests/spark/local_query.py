"""What a test on local Spark needs around the sink: topics, queries of a few batches, and what came out."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from eos_client.confluent.ledger.ledger_reader import LedgerReader
from eos_client.errors import ConfigurationError
from eos_client.integration.spark import EosKafkaSink
from eos_client.observe import Event
from eos_client.testing.spark_connector import connector_jars
from tests.spark.rig import warm_daemon
from tests.spark.rig.class_archive import archive_classes, java_options
from tests.spark.rig.numbered_stream import consecutive_numbers
from tests.spark.spark_log import SparkLog
from tests.support.reading import read_to_the_end, reader
from tests.verification.topics import ends

WAIT_S = 60.0
STREAM_LIMIT_S = 250
# Garbage of memory, classes and compiled code is looked for when there is much of it.
_FEW_COLLECTIONS = "-XX:NewSize=512m -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=128m"


def spark_session() -> SparkSession:
    """Two threads, one JVM, nothing but loopback; Spark's own Kafka sink to compare with."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"{java_options(archives=True)} {_FEW_COLLECTIONS}")
        .config("spark.python.daemon.module", warm_daemon.__name__)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def refusing_slot_1(batch_id: int) -> Callable[[str, int, int], None]:
    """Return an ``on_step`` with which slot 1 refuses the batch when it begins; slot 0 goes on, and commits."""

    def refuse(step: str, slot: int, batch: int) -> None:
        if (step, slot, batch) == ("begun", 1, batch_id):
            raise ConfigurationError("slot 1 stays unwritten")

    return refuse


class EnoughError(Exception):
    """Ends a query cleanly: the batch in hand was not begun."""


def run_query(
    spark: SparkSession, sink: Any, frame: DataFrame, until_batch: int, mode: str = "append", **options: str
) -> Any:
    """Run a query over ``frame`` until ``until_batch`` would begin; returns what stopped it before."""
    reached = threading.Event()

    def bounded(rows: DataFrame, batch_id: int) -> None:
        if batch_id >= until_batch:
            reached.set()
            raise EnoughError
        sink(rows, batch_id)

    query = frame.writeStream.outputMode(mode).foreachBatch(bounded).options(**options).start()
    try:
        ended = query.awaitTermination(STREAM_LIMIT_S)
    except Exception as error:  # noqa: BLE001  # Spark's class depends on where it was raised
        if not reached.is_set():
            return error
        archive_classes(spark)
        return None
    finally:
        query.stop()
    assert ended, f"the query was not done within {STREAM_LIMIT_S} s"
    return None


@dataclass
class LocalQuery:
    """One topic, one sink id, one checkpoint; whoever needs frames or queries says on which ``spark``."""

    servers: str
    folder: Path
    mark: str
    events: list[Event] = field(default_factory=list)
    sinks: list[EosKafkaSink] = field(default_factory=list)
    spark: SparkSession = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.topic = self.new_topic("out")
        self.sink_id = f"sink-{self.mark}"
        self.checkpoint = str(self.folder / "checkpoint")
        self.spark_log = SparkLog(self.folder / "checkpoint")
        self.record_folder = self.folder / "checkpoint" / "eos-ledger" / self.sink_id

    def new_topic(self, prefix: str, partitions: int = 3, **config: str) -> str:
        name = f"{prefix}-{self.mark}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(WAIT_S)
        return name

    def sink(self, **options: Any) -> EosKafkaSink:
        """A sink of this query; called outside a stream it goes by ``query_id`` ``"q"``."""
        options = {"sink_id": self.sink_id, "slots": 2, "hook": self.events.append, **options}
        made = EosKafkaSink(options.pop("servers", self.servers), options.pop("topic", self.topic), **options)
        self.sinks.append(made)
        return made

    def direct(self, **options: Any) -> EosKafkaSink:
        return self.sink(**{"query_id": "q", **options})

    def restart(self, **options: Any) -> EosKafkaSink:
        """What a restarted query has: nothing of the one before but its id."""
        self.close()
        return self.direct(**options)

    def frame(self, rows: Any, schema: str = "key string, value string") -> DataFrame:
        return self.spark.createDataFrame(rows, schema)

    def numbers(self, first: int, last: int) -> DataFrame:
        return self.frame([(f"k{n % 7}", str(n)) for n in range(first, last)])

    def stream(self, sink: Any, until_batch: int, *, rows: int = 40, change: Any = None, **options: str) -> Any:
        """Run a query over consecutive numbers until ``until_batch`` would begin; returns what stopped it before."""
        frame = consecutive_numbers(self.spark, rows)
        return self.run(sink, frame if change is None else change(frame), until_batch, **options)

    def run(self, sink: Any, frame: DataFrame, until_batch: int, mode: str = "append", **options: str) -> Any:
        """Run a query over ``frame`` in the same way."""

        return run_query(self.spark, sink, frame, until_batch, mode, checkpointLocation=self.checkpoint, **options)

    def read(self, topic: str | None = None) -> list[Message]:
        """Every committed record of a topic, partition by partition in order."""
        name, consumer = topic or self.topic, reader(self.servers)
        partitions = len(consumer.list_topics(name, WAIT_S).topics[name].partitions)
        until = ends(self.servers, name, partitions)
        return list(read_to_the_end(consumer, name, partitions, ends=until, limit_s=WAIT_S))

    def values(self, topic: str | None = None) -> Counter[str]:
        return Counter((message.value() or b"").decode() for message in self.read(topic))

    def ledger(self, slots: int = 2) -> dict[int, int]:
        """The next batch of each slot."""
        reader = self.reader()
        try:
            return {slot: entry.next_batch for slot, entry in reader.slots(range(slots), WAIT_S).items()}
        finally:
            reader.close()

    def reader(self) -> LedgerReader:
        return LedgerReader({"bootstrap.servers": self.servers}, f"{self.sink_id}-ledger", f"{self.sink_id}-ledger")

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def adoption_token(error: BaseException) -> str:
    """The token that a refused start has printed."""
    return str(re.findall(r'adopt_ledger="(\w+)"', str(error))[-1])


def accepting_token(error: BaseException) -> str:
    """The token that a batch with other rows has printed."""
    return str(re.findall(r'accept_batch="(\w+)"', str(error))[-1])


def each_once(first: int, last: int) -> Counter[str]:
    return Counter(str(n) for n in range(first, last))
