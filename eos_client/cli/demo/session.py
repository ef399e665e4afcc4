"""Runs ``eos-client demo``: cluster, topics, workers, scenario, reading back, cleaning up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from rich.console import Console

from eos_client.cli.demo.display import Display, Progress, show_outcome
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import InputLines, open_input
from eos_client.cli.demo.scenario import Scenario, StalledError
from eos_client.cli.demo.spark_stage import SparkStage
from eos_client.cli.demo.verdict import Job, reach_verdict
from eos_client.cli.demo.worker import Worker
from eos_client.cli.demo_spark.stream import missing_for_spark
from eos_client.cli.demo_spark.verdict import StreamVerdict
from eos_client.cli.failures import NotExactlyOnceError
from eos_client.config import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets
from eos_client.errors import ClusterUnavailableError, EosError
from eos_client.testing.embedded_kafka import DEFAULT_VERSION, EmbeddedKafka

WORKER_COUNT = 3
_COMMIT_INTERVAL_S = 0.2
_START_TIMEOUT_S = 30.0  # three workers start, and Spark, perhaps on a machine with other things to do
_SESSION_MS = 6000
"""The session timeout of a killed worker; the smallest that a broker with default settings accepts."""


class GroupProtocol(str, Enum):
    """Which rebalance protocol the demo's workers speak."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


