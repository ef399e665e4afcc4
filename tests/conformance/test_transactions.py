"""Transactions: what readers see and when, offsets in them, calls out of order, fences, time-outs, forgotten ids."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.conformance.backends import TRANSACTION_CHECK_S, TRANSACTIONAL_ID_EXPIRATION_S, closing, dotted
from tests.conformance.failures import failure_of, failure_once_answered

CALL_S = 30.0
START_S = 60.0
TIMEOUT_S = 4.0
BROKERS_LARGEST_BATCH = 1_048_588

FENCED = ("_FENCED", "fatal")
WAYS_ON = ("commit", "abort", "send_offsets", "write on", "write elsewhere")


def started(backend, transactional_ids, **settings):
    """Transactional producers, started side by side; settings are written with underscores."""
    given = dotted(settings)
    return initialised([backend.producer({"transactional.id": each, **given}) for each in transactional_ids])


def initialised(producers):
    waiting = []
    for producer in producers:
        producer.list_topics(timeout=START_S)  # once connected, librdkafka's first try is not half a second late
        try:
            producer.init_transactions(0)
        except KafkaException:
            waiting.append(producer)  # it goes on by itself
    for producer in waiting:
        producer.init_transactions(START_S)
    return producers


@pytest.fixture
def start(backend):
    """A function that starts a transactional producer."""

    def start_one(transactional_id=None, **settings):
        (producer,) = started(backend, [transactional_id or backend.unique("id")], **settings)
        return producer

    return start_one


@pytest.fixture
def start_all(backend):
    """A function that starts one transactional producer for each id."""
    return functools.partial(started, backend)


@pytest.fixture
def two(backend):
    """Two transactional producers."""
    return started(backend, [backend.unique("id"), backend.unique("id")])


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


@pytest.fixture
def group(backend):
    """A group without members, by which offsets are committed and looked up."""
    return Group(backend)


class Group:
    def __init__(self, backend):
        self.group_id = backend.unique("group")
        self._reader = backend.consumer({"group.id": self.group_id, "enable.auto.commit": False})
        self.metadata = self._reader.consumer_group_metadata()  # of no member, so unfenced

    def committed(self, topic, partition=0):
        (found,) = self._reader.committed([TopicPartition(topic, partition)], CALL_S)
        return found.offset if found.offset >= 0 else None

    def commit(self, topic, offset):
        self._reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def note(self, topic, partition=0):
        (found,) = self._reader.committed([TopicPartition(topic, partition)], CALL_S)
        return found.metadata


class Identity:
    """Who a transactional.id's latest producer is for the brokers: its id and epoch, from its statistics."""

    def __init__(self, backend, **settings):
        self._backend = backend
        self._settings = settings
        self._transactional_id = backend.unique("id")
        self._latest: Any = None
        self._producer: Any = None

    def start(self):
        (producer,) = self.start_all([self])
        return producer

    @staticmethod
    def start_all(identities):
        """The next producer of each."""
        return initialised([each._make() for each in identities])

    def _make(self):
        settings = {"transactional_id": self._transactional_id, "stats_cb": self._note, "statistics_interval_ms": 50}
        self._producer = self._backend.producer(dotted({**settings, **self._settings}))
        return self._producer

    def _note(self, statistics):
        self._latest = json.loads(statistics)["eos"]

    @property
    def now(self):
        for _ in range(2):  # the first may be old
            self._latest = None
            self._backend.until(lambda: self._latest, "statistics", polling=[self._producer])
        return self._latest["producer_id"], self._latest["producer_epoch"]


def raiser(*numbers):
    """A delivery callback that raises each time."""
    left = list(numbers)

    def fail(error, message):
        raise LookupError(left.pop(0))

    return fail


def produce(producer, topic, *values, partition=0, **options):
    for value in values:
        producer.produce(topic, value, partition=partition, **options)


def delivered(producer, topic, *values, partition=0):
    """Produce and wait until the broker has them, the transaction still open."""
    produce(producer, topic, *values, partition=partition)
    assert producer.flush(CALL_S) == 0


