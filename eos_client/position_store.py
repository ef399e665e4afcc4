"""What a store must offer that keeps the positions of a group in the transactions of an application's rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import Move, Position
from eos_client.ports import OutputRecord


class StoreError(Exception):
    """The store did not do what it was asked for; the cause says why."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or the connection was lost: nothing is known of the request that was under way."""


class StoreRefusedError(StoreError):
    """The store has refused the request for certain, and nothing of its transaction took effect."""


class StoreUnfitError(StoreError):
    """The store can never do that: its table is missing or of another shape, or a permission is."""


class StoreTransaction(Protocol):
    """One open transaction of the store. Its calls come from one thread at a time."""

    @property
    def connection(self) -> Any:
        """What the application writes its rows with."""
        ...

    def move(self, moves: Mapping[InputPartition, Move]) -> None:
        """Move the rows of these partitions, if each still shows what was claimed.

        Raises StoreRefusedError, and why, where one does not; StoreUnavailableError.
        """
        ...

    def write(self, table: str, record: OutputRecord) -> None:
        """Insert a dead letter into ``table``; raises StoreRefusedError."""
        ...

    def commit(self) -> None:
        """Commit. Raises StoreUnavailableError where it may have taken effect, StoreRefusedError where it did not."""
        ...

    def close(self) -> None:
        """Roll back what is open and give the connection back; never raises. May be called from any thread."""
        ...


class PositionStore(Protocol):
    """Keeps one row for each partition of a group. Any of these may raise StoreUnavailableError, StoreUnfitError."""

    def prepare(self) -> None:
        """Make sure that the store answers and has its table."""
        ...

    def read(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions``, as far as there are any."""
        ...

    def read_settled(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions`` once no transaction holds them any more."""
        ...

    def claim(
        self, starts: Mapping[InputPartition, Position], generation: GroupGeneration, owner: str
    ) -> Mapping[InputPartition, Position]:
        """Claim the rows of these partitions, all or none, and return what they show now.

        Waits for a transaction that holds one of them. A row that is missing is made of ``starts``. Raises
        ClaimRefusedError.
        """
        ...

    def begin(self) -> StoreTransaction:
        """Begin a transaction."""
        ...
