"""Which batches a partition accepts: Kafka's five-batch window, and the latest sequence only (P5)."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from eos_client.testing.simulator.brokers.model import BrokerError, NewRecord, ProducerIdentity, RecordBatch
from eos_client.testing.simulator.brokers.producer_state import (
    SEQUENCES,
    FiveBatches,
    LatestSequence,
    PackedColumn,
    producer_states,
    sequence_after,
    steps_between,
)
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind

WINDOW = 100
LAST_SEQUENCE = SEQUENCES - 1


@pytest.fixture(params=[FiveBatches, lambda: LatestSequence(WINDOW)], ids=["five_batches", "latest_sequence"])
def states(request):
    return request.param()


@pytest.fixture
def latest():
    return LatestSequence(WINDOW)


@pytest.fixture
def five():
    return FiveBatches()


def batch(sequence, count=1, *, producer_id=7, epoch=0):
    return RecordBatch((NewRecord(b"v"),) * count, producer_id, epoch, sequence)


def write(states, sequence, count=1, *, at=0, now_s=0.0, **who):
    """As a log does: checked, then remembered."""
    one = batch(sequence, count, **who)
    assert states.check(one) is None
    states.record_append(one, at, now_s)


def refusal(states, sequence, count=1, **who):
    with pytest.raises(BrokerError) as refused:
        states.check(batch(sequence, count, **who))
    return refused.value.code


def last_was(states, sequence, **who):
    """Bring the state to ``sequence`` without writing two thousand million records."""
    states.record_append(batch(sequence, **who), 1000, 0.0)


# -- both windows ----------------------------------------------------------------------------------------------------


def test_the_sequence_behind_the_last_one_is_accepted(states):
    """P5: next expected = last + 1."""
    write(states, 0, 3)
    write(states, 3, 2)
    write(states, 5)


@pytest.mark.parametrize("sequence", [4, 5, 50, 1000, LAST_SEQUENCE])
def test_no_other_sequence_is_accepted(states, sequence):
    """P5: accept exactly that."""
    write(states, 0, 3)
    with pytest.raises(BrokerError):
        states.check(batch(sequence))


def test_behind_the_greatest_sequence_comes_0(states):
    """P5: next expected wraps from 2^31-1 to 0."""
    last_was(states, LAST_SEQUENCE)
    write(states, 0)
    assert refusal(states, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_batch_may_lie_across_the_wrap(states):
    """P5: all arithmetic modulo 2^31 (one batch)."""
    last_was(states, LAST_SEQUENCE - 2)
    write(states, LAST_SEQUENCE - 1, 5, at=2000)
    assert states.check(batch(LAST_SEQUENCE - 1, 5)) == 2000
    write(states, 3)


def test_a_gap_is_out_of_order(states):
    """P5: anything else is OUT_OF_ORDER_SEQUENCE (a gap)."""
    write(states, 0, 3)
    assert refusal(states, 4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_the_latest_batch_repeated_is_told_its_offset(states):
    """P5: no offset is returned, save for the latest batch."""
    write(states, 0, 2, at=40)
    write(states, 2, 3, at=50)
    assert states.check(batch(2, 3)) == 50


def test_an_older_epoch_is_refused(states):
    write(states, 0, epoch=3)
    assert refusal(states, 1, epoch=2) == "INVALID_PRODUCER_EPOCH"


def test_an_older_epoch_is_refused_even_for_what_was_written_at_the_newer_one(states):
    write(states, 0, 2, epoch=3)
    assert refusal(states, 0, 2, epoch=2) == "INVALID_PRODUCER_EPOCH"


def test_a_new_epoch_must_begin_at_0(states):
    write(states, 0, 3, epoch=3)
    assert refusal(states, 3, epoch=4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(states, 0, epoch=4)


def test_a_new_epoch_forgets_the_old_ones_sequences(states):
    write(states, 0, 3, at=40, epoch=3)
    write(states, 0, 3, at=43, epoch=4)
    assert states.check(batch(0, 3, epoch=4)) == 43


def test_an_epoch_seen_in_a_marker_fences_older_ones_and_begins_at_0(states):
    write(states, 0, 3, epoch=3)
    states.record_write(ProducerIdentity(7, 4), 1.0)
    assert refusal(states, 3, epoch=3) == "INVALID_PRODUCER_EPOCH"
    assert refusal(states, 3, epoch=4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refusal(states, LAST_SEQUENCE, epoch=4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(states, 0, epoch=4)


def test_a_marker_of_the_present_epoch_leaves_the_sequences(states):
    write(states, 0, 3)
    states.record_write(ProducerIdentity(7, 0), 1.0)
    write(states, 3)


def test_producers_do_not_share_sequences(states):
    for producer_id in (9, 3, 12, 5):
        write(states, 0, producer_id, at=producer_id, producer_id=producer_id)
    for producer_id in (3, 5, 9, 12):
        assert states.check(batch(0, producer_id, producer_id=producer_id)) == producer_id
        write(states, producer_id, producer_id=producer_id)
    assert len(states) == 4


def test_expired_producers_are_forgotten_and_others_are_not(states):
    for producer_id, now_s in ((1, 10.0), (2, 20.0), (3, 30.0), (4, 5.0)):
        write(states, 0, producer_id, at=100 * producer_id, now_s=now_s, producer_id=producer_id, epoch=2)
    states.expire(20.0, kept={4: 400})
    assert len(states) == 2
    assert states.check(batch(0, 1, producer_id=1)) is None
    assert states.check(batch(0, 3, producer_id=3, epoch=2)) == 300
    assert states.check(batch(0, 4, producer_id=4, epoch=2)) == 400


def test_a_producer_that_writes_or_gets_a_marker_does_not_expire(states):
    write(states, 0, now_s=10.0)
    states.record_write(ProducerIdentity(7, 0), 30.0)
    states.expire(20.0, kept={})
    assert len(states) == 1


# -- the latest sequence only ----------------------------------------------------------------------------------------


def test_one_sequence_and_one_offset_is_all_that_is_kept(latest):
    """P5: the broker keeps only the last appended batch's sequence and offset, not five."""
    for sequence in range(50):
        write(latest, sequence, at=sequence)
    assert [list(column.numbers) for column in latest._columns_of_batches()] == [[49], [49]]


