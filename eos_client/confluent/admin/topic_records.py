"""Writes records to a topic and reads them back without a consumer group, for tools."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from eos_client.config.client_settings import LOG_LEVEL_CRITICAL
from eos_client.confluent.callback_guard import built
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.core.error_codes import GROUP_FORBIDDEN, PARTITION_END, TOPIC_MISSING
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError

_FLUSH_TIMEOUT_S = 60.0
_IDLE_LIMIT_S = 30.0
_TOPIC_CHECK_S = 3.0
_MISSING_COUNT_MAX = 3  # answers in a row: the metadata of one broker may be late
_READERS_GROUP = "eos-client-reader"  # librdkafka demands one; assign() never joins it


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as a reader with a given isolation level sees it."""

    partition: int
    offset: int
    value: bytes
    headers: Mapping[str, bytes]
    key: bytes | None = None


class TopicLoader(AbstractContextManager["TopicLoader"]):
    """Writes records to one topic, each once (idempotent producer), and counts what the broker confirmed.

    Use it as a context manager: leaving it waits until every record is confirmed, or drops the records after an
    exception. Nothing of it asks for the topic afterwards, which would create a topic again that was deleted.
    """

    def __init__(self, bootstrap_servers: str, topic: str, config: Mapping[str, Any]) -> None:
        self.loaded = 0
        self._topic = topic
        self._error: KafkaError | None = None
        settings = {"log_level": LOG_LEVEL_CRITICAL, **config}
        # One request in flight: a batch that is refused must not be overtaken, or it is lost (client_log.py).
        safe = {"enable.idempotence": True, "acks": "all", "max.in.flight": 1}
        self._producer = built("producer", Producer, {**settings, "bootstrap.servers": bootstrap_servers, **safe})

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._producer.purge()
            self._producer.close()

    def load(self, value: bytes, *, key: bytes | None, partition: int) -> None:
        """Queue one record; waits where the queue is full.

        :raises ClusterUnfitError: the record is too large for the topic, or an earlier one was refused.
        """
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise ClusterUnfitError(
                    f"a record of {len(value)} bytes cannot be written to {self._topic}: {kafka_error(error).str()}"
                ) from error
        self.serve()

    def serve(self) -> None:
        """Serve delivery reports.

        :raises ClusterUnfitError: a record was refused.
        """
        self._producer.poll(0)
        if self._error is not None:
            raise ClusterUnfitError(f"the cluster refused a record for {self._topic}: {self._error.str()}")

    def flush(self) -> None:
        """Wait until every queued record is confirmed.

        :raises ClusterUnavailableError: some were not within _FLUSH_TIMEOUT_S seconds.
        """
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        self.serve()
        if left:
            raise ClusterUnavailableError(
                f"{left} records for {self._topic} were not confirmed within {_FLUSH_TIMEOUT_S:g} s"
            )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.loaded += 1
        elif self._error is None:
            self._error = error


def read_topic(
    bootstrap_servers: str,
    topic: str,
    end_offsets: Mapping[int, int],
    config: Mapping[str, Any] | None = None,
    *,
    committed_only: bool = True,
    start_offsets: Mapping[int, int] | None = None,
) -> Iterator[StoredRecord]:
    """Yield every record of a topic below ``end_offsets``, partition by partition in log order, without a group.

    :param start_offsets: where to begin, by partition; at the oldest record where it is left out.
    :param committed_only: leave out records of aborted transactions (``read_committed``).
    :raises ClusterUnavailableError: nothing came for _IDLE_LIMIT_S seconds.
    """
    starts = start_offsets or {}
    unfinished = {partition for partition, end in end_offsets.items() if end > starts.get(partition, 0)}
    with closing(_reader(bootstrap_servers, config, committed_only=committed_only)) as consumer:
        consumer.assign([TopicPartition(topic, p, starts.get(p, OFFSET_BEGINNING)) for p in sorted(unfinished)])
        heard_at = time.monotonic()
        while unfinished:
            for message in _consumed(consumer):
                heard_at = time.monotonic()
                record = _stored(message, unfinished, end_offsets)
                if record is not None:
                    yield record
            if time.monotonic() - heard_at > _IDLE_LIMIT_S:
                raise ClusterUnavailableError(
                    f"nothing came from {topic} for {_IDLE_LIMIT_S:g} s while partitions {sorted(unfinished)} are "
                    "unread: an open transaction, an absent leader or a client quota holds them back"
                )


