"""Records become outputs in order, whatever form the transform gives them, and a failure is its own record's."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import OutputRecord
from eos_client.errors import ConfigurationError, OutputRefusedError, TransformError
from eos_client.loop.record_outputs import RefusedRecordsError
from eos_client.observe import RecordSkipped
from tests.loop.bench import LETTERS, Bench, numbers, values
from tests.loop.writing import NO_VALUE, REFUSED, UNDELIVERABLE, Writing, enlarged


def value(record):
    return (record.value(),)


class Token(bytes):
    """The application's own kind of bytes."""


class Invoice(OutputRecord, frozen=True):
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
    writing.session.outputs.enqueue = lambda *_: pytest.fail("none takes the way of what was refused")  # type: ignore[method-assign]
    assert writing.write(5) == values(0, 1, 2, 3, 4)
    assert writing.counters.records_out == 5
    assert writing.calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("form", FORMS)
def test_the_outputs_of_a_record_are_written_before_the_next_one_is_transformed(form, on_error):
    written: list[bytes] = []
    found: list[int] = []

    def transform(record):
        found.append(len(written))
        return FORMS[form](record)

    def produce(raw, topic, *arguments, **options):
        raw.produce(topic, *arguments, **options)
        written.append(topic)

    Writing(transform, on_error=on_error, produce=produce).write(5)
    assert found == [0, 1, 2, 3, 4]


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
    assert writing.written == []


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_invalid_output_is_the_failure_of_its_record(attempts):
    policy = {**LETTERS, "transform_attempts_max": attempts, "transform_backoff_s": 0.01}
    writing = Writing(lambda record: 42 if record.offset() == 1 else value(record), **policy)
    assert writing.write(3) == [*values(0, 2), ("letters", b"1")]


class Ambiguous(list[bytes]):
    """Does as an array of numpy: nothing says whether it is empty."""

    def __bool__(self):
        raise ValueError("the truth value of an array is ambiguous")


def test_what_does_not_say_whether_it_is_empty_is_iterated():
    writing = Writing(lambda record: Ambiguous([b"x"]))
    assert writing.write(2) == [b"x", b"x"]


def test_a_transform_that_raises_is_not_blamed_for_what_it_has_returned_before():
    def transform(record):
        if record.offset() == 1:
            raise KeyError("customer")
        return value(record)

    with pytest.raises(TransformError, match="customer"):
        Writing(transform).write(2)


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, LookupError])
def test_a_transform_that_raises_what_ends_an_iteration_ends_none_of_the_loops(error):
    def transform(record):
        if record.offset() in {1, 4}:
            raise error
        return record.value()

    assert Writing(transform, **LETTERS).write(5) == [*values(0, 2, 3), ("letters", b"1"), ("letters", b"4")]


def test_records_may_have_no_output_or_many():
    writing = Writing(lambda record: None if record.offset() == 1 else [record.value()] * record.offset())
    assert writing.write(4) == values(2, 2, 3, 3, 3)
    assert writing.counters.records_out == 5


@pytest.mark.parametrize("queue", [1, 2, 4])
@pytest.mark.parametrize("form", ["tuple", "generator", "record"])
def test_what_finds_the_queue_full_is_written_in_its_place(form, queue):
    writing = Writing(FORMS[form], queue=queue)
    assert writing.write(5) == values(0, 1, 2, 3, 4)
    assert writing.counters.records_out == 5


def test_an_output_that_is_larger_than_the_whole_queue_is_its_records_failure():
    def produce(raw, topic, value, *arguments, **options):
        if len(value) > 1000:  # queue.buffering.max.kbytes
            raise BufferError("Local: Queue full")
        raw.produce(topic, value, *arguments, **options)

    writing = Writing(lambda record: large_at(1, record), produce=produce, **LETTERS)
    assert writing.write(3) == [*values(0, 2), ("letters", b"1")]
    with pytest.raises(TransformError, match=r"larger than the whole local queue \(queue.buffering.max.kbytes\)"):
        Writing(lambda record: large_at(1, record), produce=produce).write(3)


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_record_whose_transform_raises_leaves_the_others_in_order_and_none_runs_twice(at):
    def transform(record):
        if record.offset() == at:
            raise ValueError("bad")
        return value(record)

    writing = Writing(transform, **LETTERS)
    assert writing.write(5) == [*(each for each in numbers(5) if int(each) != at), ("letters", b"%d" % at)]
    assert writing.calls == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", FORMS)
def test_a_record_whose_only_output_is_refused_fails_at_once_and_the_others_are_in_order(form):
    writing = Writing(enlarged(FORMS[form], REFUSED, 2), **LETTERS)
    assert writing.write(5) == [*values(0, 1, 3, 4), ("letters", b"2")]
    assert writing.calls == [0, 1, 2, 3, 4]
    assert writing.counters.records_out == 5


def test_a_record_whose_first_output_is_refused_fails_at_once_and_none_of_its_others_is_written():
    writing = Writing(lambda record: [large_at(1, record), record.value()], **LETTERS)
    assert writing.write(3) == [*values(0, 0, 2, 2), ("letters", b"1")]
    assert writing.counters.records_out == 5