def commit(producer, topic, *values, partition=0):
    """One transaction."""
    producer.begin_transaction()
    produce(producer, topic, *values, partition=partition)
    producer.commit_transaction(CALL_S)


def becomes(backend, topic, *values, partitions=1):
    """Wait until a reader sees just these: an answered commit may be a moment ahead of its markers."""
    backend.until(lambda: backend.values(topic, partitions) == list(values), f"{topic} to read {values}")


# -- what readers see ------------------------------------------------------------------------------------------------


def test_records_are_read_from_the_commit_of_their_transaction_on(backend, start):
    topic, producer = backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, topic, b"1", b"2")
    assert backend.values(topic) == []
    assert backend.values(topic, isolation="read_uncommitted") == [b"1", b"2"]
    producer.commit_transaction(CALL_S)
    becomes(backend, topic, b"1", b"2")


def test_records_of_an_aborted_transaction_are_never_read(backend, start):
    topic, producer = backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")
    assert backend.values(topic, isolation="read_uncommitted") == [b"wrong", b"right"]


def test_an_open_transaction_holds_back_all_that_was_written_after_it(backend, two):
    topic, (slow, quick), plain = backend.topic(), two, backend.producer({})
    commit(quick, topic, b"before")
    slow.begin_transaction()
    delivered(slow, topic, b"slow")
    commit(quick, topic, b"quick")
    delivered(plain, topic, b"plain")
    becomes(backend, topic, b"before")
    slow.commit_transaction(CALL_S)
    becomes(backend, topic, b"before", b"slow", b"quick", b"plain")


def test_an_open_transaction_holds_back_its_own_partitions_only(backend, two):
    topic, (slow, quick) = backend.topic(2), two
    slow.begin_transaction()
    delivered(slow, topic, b"slow", partition=0)
    commit(quick, topic, b"quick", partition=1)
    becomes(backend, topic, b"quick", partitions=2)


def test_of_two_transactions_in_one_partition_each_has_its_own_end(backend, two):
    topic, (first, second) = backend.topic(), two
    first.begin_transaction()
    second.begin_transaction()
    for number in range(3):
        delivered(first, topic, b"first %d" % number)
        delivered(second, topic, b"second %d" % number)
    first.abort_transaction(CALL_S)
    second.commit_transaction(CALL_S)
    becomes(backend, topic, b"second 0", b"second 1", b"second 2")


def test_a_readers_high_watermark_is_the_first_open_transaction(backend, start):
    topic, producer = backend.topic(), start()
    commit(producer, topic, b"1")
    producer.begin_transaction()
    delivered(producer, topic, b"2", b"3")
    committed = backend.consumer({"group.id": backend.unique("group")})
    uncommitted = backend.consumer({"group.id": backend.unique("group"), "isolation.level": "read_uncommitted"})
    place = TopicPartition(topic, 0)
    backend.until(lambda: committed.get_watermark_offsets(place, CALL_S) == (0, 2), "the first marker")
    assert uncommitted.get_watermark_offsets(place, CALL_S) == (0, 4)
    producer.commit_transaction(CALL_S)
    backend.until(lambda: committed.get_watermark_offsets(place, CALL_S) == (0, 5), "the second marker")


