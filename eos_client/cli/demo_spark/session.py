"""Runs ``eos-client demo-spark``: cluster, topics, stream, faults, reading back, cleaning up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from eos_client.cli.demo.display import Display, Progress, show_verdict
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import open_input
from eos_client.cli.demo.scenario import StalledError, wait_until
from eos_client.cli.demo.verdict import ClusterReader
from eos_client.cli.demo_spark.stream import SparkStream, StreamPlan, missing_for_spark
from eos_client.cli.demo_spark.verdict import judge_stream
from eos_client.cli.failures import NotExactlyOnceError
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.errors import ConfigurationError
from eos_client.testing.embedded_kafka import DEFAULT_VERSION, EmbeddedKafka
from eos_client.testing.spark_connector import connector_jars

_OPEN_TRANSACTION_LIMIT_S = 10.0
_STALL_LIMIT_S = 240.0  # Spark starts twice, perhaps on a machine with other things to do
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

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    lines = open_input(input_name)
    connector_jars(say)
    say(f"starting an embedded Kafka {DEFAULT_VERSION} ...")
    with (
        tempfile.TemporaryDirectory(prefix="eos-demo-spark-", ignore_cleanup_errors=True) as directory,
        EmbeddedKafka(on_progress=say) as broker,
    ):
        bootstrap = broker.bootstrap_servers
        admin = ClusterAdmin(bootstrap)
        admin.create_topics(dict.fromkeys((_INPUT, _OUTPUT), _PARTITION_COUNT))
        say(f"{lines.source} -> {_INPUT} -> Spark, {slots} slots, 2 executors -> {_OUTPUT} on {bootstrap}")
        plan = StreamPlan(bootstrap, _INPUT, _OUTPUT, Path(directory), "demo-receipts", slots)
        display = Display(console, (), Progress(total=lines.count))
        stream = SparkStream(plan, say)
        feed = Feed(lines, bootstrap, _INPUT, {}, partition_count=_PARTITION_COUNT, duration_s=feed_s)
        given_up = _play(SparkScenario(stream, feed, display, admin))
        display.emit("the stream is stopped; reading both topics back")
        reader = ClusterReader(admin, bootstrap, {}, _PARTITION_COUNT)
        verdict = judge_stream(reader, _INPUT, _OUTPUT, lines.count)
        examples = verdict.findings.examples
        if not show_verdict(display, verdict.checks, verdict.hidden, examples, verdict.lines, given_up):
            raise NotExactlyOnceError("the verdict is not exactly once: the tables above say why")


def _play(scenario: SparkScenario) -> str:
    try:
        with scenario.display:
            scenario.play()
    except StalledError as stalled:
        scenario.display.emit(f"given up: {stalled}")
        return str(stalled)
    finally:
        scenario.stop()
    return ""


class SparkScenario:
    """The scenario: the stream loses an executor, then its driver, is started again, and catches up.

    Each kill waits for an open transaction, where most can be lost.
    """

    def __init__(self, stream: SparkStream, feed: Feed, display: Display, admin: ClusterAdmin) -> None:
        self._stream, self._feed, self.display, self._admin = stream, feed, display, admin

    def play(self) -> None:
        """Go through all steps until every record was read.

        :raises StalledError: nothing moved for a long time.
        :raises EmbeddedKafkaError: Spark ended by itself.
        """
        emit, feed, stream = self.display.emit, self._feed, self._stream
        feed.release(0.05)
        feed.start()
        emit("Spark starts, with a driver and two executors in processes of their own")
        stream.start(shuffle_partitions=4, adaptive=True)
        self._until(lambda: self.display.progress.committed > 0)
        emit("the first micro-batch is done; the rest of the input arrives")
        feed.release(1.0)
        self._until_read(0.2)
        in_transaction = self._await_open_transaction()
        executor = stream.kill_executor()
        emit(f"executor {executor} killed (SIGKILL){in_transaction}, after {stream.batches()} micro-batches")
        self._until_read(0.5)
        in_transaction = self._await_open_transaction()
        stream.kill_driver()
        emit(f"driver killed (SIGKILL){in_transaction}, after {stream.batches()} micro-batches")
        stream.start(shuffle_partitions=7, adaptive=False)
        emit("driver started again on the same checkpoint, with another number of shuffle partitions and without AQE")
        self._until(lambda: feed.is_done and self.display.progress.committed >= feed.total)
        emit(f"all {feed.total:,} records were read, in {stream.batches()} micro-batches")

    def stop(self) -> None:
        """End feed and stream."""
        self._feed.stop()
        self._stream.stop()

    def _await_open_transaction(self) -> str:
        """Wait a limited time for an open transaction on the output; returns the clause for the event."""
        deadline = time.monotonic() + _OPEN_TRANSACTION_LIMIT_S
        while time.monotonic() < deadline:
            stable, end = (
                self._admin.end_offsets(_OUTPUT, _PARTITION_COUNT, committed_only=only) for only in (True, False)
            )
            if any(stable[partition] < end[partition] for partition in end):
                return " while a transaction was open"
        return ""

    def _until_read(self, share: float) -> None:
        self._until(lambda: self.display.progress.committed >= share * self._feed.total)

    def _until(self, reached: Callable[[], bool]) -> None:
        wait_until(reached, self._look, self.display.progress, _STALL_LIMIT_S, "written")

    def _look(self) -> None:
        if self._feed.error is not None:
            raise self._feed.error
        self._stream.raise_if_ended()
        progress = self.display.progress
        progress.loaded, progress.committed = self._feed.loaded, self._stream.read_so_far()
        self.display.refresh()
