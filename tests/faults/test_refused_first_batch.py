"""A broker that refuses the first batch of a partition and takes the second, as while its leader moves.

librdkafka takes the first for written then and reports it as delivered (confluent-kafka-go #921): the broker knows
nothing of the producer yet and takes any sequence number. Here the first batch names a topic that does not exist.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from eos_client import Outcome
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.errors import AbortableError, TransactionStateError
from tests.kafka.kafka_support import LIMITS, Stage
from tests.kafka.loop_support import Job
from tests.support.waiting import WAIT_S
from tests.verification.held_requests import HeldRequest
from tests.verification.late_end_txn import sent_by
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api

SMALL_BATCHES: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0}
TAKEN_FOR_WRITTEN = "implicitly acked"
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture
def stage(proxy: KafkaProxy) -> Iterator[Stage]:
    with Stage(f"127.0.0.1:{proxy.port}", partitions=1) as made:
        yield made


def refuse_first_batch(proxy: KafkaProxy, transactional_id: str, topic: str, *, followers: int = 2) -> HeldRequest:
    """The first batch is refused when that many more are on their way: else the client library sends it first again."""
    nowhere = "-" * len(topic)
    refused = proxy.misdirect_next(
        Api.PRODUCE, sent_by(transactional_id), (topic.encode(), nowhere.encode()), holds=followers > 0
    )

    def deliver_when_followed() -> None:
        refused.wait_until_followed(followers)
        refused.deliver()

    if followers:
        threading.Thread(target=deliver_when_followed, daemon=True).start()
    return refused


def write(producer: Any, topic: str, *values: str, **options: Any) -> None:
    for value in values:
        producer.produce(topic, value, **options)


def test_the_client_library_commits_a_transaction_without_the_record(stage: Stage, proxy: KafkaProxy) -> None:
    reported: list[tuple[bytes | None, int | None]] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None
        reported.append((message.value(), message.offset()))

    settings = {"bootstrap.servers": stage.bootstrap, "transactional.id": stage.group, **SMALL_BATCHES}
    producer = Producer({**settings, "on_delivery": on_delivery})
    producer.init_transactions(WAIT_S)
    refused = refuse_first_batch(proxy, stage.group, stage.sink)
    producer.begin_transaction()
    write(producer, stage.sink, "first", "second", "third")
    producer.commit_transaction(WAIT_S)
    assert refused.wait_for_answer().errors == (UNKNOWN_TOPIC_OR_PARTITION,)
    assert sorted(reported) == [(b"first", None), (b"second", 0), (b"third", 1)]
    assert stage.outputs() == ["second", "third"]


@pytest.mark.parametrize("only_errors", [False, True])
@pytest.mark.parametrize("call", ["flush", "commit_transaction"])
def test_such_a_transaction_must_be_aborted(stage: Stage, proxy: KafkaProxy, call: str, only_errors: bool) -> None:
    producer = stage.producer(**{"delivery.report.only.error": only_errors, **SMALL_BATCHES})
    refuse_first_batch(proxy, producer.transactional_id, stage.sink)
    producer.begin_transaction()
    write(producer, stage.sink, "first", "second", "third")
    with pytest.raises(AbortableError, match=rf"{stage.sink} \[0\] 1 message\(s\) {TAKEN_FOR_WRITTEN}"):
        getattr(producer, call)(WAIT_S)
    with pytest.raises(TransactionStateError):
        producer.begin_transaction()
    with pytest.raises(AbortableError, match=TAKEN_FOR_WRITTEN):
        producer.commit_transaction(WAIT_S)
    producer.abort_transaction(WAIT_S)
    assert producer.flush(WAIT_S) == 0
    assert stage.outputs() == []
    producer.begin_transaction()
    write(producer, stage.sink, "first", "second", "third")
    producer.commit_transaction(WAIT_S)
    assert stage.outputs() == ["first", "second", "third"]


def test_nothing_is_committed_before_every_output_was_reported(stage: Stage, proxy: KafkaProxy) -> None:
    producer = stage.producer()
    held = proxy.hold_next(Api.PRODUCE, sent_by(producer.transactional_id))
    producer.begin_transaction()
    write(producer, stage.sink, "first")
    with pytest.raises(AbortableError, match=r"1 outputs .* were not acknowledged within 1 s"):
        producer.commit_transaction(1.0)
    held.discard()
    producer.abort_transaction(WAIT_S)
    ends = [each for each in proxy.exchanges if each.api is Api.END_TXN]
    assert not any(each.request.commits for each in ends if each.request.transactional_id == producer.transactional_id)
    assert stage.outputs() == []


def test_a_block_is_aborted_and_its_records_come_again(stage: Stage, proxy: KafkaProxy) -> None:
    written = stage.load(3)
    producer, consumer = stage.producer(**SMALL_BATCHES), stage.subscribed()
    refuse_first_batch(proxy, producer.transactional_id, stage.sink)
    outcomes = []
    for _ in range(2):
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, len(written)):
                txn.produce(stage.sink, message.value())
        outcomes.append(txn.outcome)
    assert outcomes == [Outcome.ABORTED, Outcome.COMMITTED]
    assert stage.outputs() == written


def begin_slot(stage: Stage, proxy: KafkaProxy, *, followers: int, **theirs: Any) -> tuple[SlotProducer, HeldRequest]:
    """What a slot of a Spark sink does before its flush, with the user's own settings; and what the broker refuses."""
    settings = {"bootstrap.servers": stage.bootstrap, **SMALL_BATCHES, **theirs}
    producer = SlotProducer(settings, f"slot-{stage.group}", limits=LIMITS)
    producer.init_transactions()
    refused = refuse_first_batch(proxy, producer.library.transactional_id, stage.sink, followers=followers)
    producer.begin_transaction()
    for value in (b"first", b"second", b"third"):
        producer.produce(stage.sink, value)
    return producer, refused


