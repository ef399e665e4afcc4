"""Loads the input topic at a given pace, in waves, while the workers run."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from eos_client.cli.demo.input_file import InputLines, key_of
from eos_client.confluent.admin.topic_records import TopicLoader

_BURST_S = 0.05
"""Seconds between two bursts of the stream."""


class Feed:
    """A thread that loads ``lines`` over ``duration_s`` seconds, never beyond the share that was released.

    A line with a key goes to its key's partition, other lines to each in turn. The thread has its own producer.
    ``released``: how many records may be loaded so far.
    """

    def __init__(
        self,
        lines: InputLines,
        bootstrap_servers: str,
        topic: str,
        config: Mapping[str, Any],
        *,
        partition_count: int,
        duration_s: float,
    ) -> None:
        self.total = lines.count
        self.error: BaseException | None = None
        self._lines = lines
        self._loader = TopicLoader(bootstrap_servers, topic, config)
        self._partition_count = partition_count
        self._per_s = lines.count / duration_s
        self.released = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._load_all, name="demo-feed", daemon=True)

    @property
    def loaded(self) -> int:
        """How many records the cluster has confirmed."""
        return self._loader.loaded

    @property
    def is_done(self) -> bool:
        """Whether every line was loaded and confirmed."""
        return self.loaded == self.total and not self._thread.is_alive()

    def release(self, share: float) -> None:
        """Let the feed load up to this share of all lines, at least one line."""
        self.released = max(self.released, math.ceil(self.total * share))

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def stop(self) -> None:
        """End early, or after the last line; returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _load_all(self) -> None:
        try:
            with closing(self._lines), self._loader:
                due = 0.0
                for number, line in enumerate(self._lines):
                    while number >= due:
                        due = min(self.released, due + self._arrived_in_a_burst())
                        if self._stopped.is_set():
                            return
                        self._loader.serve()
                    self._load(number, line)
        except BaseException as error:  # noqa: BLE001  it is raised again in the demo's own thread
            self.error = error

    def _arrived_in_a_burst(self) -> float:
        """Wait for one burst; returns how many records arrived. A stream that was held back does not catch up."""
        waited_from = time.monotonic()
        self._stopped.wait(_BURST_S)
        return (time.monotonic() - waited_from) * self._per_s

    def _load(self, number: int, line: bytes) -> None:
        key = key_of(line)
        turn = number if key is None else zlib.crc32(key)
        self._loader.load(line, key=key, partition=turn % self._partition_count)
