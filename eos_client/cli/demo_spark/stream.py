"""Runs the example's stream as a process with executors of its own, follows its progress, and kills parts of it.

The program is ``examples/spark_foreach_batch.py``, of which the package carries a copy (in a checkout: a link).
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.kept_process import KeptProcess
from eos_client.testing.process_session import members_of, send_signal, session_of, spark_executors
from eos_client.testing.spark_connector import connector_jars

PROGRAM = Path(__file__).with_name("pipeline") / "spark_foreach_batch.py"
SOURCE_HEADERS = ("source.partition", "source.offset")
"""Headers of the program's outputs with the partition and offset of their input."""

_NEEDED = ("pyspark", "pyarrow", "pandas")
_LOG_TAIL_CHARACTERS = 3000
_BATCH_RECORDS = 4000
_MASTER = "local-cluster[2,1,1024]"
_CHEAP_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": _CHEAP_JVM,
    "spark.executor.extraJavaOptions": _CHEAP_JVM,
    "spark.sql.streaming.metricsEnabled": "false",
}


def missing_for_spark() -> list[str]:
    """Return the packages and programs that Spark needs and that are missing."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


@dataclass(frozen=True)
class StreamPlan:
    """The topics, the directory and the identity of the stream."""

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    directory: Path
    sink_id: str
    slots: int = 4


class SparkStream:
    """A Spark application that can be started, killed and started again with the same checkpoint."""

    def __init__(self, plan: StreamPlan, on_progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._process: KeptProcess | None = None
        self._session = 0
        self._log = plan.directory / "spark.log"

    @property
    def exit_code(self) -> int | None:
        """The exit status of the driver; None while it runs, or before it was started."""
        return None if self._process is None else self._process.exit_code()

    def start(self, *, shuffle_partitions: int, adaptive: bool) -> None:
        """Start the program, after ending what an earlier start has left running."""
        self.stop()
        plan = self._plan
        settings = {
            **_SETTINGS,
            "spark.local.dir": str(plan.directory),
            "spark.sql.warehouse.dir": str(plan.directory / "warehouse"),
            "spark.sql.shuffle.partitions": str(shuffle_partitions),
            "spark.sql.adaptive.enabled": str(adaptive).lower(),
        }
        jars = ",".join(map(str, connector_jars(self._on_progress)))
        arguments = ["--master", _MASTER, "--jars", jars]
        for name, value in settings.items():
            arguments += ["--conf", f'"{name}={value}"']
        environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(plan.directory / "spark-work"),
        }
        command = [
            *(sys.executable, str(PROGRAM), "--bootstrap", plan.bootstrap_servers, "--input", plan.input_topic),
            *("--output", plan.output_topic, "--checkpoint", str(self._checkpoint)),
            *("--slots", str(plan.slots), "--sink-id", plan.sink_id, "--batch-records", str(_BATCH_RECORDS)),
        ]
        given = [f"{name}={value}" for name, value in environment.items()]
        self._process = KeptProcess(["/usr/bin/env", *given, *command], log_path=self._log, paths=[])
        self._session = session_of(self._process.pid)

    @property
    def _checkpoint(self) -> Path:
        return self._plan.directory / "checkpoint"

    def read_so_far(self) -> int:
        """Return how many input records Spark has finished, by its commit log (offsets, so markers count)."""
        done = [int(entry.name) for entry in (self._checkpoint / "commits").glob("[0-9]*")]
        if not done:
            return 0
        # v1, then the batch's settings, then for each source where the batch ends
        offsets = (self._checkpoint / "offsets" / str(max(done))).read_text().splitlines()[2]
        return sum(json.loads(offsets)[self._plan.input_topic].values())

    def batches(self) -> int:
        """Return how many micro-batches Spark has finished."""
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))

    def kill_executor(self) -> int | None:
        """SIGKILL one executor; returns its process id, None if no executor runs now."""
        executors = spark_executors(self._session)
        send_signal(signal.SIGKILL, executors[:1])
        return executors[0] if executors else None

    def kill_driver(self) -> None:
        """SIGKILL the driver, its Python and its Java process at once. Executors notice later, as in production."""
        driver = self._process.pid if self._process is not None else 0
        java = [each.pid for each in members_of(self._session) if each.parent == driver]
        send_signal(signal.SIGKILL, [driver, *java])

    def stop(self, timeout_s: float = 5.0) -> None:
        """End every process of it, the driver first; harmless when there is none."""
        if self._process is None:
            return
        self._process.dismiss()
        deadline = time.monotonic() + timeout_s
        while (left := [each.pid for each in members_of(self._session) if each.pid != os.getpid()]) and (
            time.monotonic() < deadline
        ):
            send_signal(signal.SIGKILL, left)
            time.sleep(0.05)
        self._process = None

    def raise_if_ended(self) -> None:
        """Raise EmbeddedKafkaError with the end of its log if it has ended by itself."""
        if (code := self.exit_code) is not None:
            tail = self._log.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
            raise EmbeddedKafkaError(f"the Spark stream ended by itself with status {code}. It said:\n{tail}")
