"""The steps and transactional calls of a session, and what callbacks and signal handlers may not call inside them.

A call that is refused because of the work that is open is judged where that work is known: by the session itself and
by ``open_work.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from eos_client.confluent.call_stack import TrackedCalls, comes_from
from eos_client.confluent.callback_guard import is_in_a_callback
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.thread_ownership import OWNED_CALLS, is_in_call
from eos_client.ports import OverridableProducer

_Result = TypeVar("_Result")
_OwnCall = Literal["begin_transaction", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"]


class StepsUnderWay:
    """The steps of one session and its transactional calls, as the call stack shows them."""

    def __init__(self, consumer: ConfluentConsumer, producer: ConfluentProducer, facade: OverridableProducer) -> None:
        self._consumer = consumer
        self._producer = producer
        self._facade = facade
        self._call_under_way: _OwnCall = "begin_transaction"

    def run_transaction_step(self, act: Callable[[], _Result]) -> _Result:
        """Run ``act``, which advances the transaction, in a frame that ``_WORK`` finds on the call stack."""
        return act()

    def run_block_step(self, act: Callable[[], _Result]) -> _Result:
        """Run ``act``, which begins or ends a block, in a frame that ``_STEPS`` finds: no call may come between."""
        return act()

    def own_call(self, name: _OwnCall, *arguments: Any) -> None:
        """Make the producer's transactional call ``name``; other callers are refused meanwhile."""
        self._call_under_way = name
        getattr(self._facade, name)(*arguments)

    def is_making(self, call: str) -> bool:
        """Whether it is the session that makes the producer's ``call``, which asks the session in its first steps."""
        is_that_call = call.startswith(self._call_under_way)
        # Above here are the session, the producer's `_is_session_call` and the call itself.
        return is_that_call and comes_from(_OWN_CALLS, self, OWNED_CALLS, self._producer, skip_frames=3)

    @property
    def is_working(self) -> bool:
        """Whether the calling thread is inside a step that advances the transaction."""
        return _WORK.is_any_running(self)

    @property
    def is_inside_a_step(self) -> bool:
        """Whether the calling thread is inside any of the steps."""
        return _STEPS.is_any_running(self)

    def refuse_within_a_step(self, call: str) -> None:
        """Raise TransactionStateError for a ``call`` by a callback or a signal handler inside a step of ours.

        Delivery callbacks of an abort run in the thread of the handle, where no step is seen on the stack.
        """
        is_from_abort = self._producer.ownership.is_owned_by_other and is_in_a_callback()
        if is_from_abort or self.is_inside_a_step:
            raise misplaced_call(
                f"{call} while a block begins or ends, or its transaction is ended, by a callback or a signal handler: "
                "the outcome of its records is still open. Let the callback or handler return, or raise, and make that "
                "call then"
            )

    def refuse_other_threads(self) -> None:
        """Raise WrongThreadError for a thread that does not own the clients, before it has touched the open work."""
        self._consumer.ownership.require_caller("transaction")
        self._producer.ownership.require_caller("transaction")

    def refuse_inside_a_call(self, what: str, *, is_writing: bool) -> None:
        """Raise TransactionStateError where ``what`` happens inside a call of the clients, or while a block writes."""
        if is_writing or is_in_call(self._consumer) or is_in_call(self._producer):
            raise misplaced_call(
                f"{what} inside a call of the block's clients or its own, by a callback or a signal handler: the "
                "call that was interrupted has not returned yet. Let the callback or handler return, or raise, and do "
                "so then"
            )


_OWN_CALLS = TrackedCalls(StepsUnderWay.own_call)
_WORK = TrackedCalls(StepsUnderWay.run_transaction_step)
_STEPS = TrackedCalls(StepsUnderWay.run_block_step, StepsUnderWay.run_transaction_step)
