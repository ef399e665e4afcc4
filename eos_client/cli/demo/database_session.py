"""Runs ``eos-client demo --database``: Kafka, a database, workers, scenario, reading back, cleaning up."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from eos_client.cli.databases import database_engine
from eos_client.cli.demo.database_worker import offsets_table_of
from eos_client.cli.demo.display import Display
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import InputLines, open_input
from eos_client.cli.demo.options import DemoOptions
from eos_client.cli.demo.scenario import Scenario
from eos_client.cli.demo.session import BROKER_PROPERTIES, WORKER_COUNT, embedded_kafka, say
from eos_client.cli.demo.verdict import INVOICE_HEADERS, ClusterReader, Findings, OutputAudit
from eos_client.cli.demo.worker import Worker
from eos_client.cli.failures import CommandLineError, NotExactlyOnceError
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, TopicLoader
from eos_client.errors import ClusterUnavailableError

if TYPE_CHECKING:
    from eos_client.integration.sql.rows_by_origin import RowsByOrigin

_TOPIC = "orders"
_PROGRAM = ("eos_client.cli.demo.database_worker",)


def run_database_demo(options: DemoOptions, console: Console) -> None:
    """Play the demo on a database and print its verdict.

    :raises NotExactlyOnceError: the verdict is not "exactly once".
    :raises CommandLineError: an option that is meant for the demo without a database.
    :raises EosError: the demo could not be played: no input, no database, no embedded Kafka.
    """
    if options.bootstrap_servers is not None or options.group_protocol is not None or options.settings:
        raise CommandLineError("--database plays on an embedded Kafka with settings of its own: leave yours out")
    url, partition_count = options.database_url, options.partition_count
    name = f"eos_demo_{secrets.token_hex(4)}"
    with closing(open_input(options.input_name)) as lines, ExitStack() as running:
        if url is None:
            url = f"sqlite:///{Path(running.enter_context(TemporaryDirectory(prefix='eos-demo-')), 'demo.db')}"
        engine = database_engine(url, "the demo with a database needs SQLAlchemy")
        from eos_client.integration.sql.rows_by_origin import RowsByOrigin  # noqa: PLC0415  the extra may be missing

        rows = RowsByOrigin(engine, name)
        rows.create()
        running.callback(rows.drop, offsets_table_of(name))
        bootstrap = running.enter_context(embedded_kafka(console, BROKER_PROPERTIES))
        admin = running.enter_context(ClusterAdmin(bootstrap))
        admin.create_topics({_TOPIC: partition_count})
        shown = engine.url.render_as_string()
        say(console, f"{lines.source} -> {_TOPIC} -> {WORKER_COUNT} workers of group {name} -> table {name} of {shown}")
        workers = [
            Worker(f"w{number}", (url, bootstrap, name, _TOPIC, name), _PROGRAM)
            for number in range(1, WORKER_COUNT + 1)
        ]
        session = _Session(lines, bootstrap, admin, partition_count, rows, Display(console, workers, lines.count))
        session.play(name, options.feed_s)


class _Session:
    def __init__(
        self,
        lines: InputLines,
        bootstrap: str,
        admin: ClusterAdmin,
        partition_count: int,
        rows: RowsByOrigin,
        display: Display,
    ) -> None:
        self._lines = lines
        self._bootstrap = bootstrap
        self._partition_count = partition_count
        self._rows = rows
        self._display = display
        self._reader = ClusterReader(admin, bootstrap, {}, partition_count)

    def play(self, group_id: str, feed_s: float) -> None:
        display = self._display
        with (
            TopicLoader(self._bootstrap, _TOPIC, {}) as loader,
            GroupOffsets(self._bootstrap, group_id, {}, stable=False) as offsets,
        ):
            feed = Feed(self._lines, loader, self._partition_count, feed_s)
            scenario = Scenario(feed, display, lambda: self._committed(offsets), None, lambda: 0, has_zombie=True)
            try:
                with display:
                    scenario.play()
            finally:
                complaints = scenario.stop()
        display.emit("all workers have left; reading the table back")
        found = audited_rows(self._reader, _TOPIC, self._rows.read())
        checks = found.worker_checks(self._lines.count, feed.loaded, self._reader.behind(group_id, _TOPIC))
        checks.append(("workers stopped cleanly", not complaints, "; ".join(complaints) or "exit status 0 on SIGTERM"))
        if not display.show_verdict(checks, found, source="the database"):
            raise NotExactlyOnceError("the verdict is not exactly once: the tables above say why")

    def _committed(self, offsets: GroupOffsets) -> int:
        """Return what the group's offsets show, which follow behind those in the table."""
        try:
            return sum(offsets.read(_TOPIC, self._partition_count).values())
        except ClusterUnavailableError:  # its coordinator is not known yet
            return 0


def audited_rows(reader: ClusterReader, topic: str, rows: Iterable[tuple[int, int, bytes]]) -> Findings:
    """Compare ``rows``, each a partition, an offset and a content, with the records of ``topic``."""
    audit = OutputAudit()
    reader.expect_inputs(audit, topic)
    of_partition, of_offset = INVOICE_HEADERS
    for partition, offset, content in rows:
        origin: dict[str, bytes] = {of_partition: b"%d" % partition, of_offset: b"%d" % offset}
        audit.check_output(partition, origin, content)
    found = audit.findings()
    found.hidden = None
    return found
