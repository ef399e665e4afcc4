"""Records become outputs in order, whatever form the transform gives them, and a failure is its own record's."""

from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.core.model import InputPartition
from eos_client.errors import AbortableError, ConfigurationError, OutputRefusedError, TransformError
from eos_client.loop.record_failures import FailedRecords
from eos_client.loop.record_outputs import RecordOutputs, RefusedRecordsError
from eos_client.observe import Counters, Event, RecordSkipped
from eos_client.testing.simulator import SimulatedClock, SimulatedCluster
from tests.loop.bench import config, consumed

LETTERS = {"on_error": "dead_letter", "dead_letter_topic": "letters"}


NO_VALUE = b""  # of the smallest dead letters


class Pen:
    """A session and producer that remember what was written; `full` and `refused` are values that they do not take."""

    def __init__(self):
        self.written: list[Any] = []
        self.full: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.undeliverable: set[bytes] = set()
        self.counted = self.quickly = 0
        self.library = self.last_errors = self

    def raw_produce(self):
        def produce(topic, value, key=None, **options):
            if topic is None:
                raise TypeError("topic")
            self.quickly += 1
            if value in self.full:
                raise BufferError
            if value in self.refused:
                raise KafkaException("too large, as the client library says it")
            self._take(topic, value)

        return produce

    def _take(self, topic, value):
        self.written.append(value if topic == "bills" else (topic, value))

    def count_outputs(self, count):
        self.counted += count

    def enqueue(self, topic, record):
        if record.value in self.refused:
            raise OutputRefusedError("too large")
        self._take(topic, record.value)

    def poll(self, timeout_s):
        pass

    def await_deliveries(self):
        pass

    def take_refused_delivery(self):
        values = {each if isinstance(each, bytes) else each[1] for each in self.written}
        return "bills[0], as the broker says it" if values & self.undeliverable else ""


class Writing:
    """RecordOutputs on a pen."""

    def __init__(self, transform, default_topic="bills", **options):
        self.session = cast("Any", Pen())
        self.calls: list[int] = []

        def noting(record):
            self.calls.append(record.offset())
            return transform(record)

        self._failed = FailedRecords(config(**options), lambda event: None, Counters(), SimulatedClock())
        self._outputs = RecordOutputs(noting, self._failed, self.session, self.session, default_topic)

    def write_one_by_one(self, count):
        self._outputs.write_one_by_one([consumed(n, b"%d" % n) for n in range(count)])
        return self.session.written

    def aborted(self):
        self.session.written.clear()
        self._failed.aborted({InputPartition("orders", 2)})

    def write(self, count):
        self._outputs.write([consumed(n, b"%d" % n) for n in range(count)])
        return self.session.written


def value(record):
    return (record.value(),)


def values(*numbers):
    return [b"%d" % n for n in numbers]


class Token(bytes):
    """The application's own kind of bytes."""


class Invoice(OutputRecord):
    """The application's own kind of record, which even calls itself empty."""

    def __len__(self) -> int:
        return 0


FORMS = {
    "bytes alone": lambda record: record.value(),
    "record alone": lambda record: OutputRecord(value=record.value()),
    "bytes of a subclass alone": lambda record: Token(record.value()),
    "record of a subclass alone": lambda record: Invoice(value=record.value()),
    "tuple": value,
    "list": lambda record: [record.value()],
    "generator": lambda record: iter(value(record)),
    "record": lambda record: [OutputRecord(value=record.value())],
    "with a header": lambda record: [OutputRecord(value=record.value(), headers=[("a", b"1")])],
    "mixed": lambda record: [OutputRecord(value=record.value())] if record.offset() % 2 else value(record),
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_output_is_written_in_order_and_counted(form, on_error):
    writing = Writing(FORMS[form], on_error=on_error)
    assert writing.write(5) == values(0, 1, 2, 3, 4)
    assert (writing.session.counted, writing.session.quickly) == (5, 5), "none takes the way of what was refused"
    assert writing.calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("form", "at_once_max"), [("bytes alone", 1000), ("tuple", 1000), ("record alone", 100)])
def test_objects_are_written_before_so_many_are_made_that_python_looks_for_garbage(form, at_once_max):
    waiting: list[int] = []

    def transform(record):
        waiting.append(len(writing.calls) - len(writing.session.written))
        return FORMS[form](record)

    writing = Writing(transform)
    writing.write(1)
    writing.session.written.clear()
    writing.calls.clear()
    assert writing.write(600) == values(*range(600))
    assert at_once_max / 2 < max(waiting) <= at_once_max


