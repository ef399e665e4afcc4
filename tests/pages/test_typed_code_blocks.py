"""Every block of Python on a page satisfies mypy and pyright as it is printed.

Each block becomes a module. :data:`GIVEN` declares what the block takes from its reader or from a block before it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.code_blocks import PAGES, REPOSITORY, code_blocks

_CLIENTS = """
from typing import Any
from eos_client import EosConsumer as EosConsumer, EosProducer as EosProducer
from prometheus_client import start_http_server as start_http_server
from eos_client.integration.otel import TransactionTracing as TransactionTracing
from eos_client.integration.prometheus import PrometheusMetrics as PrometheusMetrics
consumer_settings: dict[str, Any]
producer_settings: dict[str, Any]
running: bool
def f(value: bytes) -> bytes: ...
"""
_PRICE_OF_A_RECORD = """
from collections.abc import Iterator
from eos_client import OutputRecord as OutputRecord, Record
def price(record: Record) -> Iterator[OutputRecord]: ...
"""
_PRICE_OF_A_VALUE = """
running: bool
def price(value: bytes | None) -> bytes: ...
"""
_TESTS = (
    _PRICE_OF_A_RECORD
    + """
import pytest as pytest
from eos_client import EosConfig as EosConfig, EosConsumer as EosConsumer, EosProducer as EosProducer
from eos_client import ExactlyOnceLoop as ExactlyOnceLoop
from eos_client.errors import ProducerFencedError as ProducerFencedError
config: EosConfig[bytes, bytes]
pinned: EosConfig[bytes, bytes]
"""
)
_FRAME = """
from typing import Any
frame: Any
"""
_REPLAY = """
from datetime import datetime as datetime, timezone as timezone
from confluent_kafka import TopicPartition as TopicPartition
def since(topic: str, start: datetime) -> list[TopicPartition]: ...
def move(group: str, places: list[TopicPartition]) -> None: ...
"""

GIVEN = {
    "docs_explanation_why_0": """
from confluent_kafka import Consumer, KafkaException as KafkaException, Producer
END_S: float
consumer: Consumer
producer: Producer
def now() -> float: ...
""",
    "docs_how_to_asyncio_0": "async def ask_for_rate(product: bytes) -> int: ...",
    "docs_how_to_batch_jobs_0": _PRICE_OF_A_RECORD,
    "docs_how_to_blue_green_1": "def hand_over(topics: list[str], old: str, new: str) -> None: ...",
    "docs_how_to_database_1": """
from typing import Any
from sqlalchemy import Connection, Engine
engine: Engine
def running() -> bool: ...
def book(connection: Connection, records: list[Any]) -> None: ...
""",
    "docs_how_to_kubernetes_0": _PRICE_OF_A_RECORD,
    "docs_how_to_migrate_0": _PRICE_OF_A_VALUE,
    "docs_how_to_migrate_1": _PRICE_OF_A_VALUE,
    "docs_how_to_monitoring_0": _PRICE_OF_A_RECORD,
    "docs_how_to_monitoring_1": _CLIENTS,
    "docs_how_to_monitoring_2": _PRICE_OF_A_RECORD,
    "docs_how_to_monitoring_3": _CLIENTS,
    "docs_how_to_replay_1": _REPLAY,
    "docs_how_to_replay_2": _PRICE_OF_A_RECORD,
    "docs_how_to_replay_3": _REPLAY,
    "docs_how_to_secure_clusters_0": "def fetch_token() -> tuple[str, float]: ...",
    "docs_how_to_spark_database_0": _FRAME,
    "docs_how_to_spark_pipeline_2": "from pyspark.sql import SparkSession as SparkSession",
    "docs_how_to_spark_pipeline_3": """
from pyspark.sql import SparkSession as SparkSession
from eos_client.integration.spark import EosKafkaSink as EosKafkaSink
BROKERS: str
CONNECTOR: str
""",
    "docs_how_to_spark_sink_0": _FRAME,
    "docs_how_to_spark_sink_1": """
from typing import Any
from eos_client.integration.spark import EosKafkaSink
numbers: Any
path: str
sink: EosKafkaSink
""",
    "docs_how_to_testing_your_loop_1": _TESTS,
    "docs_how_to_testing_your_loop_2": _TESTS,
    "docs_how_to_testing_your_loop_3": _TESTS,
    "docs_how_to_testing_your_loop_4": _TESTS,
    "docs_how_to_testing_your_loop_5": _TESTS,
    "docs_how_to_testing_your_loop_6": _TESTS,
    "docs_how_to_testing_your_loop_7": _TESTS,
    "docs_how_to_testing_your_loop_8": _TESTS,
    "docs_how_to_testing_your_loop_9": _TESTS,
    "docs_reference_events_0": "def page_somebody(reason: str) -> None: ...",
}

MYPY = """
[mypy]
strict = true
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
python_version = 3.10
mypy_path = {repository}:{modules}
explicit_package_bases = true
follow_imports = silent
ignore_missing_imports = true
cache_dir = {repository}/.runs/mypy-code-blocks
"""
"""Strict, but for functions without annotations, which a short example may have; their bodies are checked."""


def modules() -> dict[str, str]:
    found = {}
    for page in PAGES:
        named = str(page.relative_to(REPOSITORY).with_suffix("")).replace("/", "_").replace("-", "_")
        for number, block in enumerate(code_blocks(page, "python", "py")):
            found[block.saved_as or f"{named}_{number}"] = block.code
    return {name.removesuffix(".py"): code for name, code in found.items()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    for name, code in modules().items():
        if any(line.startswith("await ") for line in code.splitlines()):  # for a shell that has a running loop
            code = f"async def shown() -> None:\n{textwrap.indent(code, '    ')}"  # noqa: PLW2901
        if name in GIVEN:
            (folder / f"given_{name}.pyi").write_text(GIVEN[name], encoding="utf-8")
            code = f"from given_{name} import *\n{code}"  # noqa: PLW2901
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


def checked(*command: str, folder: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_mypy_accepts_each_block_as_printed(written: Path) -> None:
    settings = MYPY.format(repository=REPOSITORY, modules=written)
    (written / "mypy.ini").write_text(settings, encoding="utf-8")
    checked("mypy", "--config-file", "mypy.ini", *sorted(path.name for path in written.glob("*.py")), folder=written)


@pytest.mark.soak  # mypy reads them at each change
def test_pyright_accepts_each_block_as_printed(written: Path) -> None:
    settings: dict[str, object] = {"include": ["."], "extraPaths": [str(REPOSITORY)], "pythonVersion": "3.10"}
    settings["reportMissingModuleSource"] = False  # of stubs
    (written / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checked("pyright", "--pythonpath", sys.executable, folder=written)


def test_only_blocks_that_exist_are_given_names() -> None:
    assert GIVEN.keys() <= modules().keys()
