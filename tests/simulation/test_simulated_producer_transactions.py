"""Transactions of a simulated producer: the calls in time, what is lost on the way, and how each failure is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client.testing.simulated_clients.group_metadata import encode
from eos_client.testing.simulated_clients.transaction_state import Phase, TransactionState
from eos_client.testing.simulated_cluster import SimulatedCluster
from eos_client.testing.simulation.group_requests import ConsumerHeartbeat
from eos_client.testing.simulation.model import Membership, PartitionKey

TOPIC, INPUTS, GROUP, ID = "outputs", "inputs", "group", "pinned"
ANONYMOUS = encode(GROUP, Membership())
AT_7 = [TopicPartition(INPUTS, 0, 7)]
COMMITTED_7 = {PartitionKey(INPUTS, 0): 7}


class ProducerBench:
    """A cluster and one transactional producer whose records are reported to ``reports``."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = SimulatedCluster()
        self.cluster.create_topic(TOPIC, 2)
        self.cluster.create_topic(INPUTS)
        self.reports: list[tuple[str | None, bytes | None]] = []
        self.settings = {"linger.ms": 0, "socket.timeout.ms": 2000, "transactional.id": ID, **settings}
        self.producer = self.build()
        self.producer.init_transactions(5)

    def build(self) -> Any:
        return self.cluster.producer({**self.settings, "on_delivery": self.report})

    def report(self, error: Any, message: Any) -> None:
        self.reports.append((error and error.name(), message.value()))

    def begin(self, *values: bytes) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(TOPIC, value, partition=0)

    def commit(self, *values: bytes) -> None:
        self.begin(*values)
        self.producer.commit_transaction(5)

    def requests(self, name: str) -> list[str]:
        return [each.result for each in self.cluster.history if each.request == name]

    def committed_offsets(self) -> Mapping[PartitionKey, int]:
        return self.cluster.committed(GROUP)

    def epochs(self) -> list[tuple[bytes | None, int, int]]:
        return [(r.value, r.producer_epoch, r.sequence) for r in self.cluster.read(TOPIC)]


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """What the call raises: its name, and its flag."""
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    error = raised.value.args[0]
    flags = [("fatal", error.fatal()), ("retriable", error.retriable()), ("abortable", error.txn_requires_abort())]
    return error.name(), " ".join(name for name, is_set in flags if is_set)


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


def test_an_abort_hides_what_was_written_and_drops_what_was_not_sent():
    bench = ProducerBench(**{"linger.ms": 50})
    bench.begin(b"written")
    bench.producer.flush()
    bench.producer.produce(TOPIC, b"queued", partition=0)
    bench.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    bench.producer.produce(TOPIC, b"queued, too", partition=1)
    bench.producer.abort_transaction(5)
    assert bench.reports == [
        (None, b"written"),
        ("_PURGE_QUEUE", b"queued"),
        ("_PURGE_QUEUE", b"queued, too"),
    ]
    assert (bench.cluster.values(TOPIC), bench.committed_offsets()) == ([], {})
    bench.commit(b"next")
    assert bench.epochs() == [(b"next", 0, 1)]


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


def test_a_commit_delivers_first_and_reports_within_the_call():
    bench = ProducerBench(**{"linger.ms": 1000})
    bench.commit(b"a")
    assert bench.reports == [(None, b"a")]
    assert bench.cluster.clock() < 0.1


