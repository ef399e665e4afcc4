"""The programs of other projects that are measured beside ours: an environment of their own, and a compiled class."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from eos_client.testing.jar_resolvers import JarSet
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import cached_jars
from tests.verification.protocols import LATEST_VERSION
from tests.verification.worker_pool import REPOSITORY

PEERS = REPOSITORY / ".runs" / "bench-peers"
STREAMS_SOURCE = Path(__file__).parent / "contenders" / "KafkaStreamsLoop.java"
PEERS_NAMED = ("aiokafka", "confluent-kafka", "quixstreams")
COMPILE_TIMEOUT_S = 120.0
HEAP = "-Xmx1g"


class PeerMissingError(Exception):
    """A peer cannot be run here; the message says what brings it."""


def peers_python() -> str:
    """The Python that has the Python peers. Raises `PeerMissingError`."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        raise PeerMissingError(f"{PEERS} is not there: make bench installs Quix Streams and aiokafka into it")
    return str(python)


def peers_versions() -> dict[str, str]:
    """Which versions that Python has of the peers, and of the client that Quix Streams is built on."""
    found = metadata.distributions(path=list(map(str, PEERS.glob("lib/python*/site-packages"))))
    return {each.name: each.version for each in found if each.name in PEERS_NAMED}


def streams_jar_set(version: str) -> JarSet:
    """Kafka Streams of that version, and a log."""
    return JarSet(
        title=f"Kafka Streams {version}",
        folder=f"kafka-streams-{version}",
        artifacts=(("org.apache.kafka", "kafka-streams", version), ("org.slf4j", "slf4j-simple", "1.7.36")),
        landmark=rf"kafka-streams-{re.escape(version)}\.jar",
        size_mb=95,
    )


@functools.cache
def streams_command() -> tuple[str, ...]:
    """The command that runs Kafka Streams, compiled now. Raises `PeerMissingError` where there is no compiler."""
    java = find_java()
    jars = cached_jars(streams_jar_set(LATEST_VERSION), java, lambda line: print(line, file=sys.stderr))
    classes = PEERS / "classes"
    class_path = ":".join([str(classes), *map(str, sorted(jars.glob("*.jar")))])
    compiler = [str(java.executable), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    finished = subprocess.run(
        [*compiler, "-cp", class_path, "-d", str(classes), str(STREAMS_SOURCE)],
        check=False, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S,
    )  # fmt: skip
    if finished.returncode:
        raise PeerMissingError(
            f"{STREAMS_SOURCE.name} could not be compiled by {java.executable}, which must be of a JDK "
            f"(Debian and Ubuntu: apt-get install openjdk-17-jdk-headless): {finished.stdout}{finished.stderr}"
        )
    return (str(java.executable), HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path,
            "KafkaStreamsLoop")  # fmt: skip
