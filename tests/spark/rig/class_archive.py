"""The archive of loaded classes that the tests' Spark JVMs map instead of loading and verifying the same classes again.

It is Java's dynamic class data sharing (JEP 350), as in `eos_client.testing.broker_java`: the first session in a
checkout writes it after its first query, and later JVMs, executors among them, start for half of the cost. Java ignores
an archive of other jars or of another Java, and with VerifySharedSpaces a damaged one.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from eos_client.testing.java_runtime import find_java
from tests.spark.rig.launching import REPOSITORY
from tests.spark.rig.settings import CHEAP_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = "-Xlog:cds*=off"  # what Java can neither archive nor map costs time and nothing else
_RECORDING = "-XX:+IgnoreUnrecognizedVMOptions -XX:+RecordDynamicDumpInfo"


def java_options(*, archives: bool = False) -> str:
    """The options of a Spark JVM of the tests; ``archives``: of one that `archive_classes` is called with."""
    archive = _archive()
    if archive.exists():
        return f"{CHEAP_JVM} {_QUIET} '-XX:SharedArchiveFile={archive}' -XX:+VerifySharedSpaces"
    return f"{CHEAP_JVM} {_QUIET} {_RECORDING}" if archives else CHEAP_JVM


@functools.cache  # where it could not be written, it is not tried again
def archive_classes(spark: SparkSession) -> None:
    """Write the archive where there is none, from a ``spark`` that has run a query; a Java that cannot writes none."""
    archive = _archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    arriving = archive.with_name(f"{os.getpid()}-{archive.name}")
    with suppress(Py4JError):
        _diagnostic_command(spark, "vmCds", "dynamic_dump", str(arriving))
    with suppress(FileNotFoundError):
        arriving.replace(archive)


@functools.cache
def _archive() -> Path:
    return REPOSITORY / ".runs" / f"spark-classes-{pyspark.__version__}-{find_java().build}.jsa"


def _diagnostic_command(spark: SparkSession, name: str, *arguments: str) -> Any:
    """What ``jcmd`` does, which comes with a JDK only, by the JVM's own management."""
    context: Any = spark.sparkContext
    jvm, new_array = context._jvm, context._gateway.new_array

    def array(kind: Any, *values: Any) -> Any:
        made = new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    management = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    given = array(jvm.Object, array(jvm.String, *arguments))
    # By its public interface: py4j would look for the methods of its class, which no module exports.
    kinds = [jvm.Class.forName(each) for each in ("javax.management.ObjectName", "java.lang.String")]
    kinds += [jvm.Class.forName(each) for each in ("[Ljava.lang.Object;", "[Ljava.lang.String;")]
    invoke = jvm.Class.forName("javax.management.MBeanServer").getMethod("invoke", array(jvm.Class, *kinds))
    signature = array(jvm.String, "[Ljava.lang.String;")
    return invoke.invoke(management, array(jvm.Object, commands, name, given, signature))
