"""A transaction coordinator with partitions and groups around it, and the requests of one client."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    NewRecord,
    PartitionKey,
    ProducerIdentity,
    RecordBatch,
)
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from eos_client.testing.simulator.brokers.transaction_coordinator import TransactionCoordinator

INVOICES_0, INVOICES_1, AUDIT_0 = PartitionKey("invoices", 0), PartitionKey("invoices", 1), PartitionKey("audit", 0)
TIMEOUT_S = 10.0
NEXT_CHECK_S = 1.0
"""The first look for transactions that are older than that comes so much later."""


class Groups:
    """Remembers what the markers say to the group coordinator."""

    def __init__(self):
        self.markers: list[tuple[str, ProducerIdentity, bool]] = []

    def complete_transaction(self, group_id, producer, *, committed):
        self.markers.append((group_id, producer, committed))


class TransactionBench:
    """``txn`` is the transactional.id that requests name unless told otherwise."""

    def __init__(self, **settings):
        self.settings = BrokerSettings(**settings)
        self.clock = SimulatedClock()
        self.groups = Groups()
        self.logs = {key: PartitionLog(self.settings) for key in (INVOICES_0, INVOICES_1, AUDIT_0)}
        self.coordinator = TransactionCoordinator(self.clock, self.log, self.groups, self.settings)
        self.txn = "billing-1"

    def log(self, partition):
        if partition not in self.logs:
            raise BrokerError("UNKNOWN_TOPIC_OR_PART", str(partition))
        return self.logs[partition]

    def init(self, expected=None, txn=None, timeout_s=TIMEOUT_S):
        return self.coordinator.init_producer_id(txn or self.txn, timeout_s, expected)

    def add(self, producer, *partitions, txn=None):
        self.coordinator.add_partitions(txn or self.txn, producer, partitions or (INVOICES_0,))

    def write(self, producer, *values, sequence=0, partition=INVOICES_0, txn=None):
        """Produce, as a broker serves it: verified, then appended."""
        producer_id, epoch = producer.producer_id, producer.producer_epoch
        self.coordinator.verify(txn or self.txn, producer_id, epoch, partition)
        records = tuple(NewRecord(value) for value in values)
        batch = RecordBatch(records, producer_id, epoch, sequence, transactional=True)
        return self.log(partition).append(batch, self.clock())

    def end(self, producer, *, commit=True, txn=None):
        self.coordinator.end(txn or self.txn, producer, commit=commit)

    def transaction(self, producer, *values, sequence=0, commit=True):
        """A whole transaction in one partition."""
        self.add(producer)
        self.write(producer, *values, sequence=sequence)
        self.end(producer, commit=commit)

    def visible(self, partition=INVOICES_0):
        log = self.log(partition)
        return [record.value for record in log.fetch(log.log_start_offset, 1000, read_committed=True).records]

    def markers(self, partition=INVOICES_0):
        return [(r.marker.value, r.producer_epoch) for r in self.log(partition).records if r.marker]

    def state(self, txn=None):
        description = self.coordinator.describe(txn or self.txn)
        assert description is not None
        return description.state

    def at(self, now_s):
        """Let time pass, and the coordinator work as it does."""
        for _ in range(100):
            if self.coordinator.due_s > now_s:
                self.clock.set_to(now_s)
                return
            self.clock.set_to(self.coordinator.due_s)
            self.coordinator.work()
        raise AssertionError(f"the coordinator does not come to rest at {self.clock()} s")


@contextmanager
def refused(code):
    """Expect a refusal with this code."""
    with pytest.raises(BrokerError) as refusal:
        yield
    assert refusal.value.code == code, refusal.value


def newer(producer, epochs=1):
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + epochs)


def requests(bench, producer, txn=None):
    """Each transactional request, by Kafka's name."""
    return {
        "AddPartitionsToTxn": lambda: bench.add(producer, txn=txn),
        "AddOffsetsToTxn": lambda: bench.coordinator.add_offsets(txn or "billing-1", producer, "billing"),
        "EndTxn": lambda: bench.end(producer, txn=txn),
        "Produce": lambda: bench.write(producer, b"z", txn=txn),
    }


def ongoing(bench):
    producer = bench.init()
    bench.add(producer)
    return producer


def ended(*, commit, held=False):
    def bring(bench):
        producer = ongoing(bench)
        bench.coordinator.hold_markers = held
        bench.end(producer, commit=commit)
        return producer

    return bring
