"""Runs the example's stream as a process with executors of its own, follows its progress, and kills parts of it.

The program is ``examples/spark_foreach_batch.py``, of which the package carries a copy (in a checkout: a link).
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.kept_process import KeptProcess
from eos_client.testing.process_session import members_of, send_signal, session_of, spark_executors

PROGRAM = Path(__file__).with_name("pipeline") / "spark_foreach_batch.py"

_NEEDED = ("pyspark", "pyarrow", "pandas")
_LOG_TAIL_CHARACTERS = 3000
_STOP_LIMIT_S = 5.0
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
    """Return the packages that Spark needs and that are missing."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


class SparkStream(AbstractContextManager["SparkStream"]):
    """A Spark application that can be started, killed and started again with the same checkpoint.

    Use it as a context manager: leaving it ends every process of it, and removes its ``folder``.

    :param jars: those of Spark's Kafka connector.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        input_topic: str,
        output_topic: str,
        sink_id: str,
        jars: Sequence[Path],
        slots: int = 4,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="eos-demo-spark-", ignore_cleanup_errors=True)
        self.folder = Path(self._directory.name)
        self._checkpoint = self.folder / "checkpoint"
        self._log = self.folder / "spark.log"
        self._input_topic = input_topic
        self._jars = ",".join(map(str, jars))
        self._command = [
            *(sys.executable, str(PROGRAM), "--bootstrap", bootstrap_servers, "--input", input_topic),
            *("--output", output_topic, "--checkpoint", str(self._checkpoint)),
            *("--slots", str(slots), "--sink-id", sink_id, "--batch-records", str(_BATCH_RECORDS)),
        ]
        self._process: KeptProcess | None = None
        self._session = 0

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._directory.cleanup()

    def start(self, *, shuffle_partitions: int, adaptive: bool) -> None:
        """Start the program, after ending what an earlier start has left running."""
        self._stop()
        settings = {
            **_SETTINGS,
            "spark.local.dir": str(self.folder),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.shuffle.partitions": str(shuffle_partitions),
            "spark.sql.adaptive.enabled": str(adaptive).lower(),
        }
        arguments = ["--master", _MASTER, "--jars", self._jars]
        for name, value in settings.items():
            arguments += ["--conf", f'"{name}={value}"']
        environment = [
            f"PYSPARK_PYTHON={sys.executable}",
            f"PYSPARK_SUBMIT_ARGS={' '.join([*arguments, 'pyspark-shell'])}",
            "SPARK_LOCAL_IP=127.0.0.1",
            f"SPARK_WORKER_DIR={self.folder / 'spark-work'}",
        ]
        self._process = KeptProcess(["/usr/bin/env", *environment, *self._command], log_path=self._log, paths=[])
        self._session = session_of(self._process.pid)

    def read_so_far(self) -> int:
        """Return how many input records Spark has finished, by its commit log (offsets, so markers count).

        :raises EmbeddedKafkaError: Spark has ended by itself; the error holds the end of its log.
        """
        if self._process is not None and (code := self._process.exit_code()) is not None:
            tail = self._log.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
            raise EmbeddedKafkaError(f"the Spark stream ended by itself with status {code}. Its last lines:\n{tail}")
        if not (finished := self._finished()):
            return 0
        # v1, then the batch's settings, then for each source where the batch ends
        offsets = (self._checkpoint / "offsets" / str(max(finished))).read_text().splitlines()[2]
        return sum(json.loads(offsets)[self._input_topic].values())

    def batches(self) -> int:
        """Return how many micro-batches Spark has finished."""
        return len(self._finished())

    def _finished(self) -> list[int]:
        return [int(entry.name) for entry in (self._checkpoint / "commits").glob("[0-9]*")]

    def kill_executor(self) -> int | None:
        """SIGKILL one executor; returns its process id, None if no executor runs now."""
        executors = spark_executors(self._session)
        send_signal(signal.SIGKILL, executors[:1])
        return executors[0] if executors else None

    def kill_driver(self) -> None:
        """SIGKILL the driver, its Python and its Java process at once. Executors notice later, as in production."""
        if self._process is not None:
            driver = self._process.pid
            java = [each.pid for each in members_of(self._session) if each.parent == driver]
            send_signal(signal.SIGKILL, [driver, *java])

    def _stop(self) -> None:
        """End every process of it, the driver first."""
        if self._process is None:
            return
        self._process.dismiss()
        self._process = None
        deadline = time.monotonic() + _STOP_LIMIT_S
        while (left := [each.pid for each in members_of(self._session)]) and time.monotonic() < deadline:
            send_signal(signal.SIGKILL, left)
            time.sleep(0.05)
