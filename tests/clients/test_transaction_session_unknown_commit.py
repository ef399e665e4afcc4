"""A commit whose outcome cannot be found out in time: the next call of the same clients asks the log again."""

import contextlib
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from eos_client import EosConfig, ExactlyOnceLoop, Outcome, OutputRecord
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.failures.kafka_errors import make_kafka_error
from eos_client.core.commit_gate import GateSettings
from eos_client.errors import (
    ClientClosedError,
    ClusterUnavailableError,
    ClusterUnfitError,
    EosError,
    TransactionStateError,
    UnknownOutcomeError,
)
from eos_client.observe import Event
from eos_client.testing.simulator.brokers.model import OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.interruption import BrokenOffError
from tests.support.interception import close_the_gate, intercepting
from tests.support.protocols import COOPERATIVE, EAGER, PROTOCOLS

RECOVERY_S = 6.0
REQUEST_S = 10.0
"""When a request without an answer is sent again: later than the recovery time is over."""
ATTEMPTS_MAX = 20
"""More attempts to initialise than there is time for."""
UNKNOWN = "outcome of the last commit is unknown"
BOTH_WAYS = pytest.mark.parametrize("arrives", [True, False], ids=["that took effect", "that was never sent"])


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param, request_timeout_s=REQUEST_S)


def next_commit_is_unanswered(stage, *, arrives, rebuilds=1, silent="InitProducerId"):
    """No answer to the next commit, and none to the next attempts to find out: the recovery time is over first."""
    (stage.cluster.lose_reply if arrives else stage.cluster.lose_request)("EndTxn")
    for _ in range(rebuilds):
        stage.cluster.lose_reply(silent)


def end_block(stage, txn, consumer, happens):
    """A block of two records, at whose end something ``happens``."""
    with txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        happens()


def left_unknown(stage, producer, consumer, *, arrives, rebuilds=1, silent="InitProducerId"):
    """A block of two records whose end raised because its commit's outcome is unknown."""
    txn = producer.transaction(consumer)

    def is_unanswered():
        next_commit_is_unanswered(stage, arrives=arrives, rebuilds=rebuilds, silent=silent)

    with pytest.raises(ClusterUnavailableError, match=UNKNOWN) as raised:
        end_block(stage, txn, consumer, is_unanswered)
    assert raised.value.outcome_is_unknown
    assert "committed nothing" not in str(raised.value)
    assert txn.outcome is None
    assert "sent" in txn.reason
    assert "not known" in txn.reason
    return txn


def resolved(stage):
    return [event.outcome for event in stage.named("outcome_resolved")]


@BOTH_WAYS
def test_an_application_that_goes_on_with_the_same_clients_writes_nothing_twice(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = left_unknown(stage, producer, consumer, arrives=arrives)
    assert stage.named("transaction_aborted") == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    assert resolved(stage) == ["committed" if arrives else "aborted"]
    assert len(stage.named("transaction_aborted")) == (0 if arrives else 1)
    assert sum(event.records_in for event in stage.named("transaction_committed")) == 4
    assert producer.counters.committed == len(stage.named("transaction_committed"))


@BOTH_WAYS
def test_while_the_outcome_is_unknown_so_is_the_position(stage, arrives):
    """The records of the block may come again, and whoever would seek to a position behind them would skip them."""
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    left_unknown(stage, producer, consumer, arrives=arrives)
    assert {place.offset for place in consumer.position(consumer.assignment())} == {OFFSET_INVALID}
    stage.copy_the_rest(producer, consumer)
    assert [place.offset for place in consumer.position(consumer.assignment())] == [2, 2]


@BOTH_WAYS
def test_offsets_that_could_not_be_read_are_read_by_the_next_call(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = left_unknown(stage, producer, consumer, arrives=arrives, rebuilds=2, silent="OffsetFetch")
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)


@BOTH_WAYS
@pytest.mark.parametrize("flushes", [False, True], ids=["all acknowledged", "outputs on their way"])
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])  # KIP-848: EPOCH_MOVED_BEFORE_REVOKE aborts here
def test_a_rebalance_in_the_end_of_a_block_may_leave_its_commit_unknown(protocol, arrives, flushes):
    stage = SimulatedStage(protocol, request_timeout_s=REQUEST_S)
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            first, *others = stage.collect(consumer, 4)
            stage.cluster.revoke((SOURCE, 0))
            stage.cluster.advance(5.0)
            for message in others:
                txn.produce(SINK, message.value())
            stage.cluster.delay("Produce", 1.0 if flushes else 0.0)
            txn.produce(SINK, first.value())
            next_commit_is_unanswered(stage, arrives=arrives)

    with pytest.raises(ClusterUnavailableError, match=UNKNOWN):
        block()
    assert stage.named("partitions_revoked")
    assert txn.outcome is None
    stage.cluster.give_back()
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)


