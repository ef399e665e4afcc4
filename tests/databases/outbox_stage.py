"""Relays of one outbox on the simulated cluster, an application that writes rows, and an oracle that knows all of them.

Each relay stands for a process. Its loop is run turn by turn, so that several of them take turns in one thread; a relay
that is killed is never called again, and the cluster hears nothing of it any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, Table, create_engine, event, func, insert, select

from eos_client import EosConfig
from eos_client.errors import ClusterUnavailableError, EosError, FatalClientError, ProducerFencedError
from eos_client.integration.sql import OutboxRelay, create_outbox, outbox_table
from eos_client.integration.sql import outbox_relay as relay_module
from eos_client.integration.sql.outbox_rows import SqlOutboxStore
from eos_client.position_store import StoreUnavailableError
from eos_client.testing.simulator import SimulatedCluster
from tests.support.protocols import EAGER, settings_of

GROUP, OUT, LEDGER = "shop-relay", "events", "shop-relay-outbox"
ENDS_A_PROCESS = (ProducerFencedError, FatalClientError, ClusterUnavailableError)
"""What a supervisor starts a relay again for."""
Fault = Callable[[str], None]


class ConnectionLostError(StoreUnavailableError):
    """The connection was lost: before the request was served, or after."""


class BreakableStore(SqlOutboxStore):
    """A store whose next requests can lose their connection: "request" before they are served, "reply" after."""

    faults: list[tuple[str, str]] = []  # noqa: RUF012  # of the test that runs

    def _served(self, name: str, serve: Callable[[], Any]) -> Any:
        due = [lost for request, lost in self.faults if request == name]
        if due:
            self.faults.remove((name, due[0]))
        if "request" in due[:1]:
            raise ConnectionLostError(f"{name}: the connection was lost")
        answer = serve()
        if "reply" in due[:1]:
            raise ConnectionLostError(f"{name}: the connection was lost after it was served")
        return answer

    def states(self, buckets: Any) -> Any:
        return self._served("states", lambda: super(BreakableStore, self).states(buckets))

    def number(self) -> int:
        return int(self._served("number", super().number))

    def number_and_read(self) -> Any:
        return self._served("number", super().number_and_read)

    def read(self, spans: Any) -> Any:
        return self._served("read", lambda: super(BreakableStore, self).read(spans))

    def clear(self, published: Mapping[int, int]) -> Any:
        return self._served("clear", lambda: super(BreakableStore, self).clear(published))


@dataclass(frozen=True)
class Written:
    """A row that was committed as the ``ordinal``-th of all."""

    row_id: int
    key: bytes
    value: bytes
    ordinal: int


@dataclass
class Application:
    """Writes rows, each with a value of its own, and knows when each became visible."""

    engine: Any
    table: Table
    written: list[Written] = field(default_factory=list)
    reserved: list[tuple[int, bytes]] = field(default_factory=list)
    _ids: int = 0
    _commits: int = 0

    def draw(self) -> int:
        """Draw an id, as an INSERT does long before its COMMIT."""
        self._ids += 1
        return self._ids

    def commit(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Insert ``rows``, ids that were drawn with keys, in one transaction."""
        self._commits += 1
        new = [Written(row_id, key, b"row-%d" % row_id, self._commits) for row_id, key in sorted(rows)]
        with self.engine.begin() as connection:
            connection.execute(
                insert(self.table),
                [{"id": row.row_id, "record_key": row.key, "record_value": row.value} for row in new],
            )
        self.written += new

    def write(self, *keys: bytes) -> None:
        """Write a row of each key in one transaction."""
        self.commit([(self.draw(), key) for key in keys])

    def begin_late(self, *keys: bytes) -> None:
        """Draw ids for a transaction that stays open until `commit_late`."""
        self.reserved += [(self.draw(), key) for key in keys]

    def commit_late(self) -> None:
        """Commit the transaction that was left open."""
        if self.reserved:
            self.commit(self.reserved)
            self.reserved = []


class Relay:
    """A process that runs one relay."""

    def __init__(self, stage: OutboxStage, name: str, **options: Any) -> None:
        self.name = name
        settings = {"bootstrap.servers": "simulated", "client.id": name, **stage.settings}
        given = {"buckets": stage.buckets, "default_topic": OUT, "poll_interval_s": 0.3, **options}
        config = EosConfig(settings, group_id=GROUP, commit_interval_s=0.05, max_records=7, batch_size=5)
        self.outbox_relay = OutboxRelay(
            stage.engine, stage.table, config, **given, hook=stage.events.append, clients=stage.cluster
        )
        self._loop = self.outbox_relay._loop
        self._has_begun = False

    def turn(self) -> None:
        """Let it work for one turn of its loop."""
        if not self._has_begun:
            self._has_begun = True
            self.outbox_relay._prepare()
            self._loop._claim()
            self._loop._start()
        self._loop._turn()

    def close(self) -> None:
        self._loop._shutdown.request("the story closes it")
        if self._has_begun:
            self._loop._drain()
        self._loop._close_clients()


