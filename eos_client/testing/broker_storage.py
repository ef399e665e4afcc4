"""The formatted storage of embedded brokers: Kafka's own tool formats the first of a version, and its files serve all.

Of what ``kafka-storage format`` writes, only the ids differ from one broker to the next; with which features a cluster
begins follows from the version. The tool costs a start of Java, a fifth of what the broker itself costs.
"""

from __future__ import annotations

import base64
import os
import shutil
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from eos_client.testing.cached_folder import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_IDS, _FEATURES = "meta.properties", "bootstrap.checkpoint"
_IDS_FORMAT = "1"
_CHECKSUM_DIGITS = 16


class KeptFormat:
    """What was kept of a formatted storage in the folder of one version's jars."""

    def __init__(self, jars: Path, properties: Mapping[str, str]) -> None:
        self._jars = jars
        # Such settings may choose other features, or be refused.
        self._is_usual = not any("version" in name for name in properties)

    def write(self, data: Path, cluster_id: str, node_id: int) -> bool:
        """Format ``data`` as Kafka's tool does; returns whether it could, which takes an earlier `keep`."""
        kept = next((path for path in self._jars.glob("features-*") if path == self._name(path)), None)
        if kept is None or not self._is_usual:
            return False
        data.mkdir(exist_ok=True)
        shutil.copyfile(kept, data / _FEATURES)
        ids = {"version": _IDS_FORMAT, "cluster.id": cluster_id, "node.id": node_id, "directory.id": _directory_id()}
        (data / _IDS).write_text("".join(f"{name}={value}\n" for name, value in ids.items()))
        return True

    def keep(self, data: Path) -> None:
        """Keep what Kafka's tool wrote to ``data``, if a later `write` can do the same."""
        if not self._is_usual or {path.name for path in data.iterdir()} != {_IDS, _FEATURES}:
            return
        lines = {line for line in (data / _IDS).read_text().splitlines() if not line.startswith("#")}
        names = {line.partition("=")[0] for line in lines}
        if f"version={_IDS_FORMAT}" not in lines or names != {"version", "cluster.id", "node.id", "directory.id"}:
            return
        arriving = self._jars / f".features-{os.getpid()}-{id(self)}"
        with suppress(OSError):
            shutil.copyfile(data / _FEATURES, arriving)
            arriving.replace(self._name(arriving))
        arriving.unlink(missing_ok=True)

    def _name(self, features: Path) -> Path:
        return self._jars / f"features-{sha256(features)[:_CHECKSUM_DIGITS]}"


def _directory_id() -> str:
    """Return a random id in Kafka's notation."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
