"""Random stories of several workers on one database: what happens is drawn, and an oracle reads the tables at the end.

Names of the rules: R1 none lost, R2 none doubled, R3 in order by partition, R4 told outcomes are true, R5 Kafka's
offsets never lead, R6 it comes to an end.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from eos_client import Outcome
from eos_client.errors import EosError
from eos_client.testing.simulator.brokers.model import BrokerError
from tests.databases.breaking_connections import Driver, Fault, Statement
from tests.databases.stage import GROUP, Stage
from tests.support.protocols import PROTOCOLS, settings_of

STEPS = 60
STEPS_TO_END_MAX = 400


class OwnError(Exception):
    """What the application raises."""


def insert(connection: Any, records: list[Any], attempt: str) -> None:
    rows = [{"p": r.partition(), "o": r.offset(), "v": attempt} for r in records]
    if rows:
        connection.execute(text("insert into rows (p, o, v) values (:p, :o, :v)"), rows)


class BlockWorker:
    """The product: blocks of a DatabaseConsumer."""

    sleeps_before = Statement.BEGIN

    def __init__(self, story: Story, name: str, engine: Any, settings: dict[str, str]) -> None:
        self.story = story
        self.consumer = story.stage.consumer(engine, client_id=name, **settings)
        self._told: list[tuple[Any, str]] = []

    def step(self, max_records: int, raises: bool) -> None:
        attempt = self.story.attempt()
        block = self.consumer.database_transaction(max_records, 0.2)
        self._told.append((block, attempt))
        with suppress(OwnError), block as (connection, records):
            insert(connection, records, attempt)
            if raises:
                raise OwnError

    def told(self) -> dict[str, Outcome | None]:
        return {attempt: block.outcome for block, attempt in self._told}

    def close(self) -> None:
        self.consumer.close()


class PlainWorker:
    """A hand-written loop: rows in one transaction, and offsets in Kafka."""

    sleeps_before = Statement.ROW

    def __init__(self, story: Story, name: str, engine: Any, settings: dict[str, str]) -> None:
        self.story = story
        self.engine = engine
        given = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False, "client.id": name}
        self.consumer = story.stage.cluster.consumer({"bootstrap.servers": "simulated", **given, **settings})
        self.consumer.subscribe(["orders"])

    def step(self, max_records: int, raises: bool) -> None:
        records = [each for each in self.consumer.consume(max_records, 0.2) if each.error() is None]
        if not records:
            return
        try:
            self.perform(records, raises)
        except (OwnError, SQLAlchemyError, KafkaException):
            for partition in {each.partition() or 0 for each in records}:
                start = min(each.offset() or 0 for each in records if each.partition() == partition)
                with suppress(KafkaException):
                    self.consumer.seek(TopicPartition("orders", partition, start))

    def perform(self, records: list[Any], raises: bool) -> None:
        raise NotImplementedError

    def write(self, records: list[Any], raises: bool) -> None:
        with self.engine.begin() as connection:
            insert(connection, records, self.story.attempt())
            if raises:
                raise OwnError

    def commit(self, records: list[Any]) -> None:
        offsets = {each.partition(): each.offset() + 1 for each in records}
        self.consumer.commit(offsets=[TopicPartition("orders", p, o) for p, o in offsets.items()], asynchronous=False)

    def told(self) -> dict[str, Outcome | None]:
        return {}

    def close(self) -> None:
        self.consumer.close()


class CommitsAfter(PlainWorker):
    """Rows first: whoever stops in between writes them twice."""

    def perform(self, records: list[Any], raises: bool) -> None:
        self.write(records, raises)
        self.commit(records)


class CommitsBefore(PlainWorker):
    """Offsets first: whoever stops in between loses rows."""

    def perform(self, records: list[Any], raises: bool) -> None:
        self.commit(records)
        self.write(records, raises)


class OnlyUpserts(CommitsAfter):
    """Rows first, and each replaces the one that was there: a late one takes the place of its successors."""

    def write(self, records: list[Any], raises: bool) -> None:
        with self.engine.begin() as connection:
            for each in records:
                connection.execute(
                    text("delete from rows where p = :p and o = :o"), {"p": each.partition(), "o": each.offset()}
                )
            insert(connection, records, self.story.attempt())
            if raises:
                raise OwnError


Kind = type[BlockWorker] | type[PlainWorker]


class Story:
    """One story of ``kind``'s workers, which ``seed`` decides."""

    def __init__(self, folder: Path, seed: int, kind: Kind = BlockWorker) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.stage = Stage(folder, seed=seed)
        self.settings = settings_of(self.random.choice(PROTOCOLS))
        self.workers: dict[str, Any] = {}
        self.drivers: dict[str, Driver] = {}
        self.told: dict[str, Outcome | None] = {}
        self.errors: list[EosError] = []
        self._attempts = 0
        self._names = 0
        self._chance = self.random.choice([0.0, 0.01, 0.03])
        self._is_nested = False

    def attempt(self) -> str:
        self._attempts += 1
        return f"attempt-{self._attempts}"

    # -- what may happen -----------------------------------------------------------------------------------------------

    def starts(self) -> None:
        self._names += 1
        name = f"worker-{self._names}"
        driver = self.drivers[name] = Driver()
        self.workers[name] = self.kind(self, name, driver.engine(self.stage.path), self.settings)
        driver.plan = lambda statement: self._plan(name, statement)

    def _plan(self, name: str, statement: Statement) -> Fault | None:
        if statement is self.kind.sleeps_before and not self._is_nested and self.random.random() < 0.05:
            self._sleeps(name)
        return self.random.choice(list(Fault)) if self.random.random() < self._chance else None

    def _sleeps(self, name: str) -> None:
        """Stall the worker before its transaction while time passes, and others work."""
        self._is_nested = True
        try:
            with self.stage.cluster.zombie(name):
                self.stage.cluster.advance(self.random.choice([1, 20, 60]))
                others = [other for other in self.workers if other != name]
                for _ in range(self.random.randrange(12) if others else 0):
                    self.works(self.random.choice(others))
        finally:
            self._is_nested = False

    def works(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker is None:
            return
        try:
            worker.step(self.random.choice([1, 3, 50]), raises=self.random.random() < 0.1)
        except EosError as error:
            self.errors.append(error)
            self.ends(name)

    def ends(self, name: str, *, is_killed: bool = False) -> None:
        worker = self.workers.pop(name)
        if is_killed:
            self.stage.cluster.kill(name)
            self.drivers[name].die()
        else:
            try:
                worker.close()
            except EosError as error:
                self.errors.append(error)
        self.told |= worker.told()

    def something_happens(self) -> None:
        cluster, random = self.stage.cluster, self.random
        what = random.randrange(20)
        name = random.choice(list(self.workers)) if self.workers else None
        if what < 3:
            self.stage.write(random.randrange(1, 6), random.randrange(2))
        elif (what == 3 and len(self.workers) < 3) or name is None:
            self.starts()
        elif what == 4:
            self.ends(name, is_killed=random.random() < 0.5)
        elif what == 5:
            cluster.advance(random.choice([0.1, 5]))
        elif what == 6:
            self._loses(name)
        elif what == 7:
            with suppress(BrokerError):  # nobody is in the group just now
                cluster.rebalance(GROUP)
        elif what == 8:
            cluster.restart_coordinator()
        else:
            self.works(name)

    def _loses(self, name: str) -> None:
        with suppress(ValueError):  # it is no member just now
            self.stage.cluster.lose(name)

    # -- the whole story -----------------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """Tell the story, and return what is wrong at its end."""
        self.starts()
        for _ in range(STEPS):
            self.something_happens()
        self._chance = 0.0
        if not self.workers:
            self.starts()
        found = self._come_to_the_end()
        for name in list(self.workers):
            self.ends(name)
        return [*found, *self.stage.wrong_rows(), *self._untrue(), *self._leading()]

    def _come_to_the_end(self) -> list[str]:
        for _ in range(STEPS_TO_END_MAX):
            if not self.workers:
                self.starts()
            self.works(self.random.choice(list(self.workers)))
            # Kafka's own members may hold partitions until they are evicted.
            self.stage.cluster.advance(0.5)
            if not self.stage.wrong_rows():
                return []
            if self.kind is not BlockWorker and sum(self.stage.written) <= len(self.stage.rows()):
                break
        return ["R6: it does not come to an end"]

    def _untrue(self) -> list[str]:
        there = {attempt for _, _, attempt in self.stage.rows()}
        return [f"R4: {a} was told as aborted" for a, o in self.told.items() if o is Outcome.ABORTED and a in there]

    def _leading(self) -> list[str]:
        if self.kind is not BlockWorker:
            return []
        rows = self.stage.offsets()
        return [
            f"R5: Kafka's offset of {key} is {offset}"
            for key, offset in self.stage.kafkas_offsets().items()
            if offset > rows.get(key[1], 0)
        ]


def tell(seed: int, kind: Kind = BlockWorker) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return Story(Path(folder), seed, kind).violations()


def main() -> None:
    """Tell many stories: ``python -m tests.databases.stories --count 1000 --first 1``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kind", choices=sorted(KINDS), default="BlockWorker")
    given = parser.parse_args()
    wrong = 0
    for seed in range(given.first, given.first + given.count):
        if violations := tell(seed, KINDS[given.kind]):
            wrong += 1
            print(f"seed {seed}: {violations}", flush=True)
    print(f"{given.count} stories of {given.kind} from seed {given.first}: {wrong} with violations")


KINDS: dict[str, Kind] = {
    "BlockWorker": BlockWorker,
    "CommitsAfter": CommitsAfter,
    "CommitsBefore": CommitsBefore,
    "OnlyUpserts": OnlyUpserts,
}

if __name__ == "__main__":
    main()