def tail_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: Iterable[int],
    config: Mapping[str, Any] | None = None,
    *,
    committed_only: bool = True,
    from_start: bool = True,
    start_offsets: Mapping[int, int] | None = None,
    follow: bool = True,
) -> Generator[Message, None, None]:
    """Yield the records of ``partitions`` of a topic as they come, without a group.

    :param from_start: begin with the oldest records, else with those that are written from now on.
    :param start_offsets: where to begin instead, by partition.
    :param follow: go on after the end, else stop where every partition ends now.
    :raises ClusterUnfitError: the topic may not be read, or is no longer there.
    """
    start = OFFSET_BEGINNING if from_start else OFFSET_END
    starts = start_offsets or {}
    unread, asked_at, missing_count = set(partitions), time.monotonic(), 0
    with closing(_reader(bootstrap_servers, config, committed_only=committed_only)) as consumer:
        consumer.assign([TopicPartition(topic, each, starts.get(each, start)) for each in sorted(unread)])
        while follow or unread:
            for message in _consumed(consumer):
                error = message.error()
                if error is None:
                    yield message
                elif error.name() == PARTITION_END:
                    unread.discard(cast("int", message.partition()))
                elif not error.retriable():
                    raise ClusterUnfitError(f"{topic} cannot be read: {error.str()}")
            if time.monotonic() - asked_at > _TOPIC_CHECK_S:
                missing_count = missing_count + 1 if _is_missing(consumer, topic) else 0
                if missing_count == _MISSING_COUNT_MAX:
                    raise ClusterUnfitError(f"there is no topic {topic!r} any more: it was deleted while it was read")
                asked_at = time.monotonic()


class GroupOffsets(AbstractContextManager["GroupOffsets"]):
    """Reads what a group has committed, as an outsider: it never joins.

    Uses a consumer, because the admin client of librdkafka reads through a null pointer when the group's
    coordinator has just moved or is not there yet (librdkafka #5040).

    :param stable: wait for open transactions that hold offsets (KIP-447), as a new owner would.
    """

    def __init__(self, bootstrap_servers: str, group_id: str, config: Mapping[str, Any], *, stable: bool) -> None:
        self._consumer = _reader(bootstrap_servers, config, group_id=group_id, committed_only=stable)

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, topic: str, partition_count: int, *, timeout_s: float = 10.0) -> dict[int, int]:
        """Return the committed offset of each partition; what the group never committed reads as 0.

        :raises ClusterUnavailableError: the coordinator did not answer within ``timeout_s``.
        """
        answer = self._committed({topic: partition_count}, f"of {topic}", timeout_s)
        return {at.partition: max(at.offset, 0) for at in answer}

    def read_all(self, partition_counts: Mapping[str, int], *, timeout_s: float = 10.0) -> dict[InputPartition, int]:
        """Return what the group has committed of these topics, given with the number of their partitions.

        :raises ClusterUnavailableError: the coordinator did not answer within ``timeout_s``.
        """
        answer = self._committed(partition_counts, "of the group", timeout_s)
        return {InputPartition(at.topic, at.partition): at.offset for at in answer if at.offset >= 0}

    def _committed(self, partition_counts: Mapping[str, int], whose: str, timeout_s: float) -> list[TopicPartition]:
        wanted = [TopicPartition(topic, each) for topic, count in partition_counts.items() for each in range(count)]
        try:
            return self._consumer.committed(wanted, timeout_s)
        except KafkaException as error:
            raise ClusterUnavailableError(
                f"the committed offsets {whose} could not be read within {timeout_s:g} s: {kafka_error(error).str()}"
            ) from error


def _reader(
    bootstrap_servers: str, config: Mapping[str, Any] | None, *, committed_only: bool, group_id: str = _READERS_GROUP
) -> Consumer:
    own = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "allow.auto.create.topics": False,
        "enable.auto.commit": False,
        "enable.partition.eof": True,  # the end may be a control record, which is never delivered
        "isolation.level": "read_committed" if committed_only else "read_uncommitted",
    }
    return built("consumer", Consumer, {"log_level": LOG_LEVEL_CRITICAL, **(config or {}), **own})


def _is_missing(consumer: Consumer, topic: str) -> bool:
    """Whether a broker says that there is no such topic: librdkafka does not report one that is deleted meanwhile."""
    try:
        error = consumer.list_topics(topic, timeout=1.0).topics[topic].error
    except KafkaException:
        return False
    return error is not None and error.name() in TOPIC_MISSING


def _consumed(consumer: Consumer) -> list[Message]:
    """Return what has arrived, without refusals of the group: librdkafka looks it up, though nobody here joins it."""
    return [m for m in consumer.consume(1000, 0.2) if (error := m.error()) is None or error.name() != GROUP_FORBIDDEN]


def _stored(message: Message, unfinished: set[int], end_offsets: Mapping[int, int]) -> StoredRecord | None:
    error, partition, offset = message.error(), cast("int", message.partition()), cast("int", message.offset())
    if error is not None and error.name() != PARTITION_END:
        raise ClusterUnfitError(f"partition {partition} cannot be read: {error.str()}")
    # read_committed reports an end at each open transaction as well: only the one that was asked for counts.
    following = offset + 1 if error is None else offset
    if following >= end_offsets[partition]:
        unfinished.discard(partition)
    if error is not None or offset >= end_offsets[partition]:
        return None
    pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])  # its stub allows what it takes, not gives
    headers = {name: value or b"" for name, value in pairs}
    return StoredRecord(partition, offset, message.value() or b"", headers, message.key())