class OutboxStage:
    """One cluster, one database file, and the relays that run."""

    def __init__(
        self, folder: Path, seed: int = 0, *, buckets: int = 4, keep: bool = False, protocol: str = EAGER
    ) -> None:
        self.buckets, self.keep, self.settings = buckets, keep, settings_of(protocol)
        self.cluster = SimulatedCluster(seed, request_timeout_s=2.0)
        self.cluster.create_topic(LEDGER, buckets)
        self.cluster.create_topic(OUT, 2)
        self.engine = create_engine(f"sqlite:///{folder / f'outbox-{seed}.db'}")
        event.listen(self.engine, "connect", _fast)
        self.table: Any = outbox_table("outbox", MetaData())
        create_outbox(self.engine, self.table)
        self.application = Application(self.engine, self.table)
        self.relays: list[Relay] = []
        self.events: list[Any] = []
        self._started = 0

    def start(self, **options: Any) -> Relay:
        self._started += 1
        relay = Relay(self, f"relay-{self._started}", **{"keep": self.keep, **options})
        self.relays.append(relay)
        return relay

    def turn(self, relay: Relay) -> None:
        """Let ``relay`` work; one that ends with an error is started anew, as its supervisor would."""
        try:
            relay.turn()
        except ENDS_A_PROCESS:
            self.kill(relay)
            self.start()

    def kill(self, relay: Relay) -> None:
        self.relays.remove(relay)
        self.cluster.kill(relay.name)

    def close(self, relay: Relay) -> None:
        self.relays.remove(relay)
        try:
            relay.close()
        except EosError:
            self.cluster.kill(relay.name)

    def finish(self, **options: Any) -> None:
        """Kill all relays, and let a new one publish the rest."""
        for relay in list(self.relays):
            self.kill(relay)
        self.cluster.advance(120)  # the group evicts them
        self.application.commit_late()
        self.cluster.faults.withdraw()
        BreakableStore.faults.clear()
        last = self.start(**options)
        assert last.outbox_relay.run(until_end=True)
        self.relays.remove(last)

    # -- what is true at the end -------------------------------------------------------------------------------------

    def published(self) -> list[Any]:
        return self.cluster.read(OUT)

    def left(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(self.table)).scalar_one())

    def violations(self) -> list[str]:
        return violations(self.application.written, [(record.key, record.value) for record in self.published()])


def violations(written: Sequence[Written], published: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """Return what is lost, doubled, foreign, or out of order per key.

    A row precedes another one of its key where it was visible no later and has the lower id: where both orders agree.
    """
    rows = {row.value: row for row in written}
    places: dict[bytes, list[int]] = defaultdict(list)
    for place, (_, value) in enumerate(published):
        places[value].append(place)
    found = [f"{value!r} is lost" for value in rows if value not in places]
    found += [f"{value!r} is there {len(at)} times" for value, at in places.items() if len(at) > 1]
    found += [f"{value!r} was never written" for value in places if value not in rows]
    found += [f"{value!r} has another key" for key, value in published if value in rows and rows[value].key != key]
    by_key: dict[bytes, list[Written]] = defaultdict(list)
    for row in written:
        by_key[row.key].append(row)
    for of_key in by_key.values():
        found += [
            f"{late.value!r} overtook {early.value!r}"
            for early in of_key
            for late in of_key
            if early.ordinal <= late.ordinal
            and early.row_id < late.row_id
            and early.value in places
            and late.value in places
            and places[late.value][0] < places[early.value][0]
        ]
    return found


def _fast(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous = OFF")


@contextmanager
def breakable_stores() -> Iterator[None]:
    """Let the relays that are built meanwhile have stores that can be broken."""
    before, BreakableStore.faults = relay_module.SqlOutboxStore, []  # type: ignore[attr-defined]
    relay_module.SqlOutboxStore = BreakableStore  # type: ignore[attr-defined]
    try:
        yield
    finally:
        relay_module.SqlOutboxStore = before  # type: ignore[attr-defined]
