"""A Spark sink's micro-batches on the simulated cluster, without Spark: drivers die, tasks are repeated, zombies wake.

The ledger's rules, its entries and the producer of a slot are the sink's own; the driver's lease is a static member.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.confluent.ledger.ledger_topic import partition_of_slot
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.core import batch_ledger
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent, SlotDecision, SlotQuestion
from eos_client.errors import EosError
from eos_client.testing.simulator import SimulatedCluster
from tests.clients.group_story import LIMITS, QUIET

LEDGER, ROWS, GROUP = "ledger", "rows", "sink"
SLOTS, BATCHES, TRIES_MAX = 2, 6, 20
IDENTITY = SinkIdentity("query", SLOTS, 1, "out")
CLIENT = {"bootstrap.servers": "simulated", "logger": QUIET}


def simulated_slot(cluster: SimulatedCluster, slot: int, **settings: Any) -> SlotProducer:
    """A slot's producer on simulated brokers."""
    factory, clock = cluster.producer, cluster.clock
    quiet = lambda _: None  # noqa: E731
    return SlotProducer({**CLIENT, **settings}, f"sink-{slot}", limits=LIMITS, hook=quiet, factory=factory, clock=clock)


class Attempt:
    """One attempt of the task that writes one slot of one batch, in two steps: a zombie wakes between them."""

    def __init__(self, story: SparkStory, slot: int, batch: int) -> None:
        self._slot, self._batch, self._lease = slot, batch, story.lease
        self._cluster = story.cluster
        self._producer = simulated_slot(story.cluster, slot)
        self.is_done = False

    def write(self) -> None:
        """Take the slot, ask the ledger, write the rows."""
        self._producer.init_transactions()
        place = TopicPartition(LEDGER, partition_of_slot(self._slot))
        found = self._lease.committed([place], 5.0)[0]
        entry = batch_ledger.decode_entry(found.offset, found.metadata) if found.offset >= 0 else None
        ruling = batch_ledger.decide_slot(SlotQuestion(entry, IDENTITY, self._batch), batch_ledger.SLOT_RULES)
        if ruling.decision is SlotDecision.REFUSE:
            raise ruling.error(ruling.reason)
        self.is_done = ruling.decision is SlotDecision.SKIP
        if not self.is_done:
            self._producer.begin_transaction()
            for row in rows_of(self._batch, self._slot):
                self._producer.enqueue_row(ROWS, row, None, {"partition": self._slot}, 1.0)

    def commit(self) -> None:
        """Move the ledger's entry with the rows."""
        entry = LedgerEntry(self._batch + 1, IDENTITY, SlotContent(1, 1))
        self._producer.send_entry(LEDGER, self._slot, entry, self._lease.consumer_group_metadata(), 2.0)
        self._producer.commit_transaction()
        self.is_done = True

    def close(self) -> None:
        """Leave the handle."""
        self._producer.close()


def rows_of(batch: int, slot: int) -> list[bytes]:
    return [b"%d:%d:%d" % (batch, slot, row) for row in range(1 + (batch + slot) % 3)]


class SparkStory:
    """A query that is started again whenever its driver dies, until its batches are done."""

    def __init__(self, seed: int) -> None:
        self.cluster = SimulatedCluster(seed, request_timeout_s=1.0)
        self._random = Random(f"spark {seed}")
        self._zombies: list[Attempt] = []
        self._closing: list[Any] = []
        self.cluster.create_topic(LEDGER, SLOTS + 1)
        self.cluster.create_topic(ROWS, SLOTS)
        self._start_driver()
        first = LedgerEntry(0, IDENTITY)
        places = [partition_of_slot(slot) for slot in range(SLOTS)]
        self.lease.commit(
            offsets=[TopicPartition(LEDGER, place, first.next_batch, metadata=first.encode()) for place in places],
            asynchronous=False,
        )

    def _start_driver(self) -> None:
        self.lease = self.cluster.consumer(
            {
                **CLIENT,
                "group.id": GROUP,
                "group.instance.id": "driver",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.lease.subscribe([LEDGER])
        while not self.lease.assignment():
            self.lease.poll(0.05)

    def tell(self) -> list[str]:
        """Run every batch, and return what is wrong with the rows."""
        try:
            for batch in range(BATCHES):
                self._run(batch)
                while self._random.random() < 0.3:  # the driver dies before it writes down that the batch is done
                    self._start_driver()
                    self._run(batch)
            self._wake_zombies()
            self.cluster.advance(30.0)
        finally:
            for attempt in self._closing:
                attempt.close()
        return self._judged()

    def _run(self, batch: int) -> None:
        for slot in range(SLOTS):
            self._run_task(batch, slot)

    def _run_task(self, batch: int, slot: int) -> None:
        for _ in range(TRIES_MAX):
            attempt = Attempt(self, slot, batch)
            self._closing.append(attempt)
            with suppress(EosError, KafkaException):
                self._live(attempt)
            self.lease.poll(0.01)
            if attempt.is_done and self._random.random() < 0.7:  # else its executor dies before it can say so
                return
        raise RuntimeError(f"slot {slot} of batch {batch} was not written in {TRIES_MAX} attempts")

    def _live(self, attempt: Attempt) -> None:
        fate = self._random.choice(("well", "well", "zombie", "dies", "reply lost", "late"))
        attempt.write()
        if self._random.random() < 0.3:
            self._wake_zombies()
        if fate == "zombie":
            self._zombies.append(attempt)
        if fate in ("zombie", "dies"):
            return
        if fate == "reply lost":
            self.cluster.lose_reply(self._random.choice(("EndTxn", "TxnOffsetCommit")))
        if fate == "late":
            self.cluster.delay(self._random.choice(("EndTxn", "TxnOffsetCommit")), self._random.choice((1.5, 4.0)))
        if not attempt.is_done:
            attempt.commit()

    def _wake_zombies(self) -> None:
        zombies, self._zombies = self._zombies, []
        for zombie in zombies:
            with suppress(EosError, KafkaException):
                if not zombie.is_done:
                    zombie.commit()

    def _judged(self) -> list[str]:
        expected = Counter(row for batch in range(BATCHES) for slot in range(SLOTS) for row in rows_of(batch, slot))
        found = Counter(value for value in self.cluster.values(ROWS) if value is not None)
        lost, doubled = sorted((expected - found).elements()), sorted((found - expected).elements())
        return [f"C1: lost {lost}"] * bool(lost) + [f"C2: doubled {doubled}"] * bool(doubled)
