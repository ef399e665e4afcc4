"""Ours: ExactlyOnceLoop with a trivial transform, nothing configured but where the cluster is."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Message

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.observe import Event, TransactionCommitted
from tests.benchmarks.contenders.assignment import (
    BATCH,
    BATCH_RECORDS,
    FIVE,
    HEADERS,
    JSON,
    KEYED,
    LARGE,
    POLL_TIMEOUT_S,
    VALUE,
    assignment,
    report_commit,
)


def copy_value(record: Message) -> bytes | None:
    """The trivial transform."""
    return record.value()


def copy_keyed(record: Message) -> OutputRecord:
    """The record with its key."""
    return OutputRecord(value=record.value(), key=record.key())


def copy_with_header(record: Message) -> OutputRecord:
    """The record with its key and a header of its own."""
    return OutputRecord(value=record.value(), key=record.key(), headers=[("origin", record.key())])


def copy_batch(records: list[Message]) -> list[OutputRecord]:
    """Many records with their keys by one call."""
    return [OutputRecord(value=record.value(), key=record.key()) for record in records]


def change_json(record: Message) -> OutputRecord:
    """The document with a field that was changed and one that is new."""
    order = json.loads(record.value() or b"")
    order["amount"] *= 2
    order["state"] = "priced"
    return OutputRecord(value=json.dumps(order), key=record.key())


def copy_five_times(record: Message) -> list[OutputRecord]:
    """Five outputs of one record."""
    value, key = record.value(), record.key()
    return [OutputRecord(value=value, key=key) for _ in range(5)]


TRANSFORMS: dict[str, dict[str, Any]] = {
    VALUE: {"transform": copy_value},
    KEYED: {"transform": copy_keyed},
    HEADERS: {"transform": copy_with_header},
    BATCH: {"transform_batch": copy_batch},
    JSON: {"transform": change_json},
    FIVE: {"transform": copy_five_times},
    LARGE: {"transform": copy_keyed},
}


def report(event: Event) -> None:
    """The loop's hook."""
    if isinstance(event, TransactionCommitted):
        report_commit(event.records_in, event.duration_s)


def main() -> None:
    """Copy until killed."""
    task = assignment()
    config = EosConfig(
        {"bootstrap.servers": task.bootstrap, **task.settings},
        group_id=task.group,
        transactional_id=task.transactional_id,
        commit_interval_s=task.commit_interval_s,
        batch_size=BATCH_RECORDS,
        poll_timeout_s=POLL_TIMEOUT_S,
    )
    how = TRANSFORMS[task.work]
    with ExactlyOnceLoop(config, [task.source], output_topic=task.sink, hook=report, **how) as loop:
        loop.run()


if __name__ == "__main__":
    main()
