"""Loads the input topic at a given pace, in waves, while the workers run."""

from __future__ import annotations

import math
import time
import zlib
from itertools import islice

from eos_client.cli.demo.input_file import InputLines, key_of
from eos_client.confluent.admin.topic_records import TopicLoader


class Feed:
    """Loads ``lines`` over ``duration_s`` seconds, never beyond the share that was released.

    A line with a key goes to its key's partition, other lines to each in turn.
    ``released``: how many records may be loaded so far. ``partition_count``: of the topic.
    """

    def __init__(self, lines: InputLines, loader: TopicLoader, partition_count: int, duration_s: float) -> None:
        self.total = lines.count
        self.released = 0
        self._lines = enumerate(lines)
        self._loader = loader
        self.partition_count = partition_count
        self._per_s = lines.count / duration_s
        self._arrived = 0.0
        self._taken = 0
        self._looked_at = time.monotonic()

    @property
    def loaded(self) -> int:
        """How many records the cluster has confirmed."""
        return self._loader.loaded

    def release(self, share: float) -> None:
        """Let the feed load up to this share of all lines, at least one line."""
        self.advance()
        self.released = max(self.released, math.ceil(self.total * share))

    def advance(self) -> None:
        """Load what has arrived since the last call; to be called often. A stream held back does not catch up.

        :raises ClusterUnfitError: a record is too large for the topic, or was refused.
        """
        now = time.monotonic()
        self._arrived = min(self.released, self._arrived + (now - self._looked_at) * self._per_s)
        self._looked_at = now
        due = math.ceil(self._arrived)
        for number, line in islice(self._lines, due - self._taken):
            key = key_of(line)
            turn = number if key is None else zlib.crc32(key)
            self._loader.load(line, key=key, partition=turn % self.partition_count)
        self._taken = due
        self._loader.serve()