@BOTH_WAYS
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_handle_that_failed_for_good_in_that_rebalance_does_not_hide_the_unknown_commit(protocol, arrives):
    """Each new handle is fenced until the time is over, so the flush that has served the rebalance fails as well."""
    stage = SimulatedStage(protocol, request_timeout_s=REQUEST_S)
    producer, consumer = stage.producer(generate_id=True, recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            messages = stage.collect(consumer, 4)
            stage.cluster.revoke((SOURCE, 0))
            stage.cluster.advance(5.0)
            stage.cluster.delay("Produce", 1.0)
            for message in messages:
                txn.produce(SINK, message.value())
            next_commit_is_unanswered(stage, arrives=arrives, rebuilds=0)
            for _ in range(ATTEMPTS_MAX):
                stage.cluster.refuse("InitProducerId", "PRODUCER_FENCED")

    with pytest.raises(ClusterUnavailableError, match=UNKNOWN):
        block()
    assert stage.named("partitions_revoked")
    assert txn.outcome is None
    stage.cluster.faults.withdraw()
    stage.cluster.give_back()
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)


@BOTH_WAYS
def test_nothing_is_handed_over_while_the_outcome_is_unknown(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    left_unknown(stage, producer, consumer, arrives=arrives, rebuilds=4)

    def entered():
        with producer.transaction(consumer):
            raise AssertionError("a block was entered")

    for call in (lambda: consumer.consume(10, 0.5), lambda: consumer.poll(0.5), entered):
        with pytest.raises(ClusterUnavailableError, match=UNKNOWN):
            call()
    with pytest.raises(TransactionStateError, match="whose transactions carry its offsets"):
        consumer.commit(asynchronous=False)
    got: list[Any] = []

    def answers_again():
        with contextlib.suppress(ClusterUnavailableError):
            got.extend(consumer.consume(10, 1.0))

    stage.wait_for(lambda: got, answers_again)
    assert len(got) == (2 if arrives else 4)
    consumer.adapter.fetching.rewind()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@BOTH_WAYS
def test_a_commit_in_on_revoke_after_a_producer_was_closed_with_an_unknown_outcome_loses_nothing(stage, arrives):
    refused: list[str] = []

    def on_revoke(member, _):
        with pytest.raises(TransactionStateError) as told:
            member.commit(asynchronous=False)
        refused.append(str(told.value))

    producer = stage.producer(recovery_timeout_s=RECOVERY_S)
    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    left_unknown(stage, producer, consumer, arrives=arrives)
    producer.close()
    consumer.close()
    assert len(refused) == 1
    stage.copy_the_rest(stage.producer(), stage.subscribed())
    assert stage.outputs == stage.inputs


@BOTH_WAYS
def test_init_transactions_before_the_next_block_changes_nothing(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = left_unknown(stage, producer, consumer, arrives=arrives)
    with contextlib.suppress(TransactionStateError):
        producer.init_transactions()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)


@BOTH_WAYS
def test_a_revocation_resolves_an_unknown_commit_before_the_partitions_leave(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = left_unknown(stage, producer, consumer, arrives=arrives)
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))
    stage.wait_for(lambda: stage.named("partitions_revoked"), consumer.adapter.fetching.serve_callbacks)
    stage.cluster.give_back()
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@BOTH_WAYS
@pytest.mark.parametrize("call", ["poll", "consume", "block"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_inside_a_rebalance_that_stays_unknown_doubles_and_loses_nothing(protocol, arrives, call):
    stage = SimulatedStage(protocol, records=1, request_timeout_s=REQUEST_S)
    gate = GateSettings(hold_limit_s=60.0)
    producer = stage.producer(recovery_timeout_s=RECOVERY_S, transaction_timeout_ms=120_000)
    consumer = stage.subscribed(gate=gate)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        close_the_gate(consumer)
    assert txn.outcome is Outcome.SKIPPED
    next_commit_is_unanswered(stage, arrives=arrives)
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))

    def turn():
        if call == "block":
            with producer.transaction(consumer):
                assert consumer.consume(10, 0.1) == []
        else:
            assert not (consumer.poll(0.1) if call == "poll" else consumer.consume(10, 0.1))

    raised: list[EosError] = []

    def noting():
        try:
            turn()
        except EosError as error:
            raised.append(error)

    stage.wait_for(lambda: stage.named("partitions_revoked"), noting)
    assert [str(error) for error in raised if UNKNOWN in str(error)]
    stage.cluster.give_back()
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert resolved(stage) == ["committed" if arrives else "aborted"]
    assert len(stage.named("transaction_aborted")) == (0 if arrives else 1)


