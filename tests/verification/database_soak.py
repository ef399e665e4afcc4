"""Rows into PostgreSQL under faults: whether each record has one row, in order, by DatabaseLoop and by hand.

    python -m tests.verification.database_soak [--seconds 60] [--protocols range cooperative-sticky consumer]
        [--kinds eos commit-after commit-before own-table upsert-only] [--database postgres] [--faults-per-second 2]
        [--commit-interval 0.1] [--seed 1]

Two workers read six partitions. The faults, at random: a worker is killed, or suspended for up to 9 s, so that its
group evicts it; the connections of the next commits are cut at COMMIT; all sessions of the database are ended; the
primary is killed and starts again, or its synchronous standby is promoted in its place (not on MySQL). At the end the
faults stop, and the workers finish what was written. The table has no constraint. Of "upsert-only", which keeps the
last value of each key, a trigger writes down each change of a value: one that comes back counts as doubled, and one
that gives way to an earlier one as out of order. Exit status: 0 when the rows of "eos" are exact.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.embedded_mysql import EmbeddedMysql
from eos_client.testing.embedded_postgres import EmbeddedPostgres
from tests.verification.commit_cutter import CommitCutter
from tests.verification.database_worker import COMMITTED, EXACTLY_ONCE, TOPIC
from tests.verification.protocols import LATEST_VERSION
from tests.verification.tables import table
from tests.verification.topics import create_topics, delete_topics

PARTITIONS, WORKERS = 6, 2
PROTOCOLS = ("range", "cooperative-sticky", "consumer")
KINDS = (EXACTLY_ONCE, "commit-after", "commit-before", "own-table", "upsert-only")
DRAIN_S, RATE = 240.0, 400
HEADS = ("kind", "protocol", "records", "transactions", "faults", "not reached", "lost", "doubled", "out of order")


class MySql:
    """One MySQL behind the proxy."""

    tables = (
        "CREATE TABLE soak_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, part INT, off BIGINT, val BIGINT, worker INT)",
    )

    def __init__(self, directory: Path) -> None:
        self.primary = EmbeddedMysql(directory / "mysql")

    def start(self, seed: int) -> CommitCutter:
        """Start it; returns the proxy."""
        self.primary.start()
        return CommitCutter(self.primary.port, seed)

    def execute(self, *statements: str) -> None:
        """Run statements beside the proxy."""
        with create_engine(self.primary.url, poolclass=NullPool).begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def restart(self) -> None:
        """Kill it and start it again."""
        self.primary.kill()
        self.primary.restart()

    def end_sessions(self) -> None:
        """End all sessions but this one's."""
        with create_engine(self.primary.url, poolclass=NullPool).connect() as connection:
            wanted = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> connection_id()"
            for session in connection.execute(text(wanted)).scalars().all():
                with suppress(SQLAlchemyError):  # it may be gone
                    connection.execute(text(f"KILL {int(session)}"))

    def stop(self) -> None:
        """Stop it."""
        self.primary.stop()


