"""Transactions: fences by another instance, time-outs, and ids that the coordinator forgets."""

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.backends import closing
from tests.conformance.failures import failure_of
from tests.conformance.transactions import (
    CALL_S,
    START_S,
    Group,
    Identity,
    becomes,
    commit,
    delivered,
    every_call,
    produce,
)
from tests.conformance.versions import TRANSACTION_CHECK_S, TRANSACTIONAL_ID_EXPIRATION_S

TIMEOUT_S = 4.0
TRIES_MAX = 10
FENCED = ("_FENCED", "fatal")
WAYS_ON = ("commit", "abort", "send_offsets", "write on", "write elsewhere")


class Forgotten:
    """Producers whose ids the coordinator forgets for want of use; ready at `ready_s`."""

    def __init__(self, backend):
        self.backend = backend
        self.topic = backend.topic(2)
        names = ("write on", "write elsewhere", "send_offsets", "nothing")
        self.identities = {name: Identity(backend) for name in names}
        self.producers = dict(zip(names, Identity.start_all(self.identities.values()), strict=True))
        for producer in self.producers.values():
            commit(producer, self.topic, b"old")
        self._ready_s = backend.clock() + TRANSACTIONAL_ID_EXPIRATION_S + 2 * TRANSACTION_CHECK_S

    def wait(self):
        self.backend.wait(max(0.0, self._ready_s - self.backend.clock()))


@pytest.fixture(scope="module", autouse=True)
def forgotten(make_backend):
    """Begun before the other tests, as it takes some seconds."""
    with closing(make_backend("forgotten")) as backend:
        yield Forgotten(backend)


# -- another instance ------------------------------------------------------------------------------------------------


def finish(name, producer, topic, group):
    """What a producer in an open transaction (partition 0) does next."""
    if name == "write on":
        produce(producer, topic, b"wrong")
        producer.flush(CALL_S)
    elif name == "write elsewhere":
        produce(producer, topic, b"wrong", partition=1)
        producer.flush(CALL_S)
    else:
        every_call(producer, topic, group)[name]()


def test_a_newer_instance_fences_the_older_one_in_its_transaction(backend, start_all, group):
    topic, ids = backend.topic(2), [backend.unique("id") for _ in WAYS_ON]
    olders = start_all(ids)
    for older in olders:
        older.begin_transaction()
        delivered(older, topic, b"wrong")
    newers = start_all(ids)
    for name, older in zip(WAYS_ON, olders, strict=True):
        assert failure_of(finish, name, older, topic, group) == FENCED, name
    for name, newer in zip(WAYS_ON, newers, strict=True):
        commit(newer, topic, name.encode())
    becomes(backend, topic, *[name.encode() for name in WAYS_ON], partitions=2)


def test_a_fenced_producer_answers_each_call_with_its_fence(backend, start, group):
    topic, transactional_id = backend.topic(), backend.unique("id")
    older = start(transactional_id)
    older.begin_transaction()
    delivered(older, topic, b"wrong")
    start(transactional_id)
    assert failure_of(older.commit_transaction, CALL_S) == FENCED
    for name, call in every_call(older, topic, group).items():
        assert failure_of(call) == (("_FATAL",) if name == "produce" else FENCED), name
    assert failure_of(older.init_transactions, CALL_S) == FENCED
    assert failure_of(older.flush, CALL_S) == FENCED  # once: the event itself
    assert older.flush(CALL_S) == 0


def test_a_fence_met_while_a_commit_flushes_is_that_commits_error(backend, start):
    topic, interrupted = backend.topic(), ("_CONFLICT", "retriable")
    for _ in range(TRIES_MAX):
        transactional_id = backend.unique("id")
        older = start(transactional_id)
        start(transactional_id)
        older.begin_transaction()
        produce(older, topic, b"wrong")
        assert failure_of(older.commit_transaction, CALL_S) == FENCED
        if (aborted := failure_of(older.abort_transaction, CALL_S)) == interrupted:
            break
        assert aborted == FENCED  # on a busy machine the fence may be met before the commit has begun
    assert aborted == interrupted
    assert failure_of(older.commit_transaction, CALL_S) == FENCED
    assert failure_of(older.abort_transaction, CALL_S) == FENCED


def test_a_producer_that_was_fenced_between_transactions_hears_of_it_in_the_next(backend, start_all, group):
    ways = ("send_offsets", "write on", "write elsewhere")
    topic, ids = backend.topic(2), [backend.unique("id") for _ in ways]
    olders = start_all(ids)
    for older in olders:
        commit(older, topic, b"right")
    start_all(ids)
    for name, older in zip(ways, olders, strict=True):
        older.begin_transaction()
        assert failure_of(finish, name, older, topic, group) == FENCED, name
    becomes(backend, topic, b"right", b"right", b"right", partitions=2)


def test_a_fenced_producer_hears_nothing_in_an_empty_transaction(backend, start):
    transactional_id = backend.unique("id")
    older = start(transactional_id)
    start(transactional_id)
    for end in (older.commit_transaction, older.abort_transaction):
        older.begin_transaction()
        end(CALL_S)


