"""A standalone Spark cluster on this machine: one master, and workers that start executors as processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.spark.rig.launching import SparkProcess

START_TIMEOUT_S = 120.0
WORKER_CORES, WORKER_MEMORY = 2, "1g"
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone_cluster(directory: Path, workers: int) -> Iterator[tuple[str, list[SparkProcess]]]:
    """Yield the master's URL, and the workers; each is a session of its own, its executors included.

    For Spark each worker is another host: it never runs a task a second time on the host where the first one is slow.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [str(_SPARK_CLASS), f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as running:
        master = running.enter_context(SparkProcess(command, directory / "master.txt"))
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        started = []
        for number in range(workers):
            place = ["--host", f"127.0.0.{2 + number}", "--webui-port", "0"]
            size = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY]
            log = directory / f"worker-{number}" / "log.txt"
            log.parent.mkdir()
            command = [str(_SPARK_CLASS), f"{_DEPLOY}.worker.Worker", *place, *size, url]
            worker = running.enter_context(SparkProcess(command, log))
            _said(worker, r"Successfully registered with master (\S+)")
            started.append(worker)
        yield url, started


def _said(process: SparkProcess, pattern: str) -> str:
    """Return what the process has written into its log, once it is there."""

    def said() -> re.Match[str] | None:
        return re.search(pattern, process.log.read_text(errors="replace")) if process.log.exists() else None

    process.until(said, pattern, START_TIMEOUT_S)
    found = said()
    assert found is not None
    return found.group(1)