@dataclass
class Postgres:
    """A primary with a synchronous standby, behind the proxy."""

    tables = (
        "CREATE TABLE soak_rows (id BIGSERIAL, part INT, off BIGINT, val BIGINT, worker INT)",
        "CREATE TABLE soak_offsets (part INT PRIMARY KEY, next BIGINT)",
        "CREATE TABLE soak_state (entity INT PRIMARY KEY, part INT, off BIGINT, val BIGINT)",
        """CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF TG_OP = 'INSERT' OR OLD.val <> NEW.val THEN
           INSERT INTO soak_rows (part, off, val) VALUES (NEW.part, NEW.off, NEW.val); END IF; RETURN NULL; END $$""",
        "CREATE TRIGGER logged AFTER INSERT OR UPDATE ON soak_state FOR EACH ROW EXECUTE FUNCTION log_change()",
    )

    directory: Path
    servers: list[EmbeddedPostgres] = field(default_factory=list)
    primary: EmbeddedPostgres = field(init=False)
    standby: EmbeddedPostgres | None = None

    def start(self, seed: int) -> CommitCutter:
        """Start both; returns the proxy."""
        self.primary = EmbeddedPostgres(self.directory / "a").start()
        self.servers.append(self.primary)
        self._add_standby()
        self.cutter = CommitCutter(self.primary.port, seed)
        return self.cutter

    def _add_standby(self) -> None:
        self.standby = self.primary.standby(self.directory / f"s{len(self.servers)}")
        self.servers.append(self.standby)

    def execute(self, *statements: str) -> None:
        """Run statements on the primary, beside the proxy."""
        with create_engine(self.primary.url, poolclass=NullPool).begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def fail_over(self) -> None:
        """Kill the primary and promote its standby, which gets a standby of its own."""
        if self.standby is None:
            return
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, None
        self.cutter.target_port = self.primary.port
        self.cutter.cut_all()
        self._add_standby()

    def restart(self) -> None:
        """Kill the primary and start it again."""
        self.primary.kill()
        self.primary.restart()

    def end_sessions(self) -> None:
        """End all sessions but this one's and the standby's."""
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        self.execute(f"{ended} AND pid <> pg_backend_pid()")

    def stop(self) -> None:
        """Stop all servers."""
        for server in reversed(self.servers):
            server.stop()


