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


class World:
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
    world = World()
    world.begin(b"a", b"b")
    world.producer.flush()
    world.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    assert (world.cluster.values(TOPIC), world.committed_offsets()) == ([], {})
    world.producer.commit_transaction(5)
    assert (world.cluster.values(TOPIC), world.committed_offsets()) == ([b"a", b"b"], COMMITTED_7)
    assert [request.request for request in world.cluster.history][1:] == [
        "AddPartitionsToTxn",
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]


def test_an_abort_hides_what_was_written_and_drops_what_was_not_sent():
    world = World(**{"linger.ms": 50})
    world.begin(b"written")
    world.producer.flush()
    world.producer.produce(TOPIC, b"queued", partition=0)
    world.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    world.producer.produce(TOPIC, b"queued, too", partition=1)
    world.producer.abort_transaction(5)
    assert world.reports == [
        (None, b"written"),
        ("_PURGE_QUEUE", b"queued"),
        ("_PURGE_QUEUE", b"queued, too"),
    ]
    assert (world.cluster.values(TOPIC), world.committed_offsets()) == ([], {})
    world.commit(b"next")
    assert world.epochs() == [(b"next", 0, 1)]


def test_an_abort_waits_for_what_is_on_its_way():
    world = World()
    world.cluster.delay("Produce", 1)
    world.begin(b"late")
    world.cluster.advance(0.01)
    world.producer.abort_transaction(5)
    assert world.reports == [(None, b"late")]
    assert world.cluster.clock() > 1
    assert world.cluster.values(TOPIC) == []


def test_an_empty_transaction_sends_nothing():
    world = World()
    world.commit()
    world.producer.begin_transaction()
    world.producer.send_offsets_to_transaction([TopicPartition(INPUTS, 0, -1001)], ANONYMOUS, 5)
    world.producer.abort_transaction(5)
    assert [each.request for each in world.cluster.history] == ["InitProducerId"]


def test_a_partition_is_added_once_a_transaction():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.producer.produce(TOPIC, b"b", partition=1)
    world.producer.produce(TOPIC, b"c", partition=0)
    world.producer.commit_transaction(5)
    world.commit(b"d")
    assert world.requests("AddPartitionsToTxn") == ["ok"] * 3


def test_a_commit_delivers_first_and_reports_within_the_call():
    world = World(**{"linger.ms": 1000})
    world.commit(b"a")
    assert world.reports == [(None, b"a")]
    assert world.cluster.clock() < 0.1


