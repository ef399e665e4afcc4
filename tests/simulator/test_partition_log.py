"""A partition's log: control records, the two ends of what may be read, and the writes it refuses."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.model import BrokerError, Marker, NewRecord, ProducerIdentity, RecordBatch
from eos_client.testing.simulator.brokers.partition_log import TO_HIGH_WATERMARK, PartitionLog
from eos_client.testing.simulator.brokers.producer_state import SEQUENCES
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind

ANNA, BERT = ProducerIdentity(7, 0), ProducerIdentity(8, 0)
ALL = 1_000_000


@pytest.fixture(params=list(ProducerStateKind), ids=lambda kind: kind.value)
def log(request):
    return PartitionLog(BrokerSettings(producer_state=request.param))


def batch(values, producer=None, sequence=-1, *, transactional=False, timestamp_ms=0):
    records = tuple(NewRecord(value.encode(), timestamp_ms=timestamp_ms) for value in values)
    if producer is None:
        return RecordBatch(records)
    return RecordBatch(records, producer.producer_id, producer.producer_epoch, sequence, transactional)


def write(log, values, producer=None, sequence=-1, **more):
    return log.append(batch(values, producer, sequence, **more), 1.0)


def transact(log, values, producer, sequence=0):
    return write(log, values, producer, sequence, transactional=True)


def read(log, offset=0, records_max=ALL, *, committed=True):
    fetched = log.fetch(offset, records_max, read_committed=committed)
    return "".join(record.value.decode() for record in fetched.records)


def refusal(call, *args, **more):
    with pytest.raises(BrokerError) as refused:
        call(*args, **more)
    return refused.value.code


# -- appending -------------------------------------------------------------------------------------------------------


def test_records_get_consecutive_offsets_and_keep_what_they_carry(log):
    record = NewRecord(b"v", b"k", (("h", b"1"), ("h", None)), 1234)
    log.append(RecordBatch((record,)), 1.0)
    assert log.append(RecordBatch((record, record)), 1.0) == 1
    assert [stored.offset for stored in log.records] == [0, 1, 2]
    stored = log.records[2]
    assert (stored.value, stored.key, stored.headers, stored.timestamp_ms) == (b"v", b"k", record.headers, 1234)
    assert (stored.producer_id, stored.sequence, stored.marker) == (-1, -1, None)


def test_each_record_has_its_own_sequence(log):
    write(log, "abc", ANNA, 0)
    write(log, "de", ANNA, 3)
    assert [(stored.producer_id, stored.sequence) for stored in log.records] == [(7, number) for number in range(5)]


def test_sequences_of_records_wrap_to_0(log):
    log._producers.record_append(batch("x", ANNA, SEQUENCES - 3), 0, 0.0)
    write(log, "abc", ANNA, SEQUENCES - 2)
    assert [stored.sequence for stored in log.records] == [SEQUENCES - 2, SEQUENCES - 1, 0]


def test_a_repeated_batch_is_written_once_and_told_where_it_lies(log):
    write(log, "x")
    assert write(log, "abc", ANNA, 0) == 1
    assert write(log, "abc", ANNA, 0) == 1
    assert read(log) == "xabc"


def test_an_older_batch_repeated_is_known_by_its_offset_or_only_as_a_duplicate():
    """P5: duplicates of older batches get no offset; Kafka's window knows five."""
    five, latest = (PartitionLog(BrokerSettings(producer_state=kind)) for kind in ProducerStateKind)
    for log in (five, latest):
        write(log, "ab", ANNA, 0)
        write(log, "cd", ANNA, 2)
    assert write(five, "ab", ANNA, 0) == 0
    assert refusal(write, latest, "ab", ANNA, 0) == "DUPLICATE_SEQUENCE_NUMBER"
    assert read(five) == read(latest) == "abcd"


