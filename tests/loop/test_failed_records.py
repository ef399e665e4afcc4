"""What happens to a record that the transform or the producer does not take, and what is written instead."""

import gc
import weakref
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eos_client import ExactlyOnceLoop, OutputRecord
from eos_client.confluent.failures.kafka_errors import make_kafka_error
from eos_client.core.error_report import TRACEBACK_CHARACTERS_MAX, ErrorReport
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnavailableError, ConfigurationError, OutputRefusedError, TransformError
from eos_client.loop.record_failures import FailedRecords, KnownFailureError
from eos_client.observe import ClientReported, Counters, RecordDeadLettered, RecordSkipped, TransactionCommitted
from eos_client.testing.simulator import SimulatedClock, SimulatedCluster
from tests.loop.bench import LETTERS, Bench, config, consumed, numbers, remembered

SHORT_S = 0.001
TWICE = {"transform_attempts_max": 2, "transform_backoff_s": SHORT_S}


class Failures:
    """FailedRecords with what it told and counted."""

    def __init__(self, **options):
        self.events: list[Any] = []
        self.counters = Counters()
        self.clock = SimulatedClock()
        self.records = FailedRecords(config(**options), self.events.append, self.counters, self.clock)

    def settled(self, record, error) -> Any:
        return self.records.substitutes_for(record, error)


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
        failures.records.substitutes_for(consumed(7), cause)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 2, 7)
    assert caught.value.__cause__ is cause
    assert (failures.events, failures.counters.records_failed) == ([], 0)


def test_skip_writes_nothing_and_says_which_record_and_why():
    failures = Failures(on_error="skip")
    assert failures.records.substitutes_for(consumed(7), ValueError("bad")) == []
    failures.records.committed()
    assert failures.events == [RecordSkipped(topic="orders", partition=2, offset=7, error="ValueError: bad")]
    assert failures.counters.records_failed == 1


def test_a_dead_letter_is_the_record_with_its_own_headers_first_then_error_and_origin():
    failures = Failures(**LETTERS)
    letter, *_ = failures.settled(consumed(7, b"body", ("trace", b"1")), ValueError("bad"))
    assert (letter.topic, letter.key, letter.value) == ("letters", b"key", b"body")
    assert list(letter.headers) == [
        ("trace", b"1"),
        ("eos.error", b"ValueError: bad"),
        ("eos.topic", b"orders"),
        ("eos.partition", b"2"),
        ("eos.offset", b"7"),
        ("eos.timestamp", b"0"),
        ("eos.attempts", b"1"),
    ]
    failures.records.committed()
    (event,) = failures.events
    assert isinstance(event, RecordDeadLettered)
    assert event.dead_letter_topic == "letters"
    assert failures.counters.records_failed == 1


def raised(error):
    """``error`` as a transform raises it."""
    try:
        price(error)
    except type(error) as caught:
        return caught


def price(error):
    raise error


PLACE = f"test_failed_records.py:{price.__code__.co_firstlineno + 1} in price"


def test_the_error_of_stop_has_the_place_where_the_transform_raised():
    for fails in (Failures().records.substitutes_for, Failures().records.record_refusal):
        with pytest.raises(TransformError, match="bad") as caught:
            fails(consumed(7), raised(ValueError("bad")))
        assert caught.value.place == PLACE
        assert f"raised ValueError: bad ({PLACE}) on the record at orders[2]@7" in str(caught.value)
    with pytest.raises(TransformError) as caught:
        Failures().records.substitutes_for(consumed(7), ValueError("never raised"))
    assert caught.value.place is None


@pytest.mark.parametrize("options", [{"on_error": "skip"}, LETTERS])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_record_that_was_skipped_or_dead_lettered_is_told_with_the_place_and_the_traceback(options, is_known):
    failures, error = Failures(**options), raised(ValueError("bad"))
    if is_known:
        guarded = failures.records.guard(lambda record: [])
        failures.records.record_refusal(consumed(7), error)
        with pytest.raises(KnownFailureError) as known:
            guarded(consumed(7))
        error = known.value
    failures.settled(consumed(7), error)
    failures.records.committed()
    (event,) = failures.events
    assert (event.error, event.place) == ("ValueError: bad", PLACE)
    assert event.traceback.startswith("Traceback (most recent call last):\n")
    assert event.traceback.endswith("in price\n    raise error\nValueError: bad")


