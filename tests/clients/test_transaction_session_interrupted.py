"""A block whose `with` was left by an exception that came before it could note so is known to be interrupted."""

import contextlib
import ctypes
import signal
from collections import defaultdict
from functools import partial
from typing import Any

import pytest

from eos_client import Outcome
from eos_client.clients import block_state, transaction_block
from eos_client.errors import EosError, TransactionStateError
from tests.clients.simulated_stage import GROUP, SINK, SimulatedStage
from tests.clients.struck_steps import StepStrike, StrikeError, struck_runs
from tests.interruption import BrokenOffError, interrupting

_OUR_STEPS = {
    (transaction_block.__file__, "__get__"),
    (transaction_block.__file__, "__enter__"),
    (transaction_block.__file__, "__exit__"),
    (block_state.__file__, "open"),
    (block_state.__file__, "close"),
    (__file__, "body"),
}


class BlockStrike(StepStrike):
    """Strikes where a block is entered and left, and in the application's own function around it."""

    def _strikes(self, code):
        return (code.co_filename, code.co_name) in _OUR_STEPS


class Application:
    """Copies in blocks, and goes on after every exception."""

    def __init__(self):
        self.stage = SimulatedStage(partitions=1, records=4)
        self.producer, self.consumer = self.stage.producer(), self.stage.subscribed()
        self.blocks: list[Any] = []
        self.raised: list[BaseException] = []  # with their tracebacks, which keep what they came through alive

    def does(self, act):
        try:
            act()
        except (StrikeError, EosError) as error:
            self.raised.append(error)

    def transaction(self):
        txn = self.producer.transaction(self.consumer)
        self.blocks.append(txn)
        return txn

    def copies(self, count):
        for record in self.stage.collect(self.consumer, count):
            self.producer.produce(SINK, record.value())

    def first_block(self):
        txn = self.transaction()

        def body():
            with txn:
                self.copies(1)

        body()

    def first_loop(self):
        def body():
            for _ in range(2):
                with contextlib.suppress(StrikeError), self.transaction():
                    self.copies(1)

        body()

    def first_wrapper(self):
        @contextlib.contextmanager
        def body():
            with self.transaction() as txn:
                yield txn

        with body():
            self.copies(1)

    def next_block(self):
        with self.transaction():
            self.copies(1)

    def refusals(self):
        return [error for error in self.raised if isinstance(error, TransactionStateError)]

    def finishes(self):
        self.stage.copy_the_rest(self.producer, self.consumer)
        assert self.stage.outputs == self.stage.inputs

    def lies(self):
        return [(txn.outcome, txn.reason) for txn in self.blocks if "not ended yet" in txn.reason]


def next_block(application):
    application.next_block()
    assert application.blocks[-1].outcome is Outcome.COMMITTED
    application.finishes()


def next_records(application):
    """They are the first that are not committed, and nothing is written by asking for them."""
    begun = application.stage.cluster.committed(GROUP).get(("orders", 0), 0)
    records = application.stage.collect(application.consumer, 4 - begun)
    assert [record.offset() for record in records] == list(range(begun, 4))
    application.consumer.adapter.fetching.rewind()
    application.finishes()


def next_output(application):
    """There is no transaction for it."""
    with pytest.raises(TransactionStateError):
        application.producer.produce(SINK, b"stray")
    application.finishes()


def next_output_of_the_block(application):
    with pytest.raises(TransactionStateError):
        application.blocks[0].produce(SINK, b"stray")
    application.finishes()


def next_plain_transaction(application):
    with contextlib.suppress(TransactionStateError):  # the block's transaction may be open still
        application.producer.begin_transaction()
        application.producer.abort_transaction()
    application.finishes()


def closing_the_consumer(application):
    application.consumer.close()
    assert application.lies() == []
    application.consumer = application.stage.subscribed()
    application.finishes()


def closing_the_producer(application):
    application.producer.close()
    assert application.lies() == []
    application.consumer.close()
    application.producer, application.consumer = application.stage.producer(), application.stage.subscribed()
    application.finishes()


def interrupted(first, strike, steps=None):
    application = Application()
    with strike.armed(steps):
        application.does(lambda: first(application))
    return application