NO_OUTPUTS = {
    "text alone": (lambda record: "42", "the transform returned '42'"),
    "number": (lambda record: 42, "the transform returned 42"),
}


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("form", NO_OUTPUTS)
def test_what_is_no_outputs_at_all_is_named(form, attempts):
    transform, words = NO_OUTPUTS[form]
    writing = Writing(transform, transform_attempts_max=attempts, transform_backoff_s=0.01)
    with pytest.raises(TransformError, match=words) as caught:
        writing.write(2)
    assert caught.value.offset == 0
    assert writing.session.written == []


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_invalid_output_is_the_failure_of_its_record(attempts):
    policy = {**LETTERS, "transform_attempts_max": attempts, "transform_backoff_s": 0.01}
    writing = Writing(lambda record: 42 if record.offset() == 1 else value(record), **policy)
    written = writing.write(3)
    assert [each for each in written if isinstance(each, bytes)] == values(0, 2)
    assert len(written) == 3


class Ambiguous(list[bytes]):
    """Does as an array of numpy: nothing says whether it is empty."""

    def __bool__(self):
        raise ValueError("the truth value of an array is ambiguous")


def test_what_does_not_say_whether_it_is_empty_is_iterated():
    writing = Writing(lambda record: Ambiguous([b"x"]))
    writing.write(2)
    assert writing.session.written == [b"x", b"x"]


def test_a_transform_that_raises_is_not_blamed_for_what_it_has_returned_before():
    def transform(record):
        if record.offset() == 1:
            raise KeyError("customer")
        return value(record)

    with pytest.raises(TransformError, match="customer"):
        Writing(transform).write(2)


def test_records_may_have_no_output_or_many():
    writing = Writing(lambda record: None if record.offset() == 1 else [record.value()] * record.offset())
    assert writing.write(4) == values(2, 2, 3, 3, 3)
    assert writing.session.counted == 5


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("form", ["tuple", "generator", "record"])
def test_what_finds_the_queue_full_is_written_in_its_place(form, at):
    writing = Writing(FORMS[form])
    writing.session.full = {b"%d" % at}
    assert writing.write(5) == values(0, 1, 2, 3, 4)
    assert writing.session.counted == 5


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_record_whose_transform_raises_leaves_the_others_in_order_and_none_runs_twice(at):
    def transform(record):
        if record.offset() == at:
            raise ValueError("bad")
        return value(record)

    writing = Writing(transform, **LETTERS)
    written = writing.write(5)
    assert written == [("letters", b"%d" % n) if n == at else b"%d" % n for n in range(5)]
    assert writing.calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["tuple", "generator", "record"])
def test_a_refused_output_is_blamed_on_its_own_record_which_is_settled_when_it_comes_again(form):
    writing = Writing(FORMS[form], **LETTERS)
    writing.session.refused = {b"2"}
    with pytest.raises(AbortableError, match=r"orders\[2\]@2 was refused"):
        writing.write(5)
    writing.session.written.clear()  # as the abort does
    writing.session.refused.clear()
    assert writing.write(5) == [b"0", b"1", ("letters", b"2"), b"3", b"4"]


def test_a_refused_output_among_records_with_none_or_many_is_blamed_on_the_right_one():
    writing = Writing(lambda record: [record.value()] * record.offset(), **LETTERS)
    writing.session.refused = {b"3"}
    with pytest.raises(AbortableError, match=r"orders\[2\]@3 was refused"):
        writing.write(5)


def test_an_output_that_is_refused_only_once_blames_nobody():
    tried = []

    def transform(record):
        tried.append(record)
        return [b"large" if len(tried) == 2 else b"small"]

    writing = Writing(transform, **LETTERS)
    writing.session.refused = {b"large"}
    with pytest.raises(AbortableError, match="not when it was written again"):
        writing.write(3)
    writing.session.written.clear()
    assert writing.write(3) == [b"small"] * 3


def test_a_dead_letter_that_is_refused_too_ends_the_loop_with_the_record_named():
    def transform(record):
        if record.offset() == 1:
            raise ValueError("bad")
        return value(record)

    writing = Writing(transform, **LETTERS)
    writing.session.refused = {b"1", NO_VALUE}
    with pytest.raises(TransformError) as caught:
        writing.write(3)
    assert caught.value.offset == 1
    assert isinstance(caught.value.__cause__, ValueError)
    assert "failed with ValueError: bad, and its dead letter with OutputRefusedError: " in str(caught.value)
    assert "too large" in str(caught.value)
    assert "Have the dead letter topic take such letters" in str(caught.value)
    assert "on_error" not in str(caught.value)


