"""What the tests of transactions share: producers that start side by side, groups, identities, whole transactions."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from tests.support.client_settings import dotted

CALL_S = 30.0
START_S = 60.0


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


def every_call(producer, topic, group):
    offsets = [TopicPartition(topic, 0, 7)]
    return {
        "begin": producer.begin_transaction,
        "produce": lambda: producer.produce(topic, b"wrong"),
        "send_offsets": lambda: producer.send_offsets_to_transaction(offsets, group.metadata, CALL_S),
        "commit": lambda: producer.commit_transaction(CALL_S),
        "abort": lambda: producer.abort_transaction(CALL_S),
    }