_PROTOCOL_SETTINGS: Mapping[GroupProtocol, Mapping[str, str]] = {
    GroupProtocol.CONSUMER: {"group.protocol": "consumer"},
    GroupProtocol.CLASSIC: {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": str(_SESSION_MS),
        "heartbeat.interval.ms": str(_SESSION_MS // 4),
    },
}
_BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.session.timeout.ms": str(_SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(_SESSION_MS // 6),
    "group.consumer.min.heartbeat.interval.ms": str(_SESSION_MS // 6),
}


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of ``eos-client demo``. ``bootstrap_servers=None``: start an embedded Kafka."""

    bootstrap_servers: str | None = None
    input_name: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    group_protocol: GroupProtocol | None = None
    partition_count: int = 6
    feed_s: float = 20.0
    keep_topics: bool = False
    with_spark: bool = True

    @property
    def protocol(self) -> GroupProtocol:
        """The requested protocol, or the one under which a killed worker is noticed soon.

        Under KIP-848 the session timeout is the broker's (45 s unless set), so a caller's cluster gets classic.
        """
        embedded = self.bootstrap_servers is None
        return self.group_protocol or (GroupProtocol.CONSUMER if embedded else GroupProtocol.CLASSIC)


def _fresh_job(partition_count: int) -> Job:
    """Return unique names for the group and the topics of this run."""
    run = f"eos-demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    return Job(run, f"{run}-orders", f"{run}-invoices", partition_count)


def run_demo(options: DemoOptions, console: Console) -> None:
    """Play the demo and print its verdict.

    :raises NotExactlyOnceError: the verdict is not "exactly once".
    :raises EosError: the demo could not be played: unsafe settings, no cluster, no input, no embedded Kafka.
    """
    EosConfig({**options.settings, "bootstrap.servers": options.bootstrap_servers or "embedded"}, group_id="demo")
    lines = open_input(options.input_name)
    with _cluster(options, console) as bootstrap_servers:
        _Session(options, console, lines, bootstrap_servers).play()


@contextmanager
def _cluster(options: DemoOptions, console: Console) -> Iterator[str]:
    if options.bootstrap_servers is not None:
        yield options.bootstrap_servers
        return
    console.print(f"starting an embedded Kafka {DEFAULT_VERSION} ...", highlight=False)
    with EmbeddedKafka(
        properties=_BROKER_PROPERTIES,
        on_progress=lambda line: console.print(line, highlight=False, markup=False),
    ) as broker:
        console.print(f"Kafka {DEFAULT_VERSION} serves {broker.bootstrap_servers}", highlight=False)
        yield broker.bootstrap_servers


class _Session:
    def __init__(self, options: DemoOptions, console: Console, lines: InputLines, bootstrap_servers: str) -> None:
        self._options = options
        self._console = console
        self._lines = lines
        self._bootstrap = bootstrap_servers
        self._job = _fresh_job(options.partition_count)
        self._admin = ClusterAdmin(bootstrap_servers, options.settings)

    def play(self) -> None:
        job = self._job
        self._admin.cluster()
        self._admin.create_topics(dict.fromkeys([job.input_topic, job.output_topic], job.partition_count))
        self._console.print(
            f"{self._lines.source} -> {job.input_topic} -> {WORKER_COUNT} workers of group {job.group_id} "
            f"({self._options.protocol.value} protocol) -> {job.output_topic}, {job.partition_count} partitions each",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        try:
            passed = self._play_and_judge()
        except KeyboardInterrupt:
            self._delete_topics()
            raise
        if not passed:
            kept = f". Kept: {job.input_topic}, {job.output_topic}" if self._options.bootstrap_servers else ""
            raise NotExactlyOnceError(f"the verdict is not exactly once: the tables above say why{kept}")
        if not self._options.keep_topics:
            self._delete_topics()

    def _play_and_judge(self) -> bool:
        workers = [self._worker(f"w{number}") for number in range(1, WORKER_COUNT + 1)]
        feed = Feed(
            self._lines,
            self._bootstrap,
            self._job.input_topic,
            self._options.settings,
            partition_count=self._job.partition_count,
            duration_s=self._options.feed_s,
        )
        display = Display(self._console, workers, Progress(total=self._lines.count))
        complaints: list[str] = []
        with ExitStack() as running:
            # Not stable: pending offsets of a killed worker must not delay starting it again.
            offsets = running.enter_context(
                GroupOffsets(self._bootstrap, self._job.group_id, self._options.settings, stable=False)
            )
            spark = self._spark_stage(running, display)
            beside: Callable[[], None] = (lambda: None) if spark is None else spark.look
            scenario = Scenario(workers, feed, display, lambda: self._committed(offsets), beside)
            try:
                with display:
                    scenario.play()
            except StalledError as stalled:
                display.emit(f"given up: {stalled}")
                complaints.append("the run was given up")
            finally:
                complaints += scenario.stop()
            end_to_end = None if spark is None else self._end_to_end(spark, display)
        display.emit("all workers have left; reading the topics back")
        count, config = self._lines.count, self._options.settings
        verdict = reach_verdict(self._admin, self._bootstrap, config, self._job, lines=count, loaded=feed.loaded)
        return show_outcome(display, verdict, complaints, end_to_end)

    def _spark_stage(self, running: ExitStack, display: Display) -> SparkStage | None:
        """Start the Spark stream behind the workers, where that is possible; else say why there is none."""
        if not self._options.with_spark:
            return None
        if self._options.bootstrap_servers is not None:
            display.emit("no Spark stage on a cluster of your own: eos-client demo-spark shows it")
            return None
        if missing := missing_for_spark():
            display.emit(f"no Spark stage: {', '.join(missing)} not installed (pip install 'eos-client[spark]')")
            return None
        return running.enter_context(
            SparkStage(self._bootstrap, self._admin, self._job, display.emit, self._lines.count)
        )

    def _end_to_end(self, spark: SparkStage, display: Display) -> StreamVerdict:
        try:
            spark.catch_up()
        except EosError as error:
            display.emit(f"Spark: {error}")
        return spark.verdict(self._lines.count)

    def _worker(self, name: str) -> Worker:
        job = self._job
        settings = {**_PROTOCOL_SETTINGS[self._options.protocol], **self._options.settings}
        options = [
            *("--bootstrap", self._bootstrap, "--group", job.group_id),
            *("--from", job.input_topic, "--to", job.output_topic),
            # Pinned, so that a restarted worker ends the transaction that it left open when it was killed.
            *("--transactional-id", f"{job.group_id}-{name}"),
            *("--commit-interval", str(_COMMIT_INTERVAL_S), "--start-timeout", str(_START_TIMEOUT_S)),
        ]
        for key, value in settings.items():
            options += ["--config", f"{key}={value}"]
        return Worker(name, options)

    def _committed(self, offsets: GroupOffsets) -> int:
        try:
            return sum(offsets.read(self._job.input_topic, self._job.partition_count).values())
        except ClusterUnavailableError:  # its coordinator is not known yet
            return 0

    def _delete_topics(self) -> None:
        if self._options.bootstrap_servers is not None:  # an embedded broker takes them with it
            self._admin.delete_topics([self._job.input_topic, self._job.output_topic])
