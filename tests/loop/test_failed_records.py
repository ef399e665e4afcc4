"""What happens to a record that the transform or the producer does not take, and what is written instead."""

from typing import Any

import pytest

from eos_client.errors import TransformError
from eos_client.loop.record_failures import FailedRecords
from eos_client.observe import Counters, RecordDeadLettered, RecordSkipped
from tests.loop.fakes import FakeClock, FakeRecord, config

LETTERS = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
SHORT_S = 0.001
TWICE = {"transform_attempts_max": 2, "transform_backoff_s": SHORT_S}


class Failures:
    """FailedRecords with what it told and counted."""

    def __init__(self, **options):
        self.events: list[Any] = []
        self.counters = Counters()
        self.clock = FakeClock()
        self.records = FailedRecords(config(**options), self.events.append, self.counters, self.clock)

    def settled(self, record, error) -> Any:
        return self.records.settle(record, error)


def fails_until(attempts, *, then):
    tried = []

    def transform(record):
        tried.append(record)
        yield b"half"
        if len(tried) < attempts:
            raise ValueError(f"attempt {len(tried)}")
        yield then

    return transform, tried


def test_stop_raises_with_the_place_and_keeps_the_cause():
    failures, cause = Failures(), KeyError("customer")
    with pytest.raises(TransformError) as caught:
        failures.records.settle(FakeRecord(7), cause)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 2, 7)
    assert caught.value.__cause__ is cause
    assert (failures.events, failures.counters.records_failed) == ([], 0)


def test_skip_writes_nothing_and_says_which_record_and_why():
    failures = Failures(on_error="skip")
    assert failures.records.settle(FakeRecord(7), ValueError("bad")) == []
    assert failures.events == [RecordSkipped(topic="orders", partition=2, offset=7, error="ValueError: bad")]
    assert failures.counters.records_failed == 1


def test_a_dead_letter_is_the_record_with_its_own_headers_first_then_error_and_origin():
    failures = Failures(**LETTERS)
    (letter,) = failures.settled(FakeRecord(7, b"body", (("trace", b"1"),)), ValueError("bad"))
    assert (letter.topic, letter.key, letter.value) == ("letters", b"key", b"body")
    assert list(letter.headers) == [
        ("trace", b"1"),
        ("eos.error", b"ValueError: bad"),
        ("eos.topic", b"orders"),
        ("eos.partition", b"2"),
        ("eos.offset", b"7"),
    ]
    (event,) = failures.events
    assert isinstance(event, RecordDeadLettered)
    assert event.dead_letter_topic == "letters"
    assert failures.counters.records_failed == 1


def test_a_dead_letter_shortens_an_error_of_any_length_but_not_the_record():
    failures = Failures(**LETTERS)
    body = b"b" * 5000
    (letter,) = failures.settled(FakeRecord(body=body), ValueError("ü" * 2_000_000))
    error = dict(letter.headers)["eos.error"]
    assert error.decode() == "ValueError: " + "ü" * 988
    assert letter.value == body


def test_stop_calls_the_transform_itself_because_an_abort_takes_half_an_output_out_again():
    def transform(record):
        return [b"out"]

    assert Failures().records.guarding(transform) is transform


@pytest.mark.parametrize(
    "options", [{"on_error": "skip"}, LETTERS, {"transform_attempts_max": 2, "transform_backoff_s": SHORT_S}]
)
def test_elsewhere_a_transform_that_fails_half_way_gives_nothing(options):
    transform, tried = fails_until(9, then=b"whole")
    guarded = Failures(**options).records.guarding(transform)
    with pytest.raises(ValueError, match="attempt"):
        guarded(FakeRecord())
    assert len(tried) == options.get("transform_attempts_max", 1)


def test_a_transform_is_tried_again_and_only_the_last_attempt_s_outputs_count():
    transform, tried = fails_until(3, then=b"whole")
    guarded = Failures(transform_attempts_max=3, transform_backoff_s=SHORT_S).records.guarding(transform)
    assert guarded(FakeRecord()) == [b"half", b"whole"]
    assert len(tried) == 3


def test_what_is_no_failure_of_the_record_is_not_tried_again():
    tried = []

    def transform(record):
        tried.append(record)
        raise SystemExit

    with pytest.raises(SystemExit):
        Failures(transform_attempts_max=3, transform_backoff_s=SHORT_S).records.guarding(transform)(FakeRecord())
    assert len(tried) == 1


def test_a_transform_that_gives_none_gives_no_outputs():
    assert Failures(on_error="skip").records.guarding(lambda record: None)(FakeRecord()) == []


def test_a_remembered_record_fails_at_once_when_it_comes_again_and_no_other_does():
    failures, refusal = Failures(on_error="skip"), ValueError("too large")
    guarded = failures.records.guarding(lambda record: [record.value()])
    failures.records.remember(FakeRecord(7), refusal)
    for _ in range(2):
        with pytest.raises(ValueError, match="too large") as caught:
            guarded(FakeRecord(7))
        assert caught.value is refusal
    assert guarded(FakeRecord(8)) == [b"body"]
    assert failures.counters.records_failed == 0, "it counts when it is settled"


def test_stop_remembers_nothing_and_raises():
    with pytest.raises(TransformError):
        Failures().records.remember(FakeRecord(), ValueError("too large"))
