"""The steps of a session, and what callbacks and signal handlers may not call inside them.

What a session's open work forbids is asked by the session and by ``open_work.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.callback_guard import is_in_a_callback
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.thread_ownership import is_in_call
from eos_client.core.forced_ends import WorkFacts
from eos_client.core.transaction_lifecycle import TransactionState
from eos_client.errors import TransactionStateError

_BLOCK_STEP, _TRANSACTION_STEP = "a block begins or ends", "the transaction advances"
_Result = TypeVar("_Result")


class CallGuard:
    """Marks each step of one session while it runs, and refuses the calls that may not come inside one."""

    def __init__(self, consumer: ConfluentConsumer, producer: ConfluentProducer) -> None:
        self._consumer = consumer
        self._producer = producer
        self._marks = CallMarks()

    def run_transaction_step(self, act: Callable[[], _Result]) -> _Result:
        """Run ``act``, which advances the transaction."""
        return self._marks.run(_TRANSACTION_STEP, act)

    def run_block_step(self, act: Callable[[], _Result]) -> _Result:
        """Run ``act``, which begins or ends a block: no call may come between."""
        return self._marks.run(_BLOCK_STEP, act)

    @property
    def is_working(self) -> bool:
        """Whether the calling thread is inside a step that advances the transaction."""
        return self._marks.is_under_way(_TRANSACTION_STEP)

    @property
    def is_inside_a_step(self) -> bool:
        """Whether the calling thread is inside any of the steps."""
        return self._marks.is_under_way(_BLOCK_STEP, _TRANSACTION_STEP)

    def refuse_within_a_step(self, call: str) -> None:
        """Raise TransactionStateError for a ``call`` by a callback or a signal handler inside a step of ours.

        Delivery callbacks of an abort run in the thread of the handle, where no step has left a mark.
        """
        is_from_abort = self._producer.ownership.is_owned_by_other and is_in_a_callback()
        if is_from_abort or self.is_inside_a_step:
            raise misplaced_call(
                f"{call} while a block begins or ends, or its transaction is ended, by a callback or a signal handler: "
                "the outcome of its records is still open. Let the callback or handler return, or raise, and make that "
                "call then"
            )

    def refuse_outside_callbacks(self, call: str) -> None:
        """Raise TransactionStateError for a ``call`` that would write an output of no block into the open transaction.

        If that is aborted, its records come again and the output does not.
        """
        if not (self.is_inside_a_step or is_in_a_callback()):
            raise misplaced_call(
                f"{call} outside a block while the gate holds the transaction of an earlier one: the output would be "
                "lost if that is aborted. Write inside a block"
            )

    def refuse_other_threads(self) -> None:
        """Raise WrongThreadError for a thread that does not own the clients, before it has touched the open work."""
        self._consumer.ownership.require_caller("transaction")
        self._producer.ownership.require_caller("transaction")

    def refuse_inside_a_consumer_call(self, call: str) -> None:
        """Raise TransactionStateError for a ``call`` by a signal handler inside a call of the consumer.

        Records that are about to be handed over would overwrite a rewind. A rebalance callback comes before them.
        """
        if is_in_call(self._consumer) and not is_in_a_callback():
            raise misplaced_call(
                f"{call} inside a call of its consumer, by a signal handler: records may be about to be handed over. "
                "Let the handler return, or raise, and call it then"
            )

    def refuse_transaction_by_hand(self, ours: TransactionState) -> None:
        """Raise TransactionStateError for a block while a transaction is open that is not ``ours``."""
        if self._producer.calls.state.can_end_transaction and not ours.has_begun:
            raise misplaced_call(
                f"a block is entered while {self._producer.library.transactional_id!r} has an open transaction of "
                "begin_transaction(). End that by commit_transaction() or abort_transaction() first"
            )

    def refuse_inside_a_call(self, what: str) -> None:
        """Raise TransactionStateError where ``what`` happens inside a call of the clients, such as a write."""
        if is_in_call(self._consumer) or is_in_call(self._producer):
            raise misplaced_call(
                f"{what} by a callback or a signal handler, while a call of the same consumer or producer is running. "
                "Let the callback or handler return, or raise, first"
            )


def beside_open_work(call: str, work: WorkFacts) -> TransactionStateError:
    """Return the error for a transactional ``call`` of the application while ``work`` of a block is open."""
    if work.transaction.outcome_is_pending:
        return misplaced_call(
            f"{call} while the outcome of the last commit is unknown: enter the next block, which finds out"
        )
    where = "inside a block" if work.in_block else "while a block's transaction is held"
    return misplaced_call(
        f"{call} {where}: producer.transaction(consumer) begins, sends the offsets, commits and aborts by itself. "
        "Leave the block, and enter the next one until its outcome is not SKIPPED"
    )
