"""The demo's second half, if Spark is installed: a Spark stream that turns the invoices into receipts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.cli.demo.job.invoice import OFFSET_HEADER, PARTITION_HEADER, invoice_of
from eos_client.cli.demo.verdict import ClusterReader, Job
from eos_client.cli.demo_spark.stream import SparkStream, StreamPlan
from eos_client.cli.demo_spark.verdict import StreamVerdict, judge_stream
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.errors import ClusterUnavailableError
from eos_client.testing.spark_connector import connector_jars

if TYPE_CHECKING:
    from typing_extensions import Self

_KILL_AT = 0.2
_TICK_S = 0.2
_LOOK_INTERVAL_S = 0.5
_START_LIMIT_S = 240.0  # six processes start, perhaps on a machine with other things to do
_STALL_LIMIT_S = 180.0


class SparkStage:
    """One Spark stream behind the demo's workers; `look`, called regularly, kills one of its executors."""

    def __init__(
        self, bootstrap_servers: str, admin: ClusterAdmin, job: Job, emit: Callable[[str], None], records: int
    ) -> None:
        self.output_topic = job.output_topic.removesuffix("-invoices") + "-receipts"
        self._bootstrap, self._admin, self._job = bootstrap_servers, admin, job
        self._emit, self._records = emit, records
        self._directory = tempfile.TemporaryDirectory(prefix="eos-demo-spark-", ignore_cleanup_errors=True)
        plan = StreamPlan(
            bootstrap_servers, job.output_topic, self.output_topic, Path(self._directory.name), f"{job.group_id}-spark"
        )
        self._stream = SparkStream(plan, emit)
        self._looked_at = 0.0
        self._killed = False

    def __enter__(self) -> Self:
        connector_jars(self._emit)
        self._admin.create_topics({self.output_topic: self._job.partition_count})
        self._stream.start(shuffle_partitions=4, adaptive=True)
        self._emit(f"Spark started, with two executors: {self._job.output_topic} -> {self.output_topic}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.stop()
        self._directory.cleanup()

    def look(self) -> None:
        """Check that it still runs, and kill an executor once a share of the records was read.

        :raises EmbeddedKafkaError: Spark ended by itself.
        """
        if time.monotonic() - self._looked_at < _LOOK_INTERVAL_S:
            return
        self._looked_at = time.monotonic()
        self._stream.raise_if_ended()
        if not self._killed and self._stream.read_so_far() >= self._records * _KILL_AT:
            executor = self._stream.kill_executor()
            self._killed = executor is not None
            if self._killed:
                self._emit(f"Spark's executor {executor} killed (SIGKILL) after {self._stream.batches()} micro-batches")

    def catch_up(self) -> None:
        """Wait until Spark has read everything.

        :raises ClusterUnavailableError: it makes no progress.
        """
        moved_at, read = time.monotonic(), -1
        while (now := self._stream.read_so_far()) < self._end():
            self.look()
            if now != read:
                moved_at, read = time.monotonic(), now
            limit_s = _STALL_LIMIT_S if now else _START_LIMIT_S
            if time.monotonic() - moved_at > limit_s:
                raise ClusterUnavailableError(f"Spark has read nothing for {limit_s:g} s at offset {now:,}")
            time.sleep(_TICK_S)
        self.look()
        self._emit(f"Spark has caught up, in {self._stream.batches()} micro-batches")

    def _end(self) -> int:
        return sum(self._admin.end_offsets(self._job.output_topic, self._job.partition_count).values())

    def verdict(self, lines: int) -> StreamVerdict:
        """Check that each loaded line came out at the end of the pipeline once."""
        reader = ClusterReader(self._admin, self._bootstrap, {}, self._job.partition_count)
        return judge_stream(
            reader,
            self._job.input_topic,
            self.output_topic,
            lines,
            between=invoice_of,
            origin_headers=(PARTITION_HEADER, OFFSET_HEADER),
            name="end to end",
        )
