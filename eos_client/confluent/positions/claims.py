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

    def read(
        self, partitions: Collection[InputPartition], generation: GroupGeneration, starts: Starts
    ) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions``; those that are unclaimed are claimed first, all that there are at once.

        Where a position is in doubt, waits for the transaction that may have moved it. ``starts``: returns what rows
        that are missing begin with. Raises StoreError, ClaimRefusedError.
        """
        self._settle(partitions)
        due = self._unclaimed
        if not due.isdisjoint(partitions):
            missing = due - self.store.read(due).keys()
            begins = {p: Position(NO_OFFSET) for p in due} | dict(starts(missing) if missing else {})
            claimed = self.store.claim(begins, generation, self.owner)
            with self._lock:
                self._positions.update(claimed)
                self._unclaimed -= claimed.keys()
        known = {p: self._positions[p] for p in partitions if p in self._positions}
        others = [p for p in partitions if p not in known]
        return {**known, **(self.store.read(others) if others else {})}

    def _settle(self, partitions: Collection[InputPartition]) -> None:
        in_doubt = self._in_doubt & frozenset(partitions)
        if not in_doubt:
            return
        settled = self.store.read_settled(in_doubt)
        with self._lock:
            self._positions.update({p: position for p, position in settled.items() if p in self._positions})
            self._in_doubt -= in_doubt

    # -- the transaction ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction of the store; raises StoreError."""
        self.close()
        self.transaction = self.store.begin()

    def move(self, positions: InputPositions, attempt: str) -> dict[InputPartition, Move]:
        """Move the rows of ``positions`` in the open transaction and return how.

        Raises StoreRefusedError for one that is not claimed any more.
        """
        open_transaction = self._open()
        moves: dict[InputPartition, Move] = {}
        for partition, position in positions.items():
            claimed = self._positions.get(partition)
            if claimed is None or partition in self._in_doubt:
                raise StoreRefusedError(f"the row of {partition} is not claimed by this member")
            moves[partition] = Move(claimed, position.next_offset, position.leader_epoch, attempt)
        open_transaction.move(moves)
        return moves

    def record_refused(self, partitions: Collection[InputPartition]) -> bool:
        """Record that rows of ``partitions`` did not show what was claimed; returns whether that is so once more."""
        with self._lock:
            is_repeated = not self._refused.isdisjoint(partitions)
            self._refused |= frozenset(partitions)
        return is_repeated

    def commit(self, moves: Mapping[InputPartition, Move]) -> None:
        """Commit the open transaction, which holds ``moves``; raises StoreError."""
        with self._lock:
            self._in_doubt |= moves.keys()
        self._open().commit()
        with self._lock:
            # Only what is as it was: a COMMIT that was overdue may return long after its outcome was read.
            results = {p: move.result for p, move in moves.items() if self._positions.get(p) == move.claimed}
            self._positions.update(results)
            self._committed.update(results)
            self._in_doubt -= results.keys()
            self._refused -= results.keys()
        self.close()

    def take_committed(self) -> dict[InputPartition, Position]:
        """Return, once, what was committed since the last call."""
        with self._lock:
            committed, self._committed = self._committed, {}
        return committed

    def close(self) -> None:
        """Roll back what is open."""
        ended, self.transaction = self.transaction, None
        if ended is not None:
            ended.close()

    def _open(self) -> StoreTransaction:
        if self.transaction is None:
            raise StoreRefusedError("no transaction of the database is open")
        return self.transaction
