"""Partitions that the application has paused, apart from those that this package pauses for a while.

A pause of the library outlives a revocation. The application's ends with it, as in the Java client.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition

from eos_client.confluent.consumer.library_consumer import LibraryConsumer, to_kafka
from eos_client.core.model import InputPartition
from eos_client.ports import keys_of


class PausedPartitions:
    """``by_application`` are the partitions that the application has paused."""

    def __init__(self, library: LibraryConsumer) -> None:
        self._library = library
        self.by_application: frozenset[InputPartition] = frozenset()

    def pause_for_application(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions`` until the application resumes them or they leave."""
        self._library.raw.pause(partitions)
        self.by_application |= keys_of(partitions)

    def resume_for_application(self, partitions: list[TopicPartition], held: frozenset[InputPartition]) -> None:
        """Fetch ``partitions`` again; those that are ``held`` are resumed when their start offset is known."""
        self._library.raw.resume(to_kafka(keys_of(partitions) - held) if held else partitions)
        self.by_application -= keys_of(partitions)

    def pause(self, partitions: frozenset[InputPartition]) -> None:
        """Stop fetching ``partitions``, which the application may have paused too."""
        self._library.raw.pause(to_kafka(partitions))

    def resume(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch ``partitions`` again, unless the application has paused them."""
        self._library.raw.resume(to_kafka(partitions - self.by_application))

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """``partitions`` have left, and the application's pause with them."""
        departing = self.by_application & partitions
        if departing:
            self.by_application -= departing
            self._library.raw.resume(to_kafka(departing))
