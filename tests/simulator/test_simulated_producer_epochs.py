"""A simulated transactional producer that is fenced, forgotten, or bumps its epoch, and handles that are left (P3)."""

from __future__ import annotations

import pytest

from tests.simulator.producer_bench import (
    ID,
    TOPIC,
    ProducerBench,
    refusal,
)

# -- fences ----------------------------------------------------------------------------------------------------------


def test_a_fatal_error_is_raised_by_whatever_polls_next_and_once():
    bench = ProducerBench()
    bench.begin(b"zombie")
    bench.cluster.fence_producer()
    bench.cluster.advance(1)
    assert refusal(bench.producer.poll, 0) == ("_FENCED", "fatal")
    bench.producer.poll(0)
    bench.producer.flush()
    assert bench.reports == [("_PURGE_QUEUE", b"zombie")]


# -- forgotten ids and epochs (KIP-360) ------------------------------------------------------------------------------


def test_an_expired_id_found_out_by_the_abort_is_bumped_inside():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.cluster.expire_transactional_id()
    bench.producer.abort_transaction(5)
    assert bench.requests("EndTxn") == ["INVALID_PRODUCER_ID_MAPPING"]
    bench.commit(b"b")
    assert bench.cluster.values(TOPIC) == [b"b"]


def test_an_unknown_producer_id_is_aborted_and_the_next_transaction_begins_a_new_epoch_at_zero():
    """P3: UNKNOWN_PRODUCER_ID becomes abortable: abort, bump the epoch, restart sequences at 0, go on."""
    bench = ProducerBench()
    bench.commit(b"a")
    bench.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    bench.begin(b"b")
    assert refusal(bench.producer.commit_transaction, 5) == ("UNKNOWN_PRODUCER_ID", "abortable")
    bench.producer.abort_transaction(5)
    bench.commit(b"c")
    assert bench.epochs() == [(b"a", 0, 0), (b"c", 1, 0)]


def test_a_failed_batch_fails_all_later_records_of_the_transaction():
    """P3: on a failed batch, all later in-flight batches of that partition fail with it."""
    bench = ProducerBench(**{"batch.num.messages": 1})
    bench.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    bench.begin(b"a", b"b", b"c")
    bench.producer.flush()
    assert bench.reports == [("UNKNOWN_PRODUCER_ID", b"a"), ("_PURGE_QUEUE", b"b"), ("_PURGE_QUEUE", b"c")]
    assert refusal(bench.producer.produce, TOPIC, b"d")[0] == "_STATE"


def test_a_gap_left_by_a_failed_transaction_is_unresolved_aborted_and_bumped():
    """P3: unresolved sequence errors become abortable: abort, bump the epoch, restart sequences at 0, go on."""
    bench = ProducerBench()
    bench.commit(b"a")
    bench.cluster.refuse("Produce", "INVALID_TXN_STATE")
    bench.begin(b"b")
    assert refusal(bench.producer.commit_transaction, 5) == ("INVALID_TXN_STATE", "abortable")
    bench.producer.abort_transaction(5)
    bench.begin(b"c")
    assert refusal(bench.producer.commit_transaction, 5) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", "abortable")
    bench.producer.abort_transaction(5)
    bench.commit(b"d")
    assert bench.epochs() == [(b"a", 0, 0), (b"d", 1, 0)]


