"""Without a transactional.id the producer is an idempotent one, as confluent_kafka's is, until init_transactions()."""

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eos_client import EosProducer
from eos_client.errors import (
    FatalClientError,
    OutputRefusedError,
    RetriableError,
    TransactionStateError,
    WrongThreadError,
)
from eos_client.testing.free_ports import free_ports
from tests.support.waiting import WAIT_S, wait_for


@pytest.fixture
def plain(stage):
    with EosProducer({"bootstrap.servers": stage.bootstrap}) as made:
        yield made


@pytest.fixture
def nowhere():
    return {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "log_level": 0}


def test_it_delivers_without_any_transaction(stage, plain):
    reports: list[Any] = []
    plain.produce(stage.sink, b"one", on_delivery=lambda error, message: reports.append((error, message.value())))
    assert plain.produce_batch(stage.sink, [{"value": b"two"}]) == 1
    assert plain.flush(WAIT_S) == 0
    assert reports == [(None, b"one")]
    assert sorted(stage.outputs()) == ["one", "two"]
    assert plain.transactional_id == ""


def test_any_thread_may_use_it(stage, plain):
    failures: list[BaseException] = []

    def produce(value):
        try:
            plain.produce(stage.sink, value)
            plain.poll(0)
        except BaseException as error:  # noqa: BLE001  # it is asserted below
            failures.append(error)

    threads = [threading.Thread(target=produce, args=(b"%d" % n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert plain.flush(WAIT_S) == 0
    assert sorted(stage.outputs()) == ["0", "1", "2", "3"]


def test_init_transactions_makes_it_transactional_and_loses_nothing_that_was_produced_before(stage, plain):
    reports: list[Any] = []
    plain.produce(stage.sink, b"before", on_delivery=lambda error, _: reports.append(error))
    plain.init_transactions()
    assert reports == [None], "init_transactions() reports what it has flushed"
    assert plain.transactional_id.startswith("eos-")
    plain.begin_transaction()
    plain.produce(stage.sink, b"aborted")
    plain.abort_transaction()
    plain.begin_transaction()
    plain.produce(stage.sink, b"committed")
    plain.commit_transaction()
    assert sorted(stage.outputs()) == ["before", "committed"]
    refused: list[BaseException] = []

    def begin_elsewhere():
        try:
            plain.begin_transaction()
        except WrongThreadError as error:
            refused.append(error)

    other = threading.Thread(target=begin_elsewhere)
    other.start()
    other.join()
    assert len(refused) == 1, "a transactional producer belongs to one thread"


def test_it_stays_as_it_is_while_earlier_records_are_not_acknowledged(nowhere):
    reports: list[Any] = []
    producer = EosProducer(nowhere)
    producer.produce("orders", b"before", on_delivery=lambda error, _: reports.append(error.code()))
    with pytest.raises(RetriableError, match=r"records produced before init_transactions\(\) were not") as refused:
        producer.init_transactions(0.3)
    assert refused.value.args[0].retriable()
    assert len(producer) > 0
    assert producer.transactional_id == ""
    producer.purge()
    # The client's own threads may purge it a moment later.
    wait_for(lambda: reports, "the purge to be reported", lambda: producer.poll(0.05))
    with pytest.raises(KafkaException) as silent:
        producer.init_transactions(0.3)
    assert reports == [KafkaError._PURGE_QUEUE]
    assert silent.value.args[0].code() == KafkaError._TIMED_OUT, "as confluent_kafka says of a silent broker"
    assert silent.value.args[0].retriable()
    producer.close()


def test_close_delivers_what_is_outstanding(stage):
    with EosProducer({"bootstrap.servers": stage.bootstrap, "linger.ms": 500}) as producer:
        producer.produce(stage.sink, b"last words")
    assert stage.outputs() == ["last words"]


def anonymous_metadata():
    consumer = Consumer({"group.id": "g"})
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    return metadata


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.begin_transaction(),
        lambda p: p.commit_transaction(0.1),
        lambda p: p.abort_transaction(0.1),
        lambda p: p.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], anonymous_metadata(), 0.1),
    ],
    ids=["begin", "commit", "abort", "send_offsets"],
)
def test_a_transactional_call_has_their_code_and_says_to_initialise(call, nowhere):
    codes = []
    for producer in (Producer(nowhere), EosProducer(nowhere)):
        with pytest.raises(KafkaException) as refused:
            call(producer)
        codes.append(refused.value.args[0].code())
        producer.close()
    assert isinstance(refused.value, TransactionStateError)
    assert "Call init_transactions() first" in str(refused.value)
    assert codes[0] == codes[1]


def test_its_handle_gets_the_users_settings_and_idempotence_and_nothing_else(nowhere):
    """A logger or an error callback of ours would make poll() return for their events, too."""
    seen: list[dict[str, Any]] = []

    def factory(settings):
        seen.append(settings)
        return Producer(settings)

    EosProducer(nowhere, factory=factory).close()
    assert seen == [{**nowhere, "enable.idempotence": True, "acks": "all"}]


class Scripted:
    """A handle whose ``produce`` raises."""

    def __init__(self, error):
        self._error = error

    def produce(self, *_arguments):
        raise KafkaException(self._error)

    def purge(self):
        """Nothing is queued."""

    def close(self):
        """Nothing to leave."""

    def flush(self, _timeout):
        return 0

    def poll(self, _timeout):
        return 0


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", fatal=True), FatalClientError),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "large"), OutputRefusedError),
        (KafkaError(KafkaError._UNKNOWN_TOPIC, "unknown"), KafkaException),
    ],
    ids=["fatal", "refused", "other"],
)
def test_a_refused_record_is_named_where_the_name_says_more_than_theirs(error, named, nowhere):
    producer = EosProducer(nowhere, factory=lambda _: Scripted(error))
    with pytest.raises(KafkaException) as refused:
        producer.produce("orders", b"")
    assert type(refused.value) is KafkaException if named is KafkaException else isinstance(refused.value, named)
    assert refused.value.args[0].code() == error.code()
    producer.close()
