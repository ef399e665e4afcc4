"""A signal handler that calls a client, at any step of a block: nothing is lost or doubled, or told wrongly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client import Outcome
from eos_client.confluent.thread_ownership import is_in_call
from eos_client.errors import EosError, TransactionStateError
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.clients.struck_steps import StepStrike, counted, is_of_the_clients, strides

RECORDS = 4
EVERY_STEP = 3989
EVERY_OWN_STEP = 29
EVERY_PAUSED_STEP = 47
_OWN_DOING = re.compile("closed|this block was abandoned")


@contextmanager
def no_offset() -> Iterator[None]:
    """There may be nothing to commit."""
    try:
        yield
    except KafkaException as error:
        if isinstance(error, EosError) or error.args[0].name() != "_NO_OFFSET":
            raise


class HandlerStrike(StepStrike):
    """Runs a signal handler at the `number`-th step."""

    def __init__(self, number: int, handler: Any) -> None:
        super().__init__(number)
        self.handler = handler

    def strike(self) -> None:
        self.handler()


class OwnCallStrike(HandlerStrike):
    """Strikes only inside the session's own transactional calls."""

    _WHERE: ClassVar = {
        "_begin",
        "_send_offsets",
        "_commit",
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
    }

    def _strikes(self, code: Any) -> bool:
        return code.co_name in self._WHERE and is_of_the_clients(code.co_filename)


class Application:
    """Copies block by block; its signal handler calls a client, and lets the refusal out or not."""

    def __init__(self, act: str, *, lets_out: bool) -> None:
        self.stage = SimulatedStage(partitions=1, records=RECORDS)
        self.producer, self.consumer = self.stage.producer(), self.stage.subscribed()
        self.blocks: list[tuple[Any, list[bytes]]] = []
        self.refusals: list[TransactionStateError] = []
        self._act, self.lets_out = act, lets_out

    def handler(self) -> None:
        try:
            getattr(self, self._act)()
        except TransactionStateError as error:
            self.refusals.append(error)
            if self.lets_out:
                raise

    def closes_the_consumer(self) -> None:
        self.consumer.close()

    def closes_the_producer(self) -> None:
        self.producer.close()

    def closes_both(self) -> None:
        self.producer.close()
        self.consumer.close()

    def polls(self) -> None:
        message = self.consumer.poll(0)
        if message is not None:  # it is not for the handler
            self.consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))

    def pauses(self) -> None:
        self.consumer.pause(self.consumer.assignment())

    def resumes(self) -> None:
        self.consumer.resume(self.consumer.assignment())

    def subscribes(self) -> None:
        self.consumer.subscribe([self.stage.source])

    def commits(self) -> None:
        with no_offset():
            self.consumer.commit(asynchronous=False)

    def flushes(self) -> None:
        self.producer.flush(0.1)

    def initialises(self) -> None:
        self.producer.init_transactions()

    def nests(self) -> None:
        with suppress(TransactionStateError), self.producer.transaction(self.consumer):
            pass
        with self.producer.transaction(self.consumer):
            pass

    def ends_the_block(self) -> None:
        if self.blocks and (is_in_call(self.consumer) or is_in_call(self.producer)):
            self.blocks[-1][0].__exit__(None, None, None)

    def commits_by_hand(self) -> None:
        self.producer.commit_transaction()

    def aborts_by_hand(self) -> None:
        self.producer.abort_transaction()

    def begins_by_hand(self) -> None:
        self.producer.begin_transaction()
        self.producer.abort_transaction()

    def block(self) -> None:
        """Copy two records, each with the number of the attempt."""
        txn = self.producer.transaction(self.consumer)
        written: list[bytes] = []
        attempt = len(self.blocks)
        self.blocks.append((txn, written))
        with txn:
            for message in self.consumer.consume(2, 0.2):
                output = b"%s#%d" % (message.value(), attempt)
                txn.produce(SINK, output)
                written.append(output)

    def copies(self) -> None:
        """Copy all of them."""
        self.block()
        self.block()

    def goes_on(self) -> None:
        """Take one more block, which finds out what became of the last one; then new clients, as after a restart."""
        with suppress(EosError, RuntimeError):  # a client is closed
            self.block()
        self.producer.close()
        self.consumer.close()
        self.producer, self.consumer = self.stage.producer(), self.stage.subscribed()
        self.stage.wait_for(lambda: self.stage.committed() == RECORDS, self.block)

    def lies(self) -> list[Any]:
        """The blocks that were told something else than the log says."""
        told = {Outcome.COMMITTED: True, Outcome.ABORTED: False}
        return [
            (number, txn.outcome, txn.reason)
            for number, (txn, written) in enumerate(self.blocks)
            if written and {told.get(txn.outcome)} != {output in self.stage.outputs for output in written}
        ]


def strikes(
    act: str, *, lets_out: bool, every: int, first: int = 1, kind: Callable[[int, Any], HandlerStrike] = HandlerStrike
) -> int:
    """Strike once in each run, ``every`` steps later in the next; returns how many steps there are."""
    steps = steps_of(kind)
    for number in range(first, steps.steps + 1, every):
        application = Application(act, lets_out=lets_out)
        struck(application, kind(number, application.handler), steps)
    return steps.steps


