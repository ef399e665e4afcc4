"""Which dead letters of a session's blocks a broker has refused, so that the next one of their records is smaller.

A broker refuses a batch as a whole (``docs/decisions/outputs.md``). So a letter that was refused is only a suspect: its
record gets its next letter in a batch of its own, and only what is refused there is left out of the letter after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from eos_client.clients.dead_letters import RecordKey, forget_departed
from eos_client.confluent.last_errors import describe_failed_delivery
from eos_client.core.error_codes import DELIVERY_REFUSED
from eos_client.core.model import InputPartition, Outcome
from eos_client.ports import DeliveryCallback


class RefusedLetters:
    """For each record, how many of its dead letters were refused.

    ``reported``: why a broker refused letters of the open transaction, by record.
    """

    def __init__(self) -> None:
        self._written: set[RecordKey] = set()
        self.reported: dict[RecordKey, str] = {}
        self._refused = Counter[RecordKey]()

    def refused(self, record: RecordKey) -> int | None:
        """Return how many letters of ``record`` were refused; None where none is suspected."""
        return self._refused.get(record)

    def delivery_callback(self, record: RecordKey) -> DeliveryCallback:
        """Record that the open transaction holds a letter of ``record``; returns the callback for its delivery."""
        self._written.add(record)

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None and error.name() in DELIVERY_REFUSED:
                self.reported[record] = describe_failed_delivery(error, message)

        return on_delivery

    def take_refusal(self, record: RecordKey) -> str:
        """Return why the letter of ``record``, which was alone in its batch, was refused; empty if it was not."""
        reason = self.reported.pop(record, "")
        if reason:
            self._refused[record] += 1
        return reason

    def ended(self, outcome: Outcome | None, assigned: Collection[InputPartition]) -> None:
        """Record how the transaction ended, and forget the records of partitions that are not in ``assigned``."""
        if outcome is Outcome.SKIPPED:
            return
        written, reported = self._written, self.reported
        self._written, self.reported = set(), {}
        if outcome is Outcome.COMMITTED:
            for record in written:
                self._refused.pop(record, None)
            return
        for record in reported:
            self._refused.setdefault(record, 0)
        forget_departed(self._refused, assigned)