def test_markers_take_an_offset_each(backend, start):
    topic, producer = backend.topic(), start()
    commit(producer, topic, b"1", b"2")
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"3")
    becomes(backend, topic, b"1", b"2", b"3")
    assert [message.offset() for message in backend.read(topic)] == [0, 1, 5]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_ends_in_all_its_partitions_alike(backend, start, outcome):
    one, other, producer = backend.topic(2), backend.topic(), start()
    producer.begin_transaction()
    produce(producer, one, b"a", partition=0)
    produce(producer, one, b"b", partition=1)
    delivered(producer, other, b"c")
    getattr(producer, f"{outcome}_transaction")(CALL_S)
    commit(producer, one, b"end", partition=0)
    commit(producer, one, b"end", partition=1)
    commit(producer, other, b"end")
    becomes(backend, one, *([b"a", b"end", b"b", b"end"] if outcome == "commit" else [b"end", b"end"]), partitions=2)
    becomes(backend, other, *([b"c", b"end"] if outcome == "commit" else [b"end"]))


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_whose_beginning_was_deleted_ends_with_what_is_left_of_it(backend, two, outcome):
    topic, (first, second) = backend.topic(), two
    first.begin_transaction()
    second.begin_transaction()
    delivered(first, topic, b"deleted")
    delivered(second, topic, b"deleted, too", b"left")
    backend.delete_records(topic, 0, 2)
    assert backend.values(topic, isolation="read_uncommitted") == [b"left"]
    first.commit_transaction(CALL_S)
    getattr(second, f"{outcome}_transaction")(CALL_S)
    commit(first, topic, b"end")
    becomes(backend, topic, *([b"left", b"end"] if outcome == "commit" else [b"end"]))


def test_many_transactions_in_a_row_keep_their_order_and_their_outcomes(backend, start):
    topic, producer = backend.topic(), start(retry_backoff_ms=10)
    for number in range(12):
        producer.begin_transaction()
        produce(producer, topic, b"%d" % number)
        if number % 3 == 1:
            producer.flush(CALL_S)
            producer.abort_transaction(CALL_S)
        else:
            producer.commit_transaction(CALL_S)
    becomes(backend, topic, *[b"%d" % number for number in range(12) if number % 3 != 1])


def test_a_commit_waits_for_what_is_still_queued(backend, start):
    topic, producer = backend.topic(), start(linger_ms=5000)
    reports = []
    producer.begin_transaction()
    produce(producer, topic, b"1", b"2", on_delivery=lambda error, message: reports.append((error, message.offset())))
    assert len(producer) == 2
    producer.commit_transaction(CALL_S)
    assert (len(producer), reports) == (0, [(None, 0), (None, 1)])
    becomes(backend, topic, b"1", b"2")


def test_an_abort_gives_up_what_is_still_queued_and_reports_it(backend, start):
    topic, producer = backend.topic(), start(linger_ms=30_000)
    reports = []
    producer.begin_transaction()
    produce(producer, topic, b"1", b"2", on_delivery=lambda error, message: reports.append(error.name()))
    producer.abort_transaction(CALL_S)
    assert (len(producer), reports) == (0, ["_PURGE_QUEUE", "_PURGE_QUEUE"])
    commit(producer, topic, b"3")
    becomes(backend, topic, b"3")
    assert backend.values(topic, isolation="read_uncommitted") == [b"3"]