def test_what_a_callback_raises_within_a_commit_comes_out_when_it_has_ended():
    bench = ProducerBench()
    bench.producer.begin_transaction()
    bench.producer.produce(TOPIC, b"a", on_delivery=lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bench.producer.commit_transaction(5)
    assert bench.cluster.values(TOPIC) == [b"a"]
    bench.commit(b"b")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_callback_that_raises_before_all_is_reported_leaves_the_call_unfinished(end):
    bench = ProducerBench(**{"linger.ms": 1000})
    told = iter([1, 2])
    bench.producer.begin_transaction()
    for _ in range(2):
        bench.producer.produce(TOPIC, b"a", partition=0, on_delivery=lambda *_: next(told) // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            getattr(bench.producer, end)(5)
    assert list(told) == []
    bench.commit(b"b")
    assert bench.cluster.values(TOPIC) == ([b"a", b"a", b"b"] if end == "commit_transaction" else [b"b"])


def test_one_record_that_failed_makes_the_transaction_abortable():
    bench = ProducerBench(**{"topic.metadata.propagation.max.ms": 500})
    bench.begin(b"fine")
    bench.producer.produce("no such topic", b"lost")
    assert refusal(bench.producer.commit_transaction, 5) == ("_INCONSISTENT", "abortable")
    bench.producer.abort_transaction(5)
    bench.commit(b"next")
    assert bench.cluster.values(TOPIC) == [b"next"]


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


def test_init_waits_for_the_end_of_its_predecessors_transaction():
    bench = ProducerBench()
    bench.begin(b"orphaned")
    bench.producer.flush()
    successor = bench.build()
    successor.init_transactions(5)
    assert bench.requests("InitProducerId") == ["ok", "CONCURRENT_TRANSACTIONS", "ok"]
    assert bench.cluster.values(TOPIC, read_committed=False) == [b"orphaned"]
    assert bench.cluster.values(TOPIC) == []


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


def test_a_late_copy_of_an_end_ends_the_next_transaction():
    """KAFKA-17754, which librdkafka cannot see: the epoch stays the same."""
    bench = ProducerBench()
    bench.cluster.delay("EndTxn", 3)
    bench.commit(b"first")
    bench.begin(b"second, not finished")
    bench.producer.flush()
    bench.cluster.advance(2)
    assert bench.cluster.values(TOPIC) == [b"first", b"second, not finished"]


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


def test_offsets_are_sent_again_inside_when_no_answer_comes():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.cluster.lose_reply("TxnOffsetCommit")
    bench.cluster.lose_reply("AddOffsetsToTxn")
    bench.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 9)
    bench.producer.commit_transaction(5)
    assert bench.committed_offsets() == COMMITTED_7
    assert bench.requests("TxnOffsetCommit") == ["ok", "ok"]


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


# -- fences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["flush", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"])
def test_a_newer_instance_fences_this_one_for_good(call):
    bench = ProducerBench()
    bench.begin(b"zombie")
    bench.producer.flush()
    bench.cluster.fence_producer()
    bench.producer.produce(TOPIC, b"zombie", partition=0)
    arguments = (AT_7, ANONYMOUS, 5) if call.startswith("send") else (5,)
    assert refusal(getattr(bench.producer, call), *arguments) == ("_FENCED", "fatal")
    assert refusal(bench.producer.produce, TOPIC, b"more")[0] == "_FATAL"
    for name in ("begin_transaction", "commit_transaction", "abort_transaction", "init_transactions"):
        assert refusal(getattr(bench.producer, name)) == ("_FENCED", "fatal")
    assert bench.cluster.values(TOPIC) == []


def test_a_fatal_error_is_raised_by_whatever_polls_next_and_once():
    bench = ProducerBench()
    bench.begin(b"zombie")
    bench.cluster.fence_producer()
    bench.cluster.advance(1)
    assert refusal(bench.producer.poll, 0) == ("_FENCED", "fatal")
    bench.producer.poll(0)
    bench.producer.flush()
    assert bench.reports == [("_PURGE_QUEUE", b"zombie")]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_transaction_that_took_too_long_cannot_be_ended_any_more(end):
    bench = ProducerBench(**{"transaction.timeout.ms": 3000})
    bench.begin(b"slow")
    bench.producer.flush()
    bench.cluster.advance(5)
    assert refusal(getattr(bench.producer, end), 5) == ("_FENCED", "fatal")
    successor = bench.build()
    successor.init_transactions(5)
    assert bench.cluster.values(TOPIC) == []


# -- forgotten ids and epochs (KIP-360) ------------------------------------------------------------------------------


def test_an_expired_id_is_found_out_aborted_and_bumped():
    """P3: INVALID_PRODUCER_ID_MAPPING becomes abortable: abort, bump the epoch, restart sequences at 0, go on."""
    bench = ProducerBench()
    bench.commit(b"a", b"b")
    bench.cluster.expire_transactional_id()
    bench.begin(b"c")
    bench.producer.flush()
    assert refusal(bench.producer.commit_transaction, 5) == ("INVALID_PRODUCER_ID_MAPPING", "abortable")
    bench.producer.abort_transaction(5)
    bench.commit(b"d")
    (*_, (value, _, sequence)) = bench.epochs()
    assert (value, sequence) == (b"d", 0)
    assert bench.cluster.values(TOPIC) == [b"a", b"b", b"d"]


def test_an_expired_id_found_out_by_the_abort_is_bumped_inside():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.cluster.expire_transactional_id()
    bench.producer.abort_transaction(5)
    assert bench.requests("EndTxn") == ["INVALID_PRODUCER_ID_MAPPING"]
    bench.commit(b"b")
    assert bench.cluster.values(TOPIC) == [b"b"]


def test_an_expired_id_never_recovers_where_transactions_begin_with_offsets():
    bench = ProducerBench()
    bench.commit(b"a")
    bench.cluster.expire_transactional_id()
    for _ in range(3):
        bench.producer.begin_transaction()
        send = bench.producer.send_offsets_to_transaction
        assert refusal(send, AT_7, ANONYMOUS, 5) == ("INVALID_PRODUCER_ID_MAPPING", "abortable")
        bench.producer.abort_transaction(5)
    assert bench.requests("EndTxn") == ["ok"]
    bench.begin(b"b")
    assert refusal(bench.producer.commit_transaction, 5)[0] == "INVALID_PRODUCER_ID_MAPPING"
    bench.producer.abort_transaction(5)
    bench.commit(b"c")
    assert bench.cluster.values(TOPIC) == [b"a", b"c"]


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


def test_close_aborts_an_open_transaction():
    bench = ProducerBench()
    bench.begin(b"a")
    bench.producer.flush()
    bench.producer.close()
    assert bench.requests("EndTxn") == ["ok"]
    assert bench.cluster.values(TOPIC) == []


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


# -- the state machine -----------------------------------------------------------------------------------------------


def test_a_step_that_librdkafka_does_not_know_is_a_bug_of_the_simulation():
    state = TransactionState(ID, lambda *_: None)
    with pytest.raises(RuntimeError, match="no way from Init to CommittingTransaction"):
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
