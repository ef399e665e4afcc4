"""A consumer's open work, and who commits it: the session of a producer, or plain commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.clients.plain_commit import PlainCommits
from eos_client.clients.session_close import prepare_consumer_close
from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.consumer.plain_offsets import PlainUse
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.core.commit_gate import CommitDecision
from eos_client.core.model import InputPartition, InputPosition
from eos_client.observe import EventHook
from eos_client.ports import Clock, MembershipSnapshot, input_partition


class OpenWork:
    """Passes the rebalance callbacks on to the session and to plain commits (implements RevocationWork).

    ``session`` is the last one that has joined it.
    """

    def __init__(self, consumer: ConfluentConsumer, plain: PlainCommits, hook: EventHook, clock: Clock) -> None:
        self._consumer = consumer
        self.session: TransactionSession | None = None
        self._plain = plain
        self._starts = CommitDecisions(consumer, hook, clock)

    # -- whose work it is --------------------------------------------------------------------------------------------

    def join(self, session: TransactionSession) -> TransactionSession:
        """Let ``session`` own the consumer's uncommitted work from now on.

        Raises TransactionStateError while the session before has open work or an unfinished end, and for a consumer
        whose offsets can still reach the group outside transactions: served after one of ``session``, they would move
        the group's committed offsets backwards. Where the application may hold records that come again, its next block
        fails.
        """
        before = self.session
        if before is session:
            return session
        if before is None:
            self._refuse_after_plain_use()
        elif before.has_open_work:
            raise misplaced_call(
                "the outcome of the last commit is unknown, and only the producer that has sent it can find out: go on "
                "with that one, or build a new consumer, which goes on at the group's committed offsets"
                if before.state.outcome_is_pending
                else "this consumer's records are in an open transaction of another producer: end that one first, by a "
                "block of that producer, or by its close(), after which the records are consumed again"
            )
        elif before.has_unfinished_end:
            raise misplaced_call(
                "the end of this consumer's last block was interrupted, and only its own producer can finish it: enter "
                "the next block with that one, or close it, after which the records are consumed again"
            )
        must_fail = before is not None and before.take_failure_of_next_block()
        if self._consumer.take_unreported_loss() or must_fail:
            session.fail_next_block("records that were handed over before this block come again, or went elsewhere")
        self.session = session
        return session

    def _refuse_after_plain_use(self) -> None:
        if uses := self._consumer.plain.uses:
            is_start_alone = uses == [PlainUse.START]
            raise misplaced_call(
                f"transaction() with a consumer that {', and '.join(use.value for use in uses)}: a late "
                "copy of such offsets could arrive after a block and move the group's committed offsets backwards. "
                "Build another consumer of the same group for blocks"
                + (", and call producer.transaction(consumer) before its first poll()" * is_start_alone)
            )

    def refuse_plain_use(self, call: str) -> None:
        """Raise TransactionStateError for ``call`` once the consumer has a session, until it is closed.

        Offsets that do not go through the session's transactions could overtake them, or skip records that an abort
        brings back; also after the producer was closed, which may have left the outcome of its last commit unknown.
        """
        if self.session is not None and not self._consumer.membership.has_left:
            raise misplaced_call(
                f"{call} of a consumer that was given to producer.transaction(), whose transactions carry its offsets: "
                "others could move the group's committed offsets backwards, or skip records. A block without outputs "
                f"commits what was consumed in it; build another consumer for {call}"
            )

    @property
    def committing_session(self) -> TransactionSession | None:
        """The session whose transactions carry all offsets of the consumer."""
        return None if self.session is None or self.session.is_over else self.session

    def resolve_pending(self) -> None:
        """Resolve the outcome of the last block before more is handed over."""
        if (session := self.session) is None:
            return
        session.call_guard.refuse_within_a_step("poll() or consume()")
        session.leave_interrupted_block()
        if not session.block.is_open:
            session.resolve_pending()

    @property
    def may_go_back(self) -> bool:
        """Whether records may come again that were handed over: a block does not know its outcome yet."""
        return self.session is not None and self.session.has_unfinished_end

    def refuse_inside_a_step(self, call: str) -> None:
        """Raise TransactionStateError for ``call`` while the calling thread is inside a step of the session."""
        if self.session is not None:
            self.session.call_guard.refuse_within_a_step(call)

    def prepare_consumer_close(self) -> None:
        """Resolve pending outcomes before the consumer is closed; an open block fails."""
        if (session := self.session) is None:
            return
        self.refuse_inside_a_step("consumer.close()")
        prepare_consumer_close(session)
        if session.block.is_open and session.has_unprocessed_work:
            closed = misplaced_call("the consumer was closed inside the block: leave it first")
            session.block.fail(closed, quietly=True)

    # -- what is refused ---------------------------------------------------------------------------------------------

    def refuse_manual_assignment(self, call: str) -> None:
        """Raise TransactionStateError for an assignment by hand that would lose the work of a transaction."""
        if self._consumer.membership.in_callback:
            return
        if self.session is not None and (self.session.has_open_work or self.session.block.is_open):
            raise misplaced_call(
                f"{call} outside a rebalance callback while a block or its transaction is open: its records could be "
                "neither committed nor read again. Leave partitions to the group, or pause() and seek() them; end the "
                "block before you assign by hand"
            )

    def require_group_membership(self) -> None:
        """Raise TransactionStateError unless records of the consumer can be in a block that begins now."""
        if self._consumer.membership.in_callback:
            raise misplaced_call(
                "a block inside a rebalance callback: it could neither consume nor commit there. Let the callback "
                "return; what the last block has processed is committed without it"
            )
        membership = self._consumer.membership.state
        if not membership.is_assigned_by_group:
            how = "was assigned partitions by hand" if membership.is_assigned_by_hand else "has not subscribed"
            raise misplaced_call(
                f"transaction() with a consumer that {how}: nothing would fence its offsets against another member "
                "(KIP-447). Call consumer.subscribe(topics), and assign() only inside on_assign"
            )
        if membership.has_others:
            raise misplaced_call(
                "transaction() with a consumer whose callback assigned partitions that the group did not give it: "
                "nothing would fence their offsets against another member (KIP-447). Assign inside on_assign only what "
                "it was called with, and read other partitions with a consumer of their own"
            )

    def record_seek(self, partition: Any) -> None:
        """Record that the open block gives back records by a seek to ``partition``, if it does."""
        session = self.session
        if session is not None and session.block.is_open and self._consumer.gives_back(partition):
            session.block.record_given_back(input_partition(partition))

    # -- start offsets -----------------------------------------------------------------------------------------------

    def commit_starts(self, starts: Mapping[InputPartition, int]) -> str | None:
        """Commit start offsets if the gate allows it; returns why that has to be repeated, None where it has not.

        A plain commit that is sent twice could be served after the transactions that follow, and undo them. Nothing is
        committed for partitions that were assigned by hand: no group gives them to a later owner.
        """
        given = self._consumer.membership.state.assigned
        starts = {partition: offset for partition, offset in starts.items() if partition in given}
        if not starts:
            return None
        snapshot = self._consumer.snapshot()
        positions = {p: InputPosition(offset, offset, snapshot.generation) for p, offset in starts.items()}
        ruling, _ = self._starts.decide(positions, snapshot)
        self._starts.record(ruling, snapshot)
        if ruling.decision is not CommitDecision.COMMIT:
            return ruling.reason
        if self.session is not None:
            return self.session.commit_starts(positions, snapshot)
        self._consumer.plain.record_use(PlainUse.START)
        return self._consumer.library.commit_starts(starts)

    # -- RevocationWork: the open transaction, and plain offsets that are pending beside it ---------------------------

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self._consumer.snapshot()

    def uncommitted(self) -> frozenset[InputPartition]:
        """Return the partitions whose records a session has to commit; plain offsets can be committed one by one."""
        return frozenset() if self.committing_session is None else frozenset(self._consumer.positions)

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit open work that covers any of ``partitions``; on failure, abort it."""
        if (session := self.committing_session) is not None:
            session.commit_before_revoke(partitions)
        self._plain.commit_before_revoke(partitions)

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Abort the transaction if it covers any of ``partitions``; plain offsets were processed before."""
        if (session := self.committing_session) is not None:
            session.on_callback_failed(partitions, reason)
        self._plain.commit_before_revoke(partitions)

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """Drop ``partitions``, which have left; work that is held from now on gets a new hold time."""
        self._starts.end_hold()
        if (session := self.committing_session) is None:
            self._consumer.lose_work(partitions)
        else:
            session.on_departed(partitions)
        self._plain.drop_pending(partitions)