def test_a_record_whose_later_output_is_refused_is_named_by_an_abort_and_fails_when_it_comes_again():
    writing = Writing(lambda record: [record.value(), large_at(1, record), record.value()], **LETTERS)
    with pytest.raises(RefusedRecordsError, match=r"an output of orders\[2\]@1 was refused: .*MSG_SIZE_TOO_LARGE"):
        writing.write(3)
    assert writing.calls == [0, 1], "nothing after it is transformed for a transaction that is aborted"
    assert writing.write(3) == [*values(0, 0, 0, 2, 2, 2), ("letters", b"1")]
    assert writing.counters.records_out == 7


def large_at(offset, record):
    return record.value() + REFUSED * (record.offset() == offset)


def test_what_a_transform_has_changed_is_undone_in_the_letter_of_a_refused_output():
    def transform(record):
        changed = record.value() + (REFUSED if record.offset() == 1 else b"")
        record.set_value(b"changed")
        return changed

    assert Writing(transform, **LETTERS).write(3) == [*values(0, 2), ("letters", b"1")]


def test_what_is_wrong_with_an_output_is_told_once():
    writing = Writing(lambda record: OutputRecord("invoices", value={"order": record.offset()}), on_error="stop")
    with pytest.raises(TransformError) as caught:
        writing.write(1)
    refused = caught.value.__cause__
    assert isinstance(refused, OutputRefusedError)
    assert isinstance(refused.__cause__, TypeError)
    assert refused.__cause__.__context__ is None


def test_a_dead_letter_that_is_refused_too_ends_the_loop_with_the_record_named():
    def transform(record):
        if record.offset() == 1:
            raise ValueError("bad")
        return value(record)

    def produce(raw, topic, *arguments, **options):
        if topic == "letters":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
        raw.produce(topic, *arguments, **options)

    writing = Writing(transform, **LETTERS, produce=produce)
    with pytest.raises(TransformError) as caught:
        writing.write(3)
    assert caught.value.offset == 1
    assert isinstance(caught.value.__cause__, ValueError)
    assert f"failed with ValueError: bad ({caught.value.place}), and its dead letter with OutputRefusedError" in str(
        caught.value
    )
    assert str(caught.value.place).endswith(" in transform")
    assert "too large" in str(caught.value)
    assert "Have the dead letter topic take such letters" in str(caught.value)
    assert "on_error" not in str(caught.value)


def test_a_dead_letter_that_is_too_large_is_followed_by_a_smaller_one_in_the_same_transaction():
    def transform(record):
        if record.offset() == 1:
            raise ValueError("bad")
        return value(record)

    writing = Writing(transform, **LETTERS)
    assert writing.write(3, 1) == [b"0", b"2", ("letters", NO_VALUE)]
    assert writing.counters.records_out == 3


def test_every_record_with_a_refused_output_is_skipped_without_an_abort():
    writing = Writing(enlarged(value, REFUSED, 1, 3, 4), on_error="skip")
    assert writing.write(6) == values(0, 2, 5)


@pytest.mark.parametrize("form", ["tuple", "record"])
def test_one_by_one_the_record_is_known_whose_output_the_broker_refuses(form):
    writing = Writing(enlarged(FORMS[form], UNDELIVERABLE, 2), on_error="skip")
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@2 was refused: .*MSG_SIZE_TOO_LARGE"):
        writing.write(5, one_by_one=True)
    assert writing.calls == [0, 1, 2]
    assert writing.write_at_last(5, one_by_one=True) == values(0, 1, 3, 4)


def test_one_by_one_a_dead_letter_that_the_broker_refuses_is_followed_by_a_smaller_one():
    def transform(record):
        raise ValueError("bad")

    writing = Writing(transform, **LETTERS)
    for _ in range(2):
        with pytest.raises(RefusedRecordsError):
            writing.write(1, 0, by=UNDELIVERABLE, one_by_one=True)
    assert writing.write_at_last(1, 0, by=UNDELIVERABLE, one_by_one=True) == [("letters", NO_VALUE)]


def test_one_by_one_stop_names_the_record_whose_output_the_broker_refuses():
    writing = Writing(enlarged(value, UNDELIVERABLE, 2))
    with pytest.raises(TransformError, match="MSG_SIZE_TOO_LARGE") as caught:
        writing.write(5, one_by_one=True)
    assert caught.value.offset == 2


@pytest.mark.parametrize("form", FORMS)
def test_stop_names_the_record_whose_output_was_refused(form):
    writing = Writing(enlarged(FORMS[form], REFUSED, 3))
    with pytest.raises(TransformError, match="MSG_SIZE_TOO_LARGE") as caught:
        writing.write(5)
    assert caught.value.offset == 3
    assert writing.calls == [0, 1, 2, 3]


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
    with pytest.raises(TransformError, match="OutputRecord objects or bytes"):
        writing.write(2)
    assert writing.written == []


def test_values_without_a_topic_say_which_of_two_things_to_set():
    with pytest.raises(ConfigurationError, match="output_topic"):
        Writing(value, default_topic=None).write(1)


@pytest.mark.parametrize("made", [0, False, 0.0, "", bytearray()], ids=repr)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_what_is_no_output_is_the_records_failure_also_where_it_counts_as_false(simulated_cluster, made, on_error):
    bench = Bench(simulated_cluster, lambda _: made, on_error=on_error)
    if on_error == "stop":
        with pytest.raises(TransformError, match="must return an output or an iterable of them"):
            bench.run_all(numbers(1))
        assert bench.committed == 0
    else:
        bench.run_all(numbers(1))
        assert len(bench.events(RecordSkipped)) == 1