def test_the_block_after_it_commits_though_it_has_no_outputs(stage: Stage, proxy: KafkaProxy) -> None:
    stage.load(3)
    producer, consumer = stage.producer(**SMALL_BATCHES), stage.subscribed()
    refuse_first_batch(proxy, producer.transactional_id, stage.sink)
    outcomes = []
    for writes in (True, False):
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, 3):
                if writes:
                    txn.produce(stage.sink, message.value())
        outcomes.append(txn.outcome)
    assert outcomes == [Outcome.ABORTED, Outcome.COMMITTED]
    assert stage.outputs() == []
    assert stage.committed() == stage.ends()


def test_a_slot_of_a_spark_sink_sends_the_batch_again_before_the_next(stage: Stage, proxy: KafkaProxy) -> None:
    producer, refused = begin_slot(stage, proxy, followers=0)  # one request at a time
    producer.flush_outputs(WAIT_S)
    assert refused.wait_for_answer().errors == (UNKNOWN_TOPIC_OR_PARTITION,)
    producer.commit_transaction(WAIT_S)
    producer.close()
    assert stage.outputs() == ["first", "second", "third"]


def test_a_slot_with_more_requests_in_flight_is_written_again(stage: Stage, proxy: KafkaProxy) -> None:
    producer, _ = begin_slot(stage, proxy, followers=2, **{"max.in.flight.requests.per.connection": 5})
    with pytest.raises(AbortableError, match=TAKEN_FOR_WRITTEN):
        producer.flush_outputs(WAIT_S)
    producer.close()


def test_the_loop_processes_the_record_again(stage: Stage, proxy: KafkaProxy) -> None:
    outputs = [b"1", b"2", b"3"]
    with Job(stage.bootstrap, partitions=1) as job:
        transactional_id = f"loop-{job.group}"
        refused = refuse_first_batch(proxy, transactional_id, job.sink)
        job.load(1)
        running = job.start(lambda _: outputs, transactional_id=transactional_id, producer=SMALL_BATCHES)
        job.await_committed()
        running.stop()
        assert refused.wait_for_answer().errors == (UNKNOWN_TOPIC_OR_PARTITION,)
        assert running.loop.counters.aborted == 1
        assert job.values() == outputs