def test_a_bump_that_somebody_else_made_meanwhile_is_a_fence():
    """P3: anything else: INVALID_PRODUCER_EPOCH, fatal: someone else bumped."""
    bench = ProducerBench()
    bench.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    bench.begin(b"a")
    assert refusal(bench.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    bench.cluster.fence_producer()
    assert refusal(bench.producer.abort_transaction, 5) == ("_FENCED", "fatal")


def test_a_bump_whose_answer_is_lost_is_asked_for_again_and_is_one_bump():
    """P3: epoch == last: a retry, return current, no bump."""
    bench = ProducerBench()
    bench.commit(b"a")
    bench.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    bench.begin(b"b")
    assert refusal(bench.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    bench.cluster.lose_reply("InitProducerId")
    assert refusal(bench.producer.abort_transaction, 1) == ("_TIMED_OUT", "retriable")
    bench.producer.abort_transaction(5)
    bench.commit(b"c")
    assert bench.epochs() == [(b"a", 0, 0), (b"c", 1, 0)]


def test_an_exhausted_epoch_gives_a_new_producer_id():
    """P3: exhausted epoch: new producer id."""
    bench = ProducerBench()
    bench.commit(b"a")
    bench.cluster.brokers.transactions.set_epoch(ID, 32766)
    successor = bench.build()
    successor.init_transactions(5)
    bench.producer = successor
    bench.commit(b"b")
    first, last = (record.producer_id for record in bench.cluster.read(TOPIC))
    assert first != last


def test_a_record_that_took_too_long_aborts_the_transaction_and_its_late_copy_is_fenced():
    bench = ProducerBench(**{"message.timeout.ms": 3000})
    bench.commit(b"a")
    bench.cluster.delay("Produce", 6)
    bench.cluster.lose_request("Produce")
    bench.begin(b"late")
    bench.cluster.advance(4.5)
    assert refusal(bench.producer.commit_transaction, 5) == ("_TIMED_OUT", "abortable")
    bench.producer.abort_transaction(5)
    bench.commit(b"b")
    bench.cluster.advance(5)
    assert bench.epochs() == [(b"a", 0, 0), (b"b", 1, 0)]


# -- the handle ------------------------------------------------------------------------------------------------------


def test_close_of_a_fenced_producer_says_so_and_closes():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.cluster.fence_producer()
    assert refusal(bench.producer.close) == ("_FENCED", "fatal")
    with pytest.raises(RuntimeError, match="has been closed"):
        bench.producer.poll(0)


def test_close_warns_when_another_call_is_unfinished():
    bench = ProducerBench()
    other = bench.build()
    bench.cluster.lose_request("InitProducerId")
    assert refusal(other.init_transactions, 0.1)[0] == "_TIMED_OUT"
    with pytest.warns(RuntimeWarning, match="Conflicting init_transactions"):
        other.close()


def test_a_handle_that_was_left_while_it_started_does_not_fence_its_successor():
    bench = ProducerBench()
    first, second = bench.build(), bench.build()
    bench.cluster.lose_request("InitProducerId")
    assert refusal(first.init_transactions, 0.1)[0] == "_TIMED_OUT"
    first.purge()
    first.close()
    second.init_transactions(5)
    bench.cluster.advance(10)
    bench.producer = second
    bench.commit(b"a")


def test_a_bump_that_was_refused_while_nobody_waited_is_asked_for_again_by_the_next_abort():
    bench = ProducerBench()
    bench.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    bench.begin(b"a")
    assert refusal(bench.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    bench.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    assert refusal(bench.producer.abort_transaction, 0.1) == ("_TIMED_OUT", "retriable")
    bench.cluster.advance(5)
    bench.producer.abort_transaction(5)
    bench.commit(b"b")
    assert bench.requests("InitProducerId") == ["ok", "COORDINATOR_NOT_AVAILABLE", "ok"]


def test_a_handle_that_is_left_keeps_its_transaction_open_until_a_successor_comes():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.producer.purge()
    bench.producer.close()
    assert bench.requests("EndTxn") == []
    bench.producer = bench.build()
    bench.producer.init_transactions(5)
    bench.commit(b"b")
    assert bench.cluster.values(TOPIC) == [b"b"]


def test_a_thawed_zombie_is_fenced_by_its_successor():
    bench = ProducerBench(**{"client.id": "first"})
    bench.begin(b"zombie")
    bench.producer.flush()
    with bench.cluster.zombie("first"):
        bench.settings["client.id"] = "second"
        successor = bench.build()
        successor.init_transactions(5)
    assert refusal(bench.producer.commit_transaction, 5) == ("_FENCED", "fatal")
    assert bench.cluster.values(TOPIC) == []