def test_a_dead_letter_has_the_place_and_the_traceback_behind_the_error():
    letter, *_ = Failures(**LETTERS).settled(consumed(7), raised(ValueError("bad")))
    names = [name for name, _ in letter.headers]
    assert names[:4] == ["eos.error", "eos.error.place", "eos.error.traceback", "eos.topic"]
    headers = dict(letter.headers)
    assert headers["eos.error.place"].decode() == PLACE
    assert headers["eos.error.traceback"].endswith(b"raise error\nValueError: bad")


def size_of(letter):
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return headers + len(letter.value or b"") + len(letter.key or b"")


def test_place_and_traceback_cost_no_record_its_value_or_its_letter():
    record, error = consumed(7, b"b" * 5000, ("trace", b"t" * 300)), ValueError("e" * 5000)
    without = Failures(**LETTERS).settled(record, ValueError("e" * 5000))
    letters = Failures(**LETTERS).settled(record, raised(error))
    assert letters[1] == without[1]
    assert letters[3] == without[3]
    assert len(dict(letters[0].headers)["eos.error.traceback"].decode()) <= TRACEBACK_CHARACTERS_MAX
    assert [name for name, _ in letters[2].headers if "eos.error" in name] == ["eos.error", "eos.error.place"]
    assert [*map(size_of, letters)] == sorted(map(size_of, letters), reverse=True)


def test_a_dead_letter_shortens_an_error_of_any_length_but_not_the_record():
    failures = Failures(**LETTERS)
    body = b"b" * 5000
    letter, *_ = failures.settled(consumed(value=body), ValueError("ü" * 2_000_000))
    error = dict(letter.headers)["eos.error"]
    assert error.decode() == "ValueError: " + "ü" * 988
    assert letter.value == body


def test_stop_calls_the_transform_itself_because_an_abort_takes_half_an_output_out_again():
    def transform(record):
        return [b"out"]

    assert Failures().records.guard(transform) is transform


@pytest.mark.parametrize(
    "options", [{"on_error": "skip"}, LETTERS, {"transform_attempts_max": 2, "transform_backoff_s": SHORT_S}]
)
def test_elsewhere_a_transform_that_fails_half_way_gives_nothing(options):
    transform, tried = fails_until(9, then=b"whole")
    guarded = Failures(**options).records.guard(transform)
    with pytest.raises(ValueError, match="attempt"):
        guarded(consumed())
    assert len(tried) == options.get("transform_attempts_max", 1)


def test_a_transform_is_tried_again_and_only_the_last_attempt_s_outputs_count():
    transform, tried = fails_until(3, then=b"whole")
    guarded = Failures(transform_attempts_max=3, transform_backoff_s=SHORT_S).records.guard(transform)
    assert guarded(consumed()) == [b"half", b"whole"]
    assert len(tried) == 3


def test_what_is_no_failure_of_the_record_is_not_tried_again():
    tried = []

    def transform(record):
        tried.append(record)
        raise SystemExit

    with pytest.raises(SystemExit):
        Failures(transform_attempts_max=3, transform_backoff_s=SHORT_S).records.guard(transform)(consumed())
    assert len(tried) == 1


def test_a_transform_that_gives_none_gives_no_outputs():
    assert Failures(on_error="skip").records.guard(lambda record: None)(consumed()) == ()


def test_each_dead_letter_is_smaller_than_the_one_before_and_all_have_their_origin():
    record = consumed(7, b"b" * 5000, ("trace", b"t" * 300))
    letters = Failures(**LETTERS).settled(record, ValueError("e" * 5000))
    assert [(len(each.value), each.key, len(each.headers)) for each in letters] == [
        (5000, b"key", 7),
        (5000, b"key", 7),
        (0, b"key", 9),
        (0, None, 8),
    ]
    headers = [dict(each.headers) for each in letters]
    assert [len(each["eos.error"]) for each in headers] == [1000, 100, 100, 100]
    assert all(
        (each["eos.topic"], each["eos.partition"], each["eos.offset"]) == (b"orders", b"2", b"7") for each in headers
    )
    assert [each.get("eos.omitted") for each in headers] == [None, None, b"value", b"value, key, headers"]
    assert headers[3]["eos.value.bytes"] == b"5000"