class Fleet:
    """The workers, each of which is started again when it ends."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.verification.database_worker", *arguments]
        self._log = log.open("ab")
        self.log_path = log
        self.workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=self._log, stderr=subprocess.STDOUT)

    def revive(self) -> None:
        """Start those again that have ended."""
        self.workers = [self._start() if worker.poll() is not None else worker for worker in self.workers]

    def kill(self, choice: random.Random) -> None:
        """Kill one."""
        worker = choice.choice(self.workers)
        worker.kill()
        worker.wait()
        self.revive()

    def suspend(self, choice: random.Random) -> None:
        """Suspend one, sometimes for longer than its session."""
        worker = choice.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(choice.choice((0.3, 1.0, 9.0)))
        worker.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:  # noqa: PERF203  # two turns
                worker.kill()
        self._log.close()

    @property
    def transactions(self) -> int:
        """How many transactions the workers have logged as committed."""
        return self.log_path.read_bytes().count(COMMITTED.encode())


def run(kind: str, protocol: str, arguments: argparse.Namespace, bootstrap: str, directory: Path) -> list[object]:
    """One run: its line of the table."""
    choice = random.Random(f"{arguments.seed}-{kind}-{protocol}")
    create_topics(bootstrap, {TOPIC: PARTITIONS})
    database: Postgres | MySql = (MySql if arguments.database == "mysql" else Postgres)(directory)
    faults, written = Counter[str](), 0
    cutter = database.start(arguments.seed)
    try:
        database.execute(*database.tables)
        url = re.sub(r":\d+/", f":{cutter.port}/", database.primary.url)
        fleet = Fleet([bootstrap, url, protocol, kind, str(arguments.commit_interval)], directory / "workers.log")
        acts = {
            "kill": lambda: fleet.kill(choice),
            "suspend": lambda: fleet.suspend(choice),
            "cut": lambda: cutter.cut_next(3),
            "sessions": database.end_sessions,
            "restart": database.restart,
        }
        weights = [5, 3, 8, 3, 1]
        if isinstance(database, Postgres):
            acts["failover"] = database.fail_over
            weights.append(1)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        ends_at, fault_at = time.monotonic() + arguments.seconds, time.monotonic() + 5.0
        while (now := time.monotonic()) < ends_at:
            for _ in range(RATE // 20):
                producer.produce(TOPIC, str(written), partition=written % PARTITIONS)
                written += 1
            producer.poll(0)
            if now >= fault_at:
                (name,) = choice.choices(list(acts), weights)
                try:
                    acts[name]()
                    faults[name] += 1
                except SQLAlchemyError as error:
                    print(f"fault {name}: {type(error).__name__}", file=sys.stderr)
                fault_at = time.monotonic() + choice.uniform(0.1, 1.9) / arguments.faults_per_second
            fleet.revive()
            time.sleep(0.05)
        producer.flush()
        cutter.cut_no_more()
        reached = _drain(database, fleet, written, lambda: _reached(database, bootstrap, kind))
        fleet.stop()
        rows = _rows(database)
        faults["cut"] = cutter.cuts
        transactions = fleet.transactions
    finally:
        cutter.__exit__()
        database.stop()
        delete_topics(bootstrap, [TOPIC])
    behind = written - reached
    return [kind, protocol, written, transactions, sum(faults.values()), behind, *_judged(rows, written - behind)]


def _drain(database: Postgres | MySql, fleet: Fleet, written: int, reached: Callable[[], int]) -> int:
    """Wait until the workers have reached the end; returns how many records they have behind them."""
    deadline = time.monotonic() + DRAIN_S
    while (count := reached()) < written and time.monotonic() < deadline:
        fleet.revive()
        time.sleep(0.5)
    return count


def _reached(database: Postgres | MySql, bootstrap: str, kind: str) -> int:
    """Return how many records lie behind the positions of the workers, whether they have rows or not."""
    if kind in {EXACTLY_ONCE, "own-table"}:
        table_of = {EXACTLY_ONCE: "next_offset) FROM eos_offsets", "own-table": "next) FROM soak_offsets"}
        try:
            with create_engine(database.primary.url, poolclass=NullPool).connect() as connection:
                return int(connection.execute(text(f"SELECT sum({table_of[kind]}")).scalar() or 0)
        except SQLAlchemyError:  # no worker has come so far as to make its table
            return 0
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "soak"})
    try:
        committed = reader.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], 10.0)
    except KafkaException:
        return 0
    finally:
        reader.close()
    return sum(max(0, each.offset) for each in committed)


def _rows(database: Postgres | MySql) -> list[tuple[int, int, int]]:
    with create_engine(database.primary.url, poolclass=NullPool).connect() as connection:
        found = connection.execute(text("SELECT part, off, val FROM soak_rows ORDER BY id")).all()
    return [(part, offset, value) for part, offset, value in found]


def _judged(rows: list[tuple[int, int, int]], reached: int) -> tuple[int, int, int]:
    """Return how many records have no row, how many rows are too many, and how many come behind a later one."""
    times, furthest, disordered = Counter(value for _, _, value in rows), dict[int, int](), 0
    for part, offset, _ in rows:
        disordered += offset < furthest.get(part, -1)
        furthest[part] = max(offset, furthest.get(part, -1))
    return max(0, reached - len(times)), sum(count - 1 for count in times.values()), disordered


def main(arguments: argparse.Namespace) -> int:
    """Run all, print the table."""
    lines: list[list[object]] = []
    with (
        tempfile.TemporaryDirectory(prefix="database-soak-", ignore_cleanup_errors=True) as name,
        EmbeddedKafka(version=LATEST_VERSION) as broker,
    ):
        Path(name).chmod(0o755)
        for kind in arguments.kinds:
            for protocol in arguments.protocols:
                directory = Path(name) / f"{kind}-{protocol}"
                directory.mkdir()
                lines.append(run(kind, protocol, arguments, broker.bootstrap_servers, directory))
                print(*lines[-1], file=sys.stderr, flush=True)
    print(table(HEADS, [[str(cell) for cell in line] for line in lines]))
    return 0 if all(line[-4:] == [0, 0, 0, 0] for line in lines if line[0] == EXACTLY_ONCE) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--protocols", nargs="+", default=PROTOCOLS, choices=PROTOCOLS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--database", default="postgres", choices=("postgres", "mysql"))
    parser.add_argument("--faults-per-second", type=float, default=2.0)
    parser.add_argument("--commit-interval", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.database == "mysql":
        given.kinds = [EXACTLY_ONCE]  # what is written by hand speaks PostgreSQL
    raise SystemExit(main(given))