@pytest.mark.parametrize("closes", ["consumer", "producer"])
def test_closing_clients_with_an_unresolved_commit_reports_it_as_unknown(stage, closes):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    left_unknown(stage, producer, consumer, arrives=True)
    (consumer if closes == "consumer" else producer).close()
    assert resolved(stage) == ["unknown"]
    (producer if closes == "consumer" else consumer).close()
    assert resolved(stage) == ["unknown"]
    assert stage.named("transaction_aborted") == []
    with stage.subscribed() as successor, stage.producer() as new_owner:
        stage.copy_the_rest(new_owner, successor)
    assert stage.outputs == stage.inputs


def test_a_consumer_whose_producer_was_closed_meanwhile_is_refused_to_another(stage):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    left_unknown(stage, producer, consumer, arrives=True)
    producer.close()
    another = stage.producer()
    with pytest.raises(TransactionStateError, match="build a new consumer"):
        another.transaction(consumer)
    with pytest.raises(ClientClosedError):
        consumer.consume(1, 0.1)


@BOTH_WAYS
def test_a_producer_whose_consumer_was_closed_meanwhile_goes_on_with_another(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    left_unknown(stage, producer, consumer, arrives=arrives)
    consumer.close()
    with stage.subscribed() as successor:
        stage.copy_the_rest(producer, successor)
    assert stage.outputs == stage.inputs


# -- refused, but perhaps not the first copy -------------------------------------------------------------------------

REPEATED_S = 0.5
"""When a request without an answer is sent again: well within the time for a commit."""


@BOTH_WAYS
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_after_a_lost_connection_says_nothing_of_the_first_copy(protocol, arrives):
    """KAFKA-18019: the coordinator forgets the id of a transaction that has committed, and refuses the repetition."""
    stage = SimulatedStage(protocol, request_timeout_s=REPEATED_S)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        next_commit_is_unanswered(stage, arrives=arrives, rebuilds=0)
        stage.cluster.after(REPEATED_S / 2, stage.cluster.expire_transactional_id)
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    assert resolved(stage) == ["committed" if arrives else "aborted"]
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_without_a_loss_is_definite_and_costs_no_question(protocol):
    stage = SimulatedStage(protocol, request_timeout_s=REPEATED_S)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        stage.cluster.refuse("EndTxn", "INVALID_PRODUCER_ID_MAPPING")
    assert (txn.outcome, resolved(stage)) == (Outcome.ABORTED, [])
    assert stage.named("producer_rebuilt") == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_loss_before_the_commit_makes_its_refusal_no_less_definite():
    stage = SimulatedStage(request_timeout_s=REPEATED_S)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        stage.cluster.lose_reply("Produce")
        stage.cluster.refuse("EndTxn", "INVALID_PRODUCER_ID_MAPPING")
    assert (txn.outcome, resolved(stage)) == (Outcome.ABORTED, [])
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_applications_own_commit_without_an_answer_raises_unknown_outcome():
    stage = SimulatedStage(request_timeout_s=REPEATED_S)
    producer, consumer = stage.producer(), stage.subscribed()
    messages = stage.collect(consumer, 2)
    producer.begin_transaction()
    for message in messages:
        producer.produce(SINK, message.value())
    producer.send_offsets_to_transaction(
        [TopicPartition(m.topic(), m.partition(), m.offset() + 1) for m in messages], consumer.consumer_group_metadata()
    )
    next_commit_is_unanswered(stage, arrives=True, rebuilds=0)
    stage.cluster.after(REPEATED_S / 2, stage.cluster.expire_transactional_id)
    with pytest.raises(UnknownOutcomeError, match="connection was lost"):
        producer.commit_transaction()
    with pytest.raises(UnknownOutcomeError):
        producer.abort_transaction()


def test_a_block_whose_records_have_gone_on_with_another_member_says_how_to_go_on():
    stage = SimulatedStage(request_timeout_s=REQUEST_S)
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    txn = left_unknown(stage, producer, consumer, arrives=True)
    stage.cluster.lose()
    stage.load(2)
    successor = stage.subscribed()
    stage.collect(successor, 6)
    successor.commit(asynchronous=False)
    with pytest.raises(UnknownOutcomeError, match="have changed the offsets") as raised:
        producer.transaction(consumer).__enter__()
    assert "call init_transactions()" not in str(raised.value)
    assert isinstance(raised.value.__cause__, UnknownOutcomeError)
    assert resolved(stage) == ["unknown"]
    successor.close()
    with producer.transaction(consumer) as following:
        stage.wait_for(lambda: stage.named("partitions_lost"), lambda: consumer.consume(10, 0.5))
    assert following.outcome is Outcome.COMMITTED
    assert txn.outcome is None
    assert "have changed the offsets" in txn.reason
    assert stage.named("transaction_aborted") == []


def test_outputs_alone_whose_outcome_is_not_found_are_not_counted_with_those_of_the_next_block():
    stage = SimulatedStage(request_timeout_s=REQUEST_S)
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            txn.produce(SINK, b"one")
            next_commit_is_unanswered(stage, arrives=True, rebuilds=0)

    with pytest.raises(UnknownOutcomeError, match="the transaction consumed nothing"):
        block()
    another_block(producer, consumer)
    assert [event.records_out for event in stage.named("transaction_committed")] == [1]
    assert (txn.outcome, stage.named("transaction_aborted")) == (None, [])
    assert "the transaction consumed nothing" in txn.reason


# -- the loop --------------------------------------------------------------------------------------------------------


class Clients:
    """A stage's cluster with producers of another kind."""

    def __init__(self, stage, producer):
        self.clock = stage.cluster.clock
        self.consumer = stage.cluster.consumer
        self.producer = producer


def run_until_it_raises(stage, at_start=lambda: None, producer_factory=None):
    """A loop that copies source to sink; returns its events and what it raised."""
    events: list[Event] = []

    def hook(event):
        events.append(event)
        if event.name == "loop_started":
            at_start()

    config = {"bootstrap.servers": "simulated"} | stage.group_settings
    loop = ExactlyOnceLoop(
        EosConfig(config, group_id=GROUP, transactional_id="billing-0", recovery_timeout_s=RECOVERY_S),
        [SOURCE],
        lambda message: [OutputRecord(SINK, value=message.value())],
        clients=Clients(stage, producer_factory or stage.cluster.producer),
        hook=hook,
    )
    stage.cluster.after(120.0, loop.stop)
    raised: Any = None
    try:
        loop.run()
    except (ClusterUnavailableError, BrokenOffError) as error:
        raised = error
    return events, raised


@BOTH_WAYS
def test_a_loop_that_ends_with_an_unknown_commit_tells_nothing_else(stage, arrives):
    events, raised = run_until_it_raises(stage, lambda: next_commit_is_unanswered(stage, arrives=arrives))
    assert UNKNOWN in str(raised)
    assert "committed nothing" not in str(raised)
    (left,) = [e for e in events if e.name == "outcome_resolved"]
    assert left.outcome == "unknown"
    assert left.reason.endswith(f"That stays unknown: {type(raised).__name__}")
    assert [e.name for e in events if e.name in {"transaction_aborted", "transaction_committed"}] == []
    _, raised = run_until_it_raises(stage)
    assert raised is None
    assert stage.outputs == stage.inputs


def test_a_loop_interrupted_in_its_commit_reports_it_unknown_and_its_successor_doubles_nothing(stage):
    struck: list[str] = []

    def commit(raw, *arguments):
        raw.commit_transaction(*arguments)
        if not struck:
            struck.append("after the commit")
            raise BrokenOffError

    factory = intercepting(stage.cluster.producer, commit_transaction=commit)
    events, raised = run_until_it_raises(stage, producer_factory=factory)
    assert isinstance(raised, BrokenOffError)
    assert [e.outcome for e in events if e.name == "outcome_resolved"] == ["unknown"]
    assert [e for e in events if e.name == "transaction_aborted"] == []
    assert run_until_it_raises(stage)[1] is None
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_what_a_signal_handler_raises_while_an_outcome_is_looked_up_comes_out(raised):
    stage = SimulatedStage(request_timeout_s=REQUEST_S)
    producer, consumer = stage.producer(), stage.subscribed()
    look_up = LibraryConsumer.committed_entries
    struck: list[Any] = []

    def strikes_once(library, *arguments):
        found = look_up(library, *arguments)
        if not struck:
            struck.append(raised)
            raise raised
        return found

    def block():
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())
            next_commit_is_unanswered(stage, arrives=True)
            look_ups.start()

    look_ups = mock.patch.object(LibraryConsumer, "committed_entries", strikes_once)
    txn = producer.transaction(consumer)
    try:
        with pytest.raises(raised):
            block()
    finally:
        look_ups.stop()
    with producer.transaction(consumer):
        pass
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


