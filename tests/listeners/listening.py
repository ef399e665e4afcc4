"""A member without a client library: its open work, and a diary of everything that happens around it."""

from __future__ import annotations

from typing import Any, NamedTuple

from eos_client.core.commit_gate import CommitGate, GateEvent, WorkEnded
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.observe import Event
from eos_client.ports import MembershipSnapshot


class Named(NamedTuple):
    """What confluent_kafka's TopicPartition is to a listener."""

    topic: str
    partition: int


def theirs(*numbers: int) -> list[Named]:
    """Partitions of ``orders`` as the client library names them."""
    return [Named("orders", number) for number in numbers]


def ours(*numbers: int) -> frozenset[InputPartition]:
    """The same as the core names them."""
    return frozenset(InputPartition("orders", number) for number in numbers)


class WatchedGate(CommitGate):
    """A gate that writes down what it is told."""

    def __init__(self, diary: list[str]) -> None:
        super().__init__()
        self._diary = diary

    def tell(self, event: GateEvent) -> None:
        self._diary.append(f"gate: {type(event).__name__}")
        super().tell(event)


class OpenWork:
    """RevocationWork that commits, or fails to, and writes it down."""

    def __init__(self, diary: list[str], gate: CommitGate) -> None:
        self._diary = diary
        self._gate = gate
        self.positions: frozenset[InputPartition] = frozenset()
        self.generation = GroupGeneration(5, "m", "billing")
        self.commit_raises: BaseException | None = None
        self.abort_raises: BaseException | None = None
        self.commit_succeeds = True
        self.revoking_at_commit: bool | None = None
        self.departures: list[frozenset[InputPartition]] = []

    def snapshot(self) -> MembershipSnapshot:
        return MembershipSnapshot(b"opaque", self.generation)

    def uncommitted(self) -> frozenset[InputPartition]:
        return self.positions

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        self._diary.append("work: commit")
        self.revoking_at_commit = self._gate.state.revoking
        if self.commit_raises is not None:
            raise self.commit_raises
        if self.commit_succeeds and not partitions.isdisjoint(self.positions):
            self._settle()

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        self._diary.append(f"work: abort because {reason}")
        if self.abort_raises is not None:
            raise self.abort_raises
        if not partitions.isdisjoint(self.positions):
            self._settle()

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        self._diary.append("work: departed")
        self.departures.append(partitions)

    def _settle(self) -> None:
        self.positions = frozenset()
        self._gate.tell(WorkEnded())


class ListeningMember:
    """One member with a listener under test."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.events: list[Event] = []
        self.gate = WatchedGate(self.diary)
        self.work = OpenWork(self.diary, self.gate)

    def hook(self, event: Event) -> None:
        self.diary.append(f"event: {event.name}")
        self.events.append(event)

    def callback(self, name: str, raises: BaseException | None = None) -> Any:
        """One of the application's callbacks, which writes down that it ran and may raise."""

        def called(consumer: object, partitions: list[Any]) -> None:
            self.diary.append(f"theirs: {name} of {consumer} with {[p.partition for p in partitions]}")
            if raises is not None:
                raise raises

        return called
