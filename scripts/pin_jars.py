"""Write the list of the jars that a Kafka version needs, with their checksums: python scripts/pin_jars.py 4.3.1.

With ``streams`` after the version, the list of what the benchmark of Kafka Streams needs. Maven resolves the jars, and
checks each against the repository's own checksum.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from eos_client.testing.jar_resolvers import maven_command
from eos_client.testing.kafka_jars import kafka_jar_set
from eos_client.testing.pinned_jars import LISTS
from tests.benchmarks.peers import streams_jar_set

SETS = {"broker": kafka_jar_set, "streams": streams_jar_set}


def main(version: str, purpose: str = "broker") -> None:
    """Resolve the jars into a folder laid out as a repository is, and list what is in it."""
    jars = SETS[purpose](version)
    with tempfile.TemporaryDirectory() as work:
        into = Path(work, "jars")
        command = maven_command("mvn", jars, into, Path(work))
        subprocess.run([*command, "-Dmdep.useRepositoryLayout=true"], check=True)  # noqa: S603  arguments are ours
        lines = [
            f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.relative_to(into).as_posix()}\n"
            for jar in sorted(into.rglob("*.jar"))
        ]
    (LISTS / f"{jars.folder}.sha256").write_text("".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