def strike_steps(first, then, *, begin, by):
    runs = struck_runs(partial(interrupted, first), by, first=begin, kind=BlockStrike, steps_min=101)
    for application, strike in runs:
        assert strike.struck
        if application.blocks:
            then(application)
        assert application.refusals() == [], f"step {strike.number}, {strike.struck}"
        assert application.lies() == [], f"step {strike.number}, {strike.struck}"


FIRST = [Application.first_block, Application.first_loop, Application.first_wrapper]
THEN = [next_records, next_output, next_output_of_the_block, next_plain_transaction]
CLOSING = [closing_the_consumer, closing_the_producer]


def begins(by):
    """At which step the strikes begin, one in ``by``: ``pytest -m soak`` here strikes all others."""
    return pytest.mark.parametrize("begin", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, by + 1))])


@begins(4)
def test_the_next_block_after_one_that_was_interrupted_at_any_step_is_entered(begin):
    strike_steps(Application.first_block, next_block, begin=begin, by=4)


@begins(5)
@pytest.mark.parametrize("first", FIRST[1:], ids=lambda first: first.__name__)
def test_the_next_block_after_one_in_a_loop_or_wrapper_that_was_interrupted_is_entered(first, begin):
    strike_steps(first, next_block, begin=begin, by=5)


@begins(4)
@pytest.mark.parametrize("then", THEN, ids=lambda then: then.__name__)
def test_the_next_call_after_an_interrupted_block_resolves_its_outcome(then, begin):
    strike_steps(Application.first_block, then, begin=begin, by=4)


@begins(4)
@pytest.mark.parametrize("closing", CLOSING, ids=lambda closing: closing.__name__)
def test_closing_a_client_after_a_block_that_was_interrupted_tells_its_outcome(closing, begin):
    strike_steps(Application.first_block, closing, begin=begin, by=4)


def test_a_signal_at_the_first_step_of_the_end_leaves_no_block_open():
    application = Application()
    with interrupting():
        raised_by_c = partial(ctypes.CDLL(None)["raise"], int(signal.SIGUSR1))

        def block():
            strike: dict[str, int] = defaultdict(raised_by_c)
            with application.transaction():
                application.copies(1)
                strike["in C, so that Python looks for signals only when it begins the next function"]

        for _ in range(3):
            with pytest.raises(BrokenOffError) as struck_by:
                block()
            application.raised.append(struck_by.value)
    assert [block.outcome for block in application.blocks] == [Outcome.ABORTED, Outcome.ABORTED, None]
    application.finishes()
    assert application.lies() == []


def test_a_block_goes_on_whoever_else_looks_its_exit_up():
    application = Application()
    with application.transaction() as txn:
        for _ in range(3):
            assert callable(txn.__exit__)
        application.copies(1)
    assert txn.outcome is Outcome.COMMITTED
    application.finishes()


def test_a_block_that_an_exit_stack_has_entered_goes_on_until_that_ends():
    application = Application()
    with contextlib.ExitStack() as stack:
        txn = stack.enter_context(application.transaction())
        application.copies(1)
        application.copies(1)
    assert txn.outcome is Outcome.COMMITTED
    application.finishes()


def test_a_block_in_a_wrapper_goes_on_while_the_wrapper_waits():
    application = Application()

    @contextlib.contextmanager
    def wrapper():
        with application.transaction() as txn:
            yield txn

    with wrapper() as txn:
        application.copies(2)
        with pytest.raises(TransactionStateError, match="block inside a block"):
            application.transaction().__enter__()
        application.copies(1)
    assert txn.outcome is Outcome.COMMITTED
    application.finishes()


def test_a_block_that_ends_after_all_is_told_that_it_was_given_up():
    """As when a signal handler consumes at the first step of the block's end."""
    application = Application()
    txn = application.transaction()
    way_out = txn.__exit__
    txn.__enter__()
    application.copies(2)
    del way_out
    application.stage.collect(application.consumer, 1)
    assert (txn.outcome, application.stage.outputs) == (Outcome.ABORTED, [])
    with pytest.raises(TransactionStateError, match="this block was abandoned"):
        txn.__exit__(None, None, None)
    assert txn.outcome is Outcome.ABORTED
    assert "interrupted" in txn.reason
    application.consumer.adapter.fetching.rewind()
    application.finishes()
