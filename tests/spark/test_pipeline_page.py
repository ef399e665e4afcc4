"""What docs/how-to/spark-pipeline.md shows does what it says: in the tests' session, and as a reader does it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyspark
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from eos_client import errors
from eos_client.integration.spark import EosKafkaSink
from eos_client.testing.free_ports import free_ports
from eos_client.testing.spark_connector import CONNECTOR_VERSION
from tests.spark.rig.launching import SparkProcess
from tests.spark.rig.numbered_stream import COMPARED_ROWS
from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import wait_for

PAGE = REPOSITORY / "docs" / "how-to" / "spark-pipeline.md"
BLOCKS = code_blocks(PAGE)
RECEIPTS, ORDERS, NIGHTLY = (
    next(block.code for block in BLOCKS if block.saved_as == name)
    for name in ("receipts.py", "write_orders.py", "nightly.py")
)
JARS, CONNECT = (block.code for block in BLOCKS if block.language == "python" and block.saved_as is None)
TABLED = re.compile(r"^\| ([\d.]+) \| `(org\.apache\.spark:[\w.:-]+)`", re.MULTILINE)
COORDINATES = dict(TABLED.findall(PAGE.read_text(encoding="utf-8")))
WAIT_S, LIFETIME_S = 400.0, 1500.0
SUPPORT = (REPOSITORY / "docs" / "reference" / "support.md").read_text(encoding="utf-8")
READS_KAFKA = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="the tests' connector is of 4.2.0")
COMPARES_ROWS = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark 4.1 must be told to, as the page says")
HAS_REAL_TIME = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark 4.1 has no such trigger")


def ours(code: str, local: Any) -> str:
    """A block of the page on the test's broker, with topics, names and files that no other test has."""
    for name in ("orders", "receipts", "nightly", "nightly-1"):
        code = code.replace(f'"{name}"', repr(f"{name}-{local.mark}"))
    for name in ("checkpoint", "ledger", "next-batch", "orders/{batch_id}"):
        code = code.replace(f'"{name}"', f'"{local.folder}/{name}"')
    return code.replace("localhost:9092", local.servers)


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def receipts_of(*numbers: int) -> Counter[str]:
    return Counter(f"receipt for order-{number}" for number in numbers)


@pytest.fixture
def eos_client_level():
    """The page's programs set the level of this logger."""
    yield
    logging.getLogger("eos_client").setLevel(logging.NOTSET)


@READS_KAFKA
@pytest.mark.usefixtures("eos_client_level")
def test_each_order_becomes_a_receipt_once_also_when_the_pipeline_is_started_again(local):
    receipts = local.new_topic("receipts")
    local.new_topic("orders")
    for start in (0, 1):
        run(ours(ORDERS, local))
        pipeline = threading.Thread(target=run, args=(ours(RECEIPTS, local),))
        pipeline.start()
        done = Path(local.checkpoint, "commits", str(start))
        try:
            wait_for(lambda: done.exists() or not pipeline.is_alive(), "a batch", timeout_s=WAIT_S)  # noqa: B023
        finally:
            for query in local.spark.streams.active:
                query.stop()  # the program then goes on to its end
            pipeline.join(WAIT_S)
        assert local.values(receipts) == receipts_of(*[0, 1, 2] * (start + 1))
    assert {message.key() for message in local.read(receipts)} == {b"customer-0", b"customer-1", b"customer-2"}


@pytest.fixture
def nightly(local):
    """A function that runs the page's job when its folders hold these orders, by number of the batch."""
    local.new_topic("receipts")

    def job(**folders: list[int]) -> None:
        for name, numbers in folders.items():
            folder = local.folder / "orders" / name.removeprefix("batch_")
            folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"customer": f"c{number}", "number": number}) for number in numbers]
            (folder / "orders.json").write_text("\n".join(lines))
        run(ours(NIGHTLY, local), __name__="nightly")["write_next"](local.spark)

    with compared_rows(local.spark):
        yield job


@contextlib.contextmanager
def compared_rows(spark: SparkSession) -> Iterator[None]:
    """The session of a batch without a stream, on which PySpark 4.1 must be told to compare rows."""
    before = {name: spark.conf.get(name) for name in COMPARED_ROWS}
    for name in COMPARED_ROWS:
        spark.conf.set(name, COMPARED_ROWS[name])
    yield
    for name, value in before.items():
        spark.conf.set(name, str(value))


