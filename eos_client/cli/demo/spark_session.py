"""Runs ``eos-client demo-spark``: cluster, topics, stream, faults, reading back, cleaning up."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

from rich.console import Console

from eos_client.cli.demo.display import Display
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import open_input
from eos_client.cli.demo.session import embedded_kafka, say
from eos_client.cli.demo.spark_stream import SparkStream, missing_for_spark
from eos_client.cli.demo.verdict import ClusterReader, receipt_audit
from eos_client.cli.failures import NotExactlyOnceError
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import TopicLoader
from eos_client.errors import ConfigurationError
from eos_client.testing.spark_connector import connector_jars

_OPEN_TRANSACTION_LIMIT_S = 10.0
_INPUT, _OUTPUT, _PARTITION_COUNT = "orders", "receipts", 4


def run_spark_demo(console: Console, input_name: str | None = None, slots: int = 4, feed_s: float = 20.0) -> None:
    """Play the demo and print its verdict.

    :raises NotExactlyOnceError: the verdict is not "exactly once".
    :raises ConfigurationError: Spark, or something that it needs, is not installed.
    :raises EosError: the demo could not be played: no input, no embedded Kafka, a stream that ended by itself.
    """
    if missing := missing_for_spark():
        raise ConfigurationError(
            f"Spark needs {', '.join(missing)}, not installed here: pip install 'eos-client[spark]'"
        )

    with closing(open_input(input_name)) as lines:
        jars = connector_jars(partial(say, console))
        with embedded_kafka(console, {}) as bootstrap, ClusterAdmin(bootstrap) as admin:
            admin.create_topics(dict.fromkeys((_INPUT, _OUTPUT), _PARTITION_COUNT))
            say(console, f"{lines.source} -> {_INPUT} -> Spark, {slots} slots, 2 executors -> {_OUTPUT} on {bootstrap}")
            display = Display(console, (), lines.count)
            stream = SparkStream(bootstrap, _INPUT, _OUTPUT, "demo-receipts", jars, slots)
            with stream, display, TopicLoader(bootstrap, _INPUT, {}) as loader:
                feed = Feed(lines, loader, _PARTITION_COUNT, feed_s)
                SparkScenario(stream, feed, display, admin).play()
            display.emit("the stream is stopped; reading both topics back")
            reader = ClusterReader(admin, bootstrap, {}, _PARTITION_COUNT)
            found = reader.audited(receipt_audit(), _INPUT, _OUTPUT)
            if not display.show_verdict(found.stream_checks("every record", lines.count), found):
                raise NotExactlyOnceError("the verdict is not exactly once: the tables above say why")


class SparkScenario:
    """The scenario: the stream loses an executor, then its driver, is started again, and catches up.

    Each kill waits for an open transaction, where most can be lost.
    """

    def __init__(self, stream: SparkStream, feed: Feed, display: Display, admin: ClusterAdmin) -> None:
        self._stream, self._feed, self._display, self._admin = stream, feed, display, admin

    def play(self) -> None:
        """Go through all steps until every record was read.

        :raises StalledError: nothing moved for a long time.
        :raises EmbeddedKafkaError: Spark ended by itself.
        """
        display, feed, stream = self._display, self._feed, self._stream
        emit = display.emit
        feed.release(0.05)
        emit("Spark starts, with a driver and two executors in processes of their own")
        stream.start(shuffle_partitions=4, adaptive=True)
        display.until(lambda: display.committed > 0, self._look)
        emit("the first micro-batch is done; the rest of the input arrives")
        feed.release(1.0)
        in_transaction = self._await_kill(0.2)
        executor = stream.kill_executor()
        emit(f"executor {executor} killed (SIGKILL){in_transaction}, after {stream.batches()} micro-batches")
        in_transaction = self._await_kill(0.5)
        stream.kill_driver()
        emit(f"driver killed (SIGKILL){in_transaction}, after {stream.batches()} micro-batches")
        stream.start(shuffle_partitions=7, adaptive=False)
        emit("driver started again on the same checkpoint, with another number of shuffle partitions and without AQE")
        display.until(lambda: display.committed >= feed.total == feed.loaded, self._look)
        emit(f"all {feed.total:,} records were read, in {stream.batches()} micro-batches")

    def _await_kill(self, share: float) -> str:
        """Wait until ``share`` was read, then a limited time for an open transaction; returns the event's clause."""
        display = self._display
        display.until(lambda: display.committed >= share * self._feed.total, self._look)
        deadline = time.monotonic() + _OPEN_TRANSACTION_LIMIT_S
        while time.monotonic() < deadline:
            self._look()
            ends = (self._admin.end_offsets(_OUTPUT, _PARTITION_COUNT, committed_only=only) for only in (True, False))
            if any(stable < end for stable, end in zip(*(each.values() for each in ends), strict=True)):
                return " while a transaction was open"
        return ""

    def _look(self) -> None:
        self._feed.advance()
        self._display.loaded = self._feed.loaded
        self._display.committed = self._stream.read_so_far()
