"""Which dead letters of a session's blocks a broker has refused, so that the next one of their records is smaller.

A broker refuses a batch as a whole (``docs/decisions/outputs.md``). So a letter that was refused is only a suspect: its
record gets its next letter in a batch of its own, and only what is refused there, for its size, is left out of the
letter after it. Any other refusal would meet the smaller letters as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from eos_client.clients.dead_letters import RecordKey, forget_departed
from eos_client.confluent.failures.producer_failures import undelivered_output
from eos_client.confluent.last_errors import RefusedDelivery, describe_failed_delivery
from eos_client.core.error_codes import DELIVERY_REFUSED
from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import OutputRefusedError
from eos_client.ports import DeliveryCallback


class RefusedLetters:
    """For each record, how many of its dead letters were refused for their size.

    ``reported``: why a broker refused letters of the open transaction, by record.
    """

    def __init__(self) -> None:
        self._written: set[RecordKey] = set()
        self.reported: dict[RecordKey, RefusedDelivery] = {}
        self._refused_alone: dict[RecordKey, RefusedDelivery] = {}
        self._refused = Counter[RecordKey]()

    def refused(self, record: RecordKey) -> int | None:
        """Return how many letters of ``record`` were too large; None where none is suspected."""
        return self._refused.get(record)

    def delivery_callback(self, record: RecordKey) -> DeliveryCallback:
        """Record that the open transaction holds a letter of ``record``; returns the callback for its delivery."""
        self._written.add(record)

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None and error.name() in DELIVERY_REFUSED:
                reason = describe_failed_delivery(error, message)
                self.reported[record] = RefusedDelivery(message.topic(), message.partition(), error, reason)

        return on_delivery

    def take_refusal(self, record: RecordKey) -> str:
        """Return why the letter of ``record``, which was alone in its batch, was refused; empty if it was not."""
        refused = self.reported.pop(record, None)
        if refused is None:
            return ""
        self._refused_alone[record] = refused
        self._refused[record] += refused.is_for_size
        return refused.reason

    def take_final_refusal(self, record: RecordKey, *, is_smallest: bool) -> OutputRefusedError | None:
        """Return the error for ``record`` if no letter of it can be written; ``is_smallest``: none is left to try.

        Once for a refusal that is not for size: the topic may have been corrected when the record is consumed again.
        """
        name = f"{record[0]}[{record[1]}]@{record[2]}"
        refused = self._refused_alone.get(record)
        if refused is None or (refused.is_for_size and not is_smallest):
            return None
        if refused.is_for_size:
            return undelivered_output(
                refused.error,
                f"no dead letter of {name} fits into its topic, not even the one that holds only where the record "
                f"stood: the last one to {refused.reason}. Raise the topic's max.message.bytes, or go without the "
                "letter.",
            )
        del self._refused_alone[record]
        return undelivered_output(
            refused.error,
            f"the dead letter of {name} to {refused.reason}. Have the topic take it, or go without the letter.",
        )

    def ended(self, outcome: Outcome | None, assigned: Collection[InputPartition]) -> None:
        """Record how the transaction ended, and forget the records of partitions that are not in ``assigned``."""
        if outcome is Outcome.SKIPPED:
            return
        written, reported = self._written, self.reported
        self._written, self.reported = set(), {}
        if outcome is Outcome.COMMITTED:
            for record in written:
                self._refused.pop(record, None)
                self._refused_alone.pop(record, None)
            return
        for record in reported:
            self._refused.setdefault(record, 0)
        forget_departed(self._refused, assigned)
        forget_departed(self._refused_alone, assigned)
