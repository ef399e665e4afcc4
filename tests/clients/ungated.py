"""A member without a gate: it commits whenever it likes, with the metadata of the moment.

What it does filter is ownership, as KAFKA-19779 demands of every client: a transaction with records of a partition that
has left meanwhile is aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.core.model import Outcome
from tests.clients.group_story import INPUT, OUTPUT, QUIET, attempted

if TYPE_CHECKING:
    from tests.clients.group_story import GroupStory

TIMEOUT_S = 20.0


class UngatedMember:
    """The loop of ``group_story.BlockMember`` on the bare clients."""

    def __init__(self, story: GroupStory, name: str) -> None:
        self.story = story
        self.consumer = story.consumer({**story.client_config(name), "enable.auto.commit": False})
        self.producer = story.producer(
            {
                "bootstrap.servers": "simulated",
                "client.id": name,
                "transactional.id": f"billing-{name}",
                "logger": QUIET,
            }
        )
        self._first: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._departed: set[int] = set()
        self._waiting: list[str] = []
        self.consumer.subscribe([INPUT], on_revoke=self._left, on_lost=self._left)
        self.producer.init_transactions(TIMEOUT_S)

    def _left(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._departed.update(p.partition for p in partitions)

    def step(self, count: int, meanwhile: Callable[[], None]) -> None:
        """One turn of the loop: one transaction, committed or aborted."""
        self._departed.clear()
        self.producer.begin_transaction()
        self._copy(count)
        meanwhile()
        self._copy(count)
        outcome = self._end()
        self.story.oracle.told(outcome, self._waiting)
        self._waiting, self._first, self._next = [], {}, {}

    def _copy(self, count: int) -> None:
        for message in self.consumer.consume(count, 0.05):
            if message.error() is None and message.partition() not in self._departed:
                self._first.setdefault(message.partition(), message.offset())
                self._next[message.partition()] = message.offset() + 1
                attempt, headers = attempted(self.story, message)
                self._waiting.append(attempt)
                self.producer.produce(OUTPUT, message.value(), partition=message.partition() % 2, headers=headers)

    def _end(self) -> Outcome:
        self.producer.flush(TIMEOUT_S)
        if self._departed.isdisjoint(self._next):
            places = [TopicPartition(INPUT, p, offset) for p, offset in self._next.items()]
            try:
                self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), TIMEOUT_S)
                self.producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
            else:
                return Outcome.COMMITTED
        self.producer.abort_transaction(TIMEOUT_S)
        for partition, offset in self._first.items():
            if partition not in self._departed:
                self.consumer.seek(TopicPartition(INPUT, partition, offset))
        return Outcome.ABORTED

    def close(self) -> None:
        """Leave as a careful application does."""
        self.consumer.close()
        self.producer.close()

    def bury(self) -> None:
        """Nothing is left of a process that is dead."""
