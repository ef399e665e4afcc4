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


class StoreChangedError(StoreRefusedError):
    """A row does not show what was claimed: another member has claimed it, or moved it."""


class StoreMisusedError(StoreRefusedError):
    """The application has ended the transaction that it was given, so that rows of it may be committed already."""


class StoreUnfitError(StoreError):
    """The store can never do that: its table is missing or of another shape, or a permission is."""


class StoreTransaction(Protocol):
    """One open transaction of the store. Its calls come from one thread at a time."""

    @property
    def connection(self) -> Any:
        """What the application writes its rows with."""
        ...

    @property
    def was_ended(self) -> bool:
        """Whether the application has ended it."""
        ...

    def was_ended_by_statement(self) -> bool:
        """Return whether a statement of the application has ended it, which only the store knows."""
        ...

    def move(self, moves: Mapping[InputPartition, Move]) -> None:
        """Move the rows of these partitions, if each still shows what was claimed.

        Raises StoreChangedError, and why, where one does not; StoreMisusedError, StoreError.
        """
        ...

    def write(self, table: str, record: OutputRecord) -> None:
        """Insert a dead letter into ``table``; raises StoreError."""
        ...

    def commit(self) -> None:
        """Commit. Raises StoreUnavailableError where it may have taken effect, StoreRefusedError where it did not.

        Raises StoreMisusedError as ``move`` does.
        """
        ...

    def close(self) -> None:
        """Roll back what is open and give the connection back; never raises, and never waits for another call of it.

        May be called from any thread, and again where it was interrupted. Later calls raise StoreRefusedError.
        """
        ...


class PositionStore(Protocol):
    """Keeps one row for each partition of a group. Any of these may raise StoreError."""

    def prepare(self) -> None:
        """Make sure that the store answers and can keep the positions."""
        ...

    def read(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions``, as far as there are any."""
        ...

    def read_settled(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Return the rows of ``partitions``; raises StoreRefusedError while a transaction holds one of them."""
        ...

    def claim(
        self, starts: Mapping[InputPartition, Position], generation: GroupGeneration, owner: str
    ) -> Mapping[InputPartition, Position]:
        """Claim the rows of these partitions, all or none, and return what they show now.

        A row that is missing is made of ``starts``. Raises ClaimRefusedError, and StoreRefusedError while a transaction
        holds one of them.
        """
        ...

    def begin(self) -> StoreTransaction:
        """Begin a transaction."""
        ...
