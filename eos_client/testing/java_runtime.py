"""Finds the Java that runs the embedded broker.

Kafka 4 brokers need Java 17 (KIP-1013). An older Java would only show as an ``UnsupportedClassVersionError`` in a log,
so the Java is checked first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError

JAVA_MAJOR_MIN = 17
"""Oldest Java that a Kafka 4 broker starts on (KIP-1013)."""

_VERSION_TIMEOUT_S = 30.0
_HOW_TO_GET_IT = (
    f"Kafka 4 needs Java {JAVA_MAJOR_MIN} or newer: install one (Debian and Ubuntu: apt-get install "
    f"openjdk-{JAVA_MAJOR_MIN}-jre-headless, macOS: brew install openjdk@{JAVA_MAJOR_MIN}) and put it on PATH, "
    "or set JAVA_HOME to it"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that is new enough."""

    executable: Path
    major: int
    build: str
    """A hash of its version, vendor and platform."""


def find_java() -> JavaRuntime:
    """Find the Java of ``JAVA_HOME``, else of ``PATH``; `EmbeddedKafkaError` if there is none or it is too old."""
    executable, where = _java_executable()
    try:
        answer = subprocess.run(  # noqa: S603  the user's own Java
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedKafkaError(f"{executable} ({where}) does not run: {error}. {_HOW_TO_GET_IT}") from error
    output = (answer.stderr + answer.stdout).strip()
    major = java_major(output)
    if major is None:
        raise EmbeddedKafkaError(f"{executable} -version ({where}) names no version: {output!r}. {_HOW_TO_GET_IT}")
    if major < JAVA_MAJOR_MIN:
        raise EmbeddedKafkaError(f"Java {major} was found at {executable} ({where}). {_HOW_TO_GET_IT}")
    return JavaRuntime(executable, major, hashlib.sha256(output.encode()).hexdigest()[:12])


def java_major(version_output: str) -> int | None:
    """Read what ``java -version`` prints: 8 for ``1.8.0_392``, 17 for ``17.0.9``, None if it names no version."""
    found = _VERSION.search(version_output)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second else first


def _java_executable() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home, "bin", "java").absolute()
        if not executable.is_file():
            raise EmbeddedKafkaError(f"JAVA_HOME is {home}, but there is no bin/java in it. {_HOW_TO_GET_IT}")
        return executable, "from JAVA_HOME"
    on_path = shutil.which("java")
    if on_path is None:
        raise EmbeddedKafkaError(f"no java on PATH and JAVA_HOME is not set. {_HOW_TO_GET_IT}")
    return Path(on_path).absolute(), "from PATH"
