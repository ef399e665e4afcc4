"""Quix Streams with ``processing_guarantee="exactly-once"`` and a trivial transform."""

from __future__ import annotations

import time
from typing import Any

from quixstreams import Application
from quixstreams.checkpointing import Checkpoint

from tests.benchmarks.contenders.assignment import assignment, report_commit

commit = Checkpoint.commit


def reported_commit(checkpoint: Checkpoint, **options: Any) -> None:
    """Quix Streams tells nobody of its commits, so they are timed from outside."""
    began_s = time.monotonic()
    commit(checkpoint, **options)
    report_commit(checkpoint._total_offsets_processed, time.monotonic() - began_s)


def copy_value(value: bytes) -> bytes:
    """The trivial transform; the key goes along by itself."""
    return value


def main() -> None:
    """Copy until killed."""
    task = assignment()
    Checkpoint.commit = reported_commit
    app = Application(
        broker_address=task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        commit_interval=task.commit_interval_s,
        processing_guarantee="exactly-once",
        consumer_extra_config=task.consumer_settings,
        producer_extra_config={**task.producer_settings, "transactional.id": task.transactional_id},
        auto_create_topics=False,
        state_dir=task.state_folder,
        loglevel="WARNING",
    )
    source = app.topic(task.source, value_deserializer="bytes", key_deserializer="bytes")
    sink = app.topic(task.sink, value_serializer="bytes", key_serializer="bytes")
    app.dataframe(source).apply(copy_value).to_topic(sink)
    app.run()


if __name__ == "__main__":
    main()