# -- refused for a reason that the cluster or the host has to be rid of ----------------------------------------------


def clock_is_wrong(stage):
    stage.cluster.set_clock_ahead(7200)


def output_is_forbidden(stage):
    stage.cluster.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED")


def partition_is_forbidden(stage):
    stage.cluster.refuse("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED")


def commit_is_not_understood(stage):
    stage.cluster.refuse("EndTxn", "UNSUPPORTED_VERSION")


@pytest.mark.parametrize(
    "refusal", [clock_is_wrong, output_is_forbidden, partition_is_forbidden, commit_is_not_understood]
)
@pytest.mark.parametrize("ends", ["next block", "producer", "consumer"])
def test_outputs_without_offsets_that_are_refused_for_sure_have_no_unknown_outcome(refusal, ends):
    stage = SimulatedStage(settings=BrokerSettings(log_message_timestamp_after_max_s=3600))
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            refusal(stage)
            txn.produce(SINK, b"one")

    with pytest.raises(ClusterUnfitError):
        block()
    assert "not known" not in txn.reason
    stage.cluster.set_clock_ahead(0)
    if ends == "next block":
        stage.wait_for(lambda: stage.named("transaction_committed"), lambda: another_block(producer, consumer))
    else:
        (producer if ends == "producer" else consumer).close()
    assert txn.outcome is Outcome.ABORTED
    assert resolved(stage) == []
    assert stage.outputs == ([b"two"] if ends == "next block" else [])
    assert len(stage.named("transaction_aborted")) == producer.counters.aborted >= 1


