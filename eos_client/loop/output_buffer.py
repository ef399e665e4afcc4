"""Outputs of a few records, written together: one call into the client library for many records is what makes it fast.

confluent_kafka's batch call knows no headers, timestamps or chosen partitions, so outputs that have some go one by
one. The order within a topic is the order in which the outputs were added.
"""

from __future__ import annotations

from typing import Any

from eos_client.clients.transaction import TransactionSession
from eos_client.errors import OutputRefusedError
from eos_client.ports import OutputRecord


class RefusedOutputError(Exception):
    """An output cannot be written. ``record`` is the input that it came from; the cause says why."""

    def __init__(self, record: Any) -> None:
        super().__init__("an output was refused")
        self.record = record


class OutputBuffer:
    """Collects outputs by topic, remembering which input each came from."""

    def __init__(self, session: TransactionSession, default_topic: str | None) -> None:
        self._session = session
        self._default_topic = default_topic
        self._waiting: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {}

    def add(self, record: Any, output: Any) -> None:
        """Take one output of ``record``. Raises RefusedOutputError when it is none or has no topic."""
        if isinstance(output, OutputRecord):
            topic = output.topic or self._default_topic
            simple = output.headers is None and output.partition is None and output.timestamp_ms is None
            value, key = output.value, output.key
        elif isinstance(output, bytes):
            topic, simple, value, key = self._default_topic, True, output, None
        else:
            raise RefusedOutputError(record) from TypeError(
                f"the transform gave {output!r}; it must yield OutputRecord objects or bytes"
            )
        if topic is None:
            raise RefusedOutputError(record) from TypeError(
                f"{output!r} names no topic and the loop has no output_topic; set one of them"
            )
        if not simple:
            self._write_alone(record, topic, output)
            return
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = ([], [])
        waiting[0].append({"value": value, "key": key})
        waiting[1].append(record)

    def _write_alone(self, record: Any, topic: str, output: OutputRecord) -> None:
        self._write_topic(topic)
        try:
            self._session.produce(topic, output)
        except (OutputRefusedError, TypeError, ValueError) as error:
            raise RefusedOutputError(record) from error

    def write(self) -> None:
        """Write everything that was added. Raises RefusedOutputError for the first output that is refused."""
        for topic in list(self._waiting):
            self._write_topic(topic)

    def _write_topic(self, topic: str) -> None:
        messages, records = self._waiting.pop(topic, ([], []))
        if not messages:
            return
        refused = self._session.produce_many(topic, messages)
        if refused is not None:
            index, error = refused
            raise RefusedOutputError(records[index]) from error

    def clear(self) -> None:
        """Forget what was added: its transaction is aborted."""
        self._waiting.clear()