def test_a_transaction_without_records_leaves_no_trace(backend, start):
    topic, producer = backend.topic(), start()
    for end in (producer.commit_transaction, producer.abort_transaction) * 2:
        producer.begin_transaction()
        end(CALL_S)
    commit(producer, topic, b"1")
    becomes(backend, topic, b"1")
    assert [message.offset() for message in backend.read(topic)] == [0]


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_records_of_their_transaction(backend, start, group):
    inputs, outputs, producer = backend.topic(2), backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, outputs, b"output")
    offsets = [TopicPartition(inputs, 0, 7, metadata="a note"), TopicPartition(inputs, 1, 8)]
    producer.send_offsets_to_transaction(offsets, group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    becomes(backend, outputs, b"output")
    assert (group.committed(inputs, 0), group.committed(inputs, 1)) == (7, 8)
    assert group.note(inputs) == "a note"


def test_offsets_of_an_aborted_transaction_are_dropped(backend, start, group):
    inputs, producer = backend.topic(), start()
    for offset, end in ((3, producer.commit_transaction), (7, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
        end(CALL_S)
    assert group.committed(inputs) == 3


def test_a_transaction_may_consist_of_offsets_alone(backend, start, group):
    inputs, producer = backend.topic(), start()
    for offset in (1, 2, 3):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
        producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 3


def test_offsets_sent_again_in_one_transaction_replace_the_earlier_ones(backend, start, group):
    inputs, producer = backend.topic(2), start()
    producer.begin_transaction()
    for offsets in ([(0, 5), (1, 6)], [(0, 2)]):
        sent = [TopicPartition(inputs, partition, offset) for partition, offset in offsets]
        producer.send_offsets_to_transaction(sent, group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    assert (group.committed(inputs, 0), group.committed(inputs, 1)) == (2, 6)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_offsets_of_two_groups_end_with_one_transaction(backend, start, group, outcome):
    inputs, other, producer = backend.topic(), Group(backend), start()
    producer.begin_transaction()
    for number, each in enumerate((group, other), 1):
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, number)], each.metadata, CALL_S)
    getattr(producer, f"{outcome}_transaction")(CALL_S)
    expected = (1, 2) if outcome == "commit" else (None, None)
    assert (group.committed(inputs), other.committed(inputs)) == expected


@pytest.mark.parametrize("ends_first", ["earlier", "later"])
def test_of_two_transactions_the_offsets_that_were_sent_later_remain(backend, two, group, ends_first):
    inputs, (earlier, later) = backend.topic(), two
    for offset, producer in ((5, earlier), (7, later)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
    for producer in (earlier, later) if ends_first == "earlier" else (later, earlier):
        producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 7


def test_a_plain_commit_after_offsets_were_sent_outlives_their_transaction(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(inputs, 0, 7)], group.metadata, CALL_S)
    group.commit(inputs, 3)
    producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 3


def test_no_offsets_and_offsets_without_a_value_are_nothing_to_send(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([], group.metadata, CALL_S)
    producer.send_offsets_to_transaction([TopicPartition(inputs, 0)], group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    assert group.committed(inputs) is None


@pytest.mark.parametrize("exists", [True, False], ids=["no such partition", "no such topic"])
def test_offsets_of_what_does_not_exist_cannot_be_sent(backend, start, group, exists):
    inputs, outputs, producer = backend.topic(), backend.topic(), start()
    unknown = TopicPartition(inputs, 9, 7) if exists else TopicPartition(backend.unique("nowhere"), 0, 7)
    refused = ("UNKNOWN_TOPIC_OR_PART", "abort")

    def send(limit_s):
        producer.begin_transaction()
        delivered(producer, outputs, b"wrong")
        return failure_of(producer.send_offsets_to_transaction, [unknown], group.metadata, limit_s)

    assert failure_once_answered(producer, send) == refused
    assert failure_of(producer.commit_transaction, CALL_S) == refused
    producer.abort_transaction(CALL_S)
    commit(producer, outputs, b"right")
    becomes(backend, outputs, b"right")


def test_a_note_that_is_too_long_is_refused(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    offsets = [TopicPartition(inputs, 0, 7, metadata="x" * 5000)]
    refused = ("OFFSET_METADATA_TOO_LARGE", "abort")
    assert failure_of(producer.send_offsets_to_transaction, offsets, group.metadata, CALL_S) == refused
    producer.abort_transaction(CALL_S)
    assert group.committed(inputs) is None


# -- calls out of order ----------------------------------------------------------------------------------------------


def every_call(producer, topic, group):
    offsets = [TopicPartition(topic, 0, 7)]
    return {
        "begin": producer.begin_transaction,
        "produce": lambda: producer.produce(topic, b"wrong"),
        "send_offsets": lambda: producer.send_offsets_to_transaction(offsets, group.metadata, CALL_S),
        "commit": lambda: producer.commit_transaction(CALL_S),
        "abort": lambda: producer.abort_transaction(CALL_S),
    }


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
    topic, transactional_id = backend.topic(), backend.unique("id")
    older = start(transactional_id)
    start(transactional_id)
    older.begin_transaction()
    produce(older, topic, b"wrong")
    assert failure_of(older.commit_transaction, CALL_S) == FENCED
    assert failure_of(older.abort_transaction, CALL_S) == ("_CONFLICT", "retriable")  # the commit was interrupted
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
