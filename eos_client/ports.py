"""The protocols that adapters and test doubles implement: clients, client library, clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eos_client.core.commit_gate import CommitGate
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition, InputPositions

Header = tuple[str, "str | bytes | None"]
Headers = Sequence[Header] | Mapping[str, "str | bytes | None"]


class Record(Protocol):
    """One consumed record, as confluent_kafka's ``Message`` gives it."""

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> Any: ...  # noqa: D102
    def value(self) -> Any: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def error(self) -> Any: ...  # noqa: D102


class OutputRecord:
    """One record to write. ``topic=None`` means the loop's default output topic.

    ``partition=None`` leaves the choice to the producer's partitioner; ``timestamp_ms=None`` stamps the current time
    (milliseconds since the epoch, UTC; 1 at least, because librdkafka takes 0 for the current time).
    """

    __slots__ = ("headers", "key", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        topic: str | None = None,
        *,
        value: str | bytes | None,
        key: str | bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"OutputRecord({fields})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable


Output = OutputRecord | bytes
Transform = Callable[[Any], "Iterable[Output] | None"]


@dataclass(frozen=True, slots=True)
class MembershipSnapshot:
    """The group metadata as one read gave it: opaque for the broker (KIP-447), decoded for the gate."""

    group_metadata: Any
    generation: GroupGeneration


class NamedPartition(Protocol):
    """What a rebalance callback gets: confluent_kafka's ``TopicPartition``."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102


def keys_of(partitions: Iterable[NamedPartition]) -> frozenset[InputPartition]:
    """Return the names of ``partitions``."""
    return frozenset(InputPartition(p.topic, p.partition) for p in partitions)


class RebalanceListener(Protocol):
    """Hears of rebalances, in the thread that polls, with the very list that the client library gave."""

    def on_assigned(self, partitions: list[Any], /) -> None:
        """``partitions`` were given to us."""
        ...

    def on_revoked(self, partitions: list[Any], /) -> None:
        """``partitions`` are about to leave; they are ours until this returns."""
        ...

    def on_lost(self, partitions: list[Any], /) -> None:
        """``partitions`` have left already; nothing of them may be committed."""
        ...

    def on_membership_changed(self, partitions: list[Any], /) -> None:
        """We are another member now, and have ``partitions`` as that one; as the old one we have lost them unheard."""
        ...


class RevocationWork(Protocol):
    """The open work of a member, as the revocation listener needs it. None of these raises."""

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        ...

    def uncommitted(self) -> frozenset[InputPartition]:
        """Return the partitions whose consumed records are in the open work and not committed."""
        ...

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit open work that covers any of ``partitions``; on failure, abort it."""
        ...

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """End open work that covers any of ``partitions``, because the application's ``on_revoke`` raised.

        A transaction is aborted, because its records may be processed in part; plain offsets are committed.
        """
        ...

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """``partitions`` have left, revoked or lost."""
        ...


class Clock(Protocol):
    """What time is measured by and waited for: real, or a simulation's.

    A simulation's says so by an attribute ``is_simulated = True``: calls into its clients then get no real-time budget.
    """

    def __call__(self) -> float:
        """Return seconds since some moment; never goes backwards."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait for ``seconds``."""
        ...


class ClientLibrary(Protocol):
    """Where a loop gets its clients, and the time they live in: confluent_kafka and real time, or a simulated cluster.

    Both clients have confluent_kafka's methods, constructor settings and errors.
    """

    @property
    def clock(self) -> Clock:
        """The clock that the clients' own time-outs go by."""
        ...

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a consumer with librdkafka's settings ``config``; raises ``KafkaException`` for a wrong one."""
        ...

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return a producer with librdkafka's settings ``config``; raises ``KafkaException`` for a wrong one."""
        ...


class GroupConsumer(Protocol):
    """A group member that remembers which of its records are not committed yet."""

    @property
    def gate(self) -> CommitGate:
        """The commit gate of this member."""
        ...

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition."""
        ...

    @property
    def positions_of_ours(self) -> InputPositions:
        """Uncommitted work of the partitions that have not left since it was consumed."""
        ...

    @property
    def records_in_hand(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        ...

    @property
    def assigned(self) -> frozenset[InputPartition]:
        """The partitions that the group gave us and has not taken back."""
        ...

    def settle_commits_by_hand(self, timeout_s: float) -> None:
        """Note what the application's own transactions have committed: an abort must not go back behind it."""
        ...

    @property
    def unanswered_commits(self) -> frozenset[InputPartition]:
        """The partitions for which an asynchronous commit is still on its way."""
        ...

    @property
    def unfenced_commits(self) -> frozenset[InputPartition]:
        """The partitions for which a plain commit may still be served after whatever is sent now."""
        ...

    def fence_commits(self) -> None:
        """Become another member of the group where a plain commit could be served after the next transaction."""
        ...

    @property
    def synced_generation(self) -> GroupGeneration:
        """The newest generation for which no rebalance callback can still be waiting."""
        ...

    def require_open(self) -> None:
        """Raise ClientClosedError where nothing can be committed by this consumer any more."""
        ...

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        ...

    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due; with ``drain``, prove that none is left behind queued records."""
        ...

    def prefetch(self) -> None:
        """Take records that are there already, for a later ``consume``; serves callbacks."""
        ...

    def processed(self) -> None:
        """All records that were handed over so far have been processed, and their outputs were written."""
        ...

    def settle(self, positions: InputPositions) -> None:
        """Note that the work in ``positions`` was committed; more may have been handed over since."""
        ...

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop the uncommitted positions of ``partitions``."""
        ...

    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours."""
        ...

    def rewind_soon(self) -> None:
        """Rewind as soon as the running ``consume`` has returned; for rebalance callbacks."""
        ...

    def wait_while_paused(self, limit_s: float) -> None:
        """Consume nothing for up to ``limit_s`` seconds and serve callbacks."""
        ...

    def committed_entries(
        self, partitions: Iterable[InputPartition], timeout_s: float
    ) -> dict[InputPartition, CommittedOffset]:
        """Read the group's stable committed offsets with their metadata; partitions without one are left out."""
        ...
