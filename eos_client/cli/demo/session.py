"""Runs ``eos-client demo``: cluster, topics, workers, scenario, reading back, cleaning up."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial

from rich.console import Console

from eos_client.cli.demo.display import Display
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import InputLines, open_input
from eos_client.cli.demo.job.invoice import invoice_of
from eos_client.cli.demo.options import DemoOptions, GroupProtocol
from eos_client.cli.demo.scenario import Scenario
from eos_client.cli.demo.spark_stream import SparkStream, missing_for_spark
from eos_client.cli.demo.verdict import INVOICE_HEADERS, ClusterReader, OutputAudit, receipt_audit
from eos_client.cli.demo.worker import Worker
from eos_client.cli.failures import NotExactlyOnceError
from eos_client.config import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, TopicLoader
from eos_client.errors import ClusterUnavailableError
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.spark_connector import connector_jars

WORKER_COUNT = 3
_COMMIT_INTERVAL_S = 0.2
_START_TIMEOUT_S = 30.0  # three workers start, and Spark, perhaps on a machine with other things to do
_SESSION_MS = 6000
"""The session timeout of a killed worker; the smallest that a broker with default settings accepts."""
_CLASSIC_SETTINGS = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": str(_SESSION_MS),
    "heartbeat.interval.ms": str(_SESSION_MS // 4),
}
BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.session.timeout.ms": str(_SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(_SESSION_MS // 6),
    "group.consumer.min.heartbeat.interval.ms": str(_SESSION_MS // 6),
}


def run_demo(options: DemoOptions, console: Console) -> None:
    """Play the demo and print its verdict.

    :raises NotExactlyOnceError: the verdict is not "exactly once".
    :raises EosError: the demo could not be played: unsafe settings, no cluster, no input, no embedded Kafka.
    """
    EosConfig({**options.settings, "bootstrap.servers": options.bootstrap_servers or "embedded"}, group_id="demo")
    with closing(open_input(options.input_name)) as lines, ExitStack() as running:
        bootstrap = options.bootstrap_servers or running.enter_context(embedded_kafka(console, BROKER_PROPERTIES))
        admin = running.enter_context(ClusterAdmin(bootstrap, options.settings))
        _Session(options, console, lines, bootstrap, admin).play()


def say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def embedded_kafka(console: Console, properties: Mapping[str, str]) -> Iterator[str]:
    """Start an embedded Kafka and report that; yields its address."""
    say(console, f"starting an embedded Kafka {DEFAULT_VERSION} ...")
    with EmbeddedKafka(properties=properties, on_progress=partial(say, console)) as broker:
        say(console, f"Kafka {DEFAULT_VERSION} serves {broker.bootstrap_servers}")
        yield broker.bootstrap_servers


class _Session:
    def __init__(
        self, options: DemoOptions, console: Console, lines: InputLines, bootstrap_servers: str, admin: ClusterAdmin
    ) -> None:
        self._options = options
        self._lines = lines
        self._bootstrap = bootstrap_servers
        self._group_id = f"eos-demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self._orders, self._invoices = f"{self._group_id}-orders", f"{self._group_id}-invoices"
        self._admin = admin
        workers = [self._worker(f"w{number}") for number in range(1, WORKER_COUNT + 1)]
        self._display = Display(console, workers, lines.count)

    def play(self) -> None:
        options = self._options
        self._admin.cluster()
        self._admin.create_topics(dict.fromkeys([self._orders, self._invoices], options.partition_count))
        say(
            self._display.console,
            f"{self._lines.source} -> {self._orders} -> {WORKER_COUNT} workers of group {self._group_id} "
            f"({options.protocol.value} protocol) -> {self._invoices}, {options.partition_count} partitions each",
        )
        try:
            passed = self._play_and_judge()
        except KeyboardInterrupt:
            self._delete_topics()
            raise
        if not passed:
            kept = f". Kept: {self._orders}, {self._invoices}" if options.bootstrap_servers else ""
            raise NotExactlyOnceError(f"the verdict is not exactly once: the tables above say why{kept}")
        if not options.keep_topics:
            self._delete_topics()

    def _play_and_judge(self) -> bool:
        options, display, count = self._options, self._display, self._lines.count
        partition_count, settings = options.partition_count, options.settings
        reader = ClusterReader(self._admin, self._bootstrap, settings, partition_count)
        with ExitStack() as running:
            loader = running.enter_context(TopicLoader(self._bootstrap, self._orders, settings))
            feed = Feed(self._lines, loader, partition_count, options.feed_s)
            # Not stable: pending offsets of a killed worker must not delay starting it again.
            offsets = running.enter_context(GroupOffsets(self._bootstrap, self._group_id, settings, stable=False))
            receipts = f"{self._group_id}-receipts"
            stream = self._spark_stream(running, receipts)
            scenario = Scenario(
                feed,
                display,
                lambda: self._committed(offsets),
                stream,
                lambda: sum(self._admin.end_offsets(self._invoices, partition_count).values()),
            )
            try:
                with display:
                    scenario.play()
            finally:
                complaints = scenario.stop()
            display.emit("all workers have left; reading the topics back")
            found = reader.audited(OutputAudit(), self._orders, self._invoices)
            behind = reader.behind(self._group_id, self._orders)
            stopped = "; ".join(complaints) or "exit status 0 on SIGTERM"
            checks = found.worker_checks(count, feed.loaded, behind)
            checks.append(("workers stopped cleanly", not complaints, stopped))
            if stream is None:
                return display.show_verdict(checks, found)
            end_to_end = reader.audited(receipt_audit(invoice_of, INVOICE_HEADERS), self._orders, receipts)
            return display.show_verdict([*checks, *end_to_end.stream_checks("end to end", count)], found, end_to_end)

    def _spark_stream(self, running: ExitStack, receipts: str) -> SparkStream | None:
        """Start the Spark stream behind the workers, where that is possible; else say why there is none."""
        emit = self._display.emit
        if not self._options.with_spark:
            return None
        if self._options.bootstrap_servers is not None:
            emit("no Spark stage on a cluster of your own: eos-client demo-spark shows it")
            return None
        if missing := missing_for_spark():
            emit(f"no Spark stage: {', '.join(missing)} not installed (pip install 'eos-client[spark]')")
            return None
        jars = connector_jars(emit)
        self._admin.create_topics({receipts: self._options.partition_count})
        stream = SparkStream(self._bootstrap, self._invoices, receipts, f"{self._group_id}-spark", jars)
        running.enter_context(stream).start(shuffle_partitions=4, adaptive=True)
        emit(f"Spark started, with two executors: {self._invoices} -> {receipts}")
        return stream

    def _worker(self, name: str) -> Worker:
        protocol = self._options.protocol
        settings = {"group.protocol": protocol.value} | (_CLASSIC_SETTINGS if protocol is GroupProtocol.CLASSIC else {})
        options = [
            *("--bootstrap", self._bootstrap, "--group", self._group_id),
            *("--from", self._orders, "--to", self._invoices),
            # Pinned, so that a restarted worker ends the transaction that it left open when it was killed.
            *("--transactional-id", f"{self._group_id}-{name}"),
            *("--commit-interval", str(_COMMIT_INTERVAL_S), "--start-timeout", str(_START_TIMEOUT_S)),
            *("--log-format", "json", "--verbose"),
        ]
        for key, value in {**settings, **self._options.settings}.items():
            options += ["--config", f"{key}={value}"]
        return Worker(name, options)

    def _committed(self, offsets: GroupOffsets) -> int:
        try:
            return sum(offsets.read(self._orders, self._options.partition_count).values())
        except ClusterUnavailableError:  # its coordinator is not known yet
            return 0

    def _delete_topics(self) -> None:
        if self._options.bootstrap_servers is not None:  # an embedded broker takes them with it
            self._admin.delete_topics([self._orders, self._invoices])
