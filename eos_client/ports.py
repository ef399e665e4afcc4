"""What crosses the border of the package: records, and the protocols of listeners, client libraries and clocks."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from eos_client.core.model import GroupGeneration, InputPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # PEP 696 defaults: ``Record`` without arguments means ``Record[Any, Any]``.
    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)

Header = tuple[str, "str | bytes | None"]
Headers = Sequence[Header] | Mapping[str, "str | bytes | None"]


class Record(Protocol[K_co, V_co]):
    """One consumed record: confluent_kafka's ``Message``, or what deserialisers have made of it.

    ``Record[str, Order]`` has a ``str`` as its key and an ``Order`` as its value.
    """

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> K_co: ...  # noqa: D102
    def value(self) -> V_co: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def error(self) -> Any: ...  # noqa: D102


class _Addressed(msgspec.Struct, frozen=True, gc=False):
    """The field of an output that may be given without its name: msgspec knows only whole classes with such fields."""

    topic: str | None = None


class OutputRecord(_Addressed, frozen=True, gc=False, kw_only=True, repr_omit_defaults=True):
    """One record to write. ``topic=None`` means the loop's default output topic.

    ``value`` and ``key`` are ``str``, ``bytes`` or None, or whatever the serialisers take. A buffer, such as a
    bytearray or an array of numbers, is written as the bytes that it holds when the output is given; an array of
    objects is refused. ``partition=None`` leaves the choice to the producer's partitioner; ``timestamp_ms=None`` stamps
    the current time (milliseconds since the epoch, UTC; 1 at least, because librdkafka takes 0 for the current time).

    It is a frozen ``msgspec.Struct``: no field can be set again, and ``msgspec.structs.replace(output, key=...)`` makes
    a changed copy. Raises TypeError for a missing ``value``, for a name that it does not have, and for more than the
    topic without a name.
    """

    value: Any
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


Output = OutputRecord | bytes
Outputs = Output | Iterable[Output] | None
Transform = Callable[[Record[K_co, V_co]], Outputs]
BatchTransform = Callable[[list[Record[K_co, V_co]]], Outputs]
AsyncOutputs = Awaitable[Outputs] | AsyncIterable[Output]
AsyncTransform = Callable[[Record[K_co, V_co]], AsyncOutputs]
AsyncBatchTransform = Callable[[list[Record[K_co, V_co]]], AsyncOutputs]

DeliveryCallback = Callable[[Any, Any], None]
"""Gets the report of one output: a KafkaError, or None where it was delivered, and the message."""

Deserializer = Callable[[bytes | None, Any], V_co]
"""Makes an object of a key's or value's bytes; the second argument is confluent_kafka's ``SerializationContext``."""
Serializer = Callable[[Any, Any], "str | bytes | None"]
"""Makes bytes of an object; the second argument is confluent_kafka's ``SerializationContext``."""


@dataclass(frozen=True, slots=True)
class MembershipSnapshot:
    """The group metadata as one read gave it: opaque for the broker (KIP-447), decoded for the gate."""

    group_metadata: Any
    generation: GroupGeneration


def input_partition(partition: Any) -> InputPartition:
    """Return the InputPartition of an object with the attributes ``topic`` and ``partition``."""
    return InputPartition(partition.topic, partition.partition)


def input_partitions(partitions: Iterable[Any]) -> frozenset[InputPartition]:
    """Return InputPartitions for objects with the attributes ``topic`` and ``partition``."""
    return frozenset(map(input_partition, partitions))


class RebalanceListener(Protocol):
    """Rebalance callbacks, run in the polling thread with the client library's list."""

    def on_assigned(self, partitions: list[Any], /) -> None:
        """``partitions`` were given to us."""
        ...

    def on_revoked(self, partitions: list[Any], /) -> None:
        """``partitions`` are about to leave; they are ours until this returns."""
        ...

    def on_lost(self, partitions: list[Any], /) -> None:
        """``partitions`` have left already; nothing of them may be committed."""
        ...

    def on_membership_changed(self, retained: list[Any], revoked: list[Any], /) -> None:
        """We rejoined unnoticed: ``retained`` stay, ``revoked`` go; neither may be committed."""
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
    """A source of time to measure and to wait: real or simulated.

    A simulation's says so by an attribute ``is_simulated = True``: calls into its clients then get no real-time budget.
    """

    def __call__(self) -> float:
        """Return seconds since some moment; never goes backwards."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait for ``seconds``."""
        ...


def is_simulated(clock: Clock) -> bool:
    """Whether ``clock`` is a simulation's, whose clients stand for processes of their own."""
    return bool(getattr(clock, "is_simulated", False))


class ClientLibrary(Protocol):
    """Makes a loop's clients and has their clock: confluent_kafka with real time, or a simulated cluster.

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