@pytest.mark.parametrize("ends", ["next block", "producer", "consumer"])
def test_the_abort_of_a_commit_that_was_refused_for_sure_names_the_refusal(ends):
    stage = SimulatedStage()
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            stage.cluster.refuse("EndTxn", "UNSUPPORTED_VERSION")
            txn.produce(SINK, b"one")

    with pytest.raises(ClusterUnfitError):
        block()
    if ends == "next block":
        another_block(producer, consumer)
    else:
        (producer if ends == "producer" else consumer).close()
    for reason in (txn.reason, stage.named("transaction_aborted")[0].reason):
        assert reason.startswith("its end failed: commit_transaction")
        assert "UNSUPPORTED_VERSION" in reason
        assert "interrupted" not in reason
        assert ("the producer was closed" in reason) == (ends == "producer")


def another_block(producer, consumer):
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"two")


def test_a_refusal_that_may_answer_a_second_copy_leaves_the_outcome_of_outputs_unknown():
    stage = SimulatedStage(request_timeout_s=REPEATED_S)
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            txn.produce(SINK, b"one")
            stage.cluster.lose_reply("EndTxn")
            commit_is_not_understood(stage)

    with pytest.raises(ClusterUnfitError):
        block()
    assert (txn.outcome, stage.outputs) == (None, [b"one"])
    assert "not known yet" in txn.reason


