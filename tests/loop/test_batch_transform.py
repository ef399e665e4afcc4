"""A transform of batches: its outputs in order, the record that fails in it found, and the others written once."""

import pytest

from eos_client import ExactlyOnceLoop, OutputRecord
from eos_client.errors import AbortableError, ConfigurationError, TransformError
from eos_client.loop.record_outputs import RefusedRecordsError
from eos_client.observe import ClientReported, TransactionAborted, TransactionCommitted
from tests.loop.bench import LETTERS, Bench, config, numbers, values
from tests.loop.test_record_outputs import Ambiguous
from tests.loop.writing import NO_VALUE, REFUSED, UNDELIVERABLE, Writing, enlarged

SKIP = {"on_error": "skip"}
RETRIED = {"transform_attempts_max": 3, "transform_backoff_s": 0.5}


def batches_of(transform_batch, **options):
    return Writing(transform_batch, takes_batches=True, **options)


def fail_first_attempt(batches, count):
    """With ``on_error="stop"`` the first batch that fails aborts its transaction: its records are consumed again."""
    with pytest.raises(RefusedRecordsError, match="a batch failed, and the next attempt shows of which record"):
        batches.write(count)
    assert batches.calls == [list(range(count))]


def copied(records):
    return [record.value() for record in records]


def enlarged_batches(*offsets, by=REFUSED):
    return lambda records: [*map(enlarged(lambda record: record.value(), by, *offsets), records)]


def raising_on(*offsets):
    def transform_batch(records):
        for record in records:
            if record.offset() in offsets:
                raise ValueError(f"bad record {record.offset()}")
        return copied(records)

    return transform_batch


FORMS = {
    "list": copied,
    "generator": lambda records: iter(copied(records)),
    "records": lambda records: [OutputRecord(value=value) for value in copied(records)],
    "array": lambda records: Ambiguous(copied(records)),
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_outputs_is_written_in_order_after_one_call(form, count, on_error):
    batches = batches_of(FORMS[form], on_error=on_error)
    assert batches.write(count) == values(*range(count))
    assert batches.calls == [list(range(count))]
    assert batches.counters.records_out == count


def test_a_batch_may_have_no_outputs_or_one_or_many():
    assert batches_of(lambda records: None).write(3) == []
    assert batches_of(lambda records: b"%d" % len(records)).write(3) == [b"3"]
    assert batches_of(lambda records: copied(records) * 2).write(2) == values(0, 1, 0, 1)


def test_a_transform_that_empties_its_list_takes_no_record_from_the_loop():
    def emptying(records):
        outputs = copied(records)
        records.clear()
        if len(outputs) > 1:
            raise ValueError("too many at once")
        return outputs

    assert batches_of(emptying, **SKIP).write(3) == values(0, 1, 2)


@pytest.mark.parametrize("at", range(7))
def test_the_record_that_fails_is_found_by_halves_and_the_others_are_written_once_in_order(at):
    batches = batches_of(raising_on(at), **LETTERS)
    assert batches.write(7) == [*(each for each in numbers(7) if int(each) != at), ("letters", b"%d" % at)]
    assert len(batches.calls) <= 7
    assert batches.calls.count([at]) == 1


def test_several_records_that_fail_are_all_found():
    batches = batches_of(raising_on(1, 2, 6), **SKIP)
    assert batches.write(8) == values(0, 3, 4, 5, 7)


def test_stop_names_the_record_that_fails_and_keeps_the_cause():
    batches = batches_of(raising_on(5, 6))
    fail_first_attempt(batches, 8)
    with pytest.raises(TransformError, match="bad record 5") as caught:
        batches.write(8)
    assert caught.value.offset == 5
    assert isinstance(caught.value.__cause__, ValueError)


def test_nothing_of_an_attempt_that_fails_half_way_is_written():
    def half_way(records):
        for record in records:
            yield record.value()
            if record.offset() == 2:
                raise ValueError("bad")

    assert batches_of(half_way, **SKIP).write(4) == values(0, 1, 3)


def test_only_the_record_alone_is_tried_again_and_waited_for():
    batches = batches_of(raising_on(2), **SKIP, **RETRIED)
    assert batches.write(4) == values(0, 1, 3)
    assert batches.calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [2], [2], [3]]
    assert batches.cluster.clock() == pytest.approx(2 * 0.5, abs=0.05)


def test_a_batch_that_fails_for_its_size_alone_is_reported_once():
    def small_batches_only(records):
        if len(records) > 2:
            raise MemoryError("batch too large")
        return copied(records)

    batches = batches_of(small_batches_only)
    fail_first_attempt(batches, 8)
    assert batches.write(8) == values(*range(8))
    (report,) = batches.events
    assert isinstance(report, ClientReported)
    assert "8 records" in report.error
    assert "MemoryError: batch too large" in report.error


