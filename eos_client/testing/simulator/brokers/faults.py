"""One-shot faults: what happens to the next request of a kind, once."""

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
    """``request`` is Kafka's name of it, such as EndTxn; ``client`` None means whoever sends the next one."""

    kind: FaultKind
    request: str
    client: str | None = None
    delay_s: float = 0.0
    code: str = ""

    def __str__(self) -> str:
        detail = f" for {self.delay_s:g} s" if self.kind is FaultKind.DELAY else f" {self.code}" if self.code else ""
        return f"{self.kind.value} of {self.request}{detail}" + (f" of {self.client}" if self.client else "")


class FaultPlan:
    """The faults that have not happened yet, in the order they were asked for."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    @property
    def waiting(self) -> tuple[Fault, ...]:
        """Faults that no request has met yet."""
        return tuple(self._waiting)

    def add(self, fault: Fault) -> None:
        """Let ``fault`` happen to the next request that it names; raises ValueError when there is no such request."""
        if fault.request not in REQUESTS:
            raise ValueError(f"{fault.request!r} is no request of a client; there are {', '.join(sorted(REQUESTS))}")
        self._waiting.append(fault)

    def withdraw(self) -> None:
        """Forget the faults that have not happened yet."""
        self._waiting.clear()

    def take(self, request: str, names: frozenset[str]) -> Fault | None:
        """Return the fault that meets this ``request`` of a client known by ``names``, and forget it."""
        for fault in self._waiting:
            if fault.request == request and (fault.client is None or fault.client in names):
                self._waiting.remove(fault)
                return fault
        return None
