"""The rows that a member has claimed, and which of them it has to claim again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Lock

from eos_client.core.model import GroupGeneration, InputPartition, InputPositions
from eos_client.core.offset_claims import NO_OFFSET, Move, Position
from eos_client.position_store import PositionStore, StoreRefusedError, StoreTransaction

Starts = Callable[[Collection[InputPartition]], Mapping[InputPartition, Position]]


class Claims:
    """What one member has claimed of a store, and the transaction that is open there.

    ``owner`` names the member in the store. A partition is *unclaimed* from its assignment until its row was claimed.
    Its position is *in doubt* from a commit that moves it until the answer, or until its row was read once that
    transaction had ended for certain.
    """

    def __init__(self, store: PositionStore, owner: str) -> None:
        self.store = store
        self.owner = owner
        self.transaction: StoreTransaction | None = None
        self._positions: dict[InputPartition, Position] = {}
        self._unclaimed: frozenset[InputPartition] = frozenset()
        self._in_doubt: frozenset[InputPartition] = frozenset()
        self._refused: frozenset[InputPartition] = frozenset()
        self._committed: dict[InputPartition, Position] = {}
        self._lock = Lock()  # the transaction ends in the producer's thread

    # -- the assignment ----------------------------------------------------------------------------------------------

    def assigned(self, partitions: Collection[InputPartition]) -> None:
        """Claim the rows of ``partitions`` when they are asked for next."""
        with self._lock:
            self._unclaimed |= frozenset(partitions)

    def departed(self, partitions: Collection[InputPartition]) -> None:
        """Forget the claims of ``partitions``: their next owner claims the rows."""
        gone = frozenset(partitions)
        with self._lock:
            self._unclaimed -= gone
            self._refused -= gone
            self._positions = {p: position for p, position in self._positions.items() if p not in gone}
            self._committed = {p: position for p, position in self._committed.items() if p not in gone}

    def read(
        self, partitions: Collection[InputPartition], generation: GroupGeneration, starts: Starts
    ) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions``; those that are not claimed under ``generation`` are claimed first.

        After an unnoticed rejoin the group may have given them to another member in between. Where a position is in
        doubt, the transaction that may have moved it must have ended. ``starts``: returns what rows that are missing
        begin with. Raises StoreError, ClaimRefusedError.
        """
        asked = frozenset(partitions)
        self._resolve(asked)
        if due := self._due(asked, generation):
            missing = due - self.store.read(due).keys()
            begins = {p: Position(NO_OFFSET) for p in due} | dict(starts(missing) if missing else {})
            claimed = self.store.claim(begins, generation, self.owner)
            with self._lock:
                self._positions.update(claimed)
                self._unclaimed -= claimed.keys()
        known = {p: self._positions[p] for p in asked if p in self._positions}
        others = asked - known.keys()
        return {**known, **(self.store.read(others) if others else {})}

    def _due(self, asked: frozenset[InputPartition], generation: GroupGeneration) -> frozenset[InputPartition]:
        outdated = {p for p, each in self._positions.items() if each.generation < generation.generation_id}
        return asked & (self._unclaimed | outdated)

    def _resolve(self, asked: frozenset[InputPartition]) -> None:
        in_doubt = self._in_doubt & asked
        if not in_doubt:
            return
        settled = self.store.read_settled(in_doubt)
        with self._lock:
            found = {p: position for p, position in settled.items() if p in self._positions}
            self._committed.update({p: each for p, each in found.items() if each != self._positions[p]})
            self._positions.update(found)
            self._in_doubt -= in_doubt

    # -- the transaction ---------------------------------------------------------------------------------------------

    def begin(self) -> StoreTransaction:
        """Begin a transaction of the store; raises StoreError."""
        self.close()
        self.transaction = self.store.begin()
        return self.transaction

    def moves_of(self, positions: InputPositions, attempt: str) -> dict[InputPartition, Move]:
        """Return the moves of the rows to ``positions``; raises StoreRefusedError for one that is not claimed."""
        moves: dict[InputPartition, Move] = {}
        for partition, position in positions.items():
            claimed = self._positions.get(partition)
            if claimed is None or partition in self._in_doubt:
                raise StoreRefusedError(f"the row of {partition} is not claimed by this member")
            moves[partition] = Move(claimed, position.next_offset, position.leader_epoch, attempt)
        return moves

    def record_changed(self, partitions: Collection[InputPartition]) -> bool:
        """Record that rows of ``partitions`` did not show what was claimed; returns whether that is so once more."""
        with self._lock:
            is_repeated = not self._refused.isdisjoint(partitions)
            self._refused |= frozenset(partitions)
        return is_repeated

    def commit(self, transaction: StoreTransaction, moves: Mapping[InputPartition, Move]) -> None:
        """Commit ``transaction``, which holds ``moves``; raises StoreError."""
        with self._lock:
            self._in_doubt |= moves.keys()
        try:
            transaction.commit()
        except StoreRefusedError:
            with self._lock:
                self._in_doubt -= moves.keys()
            raise
        with self._lock:
            # Only what is as it was: a COMMIT that was overdue may return long after its outcome was read.
            results = {p: move.result for p, move in moves.items() if self._positions.get(p) == move.claimed}
            self._positions.update(results)
            self._committed.update(results)
            self._in_doubt -= results.keys()
            self._refused -= results.keys()
        transaction.close()

    def take_committed(self) -> dict[InputPartition, Position]:
        """Return, once, what was committed since the last call."""
        with self._lock:
            committed, self._committed = self._committed, {}
        return committed

    def close(self) -> None:
        """Roll back what is open. A call that is interrupted is repeated by the next one."""
        if self.transaction is not None:
            self.transaction.close()
            self.transaction = None
