"""PySpark's daemon, with what the sink's tasks import already there when it forks a Python worker.

    spark.python.daemon.module = tests.spark.rig.warm_daemon

A worker ends with the task that fails in it, so tests of failures have dozens, and each would import all of this for
itself, PySpark even from the source in its zip file. PySpark's own daemon forks first, as an import may start threads:
of these only pyarrow's does, one of its allocator jemalloc, which minds forks.
"""

from __future__ import annotations

import gc

import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

from eos_client.integration.spark import slot_job  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker collects garbage after each task
    manager()