@cache
def steps_of(kind: Callable[[int, Any], HandlerStrike]) -> StepStrike:
    """Those that a handler could come between."""

    def copies(strike: StepStrike) -> None:
        application = Application("no act", lets_out=False)
        with strike.armed():
            application.copies()

    return counted(copies, lambda number: kind(number, None))


def struck(application: Application, strike: HandlerStrike, steps: StepStrike) -> None:
    raised: BaseException | None = None
    with strike.armed(steps):
        try:
            application.copies()
        except (EosError, RuntimeError) as error:
            raised = error
    assert strike.struck, f"step {strike.number}"
    where = f"step {strike.number}, {strike.struck}"
    assert application.lets_out or raised is None or _OWN_DOING.search(str(raised)), f"{where}: {raised!r}"
    application.goes_on()
    assert application.lies() == [], where
    copied = [output.partition(b"#")[0] for output in application.stage.outputs]
    assert copied == application.stage.inputs, f"{where}: {copied}"


_NO_ACTS = {"handler", "block", "copies", "goes_on", "lies"}
ACTS = [name for name in vars(Application) if not name.startswith("_") and name not in _NO_ACTS]


def in_turn(between: int, *numbers: int) -> pytest.MarkDecorator:
    """A handler that raises strikes first at the first of the steps, one that does not at the ``between``-th.

    A soak test begins with each of the others, too.
    """
    chosen = {(True, numbers[0]), (False, numbers[between])}
    cases = [
        pytest.param(
            *(lets_out, number),
            marks=() if (lets_out, number) in chosen else pytest.mark.soak,
            id=f"{'raises' if lets_out else 'catches'}-{number}",
        )
        for lets_out in (True, False)
        for number in numbers
    ]
    return pytest.mark.parametrize(("lets_out", "first"), cases)


@in_turn(2, *(1 + EVERY_STEP * quarter // 4 for quarter in range(4)))
@pytest.mark.parametrize("act", ACTS)
def test_a_handler_that_calls_a_client_loses_and_doubles_nothing(act: str, lets_out: bool, first: int) -> None:
    assert strikes(act, lets_out=lets_out, every=EVERY_STEP, first=first) > 2000


@pytest.mark.parametrize("act", ["pauses", "resumes", "subscribes"])
def test_a_handler_does_not_pause_resume_or_subscribe_inside_a_call(act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(act, lets_out=False)
    assert application.consumer.poll(5.0)
    monkeypatch.setattr(application.consumer._lag, "report", application.handler)
    application.consumer.poll(0.0)
    assert len(application.refusals) == 1


@strides(EVERY_PAUSED_STEP)
def test_a_pause_of_a_handler_inside_a_call_is_refused_or_holds(first: int) -> None:
    def reading(strike: Any, steps: StepStrike | None = None) -> Application:
        application = Application("pauses", lets_out=False)
        assert application.consumer.poll(5.0)
        strike.handler = application.handler
        with strike.armed(steps):
            application.consumer.consume(2, 0.2)
        return application

    steps = counted(reading, lambda number: HandlerStrike(number, None))
    assert steps.steps > 500
    for number in range(first, steps.steps + 1, EVERY_PAUSED_STEP):
        application = reading(strike := HandlerStrike(number, None), steps)
        assert bool(application.refusals) != bool(application.consumer.adapter.state.paused), strike.struck


@strides(EVERY_OWN_STEP)
@pytest.mark.parametrize("act", ["begins_by_hand", "commits_by_hand", "aborts_by_hand"])
def test_no_step_of_the_sessions_own_calls_lets_another_one_pass(act: str, first: int) -> None:
    assert strikes(act, lets_out=False, every=EVERY_OWN_STEP, first=first, kind=OwnCallStrike) > 100


def test_the_next_block_goes_on_after_a_handler_that_calls_a_client_and_raises() -> None:
    number, is_struck = 0, True
    while is_struck:
        number += 1
        application = Application("begins_by_hand", lets_out=True)
        strike = OwnCallStrike(number, application.handler)
        with suppress(TransactionStateError), strike.armed():
            application.block()
        application.block()
        is_struck = bool(strike.struck)
    assert number > 20


def test_what_is_consumed_in_a_block_that_was_given_up_is_consumed_again() -> None:
    application = Application("nests", lets_out=False)
    block = application.producer.transaction(application.consumer)
    block.__enter__()
    application.nests()
    assert len(application.consumer.consume(2, 0.2)) == 2
    with pytest.raises(TransactionStateError, match="this block was abandoned"):
        block.__exit__(None, None, None)
    application.goes_on()
    assert application.lies() == []
    assert [output.partition(b"#")[0] for output in application.stage.outputs] == application.stage.inputs


def test_a_transaction_that_a_handler_begins_while_a_write_is_about_to_takes_both_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = SimulatedStage(partitions=1)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        session: Any = txn._session
        resume = session._resume

        def resume_and_write() -> Any:
            monkeypatch.undo()
            ended = resume()
            txn.produce(SINK, b"of the handler")
            return ended

        monkeypatch.setattr(session, "_resume", resume_and_write)
        txn.produce(SINK, b"of the block")
    assert txn.outcome is Outcome.COMMITTED
    assert stage.cluster.values(SINK) == [b"of the handler", b"of the block"]