def test_a_newer_instance_ends_the_transaction_that_was_left_open(backend, start):
    topic, transactional_id = backend.topic(), backend.unique("id")
    left = start(transactional_id)
    left.begin_transaction()
    delivered(left, topic, b"wrong")
    delivered(backend.producer({}), topic, b"behind it")
    assert backend.values(topic) == []
    start(transactional_id)
    becomes(backend, topic, b"behind it")


def test_a_newer_instance_drops_the_offsets_that_were_left_pending(backend, start, group):
    inputs, transactional_id = backend.topic(), backend.unique("id")
    left = start(transactional_id)
    left.begin_transaction()
    left.send_offsets_to_transaction([TopicPartition(inputs, 0, 7)], group.metadata, CALL_S)
    newer = start(transactional_id)
    assert group.committed(inputs) is None
    newer.begin_transaction()
    newer.send_offsets_to_transaction([TopicPartition(inputs, 0, 3)], group.metadata, CALL_S)
    newer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 3


def test_instances_one_after_the_other_disturb_nobody(backend, start):
    topic, transactional_id = backend.topic(), backend.unique("id")
    for number in range(3):
        with start(transactional_id) as producer:
            commit(producer, topic, b"%d" % number)
    becomes(backend, topic, b"0", b"1", b"2")


def test_each_instance_has_a_higher_epoch_and_a_transaction_left_open_costs_one_more(backend):
    topic, identity = backend.topic(), Identity(backend)
    identity.start()
    producer_id, epoch = identity.now
    producer = identity.start()
    assert identity.now == (producer_id, epoch + 1)
    commit(producer, topic, b"1")
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.abort_transaction(CALL_S)
    assert identity.now == (producer_id, epoch + 1)
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    identity.start()
    assert identity.now == (producer_id, epoch + 3)


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(backend, group):
    topic = backend.topic(2)
    limits = {"transaction_timeout_ms": round(TIMEOUT_S * 1000), "message_timeout_ms": round(TIMEOUT_S * 1000)}
    identities = {name: Identity(backend, **limits) for name in WAYS_ON}
    producers = dict(zip(WAYS_ON, Identity.start_all(identities.values()), strict=True))
    producer_id, epoch = identities["commit"].now
    for producer in producers.values():
        producer.begin_transaction()
        delivered(producer, topic, b"wrong")
    producers["abort"].send_offsets_to_transaction([TopicPartition(topic, 0, 7)], group.metadata, CALL_S)
    delivered(backend.producer({}), topic, b"behind them")
    assert backend.values(topic, 2) == []
    assert group.committed(topic) is None  # waits, as the transaction might still commit
    becomes(backend, topic, b"behind them", partitions=2)
    for name, producer in producers.items():
        assert failure_of(finish, name, producer, topic, group) == FENCED, name
    successor = identities["commit"].start()
    assert identities["commit"].now == (producer_id, epoch + 2)
    commit(successor, topic, b"right")
    becomes(backend, topic, b"behind them", b"right", partitions=2)


def test_more_time_than_the_broker_allows_is_fatal(backend):
    producer = backend.producer({"transactional.id": backend.unique("id"), "transaction.timeout.ms": 901_000})
    refused = ("INVALID_TRANSACTION_TIMEOUT", "fatal")
    assert failure_of(producer.init_transactions, START_S) == refused
    assert failure_of(producer.begin_transaction) == refused


def test_a_forgotten_id_is_found_again_by_the_abort_of_a_transaction_that_wrote(forgotten):
    topic = forgotten.topic
    forgotten.wait()
    for name, partition in (("write on", 0), ("write elsewhere", 1)):
        producer, identity = forgotten.producers[name], forgotten.identities[name]
        old_id, _ = identity.now
        producer.begin_transaction()
        produce(producer, topic, b"wrong", partition=partition)
        assert failure_of(producer.commit_transaction, CALL_S) == ("INVALID_PRODUCER_ID_MAPPING", "abort"), name
        producer.abort_transaction(CALL_S)
        new_id, epoch = identity.now
        assert (new_id != old_id, epoch) == (True, 0)
        commit(producer, topic, name.encode(), partition=1)
    becomes(forgotten.backend, topic, *[b"old"] * 4, b"write on", b"write elsewhere", partitions=2)


def test_a_forgotten_id_is_never_found_again_by_transactions_that_begin_with_offsets(forgotten):
    producer, group = forgotten.producers["send_offsets"], Group(forgotten.backend)
    forgotten.wait()
    offsets = [TopicPartition(forgotten.topic, 0, 7)]
    lost = ("INVALID_PRODUCER_ID_MAPPING", "abort")
    for _ in range(3):  # librdkafka asks for no new epoch here
        producer.begin_transaction()
        assert failure_of(producer.send_offsets_to_transaction, offsets, group.metadata, CALL_S) == lost
        assert failure_of(producer.commit_transaction, CALL_S) == lost
        producer.abort_transaction(CALL_S)
    assert group.committed(forgotten.topic) is None


def test_a_forgotten_id_is_not_missed_by_empty_transactions(forgotten):
    producer = forgotten.producers["nothing"]
    forgotten.wait()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end(CALL_S)