def test_a_dead_letter_that_is_too_large_is_followed_by_a_smaller_one_in_the_same_transaction():
    def transform(record):
        if record.offset() == 1:
            raise ValueError("bad")
        return value(record)

    writing = Writing(transform, **LETTERS)
    writing.session.refused = {b"1"}
    assert writing.write(3) == [b"0", ("letters", NO_VALUE), b"2"]
    assert writing.session.counted == 3


def test_all_records_with_refused_outputs_are_found_at_once():
    writing = Writing(value, on_error="skip")
    writing.session.refused = set(values(1, 3, 4))
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@1 and outputs of 2 more records was refused"):
        writing.write(6)
    writing.session.written.clear()
    assert writing.write(6) == values(0, 2, 5)


@pytest.mark.parametrize("form", ["tuple", "record"])
def test_one_by_one_the_record_is_known_whose_output_the_broker_refuses(form):
    writing = Writing(FORMS[form], on_error="skip")
    writing.session.undeliverable = {b"2"}
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@2 was refused: .*as the broker says it"):
        writing.write_one_by_one(5)
    assert writing.session.written == values(0, 1, 2)
    writing.session.written.clear()
    assert writing.write_one_by_one(5) == values(0, 1, 3, 4)


def test_one_by_one_a_dead_letter_that_the_broker_refuses_is_followed_by_a_smaller_one():
    def transform(record):
        raise ValueError("bad")

    writing = Writing(transform, **LETTERS)
    writing.session.undeliverable = {b"0"}
    for _ in range(2):
        with pytest.raises(RefusedRecordsError):
            writing.write_one_by_one(1)
        writing.aborted()
    assert writing.write_one_by_one(1) == [("letters", NO_VALUE)]


def test_one_by_one_stop_names_the_record_whose_output_the_broker_refuses():
    writing = Writing(value)
    writing.session.undeliverable = {b"2"}
    with pytest.raises(TransformError, match="as the broker says it") as caught:
        writing.write_one_by_one(5)
    assert caught.value.offset == 2


@pytest.mark.parametrize("form", ["tuple", "generator"])
def test_stop_names_the_record_whose_output_was_refused(form):
    writing = Writing(FORMS[form])
    writing.session.refused = {b"3"}
    with pytest.raises(RefusedRecordsError, match="the next attempt shows of which record: too large"):
        writing.write(5)
    assert writing.calls == [0, 1, 2, 3, 4], "what may have changed its record does not get that again"
    with pytest.raises(TransformError) as caught:
        writing.write(5)
    assert caught.value.offset == 3


def test_stop_names_the_record_on_which_a_yielding_transform_raises():
    def transform(record):
        yield record.value()
        if record.offset() == 3:
            raise KeyError("customer")

    writing = Writing(transform)
    with pytest.raises(TransformError) as caught:
        writing.write(5)
    assert caught.value.offset == 3
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("wrong", [None, "text", 7, bytearray(b"b")])
def test_what_is_no_output_is_refused_even_if_the_client_library_would_take_it(wrong):
    writing = Writing(lambda record: (wrong,))
    with pytest.raises(RefusedRecordsError, match="OutputRecord objects or bytes"):
        writing.write(2)
    assert writing.session.written == []


def test_values_without_a_topic_say_which_of_two_things_to_set():
    with pytest.raises(ConfigurationError, match="output_topic"):
        Writing(value, default_topic=None).write(1)


@pytest.mark.parametrize("made", [0, False, 0.0, "", bytearray()], ids=repr)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_what_is_no_output_is_the_records_failure_also_where_it_counts_as_false(made, on_error):
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.write("orders", [b"1"])
    told: list[Event] = []
    settings = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", on_error=on_error)
    loop = ExactlyOnceLoop(settings, ["orders"], lambda _: made, hook=told.append, clients=cluster)
    cluster.after(30, loop.stop)
    if on_error == "stop":
        with pytest.raises(TransformError, match="must return an output or an iterable of them"):
            loop.run()
        assert cluster.committed() == {}
    else:
        loop.run()
        assert [type(event) for event in told].count(RecordSkipped) == 1
