"""Every block is told the true outcome of its transaction, also when an exception has interrupted its end."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from eos_client import Outcome
from eos_client.clients.block_state import BlockState
from eos_client.errors import ClientClosedError, OutputRefusedError, WrongThreadError
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.clients.struck_steps import StepStrike, strides, struck_calls, struck_runs
from tests.clients.test_interrupted_calls import EVERY_STEP, Copying, OwnError
from tests.support.interception import intercepting
from tests.support.protocols import BY_COORDINATOR, COOPERATIVE


class Telling(Copying):
    """An application whose every block writes outputs of its own, so that the log tells what became of each."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.blocks = []

    def block(self, number=6, error=None):
        """Copy in a block; the application raises ``error`` at its end."""
        txn = self.producer.transaction(self.reader.consumer)
        attempt = len(self.blocks)
        written: list[bytes] = []
        self.blocks.append((txn, written))
        with txn:
            for message in self.reader.consumer.consume(number, 0.05):
                output = f"{message.partition()}:{message.offset()}#{attempt}"
                txn.produce("out", output)
                written.append(output.encode())
            if error is not None:
                raise error

    def story(self):
        self.reader.does(self.block, lambda: self.block(error=OwnError()), self.block)
        self.reader.cluster.rebalance()
        self.reader.does(self.block, lambda: self.block(error=OwnError()), self.block)

    def copied(self):
        return [value.partition(b"#")[0] for value in self.reader.cluster.values("out")]

    def lies(self):
        """The blocks whose outcome is not what the log says."""
        log = frozenset(self.reader.cluster.values("out"))
        told = {Outcome.COMMITTED: True, Outcome.ABORTED: False}
        return [
            (number, txn.outcome, txn.reason, written)
            for number, (txn, written) in enumerate(self.blocks)
            if written
            and txn.outcome is not Outcome.SKIPPED
            and {told.get(txn.outcome)} != {output in log for output in written}
        ]


@strides(EVERY_STEP)
@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_wherever_an_exception_strikes_records_are_copied_once_and_blocks_told_their_outcome(protocol, first):
    def told(strike, steps=None):
        telling = Telling(group_protocol=protocol)
        with strike.armed(steps):
            telling.story()
        return telling

    for telling, strike in struck_runs(told, EVERY_STEP, first=first):
        telling.copies_the_rest()
        assert telling.is_exact(), f"{strike.number}, {strike.struck}: {telling.copied()}"
        assert telling.lies() == [], f"{strike.number}, {strike.struck}"


class EndStrike(StepStrike):
    """Strikes only where a block's outcome is noted and told."""

    def _strikes(self, code):
        telling = {"record", "report_outcome", "_on_outcome", "finish_leaving"}
        return code.co_name in telling and super()._strikes(code)


def test_no_step_between_the_end_and_the_telling_of_it_loses_an_outcome():
    def told(strike, steps=None):
        telling = Telling()
        with strike.armed(steps):
            telling.reader.does(telling.block)
        return telling

    for telling, strike in struck_runs(told, 1, kind=EndStrike, steps_min=21):
        telling.reader.does(telling.block)
        assert strike.struck
        assert telling.lies() == [], f"step {strike.number}, {strike.struck}"