def test_an_error_whose_text_is_no_unicode_does_not_keep_its_record_from_being_dead_lettered():
    letter, *_ = Failures(**LETTERS).settled(consumed(7), ValueError("name \ud800"))
    assert dict(letter.headers)["eos.error"] == b"ValueError: name \\ud800"


class UntellableError(Exception):
    def __str__(self):
        raise RuntimeError("not loaded")


def test_an_error_whose_text_cannot_be_had_is_a_failure_like_any_other():
    said = "UntellableError: no text, because its __str__ raised RuntimeError"
    letter, *_ = Failures(**LETTERS).settled(consumed(), UntellableError())
    assert dict(letter.headers)["eos.error"] == said.encode()
    with pytest.raises(TransformError, match=said):
        Failures().settled(consumed(), UntellableError())


class UnreadableError(ValueError):
    """An error of which no attribute can be read, not even its class."""

    def __getattribute__(self, name):
        raise RuntimeError("not even its class")


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
@pytest.mark.parametrize("options", [{"on_error": "skip"}, LETTERS])
def test_an_error_of_which_nothing_can_be_read_is_a_failure_like_any_other(simulated_cluster, form, options):
    def fails(records):
        raise UnreadableError("no price")

    def fails_half_way(record):
        yield b"half"
        fails(record)

    given: dict[str, Any] = {form: fails if form == "transform_batch" else fails_half_way}
    bench = Bench(simulated_cluster, **given, **options)
    bench.run_all(numbers(2))
    told = bench.events(RecordSkipped, RecordDeadLettered)
    assert [event.error for event in told] == ["UnreadableError: no price"] * 2
    assert all("in fails" in str(event.place) for event in told)


def test_an_error_of_which_nothing_can_be_read_stops_the_loop_as_any_other(simulated_cluster):
    def fails(record):
        raise UnreadableError("no price")

    with pytest.raises(TransformError, match=r"UnreadableError: no price.* in fails"):
        Bench(simulated_cluster, fails).run_all(numbers(1))


def test_a_skip_is_reported_after_its_commit_though_the_application_changes_the_counters(simulated_cluster):
    def transform(record):
        bench.loop.counters.committed += 1
        bench.loop.counters.aborted += 1
        raise ValueError(record.value())

    bench = Bench(simulated_cluster, transform, on_error="skip")
    bench.run_all(numbers(1))
    assert [*map(type, bench.events(RecordSkipped, TransactionCommitted))] == [TransactionCommitted, RecordSkipped]


class Unshowable:
    def __repr__(self):
        raise RuntimeError("detached")


@pytest.mark.parametrize("made", [Unshowable(), [Unshowable()], [OutputRecord(value=Unshowable())]])
def test_a_result_that_cannot_be_shown_is_a_failure_like_any_other(simulated_cluster, made):
    bench = Bench(simulated_cluster, lambda record: made, on_error="skip")
    bench.run_all(numbers(1))
    assert bench.loop.counters.records_failed == 1


def test_a_skip_in_a_commit_of_unknown_outcome_is_told_although_the_loop_ends(simulated_cluster):
    def transform(record):
        simulated_cluster.lose_reply("EndTxn")
        simulated_cluster.delay("InitProducerId", 40)
        bench.loop.stop()
        raise ValueError("bad")

    bench = Bench(simulated_cluster, transform, on_error="skip")
    bench.load(1)
    with pytest.raises(ClusterUnavailableError):
        bench.run()
    assert bench.committed == 1, "the commit took effect"
    reports = [event.error for event in bench.events(ClientReported)]
    assert [text for text in reports if "offset=0, error='ValueError: bad'" in text]


def test_a_remembered_record_fails_at_once_when_it_comes_again_and_no_other_does():
    failures = Failures(on_error="skip")
    guarded = failures.records.guard(lambda record: [record.value()])
    failures.records.record_refusal(consumed(7), ValueError("too large"))
    for _ in range(2):
        with pytest.raises(KnownFailureError, match="ValueError: too large"):
            guarded(consumed(7))
    assert guarded(consumed(8)) == [b"body"]
    failures.records.committed()
    assert failures.counters.records_failed == 0, "it counts when it is settled"