def test_what_a_callback_raises_within_a_commit_comes_out_when_it_has_ended():
    world = World()
    world.producer.begin_transaction()
    world.producer.produce(TOPIC, b"a", on_delivery=lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        world.producer.commit_transaction(5)
    assert world.cluster.values(TOPIC) == [b"a"]
    world.commit(b"b")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_callback_that_raises_before_all_is_reported_leaves_the_call_unfinished(end):
    world = World(**{"linger.ms": 1000})
    told = iter([1, 2])
    world.producer.begin_transaction()
    for _ in range(2):
        world.producer.produce(TOPIC, b"a", partition=0, on_delivery=lambda *_: next(told) // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            getattr(world.producer, end)(5)
    assert list(told) == []
    world.commit(b"b")
    assert world.cluster.values(TOPIC) == ([b"a", b"a", b"b"] if end == "commit_transaction" else [b"b"])


def test_one_record_that_failed_makes_the_transaction_abortable():
    world = World(**{"topic.metadata.propagation.max.ms": 500})
    world.begin(b"fine")
    world.producer.produce("no such topic", b"lost")
    assert refusal(world.producer.commit_transaction, 5) == ("_INCONSISTENT", "abortable")
    world.producer.abort_transaction(5)
    world.commit(b"next")
    assert world.cluster.values(TOPIC) == [b"next"]


# -- calls that time out ---------------------------------------------------------------------------------------------


def test_init_is_resumed_by_calling_it_again():
    world = World()
    other = world.build()
    world.cluster.delay("InitProducerId", 1.0)
    assert refusal(other.init_transactions, 0.2) == ("_TIMED_OUT", "retriable")
    assert refusal(other.begin_transaction) == ("_CONFLICT", "retriable")
    other.init_transactions(5)
    assert world.requests("InitProducerId") == ["ok", "ok"]


def test_init_that_got_its_answer_while_nobody_waited_is_acknowledged_by_the_next_call():
    world = World()
    other = world.build()
    world.cluster.delay("InitProducerId", 1.0)
    assert refusal(other.init_transactions, 0.2)[0] == "_TIMED_OUT"
    world.cluster.advance(2)
    assert refusal(other.begin_transaction)[0] == "_CONFLICT"
    other.init_transactions(0)
    other.begin_transaction()


def test_init_that_is_refused_again_and_again_says_with_what():
    world = World()
    other = world.build()
    for _ in range(9):
        world.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    assert refusal(other.init_transactions, 1) == ("COORDINATOR_NOT_AVAILABLE", "retriable")


def test_init_asks_at_once_when_it_is_called_again():
    world = World()
    other = world.build()
    world.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    began_s = world.cluster.clock()
    assert refusal(other.init_transactions, 0.01)[0] == "COORDINATOR_NOT_AVAILABLE"
    other.init_transactions(5)
    assert world.cluster.clock() - began_s < 0.1


def test_init_waits_for_the_end_of_its_predecessors_transaction():
    world = World()
    world.begin(b"orphaned")
    world.producer.flush()
    successor = world.build()
    successor.init_transactions(5)
    assert world.requests("InitProducerId") == ["ok", "CONCURRENT_TRANSACTIONS", "ok"]
    assert world.cluster.values(TOPIC, read_committed=False) == [b"orphaned"]
    assert world.cluster.values(TOPIC) == []


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_an_end_without_an_answer_is_resumed_and_happens_once(end):
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.cluster.lose_reply("EndTxn")
    ended = getattr(world.producer, end)
    other = "abort_transaction" if end == "commit_transaction" else "commit_transaction"
    assert refusal(ended, 0.5) == ("_TIMED_OUT", "retriable")
    assert refusal(getattr(world.producer, other), 0.5) == ("_CONFLICT", "retriable")
    assert refusal(ended, 0.5) == ("_TIMED_OUT", "retriable")
    ended(5)
    assert world.requests("EndTxn") == ["ok", "ok"]
    assert world.cluster.values(TOPIC) == ([b"a"] if end == "commit_transaction" else [])
    world.commit(b"b")


def test_a_lost_end_is_sent_again_inside_and_only_the_log_tells():
    lines: list[str] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append(f"{line[2]}: {line[-1]}")

    world = World(logger=Logger())
    world.cluster.lose_request("EndTxn")
    world.commit(b"a")
    world.producer.poll(0)
    assert world.cluster.values(TOPIC) == [b"a"]
    assert [line.split(":")[0] for line in lines] == ["REQTMOUT", "FAIL"]
    assert "EndTxnRequest in flight" in lines[0]


def test_a_late_copy_of_an_end_ends_the_next_transaction():
    """KAFKA-17754, which librdkafka cannot see: the epoch stays the same."""
    world = World()
    world.cluster.delay("EndTxn", 3)
    world.commit(b"first")
    world.begin(b"second, not finished")
    world.producer.flush()
    world.cluster.advance(2)
    assert world.cluster.values(TOPIC) == [b"first", b"second, not finished"]


def test_a_commit_in_doubt_waits_while_its_markers_are_held():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.cluster.lose_reply("EndTxn")
    world.cluster.brokers.transactions.hold_markers = True
    assert refusal(world.producer.commit_transaction, 5) == ("_TIMED_OUT", "retriable")
    assert world.cluster.values(TOPIC) == []
    world.cluster.brokers.transactions.hold_markers = False
    world.producer.commit_transaction(5)
    assert world.cluster.values(TOPIC) == [b"a"]


def test_the_next_transaction_waits_inside_while_the_last_ones_markers_are_written():
    world = World()
    world.cluster.brokers.transactions.hold_markers = True
    world.commit(b"a")

    def release() -> None:
        world.cluster.brokers.transactions.hold_markers = False

    world.cluster.after(1, release)
    world.commit(b"b")
    assert "CONCURRENT_TRANSACTIONS" in world.requests("AddPartitionsToTxn")
    assert world.cluster.values(TOPIC) == [b"a", b"b"]


# -- input offsets ---------------------------------------------------------------------------------------------------


def test_offsets_that_are_not_added_in_time_leave_the_transaction_as_it_was():
    world = World()
    world.begin(b"a")
    world.cluster.lose_reply("AddOffsetsToTxn")
    assert refusal(world.producer.send_offsets_to_transaction, AT_7, ANONYMOUS, 0.5) == ("_TIMED_OUT", "retriable")
    world.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 5)
    world.producer.commit_transaction(5)
    assert world.committed_offsets() == COMMITTED_7


def test_offsets_that_are_not_committed_in_time_make_the_transaction_abortable():
    world = World()
    world.begin(b"a")
    world.cluster.lose_reply("TxnOffsetCommit")
    send = world.producer.send_offsets_to_transaction
    assert refusal(send, AT_7, ANONYMOUS, 0.5) == ("_TIMED_OUT", "abortable")
    assert refusal(world.producer.commit_transaction, 5) == ("_TIMED_OUT", "abortable")
    world.producer.abort_transaction(5)
    assert (world.cluster.values(TOPIC), world.committed_offsets()) == ([], {})


def test_offsets_are_sent_again_inside_when_no_answer_comes():
    world = World()
    world.begin(b"a")
    world.cluster.lose_reply("TxnOffsetCommit")
    world.cluster.lose_reply("AddOffsetsToTxn")
    world.producer.send_offsets_to_transaction(AT_7, ANONYMOUS, 9)
    world.producer.commit_transaction(5)
    assert world.committed_offsets() == COMMITTED_7
    assert world.requests("TxnOffsetCommit") == ["ok", "ok"]


def test_offsets_of_an_older_generation_are_refused_and_the_transaction_must_be_aborted():
    """P2: errors to the application: commit failed -> abort, rewind, go on."""
    world = World()
    groups = world.cluster.brokers.groups
    join = ConsumerHeartbeat("member", 0, topics=frozenset({INPUTS}), owned=frozenset())
    epoch = groups.consumer_heartbeat(GROUP, join).member_epoch
    send = world.producer.send_offsets_to_transaction
    world.begin(b"a")
    assert refusal(send, AT_7, encode(GROUP, Membership(epoch + 1, "member")), 5) == ("ILLEGAL_GENERATION", "abortable")
    world.producer.abort_transaction(5)
    world.begin(b"b")
    assert refusal(send, AT_7, encode(GROUP, Membership(epoch, "nobody")), 5) == ("UNKNOWN_MEMBER_ID", "abortable")
    world.producer.abort_transaction(5)
    world.begin(b"c")
    send(AT_7, encode(GROUP, Membership(epoch, "member")), 5)
    world.producer.commit_transaction(5)
    assert (world.cluster.values(TOPIC), world.committed_offsets()) == ([b"c"], COMMITTED_7)


# -- fences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["flush", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"])
def test_a_newer_instance_fences_this_one_for_good(call):
    world = World()
    world.begin(b"zombie")
    world.producer.flush()
    world.cluster.fence_producer()
    world.producer.produce(TOPIC, b"zombie", partition=0)
    arguments = (AT_7, ANONYMOUS, 5) if call.startswith("send") else (5,)
    assert refusal(getattr(world.producer, call), *arguments) == ("_FENCED", "fatal")
    assert refusal(world.producer.produce, TOPIC, b"more")[0] == "_FATAL"
    for name in ("begin_transaction", "commit_transaction", "abort_transaction", "init_transactions"):
        assert refusal(getattr(world.producer, name)) == ("_FENCED", "fatal")
    assert world.cluster.values(TOPIC) == []


def test_a_fatal_error_is_raised_by_whatever_polls_next_and_once():
    world = World()
    world.begin(b"zombie")
    world.cluster.fence_producer()
    world.cluster.advance(1)
    assert refusal(world.producer.poll, 0) == ("_FENCED", "fatal")
    world.producer.poll(0)
    world.producer.flush()
    assert world.reports == [("_PURGE_QUEUE", b"zombie")]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_transaction_that_took_too_long_cannot_be_ended_any_more(end):
    world = World(**{"transaction.timeout.ms": 3000})
    world.begin(b"slow")
    world.producer.flush()
    world.cluster.advance(5)
    assert refusal(getattr(world.producer, end), 5) == ("_FENCED", "fatal")
    successor = world.build()
    successor.init_transactions(5)
    assert world.cluster.values(TOPIC) == []


# -- forgotten ids and epochs (KIP-360) ------------------------------------------------------------------------------


def test_an_expired_id_is_found_out_aborted_and_bumped():
    """P3: INVALID_PRODUCER_ID_MAPPING becomes abortable: abort, bump the epoch, restart sequences at 0, go on."""
    world = World()
    world.commit(b"a", b"b")
    world.cluster.expire_transactional_id()
    world.begin(b"c")
    world.producer.flush()
    assert refusal(world.producer.commit_transaction, 5) == ("INVALID_PRODUCER_ID_MAPPING", "abortable")
    world.producer.abort_transaction(5)
    world.commit(b"d")
    (*_, (value, _, sequence)) = world.epochs()
    assert (value, sequence) == (b"d", 0)
    assert world.cluster.values(TOPIC) == [b"a", b"b", b"d"]


def test_an_expired_id_found_out_by_the_abort_is_bumped_inside():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.cluster.expire_transactional_id()
    world.producer.abort_transaction(5)
    assert world.requests("EndTxn") == ["INVALID_PRODUCER_ID_MAPPING"]
    world.commit(b"b")
    assert world.cluster.values(TOPIC) == [b"b"]


def test_an_expired_id_never_recovers_where_transactions_begin_with_offsets():
    world = World()
    world.commit(b"a")
    world.cluster.expire_transactional_id()
    for _ in range(3):
        world.producer.begin_transaction()
        send = world.producer.send_offsets_to_transaction
        assert refusal(send, AT_7, ANONYMOUS, 5) == ("INVALID_PRODUCER_ID_MAPPING", "abortable")
        world.producer.abort_transaction(5)
    assert world.requests("EndTxn") == ["ok"]
    world.begin(b"b")
    assert refusal(world.producer.commit_transaction, 5)[0] == "INVALID_PRODUCER_ID_MAPPING"
    world.producer.abort_transaction(5)
    world.commit(b"c")
    assert world.cluster.values(TOPIC) == [b"a", b"c"]


def test_an_unknown_producer_id_is_aborted_and_the_next_transaction_begins_a_new_epoch_at_zero():
    """P3: UNKNOWN_PRODUCER_ID becomes abortable: abort, bump the epoch, restart sequences at 0, go on."""
    world = World()
    world.commit(b"a")
    world.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    world.begin(b"b")
    assert refusal(world.producer.commit_transaction, 5) == ("UNKNOWN_PRODUCER_ID", "abortable")
    world.producer.abort_transaction(5)
    world.commit(b"c")
    assert world.epochs() == [(b"a", 0, 0), (b"c", 1, 0)]


def test_a_failed_batch_fails_all_later_records_of_the_transaction():
    """P3: on a failed batch, all later in-flight batches of that partition fail with it."""
    world = World(**{"batch.num.messages": 1})
    world.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    world.begin(b"a", b"b", b"c")
    world.producer.flush()
    assert world.reports == [("UNKNOWN_PRODUCER_ID", b"a"), ("_PURGE_QUEUE", b"b"), ("_PURGE_QUEUE", b"c")]
    assert refusal(world.producer.produce, TOPIC, b"d")[0] == "_STATE"


def test_a_gap_left_by_a_failed_transaction_is_unresolved_aborted_and_bumped():
    """P3: unresolved sequence errors become abortable: abort, bump the epoch, restart sequences at 0, go on."""
    world = World()
    world.commit(b"a")
    world.cluster.refuse("Produce", "INVALID_TXN_STATE")
    world.begin(b"b")
    assert refusal(world.producer.commit_transaction, 5) == ("INVALID_TXN_STATE", "abortable")
    world.producer.abort_transaction(5)
    world.begin(b"c")
    assert refusal(world.producer.commit_transaction, 5) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", "abortable")
    world.producer.abort_transaction(5)
    world.commit(b"d")
    assert world.epochs() == [(b"a", 0, 0), (b"d", 1, 0)]


def test_a_bump_that_somebody_else_made_meanwhile_is_a_fence():
    """P3: anything else: INVALID_PRODUCER_EPOCH, fatal: someone else bumped."""
    world = World()
    world.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    world.begin(b"a")
    assert refusal(world.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    world.cluster.fence_producer()
    assert refusal(world.producer.abort_transaction, 5) == ("_FENCED", "fatal")


def test_a_bump_whose_answer_is_lost_is_asked_for_again_and_is_one_bump():
    """P3: epoch == last: a retry, return current, no bump."""
    world = World()
    world.commit(b"a")
    world.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    world.begin(b"b")
    assert refusal(world.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    world.cluster.lose_reply("InitProducerId")
    assert refusal(world.producer.abort_transaction, 1) == ("_TIMED_OUT", "retriable")
    world.producer.abort_transaction(5)
    world.commit(b"c")
    assert world.epochs() == [(b"a", 0, 0), (b"c", 1, 0)]


def test_an_exhausted_epoch_gives_a_new_producer_id():
    """P3: exhausted epoch: new producer id."""
    world = World()
    world.commit(b"a")
    world.cluster.brokers.transactions.set_epoch(ID, 32766)
    successor = world.build()
    successor.init_transactions(5)
    world.producer = successor
    world.commit(b"b")
    first, last = (record.producer_id for record in world.cluster.read(TOPIC))
    assert first != last


def test_a_record_that_took_too_long_aborts_the_transaction_and_its_late_copy_is_fenced():
    world = World(**{"message.timeout.ms": 3000})
    world.commit(b"a")
    world.cluster.delay("Produce", 6)
    world.cluster.lose_request("Produce")
    world.begin(b"late")
    world.cluster.advance(4.5)
    assert refusal(world.producer.commit_transaction, 5) == ("_TIMED_OUT", "abortable")
    world.producer.abort_transaction(5)
    world.commit(b"b")
    world.cluster.advance(5)
    assert world.epochs() == [(b"a", 0, 0), (b"b", 1, 0)]


# -- the handle ------------------------------------------------------------------------------------------------------


def test_close_aborts_an_open_transaction():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.producer.close()
    assert world.requests("EndTxn") == ["ok"]
    assert world.cluster.values(TOPIC) == []


def test_close_of_a_fenced_producer_says_so_and_closes():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.cluster.fence_producer()
    assert refusal(world.producer.close) == ("_FENCED", "fatal")
    with pytest.raises(RuntimeError, match="has been closed"):
        world.producer.poll(0)


def test_close_warns_when_another_call_is_unfinished():
    world = World()
    other = world.build()
    world.cluster.lose_request("InitProducerId")
    assert refusal(other.init_transactions, 0.1)[0] == "_TIMED_OUT"
    with pytest.warns(RuntimeWarning, match="Conflicting init_transactions"):
        other.close()


def test_a_handle_that_was_left_while_it_started_does_not_fence_its_successor():
    world = World()
    first, second = world.build(), world.build()
    world.cluster.lose_request("InitProducerId")
    assert refusal(first.init_transactions, 0.1)[0] == "_TIMED_OUT"
    first.purge()
    first.close()
    second.init_transactions(5)
    world.cluster.advance(10)
    world.producer = second
    world.commit(b"a")


def test_a_bump_that_was_refused_while_nobody_waited_is_asked_for_again_by_the_next_abort():
    world = World()
    world.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    world.begin(b"a")
    assert refusal(world.producer.commit_transaction, 5)[0] == "UNKNOWN_PRODUCER_ID"
    world.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    assert refusal(world.producer.abort_transaction, 0.1) == ("_TIMED_OUT", "retriable")
    world.cluster.advance(5)
    world.producer.abort_transaction(5)
    world.commit(b"b")
    assert world.requests("InitProducerId") == ["ok", "COORDINATOR_NOT_AVAILABLE", "ok"]


def test_a_handle_that_is_left_keeps_its_transaction_open_until_a_successor_comes():
    world = World()
    world.begin(b"a")
    world.producer.flush()
    world.producer.purge()
    world.producer.close()
    assert world.requests("EndTxn") == []
    world.producer = world.build()
    world.producer.init_transactions(5)
    world.commit(b"b")
    assert world.cluster.values(TOPIC) == [b"b"]


def test_a_thawed_zombie_is_fenced_by_its_successor():
    world = World(**{"client.id": "first"})
    world.begin(b"zombie")
    world.producer.flush()
    with world.cluster.zombie("first"):
        world.settings["client.id"] = "second"
        successor = world.build()
        successor.init_transactions(5)
    assert refusal(world.producer.commit_transaction, 5) == ("_FENCED", "fatal")
    assert world.cluster.values(TOPIC) == []


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
    world = World()
    world.begin(b"aborted")
    world.producer.flush()
    world.cluster.delay("AddPartitionsToTxn", 1)
    world.producer.produce(TOPIC, b"of another partition", partition=1)
    world.cluster.advance(0.01)
    world.producer.abort_transaction(5)
    happens(world.cluster)
    world.cluster.advance(3)
    assert world.requests("AddPartitionsToTxn") == ["ok", refused_with]
    world.producer.begin_transaction()