def test_the_windows_default_is_ten_million():
    """P5: max.in.flight.sequence.number.per.connection (default 10,000,000)."""
    settings = BrokerSettings(producer_state=ProducerStateKind.LATEST_SEQUENCE)
    assert settings.max_in_flight_sequence_number_per_connection == 10_000_000
    states = producer_states(settings)
    last_was(states, 10_000_000)
    assert refusal(states, 1) == "DUPLICATE_SEQUENCE_NUMBER"
    assert refusal(states, 0) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_what_lies_within_the_window_is_a_duplicate_without_an_offset(latest):
    """P5: within the window at or below the last: DUPLICATE_SEQUENCE_NUMBER."""
    last_was(latest, 500)
    duplicates = [sequence for sequence in range(600) if _verdict(latest, sequence) == "DUPLICATE_SEQUENCE_NUMBER"]
    assert duplicates == list(range(500 - WINDOW + 1, 500))


def test_what_lies_before_the_window_is_out_of_order(latest):
    """P5: anything else is OUT_OF_ORDER_SEQUENCE (before the window)."""
    last_was(latest, 500)
    assert _verdict(latest, 500 - WINDOW) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_the_window_lies_across_the_wrap(latest):
    """P5: all arithmetic modulo 2^31 (duplicates)."""
    last_was(latest, 10)
    assert _verdict(latest, LAST_SEQUENCE) == "DUPLICATE_SEQUENCE_NUMBER"
    assert _verdict(latest, 10 - WINDOW + 1 + SEQUENCES) == "DUPLICATE_SEQUENCE_NUMBER"
    assert _verdict(latest, 10 - WINDOW + SEQUENCES) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_batch_that_is_written_in_part_only_is_no_duplicate(latest):
    """P5: anything else is OUT_OF_ORDER_SEQUENCE (a duplicate would be dropped, and its end lost)."""
    write(latest, 0, 5)
    assert refusal(latest, 3, 4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_batch_that_begins_before_the_window_is_no_duplicate(latest):
    last_was(latest, 500)
    assert _verdict(latest, 500 - WINDOW, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert _verdict(latest, 500 - WINDOW + 1, 3) == "DUPLICATE_SEQUENCE_NUMBER"


def test_an_unknown_producer_begins_at_0(latest):
    """P5: batches arrive in any order, so the first to arrive need not be the first."""
    assert refusal(latest, 5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(latest, 0)


@pytest.mark.parametrize("seed", range(5))
def test_every_verdict_is_that_of_plain_counting_without_a_wrap(seed):
    """P5: the arithmetic modulo 2^31 says what unbounded numbers would."""
    random = Random(seed)
    for _ in range(500):
        states, last = LatestSequence(WINDOW), random.choice([2**31, 2**33, 5 * 2**31]) + random.randint(-20, 20)
        last_was(states, last % SEQUENCES)
        first, count = last + random.randint(-WINDOW - 5, 10), random.randint(1, 4)
        end = first + count - 1
        if first == last + 1 or end == last:
            expected = "NONE"
        elif end < last and last - first < WINDOW:
            expected = "DUPLICATE_SEQUENCE_NUMBER"
        else:
            expected = "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert _verdict(states, first % SEQUENCES, count) == expected, (last, first, count)


def _verdict(states, sequence, count=1):
    try:
        states.check(batch(sequence, count))
    except BrokerError as refused:
        return refused.code
    return "NONE"


# -- Kafka's five batches --------------------------------------------------------------------------------------------


def test_each_of_the_last_five_batches_repeated_is_told_its_offset(five):
    for number in range(7):
        write(five, 2 * number, 2, at=10 * number)
    assert [five.check(batch(2 * number, 2)) for number in range(2, 7)] == [20, 30, 40, 50, 60]


def test_a_sixth_batch_back_is_out_of_order_although_it_was_written(five):
    for number in range(6):
        write(five, number)
    assert refusal(five, 0) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_part_of_a_known_batch_is_out_of_order(five):
    write(five, 0, 4)
    assert refusal(five, 1, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refusal(five, 0, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_an_unknown_producer_may_begin_anywhere(five):
    write(five, 500)
    write(five, 501)


# -- arithmetic and storage ------------------------------------------------------------------------------------------


def test_sequences_are_counted_in_a_circle():
    assert sequence_after(LAST_SEQUENCE) == 0
    assert sequence_after(LAST_SEQUENCE, 3) == 2
    assert steps_between(LAST_SEQUENCE, 2) == 3
    assert steps_between(2, LAST_SEQUENCE) == SEQUENCES - 3


def test_a_column_keeps_the_latest_numbers_of_each_row():
    column = PackedColumn("i", width=2, empty=-1)
    column.insert(0)
    column.insert(0)
    for number in (1, 2, 3):
        column.push(1, number)
    column.push(0, 9)
    assert (list(column.all(0)), list(column.all(1))) == ([-1, 9], [2, 3])
    column.keep([1])
    column.clear(0)
    assert list(column.numbers) == [-1, -1]


def test_a_producer_takes_a_third_of_the_memory_of_five_batches():
    """P5: memory per producer entry against the five-batch cache: measured, side by side."""
    five, latest = _bytes_each(FiveBatches), _bytes_each(lambda: LatestSequence(WINDOW))
    assert latest <= 34
    assert 3 * latest <= five <= 112


def _bytes_each(states_of, count=5_000):
    tracemalloc.start()
    states = states_of()
    for producer_id in range(count):
        states.record_append(batch(0, producer_id=2**40 + producer_id), 0, 0.0)
    bytes_now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return bytes_now / count
