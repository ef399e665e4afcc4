"""Every transactional request answered with every error, on simulated brokers: the table measured on librdkafka holds.

The application and the table are those of ``tests/recovery``, which run on librdkafka's own mock cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer, errors
from eos_client.core.producer_recovery import recovery_for
from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import Membership, ProducerIdentity
from eos_client.testing.simulator.clients.group_metadata import encode
from tests.recovery.mock_application import LIMITS, SINK, SOURCE, STOPPED_CALLS, Application, Failure, FailureAccount
from tests.recovery.recovery_cases import LASTING, OWN_FENCES, SEEN_CELLS, Answered, Cell

GROUP, MEMBER = "group", "member"
REQUESTS = {
    Answered.PRODUCE: "Produce",
    Answered.PARTITIONS: "AddPartitionsToTxn",
    Answered.OFFSETS: "AddOffsetsToTxn",
    Answered.OFFSET_COMMIT: "TxnOffsetCommit",
    Answered.COMMIT: "EndTxn",
    Answered.ABORT: "EndTxn",
    Answered.BUMP: "InitProducerId",
    Answered.INIT: "InitProducerId",
}  # simulated clients know their coordinators
# The mock cluster forgets what it was told; here the open transaction fences its producer, unless the id is forgotten.
FORGOTTEN_WITH_CAUSE = {(Answered.ABORT, "UNKNOWN_PRODUCER_ID"), (Answered.ABORT, "INVALID_PRODUCER_ID_MAPPING")}
CELLS_HERE = [
    cell
    for cell in (*SEEN_CELLS, *OWN_FENCES)
    if cell.answered in REQUESTS and (cell.answered, cell.code) not in FORGOTTEN_WITH_CAUSE
]


class SimulatedApplication(Application):
    """The application of the recovery matrix, with a producer of the simulated cluster."""

    def __init__(self, cluster: SimulatedCluster, *, generated_id: bool = False, **settings: Any) -> None:
        pinned = {} if generated_id else {"transactional.id": "pinned"}
        self.producer = EosProducer(
            {"bootstrap.servers": "simulated", "linger.ms": 0, **pinned, **settings},
            limits=LIMITS,
            hook=lambda _: None,
            factory=cluster.producer,
            clock=cluster.clock,
        )
        groups = cluster.brokers.groups
        joined = groups.consumer_heartbeat(
            GROUP, ConsumerHeartbeat(MEMBER, 0, topics=frozenset({SOURCE}), owned=frozenset())
        )
        metadata = encode(GROUP, Membership(joined.member_epoch, MEMBER))
        self.deliveries = []
        self.calls = {
            "begin_transaction": self.producer.begin_transaction,
            "produce": lambda: self.producer.produce(SINK, b"output", on_delivery=self._delivered),
            "flush": lambda: self.producer.flush(5),
            "send_offsets_to_transaction": lambda: self.producer.send_offsets_to_transaction(
                [TopicPartition(SOURCE, 0, 7)], metadata
            ),
            "commit_transaction": self.producer.commit_transaction,
            "abort_transaction": self.producer.abort_transaction,
            "init_transactions": self.producer.init_transactions,
        }


def forgive_ends_without_beginning(cluster: SimulatedCluster) -> None:
    """Accept EndTxn where the refused AddPartitionsToTxn began nothing: brokers call it fatal, the mock does not."""
    transactions = cluster.brokers.transactions
    end = transactions.end

    def forgiving(transactional_id: str, producer: ProducerIdentity, *, commit: bool) -> None:
        known = transactions.describe(transactional_id)
        if known is not None and known.partitions:
            end(transactional_id, producer, commit=commit)

    transactions.end = forgiving  # type: ignore[method-assign]


@contextmanager
def application(
    *, keeps_states: bool = False, **settings: Any
) -> Iterator[tuple[SimulatedCluster, SimulatedApplication]]:
    cluster = SimulatedCluster()
    if not keeps_states:
        forgive_ends_without_beginning(cluster)
    cluster.create_topic(SOURCE)
    cluster.create_topic(SINK)
    running = SimulatedApplication(cluster, **settings)
    try:
        yield cluster, running
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            running.close()


def provoke(cluster: SimulatedCluster, running: SimulatedApplication, cell: Cell) -> Failure | None:
    """Have one request of a running application, or its first one, answered with the cell's code."""
    request = REQUESTS[cell.answered]
    if cell.answered is Answered.INIT:
        for _ in range(100 if (cell.answered, cell.code) in LASTING else 1):
            cluster.refuse(request, cell.code)
        return running.call("init_transactions")
    assert running.call("init_transactions") is None
    assert running.transaction() is None
    cluster.refuse(request, cell.code)
    if cell.answered is Answered.BUMP:
        cluster.refuse(REQUESTS[Answered.PARTITIONS], "UNKNOWN_PRODUCER_ID")
        assert isinstance(getattr(running.transaction(), "error", None), errors.AbortableError)
        return running.call("abort_transaction")
    return running.transaction(end="abort_transaction" if cell.answered is Answered.ABORT else "commit_transaction")


def drive(cell: Cell, *, keeps_states: bool = False) -> FailureAccount:
    with application(keeps_states=keeps_states, generated_id=cell.generated_id) as (cluster, running):
        story = running.live_on(provoke(cluster, running, cell), FailureAccount())
        if (cell.answered, cell.code) not in LASTING:
            assert not cluster.faults.waiting, "the error was never given"
        if story.failure is not None and not story.committed:
            story.refused = {name: running.call(name) for name in STOPPED_CALLS}
        return story


@pytest.mark.parametrize("cell", CELLS_HERE, ids=str)
def test_a_refusal_is_seen_and_recovered_from_as_on_librdkafka(cell):
    story = drive(cell)
    meaning, failure = cell.meaning, story.failure
    if meaning is None:
        assert failure is None, story
        assert story.committed, story
        return
    assert failure is not None, "nobody saw the error"
    assert failure.named_for is meaning.error, story
    assert failure.call == cell.seen_by, story
    assert (failure.kafka_error.name(), failure.kafka_error.fatal()) == (cell.seen_as, cell.fatal), story
    assert recovery_for(failure.as_told_to_the_table(generated_id=cell.generated_id)).action is meaning.action, story
    assert story.came_back_by == meaning.comes_back_by, story
    assert story.committed is (meaning.comes_back_by is not None), story
    assert story.codes_again == ([meaning.fails_again] if meaning.fails_again else []), story


REFUSED_AT_THE_BEGINNING = [c for c in SEEN_CELLS if c.answered is Answered.PARTITIONS and c.word == "abort"]


@pytest.mark.parametrize("cell", REFUSED_AT_THE_BEGINNING, ids=str)
def test_a_coordinator_has_nothing_to_abort_where_the_first_partitions_were_refused(cell):
    story = drive(cell, keeps_states=True)
    assert story.came_back_by == "abort_transaction", story
    assert [(again.call, again.named_for) for again in story.failed_again] == [
        ("abort_transaction", errors.RebuildProducerError)
    ], story
    assert story.codes_again == ["INVALID_TXN_STATE"], story
    assert story.committed, story


@pytest.mark.parametrize("code", ["UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING"])
@pytest.mark.parametrize("generated_id", [False, True])
def test_a_coordinator_fences_an_epoch_that_is_requested_again_while_its_transaction_is_open(code, generated_id):
    story = drive(Cell(Answered.ABORT, code, "inside", generated_id), keeps_states=True)
    assert story.failure is not None
    assert (story.failure.call, story.failure.named_for) == ("abort_transaction", errors.RebuildProducerError), story
    assert story.committed, story
