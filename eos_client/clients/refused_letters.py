"""Remembers the dead letters that were refused, so that the next letter of such a record is smaller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from eos_client.clients.dead_letters import DEAD_LETTERS, RecordKey, forget_departed
from eos_client.confluent.failures.producer_failures import undelivered_output
from eos_client.confluent.last_errors import RefusedDelivery, describe_failed_delivery
from eos_client.core.error_codes import DELIVERY_REFUSED
from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import OutputRefusedError
from eos_client.ports import DeliveryCallback, OutputRecord


class RefusedLetters:
    """For each record, how many of its dead letters were refused for their size."""

    def __init__(self) -> None:
        self._refused = Counter[RecordKey]()

    def still_allowed(self, letters: list[OutputRecord], record: RecordKey) -> list[OutputRecord]:
        """Return those of the ``letters`` of ``record``, the largest first, that may still be taken."""
        return letters[self._refused[record] :]

    def add(self, record: RecordKey, *, is_for_size: bool) -> bool:
        """Record that a letter of ``record`` was refused; returns whether a smaller one may be taken.

        Any refusal that is not for size would meet the smaller letters as well.
        """
        if is_for_size:
            self._refused[record] += 1
        return is_for_size and self._refused[record] < DEAD_LETTERS

    def forget(self, record: RecordKey) -> None:
        """Forget ``record``, which is committed."""
        self._refused.pop(record, None)

    def forget_departed(self, assigned: Collection[InputPartition]) -> None:
        """Forget the records of partitions that are not in ``assigned``."""
        forget_departed(self._refused, assigned)


class LettersOfBlocks:
    """The dead letters of a session's blocks, and which records are suspected of one that a broker refuses.

    A broker refuses a batch as a whole (``docs/decisions/outputs.md``). So a letter that was refused is only a suspect:
    its record gets its next letter in a batch of its own, and only what is refused there counts.
    """

    def __init__(self) -> None:
        self._written: set[RecordKey] = set()
        self._suspected: set[RecordKey] = set()
        self._refused_alone: dict[RecordKey, RefusedDelivery] = {}
        self._refused = RefusedLetters()
        self.reported: dict[RecordKey, RefusedDelivery] = {}
        """Why a broker refused letters of the open transaction."""

    def is_suspected(self, record: RecordKey) -> bool:
        """Whether a letter of ``record`` was refused, perhaps for another one in its batch."""
        return record in self._suspected

    def still_allowed(self, letters: list[OutputRecord], record: RecordKey) -> list[OutputRecord]:
        """Return those of the ``letters`` of ``record`` that may still be taken; raises OutputRefusedError for none.

        A refusal for another reason than size is raised once: the topic may have been corrected by the time the record
        is redelivered.
        """
        left = self._refused.still_allowed(letters, record)
        refused = self._refused_alone.get(record)
        if refused is None or (refused.is_for_size and left):
            return left
        if not refused.is_for_size:
            del self._refused_alone[record]
        raise _final_refusal(record, refused)

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
        self._refused.add(record, is_for_size=refused.is_for_size)
        return refused.reason

    def ended(self, outcome: Outcome | None, assigned: Collection[InputPartition]) -> None:
        """Record how the transaction ended, and forget the records of partitions that are not in ``assigned``."""
        if outcome is Outcome.SKIPPED:
            return
        written, reported = self._written, self.reported
        self._written, self.reported = set(), {}
        if outcome is Outcome.COMMITTED:
            self._suspected -= written
            for record in written:
                self._refused.forget(record)
                self._refused_alone.pop(record, None)
            return
        self._suspected |= reported.keys()
        self._suspected = {record for record in self._suspected if record[:2] in assigned}
        self._refused.forget_departed(assigned)
        forget_departed(self._refused_alone, assigned)


def _final_refusal(record: RecordKey, refused: RefusedDelivery) -> OutputRefusedError:
    name = f"{record[0]}[{record[1]}]@{record[2]}"
    if refused.is_for_size:
        return undelivered_output(
            refused.error,
            f"even the smallest dead letter of {name}, which holds only where the record stood, is too large for its "
            f"topic: the last one to {refused.reason}. Raise the topic's max.message.bytes, or catch this error and go "
            "on without the letter.",
        )
    return undelivered_output(
        refused.error,
        f"the dead letter of {name} to {refused.reason}. Change the topic so that it accepts the letter, or catch this "
        "error and go on without it.",
    )
