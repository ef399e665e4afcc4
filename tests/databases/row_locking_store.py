"""A store in memory with row locks and snapshots, as servers have them, where SQLite lets one writer in at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from eos_client import EosConsumer, EosProducer
from eos_client.confluent.positions.clients import PositionedClients
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import Move, Position, claim, why_not_moved
from eos_client.ports import OutputRecord
from eos_client.position_store import StoreChangedError, StoreRefusedError
from eos_client.testing import SimulatedCluster


class RowLockingStore:
    """``rows`` are what transactions have committed; ``before`` is called with each step's name before it."""

    def __init__(self) -> None:
        self.positions: dict[InputPartition, Position] = {}
        self.rows: list[Any] = []
        self.locks: dict[InputPartition, object] = {}
        self.before: Callable[[str], object] = lambda _: None

    def prepare(self) -> None:
        self.before("prepare")

    def read(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        self.before("read")
        return {p: self.positions[p] for p in partitions if p in self.positions}

    def read_settled(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        self.require_unlocked(partitions, None)
        return self.read(partitions)

    def claim(
        self, starts: Mapping[InputPartition, Position], generation: GroupGeneration, owner: str
    ) -> Mapping[InputPartition, Position]:
        self.before("claim")
        self.require_unlocked(starts, None)
        claimed = {p: claim(self.positions.get(p, start), generation, owner) for p, start in starts.items()}
        self.positions |= claimed
        return claimed

    def begin(self) -> RowLockingTransaction:
        self.before("begin")
        return RowLockingTransaction(self)

    def require_unlocked(self, partitions: Collection[InputPartition], owner: object) -> None:
        if any(self.locks.get(p, owner) is not owner for p in partitions):
            raise StoreRefusedError("another transaction holds the row")


class RowLockingTransaction:
    """Its own ``connection``, to which rows are appended."""

    was_ended = False

    def __init__(self, store: RowLockingStore) -> None:
        self.store = store
        self.connection: list[Any] = []
        self.moves: Mapping[InputPartition, Move] = {}
        self.is_closed = False

    def was_ended_by_statement(self) -> bool:
        return False

    def move(self, moves: Mapping[InputPartition, Move]) -> None:
        self._require_open("move")
        self.store.require_unlocked(moves, self)
        if why := why_not_moved(moves, self.store.positions):
            raise StoreChangedError(why)
        self.moves = moves
        self.store.locks |= dict.fromkeys(moves, self)

    def write(self, table: str, record: OutputRecord) -> None:
        self._require_open("write")
        self.connection.append((table, record))

    def commit(self) -> None:
        self._require_open("commit")
        self.store.rows += self.connection
        self.store.positions |= {p: move.result for p, move in self.moves.items()}
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self.store.locks = {p: owner for p, owner in self.store.locks.items() if owner is not self}

    def _require_open(self, step: str) -> None:
        self.store.before(step)
        if self.is_closed:
            raise StoreRefusedError("it was rolled back")


class Member:
    """One consumer and one producer on the store, in blocks."""

    def __init__(self, cluster: SimulatedCluster, store: RowLockingStore, name: str, **settings: str) -> None:
        self.store = store
        self.clients = PositionedClients(store, name, cluster)
        given = {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "earliest", "client.id": name}
        self.consumer = EosConsumer(
            {**given, **settings}, factory=self.clients.consumer, clock=cluster.clock, hook=lambda _: None
        )
        self.producer = EosProducer(
            {"bootstrap.servers": "simulated"},
            generate_id=True,
            factory=self.clients.producer,
            clock=cluster.clock,
            hook=lambda _: None,
        )
        self.session = self.producer.session(self.consumer)
        self.producer.init_transactions()
        self.consumer.subscribe(["orders"])
        self.inside: Callable[[], object] = lambda: None

    def step(self, timeout_s: float = 0.5) -> Any:
        block = self.producer.transaction(self.consumer)
        with block:
            records = self.consumer.consume(100, timeout_s)
            self.session.outputs.begin()
            self.clients.transaction.connection.extend((r.partition(), r.offset()) for r in records)
            self.inside()
        return block.outcome