@BOTH_WAYS
@pytest.mark.parametrize("closes", [False, True], ids=["found out", "closed before"])
def test_a_dead_letter_is_told_when_the_outcome_of_its_block_is_known_or_never_will_be(stage, arrives, closes):
    stage.cluster.create_topic("dead")
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()

    def block():
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, 2):
                txn.dead_letter(message, ValueError("no price"), topic="dead")
            next_commit_is_unanswered(stage, arrives=arrives)

    with pytest.raises(ClusterUnavailableError, match=UNKNOWN):
        block()
    assert stage.named("record_dead_lettered") == []
    producer.close() if closes else stage.copy_the_rest(producer, consumer)
    count = 2 if arrives and not closes else 0
    assert (len(stage.named("record_dead_lettered")), producer.counters.records_failed) == (count, count)
    unknown = [each for each in stage.named("client_reported") if "may be committed: RecordDeadLettered" in each.error]
    assert len(unknown) == (2 if closes else 0)


def test_a_topic_deleted_with_its_offsets_hides_the_outcome_of_a_commit(stage):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.consumer()
    consumer.subscribe([f"^{SOURCE}"])
    stage.copy_the_rest(producer, consumer)
    stage.load(2)
    txn = left_unknown(stage, producer, consumer, arrives=True)
    stage.cluster.delete_topic(SOURCE)
    with pytest.raises(UnknownOutcomeError, match="deletion of a topic"):
        stage.read_in_blocks(producer, consumer)
    assert (txn.outcome, resolved(stage), stage.named("transaction_aborted")) == (None, ["unknown"], [])


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_deleted_after_the_first_commit_of_a_group_hides_its_outcome(stage, is_created_again):
    """The group has no offset of it, neither before the commit nor after the deletion."""
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.consumer()
    consumer.subscribe([f"^{SOURCE}"])
    txn = left_unknown(stage, producer, consumer, arrives=True)
    stage.cluster.delete_topic(SOURCE)
    if is_created_again:
        stage.cluster.create_topic(SOURCE, stage.partitions)
    with pytest.raises(UnknownOutcomeError, match="deletion of a topic"):
        stage.read_in_blocks(producer, consumer)
    assert (txn.outcome, resolved(stage)) == (None, ["unknown"])
    assert stage.outputs != []


