"""Prints what a release brings and runs, as a CycloneDX 1.6 document: python -m scripts.sbom >eos-client.cdx.json.

It names the packages that a plain install needs, at the versions of this environment; librdkafka and the OpenSSL inside
confluent-kafka's wheel, which no metadata names; and the pinned jars that the test kit downloads, with their checksums.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import confluent_kafka
from packaging.requirements import Requirement

from eos_client.testing.pinned_jars import LISTS

PACKAGE = "eos-client"
_OPENSSL = re.compile(rb"OpenSSL (\d+\.\d+\.\d+)\b")

Component = dict[str, Any]


def document() -> dict[str, Any]:
    """Return the whole document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_python_package(PACKAGE), "type": "library"}},
        "components": [*_python_packages(), *_native_libraries(), *_jars()],
    }


def _python_packages() -> Iterator[Component]:
    """Yield what a plain install brings, also what that needs, by name."""
    found: set[str] = set()
    waiting = [PACKAGE]
    while waiting:
        for line in metadata.requires(waiting.pop()) or ():
            needed = Requirement(line)
            if needed.name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                found.add(needed.name)
                waiting.append(needed.name)
    yield from map(_python_package, sorted(found))


def _python_package(name: str) -> Component:
    version = metadata.version(name)
    return _component(name, version, f"pkg:pypi/{name.lower()}@{version}")


def _native_libraries() -> Iterator[Component]:
    librdkafka = str(confluent_kafka.libversion()[0])
    yield _component("librdkafka", librdkafka, f"pkg:github/confluentinc/librdkafka@v{librdkafka}")
    openssl = openssl_version()
    yield _component("openssl", openssl, f"pkg:generic/openssl@{openssl}")


def openssl_version() -> str:
    """Return the version of the OpenSSL that confluent-kafka's wheel holds; raises LookupError where it holds none."""
    for file in metadata.files("confluent-kafka") or ():
        if ".so" in file.name and (named := _OPENSSL.search(Path(file.locate()).read_bytes())):
            return named[1].decode()
    raise LookupError("confluent-kafka's libraries name no OpenSSL: take the SBOM where its wheel is installed")


def _jars() -> Iterator[Component]:
    listed = {line for found in sorted(LISTS.glob("*.sha256")) for line in found.read_text().splitlines()}
    for line in sorted(listed, key=lambda line: line.split()[1]):
        checksum, path = line.split()
        *group, artifact, version, _file = PurePosixPath(path).parts
        purl = f"pkg:maven/{'.'.join(group)}/{artifact}@{version}"
        yield {
            **_component(artifact, version, purl),
            "group": ".".join(group),
            "scope": "optional",
            "hashes": [{"alg": "SHA-256", "content": checksum}],
        }


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(document(), indent=1)}\n")
