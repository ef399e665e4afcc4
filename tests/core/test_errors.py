"""One class for each thing a caller must do, and each says what."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from eos_client import errors
from eos_client.errors import EosError, TransformError

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_ours_and_says_what_to_do(kind):
    assert issubclass(kind, EosError)
    assert (kind.__doc__ or "").strip()
    assert kind.__name__.endswith("Error")


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.WrongThreadError, RuntimeError),
        (errors.TransactionStateError, RuntimeError),
        (errors.CommitRefusedError, errors.AbortableError),
    ],
)
def test_an_error_can_be_caught_by_what_it_also_is(kind, of):
    assert issubclass(kind, of)


WAYS_TO_REACT = {
    errors.RetriableError,
    errors.AbortableError,
    errors.RebuildProducerError,
    errors.UnknownOutcomeError,
    errors.FatalClientError,
}


@pytest.mark.parametrize("kind", sorted(WAYS_TO_REACT, key=str))
def test_no_error_class_is_a_subclass_of_two_ways_to_react(kind):
    """An unanswered commit, above all, is taken for nothing that may be aborted or repeated."""
    assert not any(issubclass(kind, other) for other in WAYS_TO_REACT - {kind})


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied_and_sent_to_another_process(again):
    error = TransformError("orders", 3, 41, ValueError("no total"))
    copied = again(error)
    assert type(copied) is TransformError
    assert (str(copied), vars(copied)) == (str(error), vars(error))


def test_a_transform_error_names_the_record_the_cause_and_the_way_out():
    error = TransformError("orders", 3, 41, ValueError("no total"))
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 41)
    for words in ("orders[3]@41", "ValueError: no total", "nothing of it is visible", 'on_error="skip"'):
        assert words in str(error)