def test_the_job_writes_one_batch_after_the_other_and_each_once(local, nightly):
    receipts, following = f"receipts-{local.mark}", local.folder / "next-batch"
    nightly(batch_0=[0, 1, 2])
    nightly(batch_1=[3, 4])
    assert following.read_text() == "2"
    following.write_text("1")  # as if it had been killed before it noted the next number
    nightly()
    assert following.read_text() == "2"
    for number, refusal in (("1", errors.BatchContentError), ("0", errors.LedgerAheadError)):
        following.write_text(number)
        with pytest.raises(refusal):
            nightly(batch_1=[3, 5])
    assert local.values(receipts) == receipts_of(0, 1, 2, 3, 4)
    assert [*(local.folder / "ledger").rglob(f"nightly-{local.mark}/*")]


@HAS_REAL_TIME
def test_spark_refuses_a_sink_of_batches_in_real_time_mode(local):
    numbers = local.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    query = numbers.writeStream.outputMode("update").foreachBatch(local.sink()).trigger(realTime="5 minutes")
    (refusal,) = re.findall(r"STREAMING_REAL_TIME_MODE\.\w+", PAGE.read_text(encoding="utf-8"))
    with pytest.raises(IllegalArgumentException, match=re.escape(refusal)):
        query.option("checkpointLocation", local.checkpoint).start()


def test_the_connectors_jars_are_given_to_spark():
    builder = run(JARS, SparkSession=SparkSession)["builder"]
    assert f"spark-sql-kafka-0-10_2.13-{CONNECTOR_VERSION}.jar" in builder._options["spark.jars"]


def test_the_lines_for_spark_connect_replace_two_of_the_program_and_name_the_query():
    session = mock.MagicMock()
    made = run(CONNECT, BROKERS="localhost:9092", CONNECTOR="", EosKafkaSink=EosKafkaSink, SparkSession=session)
    assert made["sink"].settings.query_id == "receipts-1"
    session.builder.remote.assert_called_once_with("local[2]")
    assert [line.partition(" =")[0] for line in CONNECT.splitlines()] == ["sink", "spark"]
    assert "query_id" not in RECEIPTS


def test_the_table_has_the_connector_of_each_pyspark_that_is_run_and_the_program_that_of_the_tests():
    assert list(COORDINATES) == re.findall(
        r"[\d.]+", re.findall(r"^\| PySpark \| ([^|]+) \|", SUPPORT, re.MULTILINE)[0]
    )
    assert f'CONNECTOR = "{COORDINATES[CONNECTOR_VERSION]}"\n' in RECEIPTS


class Reader:
    """The reader's folder and terminals, with a broker at a port of its own, and the connector for the PySpark here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = str(free_ports(1)[0])
        self._path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def _adapted(self, text: str) -> str:
        connector = COORDINATES[pyspark.__version__]
        return text.replace("9092", self._port).replace(COORDINATES[CONNECTOR_VERSION], connector)

    def saves(self, name: str, code: str) -> None:
        (self._folder / name).write_text(self._adapted(code))

    def runs(self, command: str) -> str:
        """What the command prints."""
        return subprocess.run(
            ["sh", "-ec", self._adapted(command)],
            cwd=self._folder,
            env={**os.environ, "PATH": self._path},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=WAIT_S,
        ).stdout

    def starts(self, command: str, name: str) -> SparkProcess:
        here = f"cd '{self._folder}'; PATH='{self._path}' exec {self._adapted(command)}"
        return SparkProcess(["sh", "-ec", here], self._folder / f"{name}.log", lifetime_s=LIFETIME_S)


def lines_replaced(program: str, block: str) -> str:
    """The program with each line of the block in place of the one that assigns to the same name."""
    for line in block.splitlines():
        program, count = re.subn(rf"^{line.partition(' ')[0]} = .*$", lambda _: line, program, flags=re.MULTILINE)  # noqa: B023
        assert count == 1
    return program


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(RECEIPTS, id="classic"),
        pytest.param(lines_replaced(RECEIPTS, CONNECT), id="connect", marks=COMPARES_ROWS),
    ],
)
def test_a_reader_sees_the_receipts_of_the_first_orders(program, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_TESTING", "1")  # a server of Spark Connect takes a free port
    reader = Reader(tmp_path)
    _install, broker, create, write_and_run, tail = (block.code for block in BLOCKS if block.language == "sh")
    (shown,) = (block.code for block in BLOCKS if block.language == "text")
    write, start = write_and_run.splitlines()
    reader.saves("receipts.py", program)
    reader.saves("write_orders.py", ORDERS)
    with reader.starts(broker, "broker") as kafka:
        kafka.until(lambda: "localhost:" in kafka.tail() or "127.0.0.1:" in kafka.tail(), "a broker", WAIT_S)
        reader.runs(create)
        reader.runs(write)
        with reader.starts(start, "pipeline") as pipeline:
            pipeline.until((tmp_path / "checkpoint" / "commits" / "0").exists, "a batch", WAIT_S)
            assert sorted(reader.runs(tail).splitlines()) == sorted(shown.splitlines())