def struck_once(call, error):
    """``call``, in place of which ``error`` is raised once, as by a signal handler."""
    strikes = [error]

    def struck(*arguments):
        if strikes:
            raise strikes.pop()
        return call(*arguments)

    return struck


@pytest.mark.parametrize("kind", [ClusterUnfitError, UnknownOutcomeError])
@pytest.mark.parametrize("where", ["rebuild", "log end"])
def test_an_error_of_a_signal_handler_leaves_the_outcome_to_the_next_call(stage, kind, where):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    error = make_kafka_error(kind, KafkaError._STATE, "of a handler")
    if where == "rebuild":
        registration = producer.adapter.registration
        registration._refuse_when_over = struck_once(registration._refuse_when_over, error)
    else:
        raw = consumer.adapter.library.raw
        raw.get_watermark_offsets = struck_once(raw.get_watermark_offsets, error)
    txn = producer.transaction(consumer)
    with pytest.raises(kind) as raised:
        end_block(stage, txn, consumer, lambda: stage.cluster.lose_request("EndTxn"))
    before = txn.outcome
    assert (raised.value, before) == (error, None)
    stage.copy_the_rest(producer, consumer)
    assert (txn.outcome, resolved(stage)) == (Outcome.ABORTED, ["aborted"])
    assert stage.outputs == stage.inputs


def test_a_log_end_that_the_client_library_answers_with_none_is_asked_for_again(stage):
    """That is how confluent_kafka documents a time-out."""
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    raw = consumer.adapter.library.raw
    answers = [None]
    ask = raw.get_watermark_offsets
    raw.get_watermark_offsets = lambda *arguments: answers.pop() if answers else ask(*arguments)
    txn = producer.transaction(consumer)
    end_block(stage, txn, consumer, lambda: stage.cluster.lose_request("EndTxn"))
    assert (answers, txn.outcome, resolved(stage)) == ([], Outcome.ABORTED, ["aborted"])


@pytest.mark.parametrize("reset", ["latest", "earliest"])
@pytest.mark.parametrize("lost", [1, 20])
def test_a_log_end_without_an_answer_is_asked_for_again_and_hides_no_outcome(stage, reset, lost):
    """Else the consumer would go on at the group's offset, of which there is none, and not where it began."""
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.consumer(auto_offset_reset=reset)

    def assign_at_its_beginning(consumer, partitions):
        for each in partitions:
            each.offset = 0
        assign = consumer.assign if stage.protocol == EAGER else consumer.incremental_assign
        assign(partitions)

    consumer.subscribe([SOURCE], on_assign=assign_at_its_beginning)
    txn = producer.transaction(consumer)

    def commit_and_log_end_are_unanswered():
        next_commit_is_unanswered(stage, arrives=False, rebuilds=lost, silent="ListOffsets")

    with contextlib.nullcontext() if lost == 1 else pytest.raises(ClusterUnavailableError, match="the log end of"):
        end_block(stage, txn, consumer, commit_and_log_end_are_unanswered)
    for _ in range(lost):
        with contextlib.suppress(ClusterUnavailableError):
            stage.copy_the_rest(producer, consumer)
            break
    assert (txn.outcome, resolved(stage)) == (Outcome.ABORTED, ["aborted"])
    assert stage.outputs == stage.inputs


def test_offsets_that_others_have_set_back_hide_the_outcome_of_a_commit(stage):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    stage.copy_the_rest(producer, consumer)
    stage.load(2)
    txn = left_unknown(stage, producer, consumer, arrives=True)
    set_back = {PartitionKey(SOURCE, number): OffsetAndMetadata(1) for number in range(stage.partitions)}
    stage.cluster.brokers.groups.offsets.commit(GROUP, set_back)
    with pytest.raises(UnknownOutcomeError, match="have changed the offsets"):
        consumer.consume(10, 0.5)
    assert (txn.outcome, resolved(stage)) == (None, ["unknown"])
