"""Prints a benchmark's table and keeps it, with the figures and the conditions, in ``.runs/bench``."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka

from eos_client.testing.java_runtime import find_java
from tests.benchmarks.bench_broker import PROPERTIES
from tests.benchmarks.peers import peers_versions
from tests.verification.protocols import LATEST_VERSION
from tests.verification.tables import table
from tests.verification.worker_pool import REPOSITORY

RESULTS = REPOSITORY / ".runs" / "bench"


def publish(
    section: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], figures: Mapping[str, Any]
) -> None:
    """Print the table, and write ``SECTION.txt`` and ``SECTION.json``."""
    text = f"{title}\n{table(heads, rows)}\n"
    print(f"\n{text}", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{section}.txt").write_text(text, encoding="utf-8")
    kept = {"title": title, "conditions": conditions(), **figures}
    (RESULTS / f"{section}.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")


def conditions() -> dict[str, Any]:
    """On what it was measured."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "peers": peers_versions(),
        "java": find_java().major,
        "broker and Kafka Streams": LATEST_VERSION,
        "broker settings": dict(PROPERTIES),
    }
