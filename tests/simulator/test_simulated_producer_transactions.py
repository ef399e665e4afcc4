"""Transactions of a simulated producer: the calls in time, what is lost on the way, and how each failure is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import Membership
from eos_client.testing.simulator.clients.group_metadata import encode
from eos_client.testing.simulator.clients.transaction_state import Phase, TransactionState
from tests.simulator.producer_bench import (
    ANONYMOUS,
    AT_7,
    COMMITTED_7,
    GROUP,
    ID,
    INPUTS,
    TOPIC,
    ProducerBench,
    refusal,
)

# -- commit and abort ------------------------------------------------------------------------------------------------


def test_outputs_and_input_offsets_become_visible_together():
    bench = ProducerBench()
    bench.begin(b"a", b"b")
    bench.producer.flush()
    bench.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    assert (bench.cluster.values(TOPIC), bench.committed_offsets()) == ([], {})
    bench.producer.commit_transaction(5)
    assert (bench.cluster.values(TOPIC), bench.committed_offsets()) == ([b"a", b"b"], COMMITTED_7)
    assert [request.request for request in bench.cluster.history][1:] == [
        "AddPartitionsToTxn",
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]


def test_an_abort_waits_for_what_is_on_its_way():
    bench = ProducerBench()
    bench.cluster.delay("Produce", 1)
    bench.begin(b"late")
    bench.cluster.advance(0.01)
    bench.producer.abort_transaction(5)
    assert bench.reports == [(None, b"late")]
    assert bench.cluster.clock() > 1
    assert bench.cluster.values(TOPIC) == []


def test_an_empty_transaction_sends_nothing():
    bench = ProducerBench()
    bench.commit()
    bench.producer.begin_transaction()
    bench.producer.send_offsets_to_transaction([TopicPartition(INPUTS, 0, -1001)], ANONYMOUS, 5)
    bench.producer.abort_transaction(5)
    assert [each.request for each in bench.cluster.history] == ["InitProducerId"]


def test_a_partition_is_added_once_a_transaction():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.producer.produce(TOPIC, b"b", partition=1)
    bench.producer.produce(TOPIC, b"c", partition=0)
    bench.producer.commit_transaction(5)
    bench.commit(b"d")
    assert bench.requests("AddPartitionsToTxn") == ["ok"] * 3


# -- calls that time out ---------------------------------------------------------------------------------------------


def test_init_is_resumed_by_calling_it_again():
    bench = ProducerBench()
    other = bench.build()
    bench.cluster.delay("InitProducerId", 1.0)
    assert refusal(other.init_transactions, 0.2) == ("_TIMED_OUT", "retriable")
    assert refusal(other.begin_transaction) == ("_CONFLICT", "retriable")
    other.init_transactions(5)
    assert bench.requests("InitProducerId") == ["ok", "ok"]


def test_init_that_got_its_answer_while_nobody_waited_is_acknowledged_by_the_next_call():
    bench = ProducerBench()
    other = bench.build()
    bench.cluster.delay("InitProducerId", 1.0)
    assert refusal(other.init_transactions, 0.2)[0] == "_TIMED_OUT"
    bench.cluster.advance(2)
    assert refusal(other.begin_transaction)[0] == "_CONFLICT"
    other.init_transactions(0)
    other.begin_transaction()


def test_init_that_is_refused_again_and_again_says_with_what():
    bench = ProducerBench()
    other = bench.build()
    for _ in range(9):
        bench.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    assert refusal(other.init_transactions, 1) == ("COORDINATOR_NOT_AVAILABLE", "retriable")


def test_init_asks_at_once_when_it_is_called_again():
    bench = ProducerBench()
    other = bench.build()
    bench.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    began_s = bench.cluster.clock()
    assert refusal(other.init_transactions, 0.01)[0] == "COORDINATOR_NOT_AVAILABLE"
    other.init_transactions(5)
    assert bench.cluster.clock() - began_s < 0.1


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_an_end_without_an_answer_is_resumed_and_happens_once(end):
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.cluster.lose_reply("EndTxn")
    ended = getattr(bench.producer, end)
    other = "abort_transaction" if end == "commit_transaction" else "commit_transaction"
    assert refusal(ended, 0.5) == ("_TIMED_OUT", "retriable")
    assert refusal(getattr(bench.producer, other), 0.5) == ("_CONFLICT", "retriable")
    assert refusal(ended, 0.5) == ("_TIMED_OUT", "retriable")
    ended(5)
    assert bench.requests("EndTxn") == ["ok", "ok"]
    assert bench.cluster.values(TOPIC) == ([b"a"] if end == "commit_transaction" else [])
    bench.commit(b"b")


def test_a_lost_end_is_sent_again_inside_and_only_the_log_tells():
    lines: list[str] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append(f"{line[2]}: {line[-1]}")

    bench = ProducerBench(logger=Logger())
    bench.cluster.lose_request("EndTxn")
    bench.commit(b"a")
    bench.producer.poll(0)
    assert bench.cluster.values(TOPIC) == [b"a"]
    assert [line.split(":")[0] for line in lines] == ["REQTMOUT", "FAIL"]
    assert "EndTxnRequest in flight" in lines[0]


def test_a_commit_in_doubt_waits_while_its_markers_are_held():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.cluster.lose_reply("EndTxn")
    bench.cluster.brokers.transactions.hold_markers = True
    assert refusal(bench.producer.commit_transaction, 5) == ("_TIMED_OUT", "retriable")
    assert bench.cluster.values(TOPIC) == []
    bench.cluster.brokers.transactions.hold_markers = False
    bench.producer.commit_transaction(5)
    assert bench.cluster.values(TOPIC) == [b"a"]


def test_the_next_transaction_waits_inside_while_the_last_ones_markers_are_written():
    bench = ProducerBench()
    bench.cluster.brokers.transactions.hold_markers = True
    bench.commit(b"a")

    def release() -> None:
        bench.cluster.brokers.transactions.hold_markers = False

    bench.cluster.after(1, release)
    bench.commit(b"b")
    assert "CONCURRENT_TRANSACTIONS" in bench.requests("AddPartitionsToTxn")
    assert bench.cluster.values(TOPIC) == [b"a", b"b"]


# -- input offsets ---------------------------------------------------------------------------------------------------


def test_offsets_that_are_not_added_in_time_leave_the_transaction_as_it_was():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.cluster.lose_reply("AddOffsetsToTxn")
    assert refusal(bench.producer.send_offsets_to_transaction, AT_7, ANONYMOUS, 0.5) == ("_TIMED_OUT", "retriable")
    bench.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    bench.producer.commit_transaction(5)
    assert bench.committed_offsets() == COMMITTED_7


def test_offsets_that_are_not_committed_in_time_make_the_transaction_abortable():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.cluster.lose_reply("TxnOffsetCommit")
    send = bench.producer.send_offsets_to_transaction
    assert refusal(send, AT_7, ANONYMOUS, 0.5) == ("_TIMED_OUT", "abortable")
    assert refusal(bench.producer.commit_transaction, 5) == ("_TIMED_OUT", "abortable")
    bench.producer.abort_transaction(5)
    assert (bench.cluster.values(TOPIC), bench.committed_offsets()) == ([], {})


def test_offsets_of_an_older_generation_are_refused_and_the_transaction_must_be_aborted():
    """P2: errors to the application: commit failed -> abort, rewind, go on."""
    bench = ProducerBench()
    groups = bench.cluster.brokers.groups
    join = ConsumerHeartbeat("member", 0, topics=frozenset({INPUTS}), owned=frozenset())
    epoch = groups.consumer_heartbeat(GROUP, join).member_epoch
    send = bench.producer.send_offsets_to_transaction
    bench.begin(b"a")
    assert refusal(send, AT_7, encode(GROUP, Membership(epoch + 1, "member")), 5) == ("ILLEGAL_GENERATION", "abortable")
    bench.producer.abort_transaction(5)
    bench.begin(b"b")
    assert refusal(send, AT_7, encode(GROUP, Membership(epoch, "nobody")), 5) == ("UNKNOWN_MEMBER_ID", "abortable")
    bench.producer.abort_transaction(5)
    bench.begin(b"c")
    send(AT_7, encode(GROUP, Membership(epoch, "member")), 5)
    bench.producer.commit_transaction(5)
    assert (bench.cluster.values(TOPIC), bench.committed_offsets()) == ([b"c"], COMMITTED_7)


# -- the state machine -----------------------------------------------------------------------------------------------


def test_a_step_that_librdkafka_does_not_know_is_a_bug_of_the_simulation():
    state = TransactionState(ID, lambda *_: None)
    with pytest.raises(RuntimeError, match="there is no transition from Init to CommittingTransaction"):
        state.move(Phase.COMMITTING)


def test_only_the_first_error_of_a_transaction_counts_but_each_may_ask_for_a_bump():
    state = TransactionState(ID, lambda *_: None)
    for phase in (Phase.WAIT_PID, Phase.READY_NOT_ACKED, Phase.READY):
        state.move(phase)
    state.begin()
    assert state.fail("INVALID_TXN_STATE", "first")
    assert not state.requires_bump
    assert not state.fail("UNKNOWN_PRODUCER_ID", "second", bump=True)
    assert state.requires_bump
    assert not state.fail("INVALID_TXN_STATE", "third")
    assert state.requires_bump
    assert refusal(state.require, Phase.READY) == ("INVALID_TXN_STATE", "abortable")


def test_what_ends_while_no_call_is_made_is_no_result_of_the_next_one():
    state = TransactionState(ID, lambda *_: None)
    state.set_result()
    state.begin_call("commit_transaction")
    assert not state.has_result


@pytest.mark.parametrize(
    ("happens", "refused_with"),
    [
        (SimulatedCluster.expire_transactional_id, "INVALID_PRODUCER_ID_MAPPING"),
        (SimulatedCluster.fence_producer, "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_a_refusal_that_arrives_after_the_abort_is_ignored_as_outdated(
    happens: Callable[[SimulatedCluster], None], refused_with: str
) -> None:
    bench = ProducerBench()
    bench.begin(b"aborted")
    bench.producer.flush()
    bench.cluster.delay("AddPartitionsToTxn", 1)
    bench.producer.produce(TOPIC, b"of another partition", partition=1)
    bench.cluster.advance(0.01)
    bench.producer.abort_transaction(5)
    happens(bench.cluster)
    bench.cluster.advance(3)
    assert bench.requests("AddPartitionsToTxn") == ["ok", refused_with]
    bench.producer.begin_transaction()
