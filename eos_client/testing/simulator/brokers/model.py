"""The values that simulated clients and brokers exchange, and the error of a refused request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_GENERATION = -1


class PartitionKey(NamedTuple):
    """A topic and the number of a partition."""

    topic: str
    partition: int


class BrokerError(Exception):
    """A broker refused a request; ``code`` is the error's name in Kafka's protocol, such as ILLEGAL_GENERATION.

    ``records``: the indexes of the records at fault, if the broker reports them (KIP-467).
    """

    def __init__(self, code: str, why: str = "", records: Collection[int] = ()) -> None:
        super().__init__(f"{code}: {why}" if why else code)
        self.code = code
        self.why = why
        self.records = records


class Marker(Enum):
    """The control record that ends a transaction in a partition."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be written. ``timestamp_ms``: milliseconds since the epoch."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records of one producer for one partition. ``base_sequence`` is the first record's; the others follow it."""

    records: tuple[NewRecord, ...]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False

    @property
    def size_bytes(self) -> int:
        """The size of its keys and values."""
        return sum(len(record.key or b"") + len(record.value or b"") for record in self.records)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in a partition's log; ``marker`` is set in control records, which readers do not get."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    sequence: int = NO_SEQUENCE
    transactional: bool = False
    marker: Marker | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetch's answer: data records only; ``next_offset`` is also behind skipped markers and aborted records."""

    records: tuple[StoredRecord, ...]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The identity of a producer at the brokers."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The group metadata of a commit (KIP-447). ``generation``: classic generation, or KIP-848 member epoch."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether it names no member: real brokers accept such a transactional commit without any check."""
        return self.generation < 0 and not self.member_id and self.instance_id is None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read."""

    offset: int
    metadata: str = ""
