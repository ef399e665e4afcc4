"""One-shot faults: each affects the next matching request, once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

REQUESTS = frozenset(
    {
        "AddOffsetsToTxn",
        "AddPartitionsToTxn",
        "ConsumerGroupHeartbeat",
        "EndTxn",
        "Fetch",
        "Heartbeat",
        "InitProducerId",
        "JoinGroup",
        "LeaveGroup",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "Produce",
        "SyncGroup",
        "TxnOffsetCommit",
    }
)
"""The requests of simulated clients, by Kafka's names."""


class FaultKind(Enum):
    """What the network, or the broker behind it, does to one request."""

    LOSE_REQUEST = "lose the request"
    LOSE_REPLY = "lose the reply"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    ERROR = "answer with an error"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the next ``request`` (by Kafka's name, such as EndTxn) of ``client``; None: of any client."""

    kind: FaultKind
    request: str
    client: str | None = None
    delay_s: float = 0.0
    code: str = ""

    def __str__(self) -> str:
        detail = f" for {self.delay_s:g} s" if self.kind is FaultKind.DELAY else f" {self.code}" if self.code else ""
        return f"{self.kind.value} of {self.request}{detail}" + (f" of {self.client}" if self.client else "")


class FaultPlan:
    """The faults that have not happened yet, in the order in which they were added."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    @property
    def waiting(self) -> tuple[Fault, ...]:
        """The faults that have not happened yet."""
        return tuple(self._waiting)

    def add(self, fault: Fault) -> None:
        """Add ``fault``, which affects the next matching request; raises ValueError for an unknown request."""
        if fault.request not in REQUESTS:
            raise ValueError(f"{fault.request!r} is no request of a client; there are {', '.join(sorted(REQUESTS))}")
        self._waiting.append(fault)

    def withdraw(self) -> None:
        """Remove the faults that have not happened yet."""
        self._waiting.clear()

    def take(self, request: str, names: frozenset[str]) -> Fault | None:
        """Remove and return the fault for this ``request`` of a client with ``names``."""
        for fault in self._waiting:
            if fault.request == request and (fault.client is None or fault.client in names):
                self._waiting.remove(fault)
                return fault
        return None