def test_a_gap_is_refused_and_nothing_is_written(log):
    write(log, "a", ANNA, 0)
    assert refusal(write, log, "c", ANNA, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(log, "b", ANNA, 1)
    assert read(log) == "ab"


def test_an_older_epoch_is_refused_and_nothing_is_written(log):
    write(log, "a", ProducerIdentity(7, 1), 0)
    assert refusal(write, log, "b", ANNA, 1) == "INVALID_PRODUCER_EPOCH"
    assert read(log) == "a"


def test_a_plain_batch_within_a_transaction_is_refused(log):
    transact(log, "a", ANNA)
    assert refusal(write, log, "b", ANNA, 1) == "INVALID_TXN_STATE"
    transact(log, "b", ANNA, 1)


@pytest.mark.parametrize("sequence", [-1, SEQUENCES])
def test_an_idempotent_batch_needs_a_sequence(log, sequence):
    assert refusal(write, log, "a", ANNA, sequence) == "INVALID_RECORD"


def test_a_batch_needs_a_record(log):
    assert refusal(write, log, "") == "INVALID_RECORD"


def test_a_batch_above_the_limit_is_refused_and_nothing_is_written():
    log = PartitionLog(BrokerSettings(message_max_bytes=3))
    write(log, "abc", ANNA, 0)
    assert refusal(write, log, "abcd", ANNA, 3) == "MSG_SIZE_TOO_LARGE"
    assert read(log) == "abc"


def test_a_producer_learns_the_window_from_the_partition():
    """P5: the client learns the window from the broker at start (what it is told)."""
    log = PartitionLog(BrokerSettings(max_in_flight_sequence_number_per_connection=12))
    assert log.max_in_flight_sequence_number_per_connection == 12


# -- transactions ----------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset(log):
    write(log, "a")
    transact(log, "BC", ANNA)
    write(log, "d")
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (1, 4, 4)
    assert (read(log), read(log, committed=False)) == ("a", "aBCd")


def test_a_committed_transaction_is_readable_and_its_marker_takes_an_offset_that_nobody_is_given(log):
    transact(log, "AB", ANNA)
    assert log.append_marker(ANNA, Marker.COMMIT, 2.0) == 2
    write(log, "c")
    assert read(log) == read(log, committed=False) == "ABc"
    assert [record.offset for record in log.fetch(0, ALL, read_committed=True).records] == [0, 1, 3]
    marker = log.records[2]
    assert (marker.marker, marker.producer_id, marker.timestamp_ms) == (Marker.COMMIT, 7, 2000)


def test_an_aborted_transaction_is_never_readable_but_by_uncommitted_readers(log):
    transact(log, "AB", ANNA)
    write(log, "c")
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    assert (read(log), read(log, committed=False)) == ("c", "ABc")


def test_an_abort_takes_only_that_transactions_records(log):
    transact(log, "A", ANNA)
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    transact(log, "x", ANNA, 1)
    transact(log, "B", BERT)
    transact(log, "y", ANNA, 2)
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    log.append_marker(BERT, Marker.COMMIT, 2.0)
    transact(log, "C", ANNA, 3)
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    assert read(log) == "ABC"


def test_the_first_of_several_open_transactions_holds_the_last_stable_offset(log):
    transact(log, "A", ANNA)
    transact(log, "B", BERT)
    log.append_marker(BERT, Marker.COMMIT, 2.0)
    assert (log.last_stable_offset, read(log)) == (0, "")
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    assert (log.last_stable_offset, read(log)) == (4, "AB")


def test_a_marker_of_an_older_epoch_is_refused(log):
    write(log, "a", ProducerIdentity(7, 2), 0)
    assert refusal(log.append_marker, ProducerIdentity(7, 1), Marker.COMMIT, 2.0) == "INVALID_PRODUCER_EPOCH"
    assert log.log_end_offset == 1


def test_a_markers_newer_epoch_fences_the_older_one(log):
    transact(log, "a", ANNA)
    log.append_marker(ProducerIdentity(7, 1), Marker.ABORT, 2.0)
    assert refusal(transact, log, "b", ANNA, 1) == "INVALID_PRODUCER_EPOCH"
    assert refusal(transact, log, "b", ProducerIdentity(7, 1), 1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    transact(log, "b", ProducerIdentity(7, 1), 0)
    assert read(log) == ""


def test_a_marker_fences_a_producer_that_never_wrote_here(log):
    log.append_marker(ProducerIdentity(7, 1), Marker.ABORT, 2.0)
    assert refusal(transact, log, "a", ANNA) == "INVALID_PRODUCER_EPOCH"
    assert log.last_stable_offset == 1


def test_sequences_go_on_in_the_next_transaction_of_one_epoch(log):
    transact(log, "ab", ANNA)
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    assert refusal(transact, log, "c", ANNA, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    transact(log, "c", ANNA, 2)


def test_a_late_copy_of_a_batch_opens_no_transaction(log):
    transact(log, "ab", ANNA)
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    assert transact(log, "ab", ANNA) == 0
    assert log.last_stable_offset == log.log_end_offset == 3


# -- replication -----------------------------------------------------------------------------------------------------


def test_nothing_is_readable_before_it_is_replicated(log):
    write(log, "a")
    log.replicating = False
    write(log, "b")
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert read(log, committed=False) == "a"
    log.replicating = True
    assert read(log, committed=False) == "ab"


def test_a_transaction_is_undecided_until_its_marker_is_replicated(log):
    transact(log, "a", ANNA)
    log.replicating = False
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    assert (log.last_stable_offset, read(log)) == (0, "")
    log.replicating = True
    assert (log.last_stable_offset, read(log)) == (2, "a")


def test_an_unreplicated_transaction_does_not_move_the_last_stable_offset_past_the_high_watermark(log):
    log.replicating = False
    write(log, "a")
    transact(log, "b", ANNA)
    assert log.last_stable_offset == log.high_watermark == 0


# -- fetching --------------------------------------------------------------------------------------------------------


def test_a_fetch_goes_on_behind_what_it_skipped(log):
    transact(log, "ab", ANNA)
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    write(log, "cd")
    transact(log, "e", ANNA, 2)
    log.append_marker(ANNA, Marker.COMMIT, 2.0)
    first = log.fetch(0, 2, read_committed=True)
    assert ([record.value for record in first.records], first.next_offset) == ([b"c", b"d"], 5)
    second = log.fetch(5, 2, read_committed=True)
    assert ([record.value for record in second.records], second.next_offset) == ([b"e"], 7)


def test_a_fetch_that_finds_only_aborted_records_still_goes_on(log):
    transact(log, "ab", ANNA)
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    fetched = log.fetch(0, 10, read_committed=True)
    assert (fetched.records, fetched.next_offset) == ((), 3)


def test_a_fetch_stops_at_the_last_stable_offset(log):
    transact(log, "a", ANNA)
    write(log, "b")
    fetched = log.fetch(0, 10, read_committed=True)
    assert (fetched.records, fetched.next_offset, fetched.last_stable_offset) == ((), 0, 0)


def test_a_fetch_tells_the_logs_ends(log):
    write(log, "abc")
    transact(log, "d", ANNA)
    log.delete_records(1)
    fetched = log.fetch(1, 1, read_committed=False)
    assert (fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark) == (1, 3, 4)


def test_a_fetch_at_the_end_is_empty_and_beyond_it_is_refused(log):
    write(log, "ab")
    assert read(log, 2) == ""
    assert refusal(log.fetch, 3, 1, read_committed=True) == "OFFSET_OUT_OF_RANGE"
    assert refusal(log.fetch, -1, 1, read_committed=True) == "OFFSET_OUT_OF_RANGE"


def test_a_fetch_between_high_watermark_and_end_is_empty(log):
    log.replicating = False
    write(log, "ab")
    fetched = log.fetch(1, 5, read_committed=True)
    assert (fetched.records, fetched.next_offset) == ((), 1)


def test_an_offset_is_found_by_time(log):
    for at_ms in (100, 200, 300):
        write(log, "a", timestamp_ms=at_ms)
    assert [log.offset_for_timestamp(at_ms) for at_ms in (0, 100, 150, 300, 301)] == [0, 0, 1, 2, None]


def test_an_offset_by_time_is_one_that_the_reader_may_reach(log):
    transact(log, "a", ANNA)
    assert log.offset_for_timestamp(0) == 0
    assert log.offset_for_timestamp(0, read_committed=True) is None
    log.replicating = False
    write(log, "b", timestamp_ms=500)
    assert log.offset_for_timestamp(500) is None


# -- deleting and expiring -------------------------------------------------------------------------------------------


def test_deleted_records_are_gone_and_offsets_stay(log):
    write(log, "abcd")
    log.delete_records(2)
    assert (log.log_start_offset, log.log_end_offset, read(log, 2)) == (2, 4, "cd")
    assert refusal(log.fetch, 1, 1, read_committed=True) == "OFFSET_OUT_OF_RANGE"
    assert write(log, "e") == 4
    log.delete_records(1)
    assert log.log_start_offset == 2


def test_only_what_is_replicated_can_be_deleted(log):
    write(log, "ab")
    log.replicating = False
    write(log, "c")
    assert refusal(log.delete_records, 3) == "OFFSET_OUT_OF_RANGE"
    log.delete_records(TO_HIGH_WATERMARK)
    assert log.log_start_offset == 2


def test_deleting_records_keeps_what_is_known_of_their_producer(log):
    """P3: producer state outlives its records in the log."""
    write(log, "ab", ANNA, 0)
    log.delete_records(2)
    assert refusal(write, log, "d", ANNA, 3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert write(log, "ab", ANNA, 0) == 0
    assert write(log, "c", ANNA, 2) == 2


def test_an_abort_after_the_transactions_beginning_was_deleted_hides_the_rest(log):
    transact(log, "abc", ANNA)
    log.delete_records(1)
    assert log.last_stable_offset == 1
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    assert (read(log, 1), read(log, 1, committed=False)) == ("", "bc")


def test_a_transaction_whose_records_are_all_deleted_still_ends(log):
    transact(log, "abc", ANNA)
    log.delete_records(3)
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    assert (log.last_stable_offset, log.log_end_offset, read(log, 3)) == (4, 4, "")


def test_deleting_keeps_later_aborted_records_hidden(log):
    transact(log, "ab", ANNA)
    log.append_marker(ANNA, Marker.ABORT, 2.0)
    log.delete_records(1)
    assert read(log, 1) == ""


def test_a_producers_state_is_kept_by_the_time_of_its_last_write(log):
    """P3: retention by time, not by last record."""
    log.append(batch("a", ANNA, 0), 10.0)
    log.append(batch("b", BERT, 0), 20.0)
    log.delete_records(2)
    log.expire_producers(10.0)
    assert log.producer_count == 1
    assert refusal(write, log, "c", BERT, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_producer_with_an_open_transaction_does_not_expire(log):
    log.append(batch("a", ANNA, 0, transactional=True), 10.0)
    log.expire_producers(100.0)
    assert log.producer_count == 1
    log.append_marker(ANNA, Marker.COMMIT, 50.0)
    log.expire_producers(100.0)
    assert log.producer_count == 0


def test_with_its_state_expired_a_producer_goes_on_at_any_sequence():
    log = PartitionLog(BrokerSettings())
    write(log, "ab", ANNA, 0)
    log.expire_producers(100.0)
    assert write(log, "c", ANNA, 500) == 2


def test_with_its_state_expired_a_producer_begins_again_in_the_latest_sequence_window():
    """P5: an unknown producer begins at 0."""
    log = PartitionLog(BrokerSettings(producer_state=ProducerStateKind.LATEST_SEQUENCE))
    write(log, "ab", ANNA, 0)
    log.expire_producers(100.0)
    assert refusal(write, log, "c", ANNA, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