def test_what_is_remembered_keeps_no_frame_alive():
    class Large:
        size = 1

    large, failures = Large(), Failures(on_error="skip")
    alive = weakref.ref(large)

    def transform(held):
        raise ValueError(f"too large: {held.size}")

    with pytest.raises(ValueError, match="too large") as caught:
        transform(large)
    failures.records.record_refusal(consumed(7), caught.value)
    del large, caught
    gc.collect()
    assert alive() is None


def test_a_failure_is_forgotten_once_it_is_committed_and_kept_when_its_transaction_is_aborted():
    failures = Failures(on_error="skip")
    failures.records.record_refusal(consumed(7), ValueError("too large"))
    failures.records.record_refusal(consumed(9), ValueError("too large"))
    failures.records.substitutes_for(consumed(7), KnownFailureError(ErrorReport("ValueError: too large")))
    failures.records.aborted({InputPartition("orders", 2)})
    assert remembered(failures.records) == 2
    failures.records.substitutes_for(consumed(7), KnownFailureError(ErrorReport("ValueError: too large")))
    failures.records.committed()
    assert remembered(failures.records) == 1, "9 has not come again yet"
    failures.records.aborted({InputPartition("orders", 1)})
    assert remembered(failures.records) == 0, "its partition is somebody else's now"


def test_a_known_failure_is_told_as_it_was_found():
    failures = Failures(on_error="skip")
    failures.settled(consumed(7), KnownFailureError(ErrorReport("ValueError: too large")))
    failures.records.committed()
    assert failures.events[0].error == "ValueError: too large"


@pytest.mark.parametrize("options", [{"on_error": "skip"}, LETTERS])
def test_what_was_done_with_a_record_is_told_once_when_it_is_committed(options):
    failures, ours = Failures(**options), {InputPartition("orders", 2)}
    for _ in range(3):
        failures.settled(consumed(7), ValueError("bad"))
        failures.records.aborted(ours)
        failures.records.committed()
    assert (failures.events, failures.counters.records_failed) == ([], 0)
    for place in (7, 8):
        failures.settled(consumed(place), ValueError("bad"))
    for _ in range(2):
        failures.records.committed()
    assert [event.offset for event in failures.events] == [7, 8]
    assert failures.counters.records_failed == 2


def test_a_dead_letter_that_was_refused_is_followed_by_a_smaller_one_and_the_last_by_an_error():
    failures, record = Failures(**LETTERS), consumed(7)
    for left in (4, 3, 2, 1):
        assert len(failures.settled(record, ValueError("bad"))) == left
        if left == 1:
            break
        failures.records.record_refusal(record, refused_with(KafkaError.MSG_SIZE_TOO_LARGE))
        failures.records.aborted({InputPartition("orders", 2)})
    with pytest.raises(TransformError, match=r"failed with ValueError: bad, and its dead letter with .*refused"):
        failures.records.record_refusal(record, refused_with(KafkaError.MSG_SIZE_TOO_LARGE))


def refused_with(code):
    return make_kafka_error(OutputRefusedError, KafkaError(code), "refused")


@pytest.mark.parametrize("code", [KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION])
def test_a_dead_letter_that_was_refused_for_anything_but_its_size_is_followed_by_no_smaller_one(code):
    failures, record = Failures(**LETTERS), consumed(7)
    failures.settled(record, ValueError("bad"))
    refusal = refused_with(code)
    with pytest.raises(TransformError, match=r"and its dead letter with .*refused") as raised:
        failures.records.record_refusal(record, refusal)
    assert raised.value.__cause__ is refusal


def test_stop_remembers_nothing_and_raises():
    with pytest.raises(TransformError):
        Failures().records.record_refusal(consumed(), ValueError("too large"))


@pytest.mark.parametrize("topics", [["orders.dead"], ["orders", "orders.dead"], ["^orders.*"], ["^(orders|x)"]])
def test_a_loop_does_not_read_its_own_letters(topics):
    settings = config(on_error="dead_letter", dead_letter_topic="orders.dead")
    with pytest.raises(ConfigurationError, match=r"'orders.dead' is among the topics that the loop reads"):
        ExactlyOnceLoop(settings, topics, lambda _: None, clients=SimulatedCluster(seed=1))


def test_a_pattern_that_leaves_the_letters_out_may_be_read():
    settings = config(on_error="dead_letter", dead_letter_topic="dead")
    ExactlyOnceLoop(settings, ["^orders.*", "^[bad"], lambda _: None, clients=SimulatedCluster(seed=1)).close()
