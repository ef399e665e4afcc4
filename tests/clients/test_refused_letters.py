"""Which records' letters count as refused, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eos_client import Outcome
from eos_client.clients.refused_letters import LettersOfBlocks
from eos_client.core.model import InputPartition
from eos_client.errors import OutputRefusedError

RECORD, OTHER = ("orders", 0, 7), ("orders", 0, 8)
ASSIGNED = frozenset({InputPartition("orders", 0)})
FORMS: Any = ["whole", "short", "no value", "origin only"]
LETTER: Any = SimpleNamespace(topic=lambda: "dead", partition=lambda: 0, key=lambda: None)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


@pytest.fixture
def letters() -> LettersOfBlocks:
    """The letters of two records were written, and one of them was refused."""
    made = LettersOfBlocks()
    made.delivery_callback(OTHER)(None, LETTER)
    made.delivery_callback(RECORD)(TOO_LARGE, LETTER)
    return made


def test_a_refused_letter_makes_its_record_a_suspect_and_no_other(letters: LettersOfBlocks) -> None:
    assert letters.reported
    letters.ended(Outcome.ABORTED, ASSIGNED)
    assert not letters.reported
    assert (letters.is_suspected(RECORD), letters.is_suspected(OTHER)) == (True, False)
    assert letters.still_allowed(FORMS, RECORD) == FORMS


@pytest.mark.parametrize("code", [KafkaError._PURGE_QUEUE, KafkaError._MSG_TIMED_OUT])
def test_what_says_nothing_of_the_letter_makes_no_suspect(code: int) -> None:
    letters = LettersOfBlocks()
    letters.delivery_callback(RECORD)(KafkaError(code), LETTER)
    letters.ended(Outcome.ABORTED, ASSIGNED)
    assert not letters.is_suspected(RECORD)


def test_each_refusal_of_a_letter_that_was_alone_counts_once(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.ABORTED, ASSIGNED)
    for count in (1, 2):
        letters.delivery_callback(RECORD)(TOO_LARGE, LETTER)
        assert letters.take_refusal(RECORD).startswith("dead[0]: MSG_SIZE_TOO_LARGE: ")
        assert letters.take_refusal(RECORD) == ""
        letters.ended(Outcome.ABORTED, ASSIGNED)
        assert letters.still_allowed(FORMS, RECORD) == FORMS[count:]


def test_a_record_whose_letter_was_committed_is_forgotten(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.ABORTED, ASSIGNED)
    letters.delivery_callback(OTHER)
    letters.ended(Outcome.COMMITTED, ASSIGNED)
    assert letters.is_suspected(RECORD)
    letters.delivery_callback(RECORD)
    letters.ended(Outcome.COMMITTED, ASSIGNED)
    assert not letters.is_suspected(RECORD)


def test_the_records_of_partitions_that_have_left_are_forgotten(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.ABORTED, frozenset())
    assert not letters.is_suspected(RECORD)


def test_a_transaction_that_is_held_goes_on_in_the_next_block(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.SKIPPED, ASSIGNED)
    assert letters.reported
    letters.ended(None, ASSIGNED)
    assert letters.is_suspected(RECORD)


INVALID = KafkaError(KafkaError.INVALID_RECORD)


def test_a_letter_that_is_refused_for_anything_but_its_size_has_no_smaller_form(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.ABORTED, ASSIGNED)
    letters.delivery_callback(RECORD)(INVALID, LETTER)
    letters.take_refusal(RECORD)
    letters.ended(Outcome.ABORTED, ASSIGNED)
    with pytest.raises(OutputRefusedError) as raised:
        letters.still_allowed(FORMS, RECORD)
    refusal = raised.value
    assert str(refusal) == (
        "the dead letter of orders[0]@7 to dead[0]: INVALID_RECORD: Broker: Broker failed to validate record (it has "
        "no key, and a topic with cleanup.policy=compact takes no record without one). Change the topic so that it "
        "accepts the letter, or catch this error and go on without it."
    )
    assert refusal.__cause__ is not None
    assert refusal.__cause__.args == (INVALID,)
    assert letters.still_allowed(FORMS, RECORD) == FORMS, "the topic may have been corrected"


def test_a_letter_that_is_too_large_is_final_when_it_was_the_smallest(letters: LettersOfBlocks) -> None:
    letters.ended(Outcome.ABORTED, ASSIGNED)
    for _ in FORMS:
        assert letters.still_allowed(FORMS, RECORD)
        letters.delivery_callback(RECORD)(TOO_LARGE, LETTER)
        letters.take_refusal(RECORD)
    for _ in range(2):
        with pytest.raises(OutputRefusedError, match=r"Raise the topic's max\.message\.bytes") as raised:
            letters.still_allowed(FORMS, RECORD)
        assert "MSG_SIZE_TOO_LARGE" in str(raised.value.__cause__)


@pytest.mark.parametrize(("outcome", "assigned"), [(Outcome.COMMITTED, ASSIGNED), (Outcome.ABORTED, frozenset())])
def test_a_refusal_of_a_letter_that_was_alone_is_forgotten_with_its_record(
    letters: LettersOfBlocks, outcome: Outcome, assigned: Any
) -> None:
    letters.take_refusal(RECORD)
    letters.ended(outcome, assigned)
    assert letters.still_allowed(FORMS, RECORD) == FORMS
