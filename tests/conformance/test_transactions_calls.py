"""Transactions: calls out of order, and records that cannot be delivered."""

import pytest

from tests.conformance.failures import failure_of
from tests.conformance.transactions import CALL_S, START_S, becomes, commit, delivered, every_call, produce

BROKERS_LARGEST_BATCH = 1_048_588


def raiser(*numbers):
    """A delivery callback that raises each time."""
    left = list(numbers)

    def fail(error, message):
        raise LookupError(left.pop(0))

    return fail


# -- calls out of order ----------------------------------------------------------------------------------------------


def test_a_producer_does_nothing_before_it_is_initialised(backend, group):
    topic = backend.topic()
    producer = backend.producer({"transactional.id": backend.unique("id")})
    for call in every_call(producer, topic, group).values():
        assert failure_of(call) == ("_STATE",)
    producer.init_transactions(START_S)
    assert failure_of(producer.init_transactions, START_S) == ("_STATE",)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")


def test_between_transactions_one_can_only_be_begun(backend, start, group):
    topic, producer = backend.topic(), start()
    for _ in range(2):
        for name, call in every_call(producer, topic, group).items():
            if name != "begin":
                assert failure_of(call) == ("_STATE",), name
        commit(producer, topic, b"right")
    becomes(backend, topic, b"right", b"right")


def test_a_transaction_is_begun_once(backend, start):
    topic, producer = backend.topic(), start()
    producer.begin_transaction()
    assert failure_of(producer.begin_transaction) == ("_STATE",)
    produce(producer, topic, b"right")
    producer.commit_transaction(CALL_S)
    becomes(backend, topic, b"right")


def test_a_commit_that_ran_out_of_time_can_only_be_called_again(backend, start, group):
    topic, producer = backend.unique("soon"), start()
    producer.begin_transaction()
    produce(producer, topic, b"queued")
    assert failure_of(producer.commit_transaction, 0.2) == ("_TIMED_OUT", "retriable")
    calls = every_call(producer, topic, group)
    for name in ("begin", "send_offsets", "abort"):
        assert failure_of(calls[name]) == ("_CONFLICT", "retriable"), name
    assert failure_of(calls["produce"]) == ("_STATE",)
    backend.create_topic(topic)
    producer.commit_transaction(CALL_S)
    becomes(backend, topic, b"queued")


@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_report_that_raises_interrupts_the_end_which_goes_on_when_called_again(backend, start, name):
    topic, producer = backend.topic(2), start(linger_ms=5000)
    producer.begin_transaction()
    fail = raiser(1, 2, 3)
    produce(producer, topic, b"1", b"2", partition=0, on_delivery=fail)
    produce(producer, topic, b"3", partition=1, on_delivery=fail)
    end = getattr(producer, f"{name}_transaction")
    for number in (1, 2, 3):
        with pytest.raises(LookupError, match=str(number)):
            end(CALL_S)
        if number < 3:
            assert failure_of(producer.begin_transaction) == ("_CONFLICT", "retriable")
    assert failure_of(end, CALL_S) == ("_STATE",)
    commit(producer, topic, b"4", partition=1)
    becomes(backend, topic, *([b"1", b"2", b"3", b"4"] if name == "commit" else [b"4"]), partitions=2)


def test_a_closed_producer_has_aborted_its_transaction(backend, two):
    topic, (producer, other) = backend.topic(), two
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.close()
    commit(other, topic, b"right")
    becomes(backend, topic, b"right")


# -- records that cannot be delivered --------------------------------------------------------------------------------


def test_a_record_that_is_too_large_for_its_producer_leaves_the_transaction_alone(backend, start):
    topic, producer = backend.topic(), start(message_max_bytes=2000)
    producer.begin_transaction()
    assert failure_of(producer.produce, topic, b"x" * 3000) == ("MSG_SIZE_TOO_LARGE",)
    produce(producer, topic, b"right")
    producer.commit_transaction(CALL_S)
    becomes(backend, topic, b"right")


def test_a_record_that_the_broker_refuses_ends_the_transaction_and_costs_the_next_one(backend, start):
    topic, producer = backend.topic(), start(message_max_bytes=2 * BROKERS_LARGEST_BATCH)
    reports = []
    producer.begin_transaction()
    too_large = b"x" * (BROKERS_LARGEST_BATCH + 1)
    produce(producer, topic, too_large, on_delivery=lambda error, message: reports.append(error.name()))
    assert producer.flush(CALL_S) == 0
    assert reports == ["MSG_SIZE_TOO_LARGE"]
    assert failure_of(producer.commit_transaction, CALL_S) == ("MSG_SIZE_TOO_LARGE", "abort")
    producer.abort_transaction(CALL_S)
    producer.begin_transaction()
    produce(producer, topic, b"after a gap")
    assert failure_of(producer.commit_transaction, CALL_S) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", "abort")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"topic.metadata.propagation.max.ms": 200}, "UNKNOWN_TOPIC_OR_PART"),
        ({"message.timeout.ms": 2000}, "_MSG_TIMED_OUT"),
    ],
    ids=["unknown topic", "too late"],
)
def test_a_transaction_with_an_undelivered_record_is_not_committed(backend, settings, code):
    topic = backend.topic()
    producer = backend.producer({"transactional.id": backend.unique("id"), **settings})
    producer.init_transactions(START_S)
    reports = []
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.produce(backend.unique("nowhere"), b"lost", on_delivery=lambda error, _: reports.append(error.name()))
    assert producer.flush(CALL_S) == 0
    assert reports == [code]
    delivered(producer, topic, b"wrong, too")
    assert failure_of(producer.commit_transaction, CALL_S) == ("_INCONSISTENT", "abort")
    assert failure_of(producer.produce, topic, b"too late") == ("_STATE",)
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")


def test_a_purge_leaves_a_transaction_that_is_not_committed(backend, start):
    topic, producer = backend.topic(), start(linger_ms=30_000)
    reports = []
    producer.begin_transaction()
    produce(producer, topic, b"wrong", on_delivery=lambda error, message: reports.append(error.name()))
    producer.purge()
    producer.flush(CALL_S)
    assert reports == ["_PURGE_QUEUE"]
    assert failure_of(producer.commit_transaction, CALL_S) == ("_INCONSISTENT", "abort")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")