@pytest.mark.parametrize(
    ("protocol", "first"),
    [
        *(("classic", 1), ("consumer", 3)),
        *(
            pytest.param(protocol, first, marks=pytest.mark.soak)
            for protocol, first in (("classic", 3), ("consumer", 1), ("classic", 2), ("consumer", 4))
        ),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_call_of_the_producer_is_struck_every_block_is_told_its_outcome(protocol, first, after):
    """The producer behaves alike under both protocols: each tests every fourth call, and both every second one."""

    def made(strike):
        return Telling(group_protocol=protocol, producer_factory=strike.around)

    for telling, strike in struck_calls(made, after=after, first=first, every=4, calls_min=50):
        telling.story()
        strike.is_armed = False
        telling.copies_the_rest()
        assert telling.is_exact(), f"call {strike.number}, {strike.struck}: {telling.copied()}"
        assert telling.lies() == [], f"call {strike.number}, {strike.struck}"


def test_a_commit_that_was_interrupted_is_told_by_the_next_poll():
    def commit(raw, *arguments):
        raw.commit_transaction(*arguments)
        raise OwnError

    telling = Telling(producer_factory=lambda client: intercepting(client, commit_transaction=commit))
    telling.reader.does(telling.block)
    (txn, _) = telling.blocks[0]
    assert txn.outcome is None
    assert "an exception interrupted the end of the block" in txn.reason
    telling.reader.polls()
    assert txn.outcome is Outcome.COMMITTED


# -- what a commit tells ----------------------------------------------------------------------------------------------


def test_a_commit_counts_every_output_of_its_block_whoever_has_written_it(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        txn.produce(SINK, b"by the block")
        producer.produce(SINK, b"by the producer")
        producer.produce_batch(SINK, [{"value": b"in"}, {"value": b"a batch"}])
        with pytest.raises(OutputRefusedError):
            txn.produce(SINK, b"refused", partition=99)
    (committed,) = stage.named("transaction_committed")
    assert committed.records_out == producer.counters.records_out == len(stage.outputs) == 4


def test_a_commit_counts_what_a_delivery_callback_writes_while_the_block_ends(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def writes_another(_error, _message):
        producer.produce(SINK, b"by the callback")

    with producer.transaction(consumer):
        stage.collect(consumer, 4)
        producer.produce(SINK, b"by the block", on_delivery=writes_another)
    (committed,) = stage.named("transaction_committed")
    assert committed.records_out == producer.counters.records_out == len(stage.outputs) == 2


def test_a_commit_counts_what_on_revoke_writes_while_the_block_ends():
    stage = SimulatedStage(COOPERATIVE)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE], on_revoke=lambda *_: producer.produce(SINK, b"by the callback"))
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        txn.produce(SINK, b"by the block")
        stage.cluster.revoke((SOURCE, 1))
        stage.cluster.advance(5.0)
    (committed,) = stage.named("transaction_committed")
    assert committed.records_out == producer.counters.records_out == len(stage.outputs) == 2


# -- clients that are closed inside a block ----------------------------------------------------------------------------


@pytest.fixture
def stage():
    return SimulatedStage()


def test_closing_the_producer_inside_a_block_ends_it_as_aborted(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            for message in stage.collect(consumer, 2):
                txn.produce(SINK, message.value())
            producer.close()

    with pytest.raises(ClientClosedError):
        block()
    assert txn.outcome is Outcome.ABORTED
    assert "Producer has been closed" in txn.reason
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_batch_with_a_partition_in_a_message_is_refused_before_anything_is_queued(stage):
    """confluent_kafka ignores it, and its own docstring says otherwise."""
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        values = [record.value() for record in stage.collect(consumer, 4)]
        with pytest.raises(ValueError, match=r"partition= to the call"):
            producer.produce_batch(SINK, [{"value": values[0]}, {"value": values[1], "partition": 0}])
        assert producer.produce_batch(SINK, [{"value": value, "partition": -1} for value in values], 0) == 4
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs) == sorted(values)


@pytest.mark.parametrize("call", ["failing_on_read_error", "failing_on_write_error"])
def test_a_call_that_an_exception_has_kept_from_beginning_leaves_no_failure_in_its_block(call):
    block = BlockState()
    begun = getattr(block, call)
    begun.__enter__()
    del begun  # the exception came before the body, so nobody ends the call
    block.check()


def test_a_block_that_was_left_in_another_thread_ends_for_the_reason_that_was_given(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def records():
        with txn:
            for message in stage.collect(consumer, 4):
                txn.produce(SINK, message.value())
                yield message

    reading = records()
    next(reading)
    with ThreadPoolExecutor(1) as pool, pytest.raises(WrongThreadError):
        pool.submit(reading.close).result()
    stage.copy_the_rest(producer, consumer)
    assert (txn.outcome, txn.reason) == (Outcome.ABORTED, "the block raised GeneratorExit: ")
    assert stage.outputs == stage.inputs