def test_a_refused_output_is_blamed_on_its_own_record_which_is_settled_when_it_comes_again():
    batches = batches_of(enlarged_batches(5, 6), **LETTERS)
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@5 and outputs of 1 more records was refused"):
        batches.write(8)
    batches.calls.clear()
    assert batches.write(8) == [*values(0, 1, 2, 3, 4, 7), ("letters", b"5"), ("letters", b"6")]
    assert not any({5, 6} & set(call) for call in batches.calls), "what is known to fail is not transformed"
    assert batches.events == []


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("policy", [{"on_error": "skip"}, LETTERS], ids=["skip", "dead letter"])
def test_refused_outputs_on_both_sides_of_a_record_that_raises_are_each_settled(policy, attempts):
    def transform(records):
        outputs = []
        for record in records:
            if record.offset() == 1:
                raise ValueError("bad")
            outputs.append(OutputRecord(value=record.value(), partition=None if record.offset() == 2 else 99))
        return outputs

    batches = batches_of(transform, transform_attempts_max=attempts, transform_backoff_s=0.01, **policy)
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@3 was refused"):
        batches.write(4)
    letters = [("letters", each) for each in values(0, 1, 3)] if "dead_letter_topic" in policy else []
    assert batches.write(4) == [b"2", *letters]


def test_a_refused_output_beside_a_record_that_fails_is_blamed_on_the_right_one():
    batches = batches_of(lambda records: raising_on(1)(records) and enlarged_batches(2)(records), **SKIP)
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@2 was refused"):
        batches.write(4)
    assert batches.write(4) == values(0, 3)


def test_an_output_that_only_the_whole_batch_has_blames_no_record():
    batches = batches_of(lambda records: [b"+".join(copied(records)) + REFUSED * (len(records) == 3)], **SKIP)
    with pytest.raises(AbortableError, match="not when it was written again") as caught:
        batches.write(3)
    assert not isinstance(caught.value, RefusedRecordsError)


def test_one_by_one_the_record_is_known_whose_output_the_broker_refuses():
    batches = batches_of(enlarged_batches(2, by=UNDELIVERABLE), **SKIP)
    with pytest.raises(RefusedRecordsError, match=r"orders\[2\]@2 was refused: .*MSG_SIZE_TOO_LARGE"):
        batches.write(5, one_by_one=True)
    assert batches.calls == [[0], [1], [2]]


def test_a_letter_of_a_batch_that_is_too_large_is_followed_by_a_smaller_one():
    assert batches_of(raising_on(1), **LETTERS).write(3, 1) == [b"0", b"2", ("letters", NO_VALUE)]


def test_what_is_no_outputs_at_all_is_named():
    with pytest.raises(TransformError, match="returned 42"):
        batches_of(lambda records: 42).write(1)


@pytest.mark.parametrize("given", [{}, {"transform": copied, "transform_batch": copied}])
def test_a_loop_needs_one_of_the_two(given):
    with pytest.raises(ConfigurationError, match=r"transform=.* and transform_batch=.*give the loop one of the two"):
        ExactlyOnceLoop(config(), ["orders"], **given)


@pytest.fixture
def on_bench(simulated_cluster):
    def start(transform_batch, **options):
        return Bench(simulated_cluster, transform_batch=transform_batch, **options)

    return start


def test_a_slow_transform_gets_whole_batches_from_the_first_record_on(on_bench):
    sizes, began_at = [], []

    def slow(records):
        sizes.append(len(records))
        began_at.append(bench.clock())
        bench.clock.sleep(2.0)
        return copied(records)

    bench = on_bench(slow, batch_size=40, commit_interval_s=1.0)
    assert bench.run_all(numbers(100)) == numbers(100)
    assert sizes == [40, 40, 20]
    took_s = [after - before for before, after in zip(began_at, bench.moments(TransactionCommitted), strict=True)]
    assert took_s == pytest.approx([2.0] * 3, abs=0.02), "each is committed when its transform returns"


def test_a_batch_holds_no_more_records_than_its_transaction_has_room_for(on_bench):
    sizes = []

    def noting(records):
        sizes.append(len(records))
        return copied(records)

    bench = on_bench(noting, batch_size=60, max_records=100)
    bench.run_all(numbers(250))
    assert sizes == [60, 40, 60, 40, 50]


def test_a_batch_that_is_too_large_costs_one_abort_and_its_halves_see_the_records_as_they_were(on_bench):
    def small_batches_only(records):
        for record in records:
            record.set_value(record.value() + b"!")
        if len(records) > 10:
            raise MemoryError("batch too large")
        return copied(records)

    bench = on_bench(small_batches_only, batch_size=40)
    assert bench.run_all(numbers(120)) == [each + b"!" for each in numbers(120)]
    (aborted,) = bench.events(TransactionAborted)
    assert "a batch failed, and the next attempt shows of which record: MemoryError: batch too large" in aborted.reason


def test_a_stop_inside_a_batch_commits_that_batch_and_leaves_the_rest(on_bench):
    def stopping(records):
        bench.loop.stop()
        return copied(records)

    bench = on_bench(stopping, batch_size=40)
    bench.load(100)
    bench.run()
    assert bench.written == numbers(40)
    assert bench.committed == 40
    assert len(bench.events(TransactionCommitted)) == 1
