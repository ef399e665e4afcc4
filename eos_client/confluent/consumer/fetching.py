"""Fetching: what the client library gives, less what is not ours any more, from before a rewind, or started wrongly.

``consume`` may collect records, run a revoke callback and then return what it had collected before it. Records that
were fetched but not handed over yet are *carried*: they count as nothing, and leave with their partition.

A call that an asynchronous exception has broken off leaves its journal open (``eos_client.core.hand_over``). The next
call that fetches then goes back, in every partition, to the first record that was not handed over, and asks whether
librdkafka has given the client up, which it tells once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tenacity
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from eos_client.confluent.call_stack import in_library
from eos_client.confluent.consumer import safe_close
from eos_client.confluent.consumer.group_member import ConsumerFactory, GroupMember, to_kafka
from eos_client.confluent.consumer.read_positions import ReadPositions
from eos_client.confluent.consumer.record_runs import runs
from eos_client.confluent.consumer.safe_close import LEAVING_ROUNDS_MAX, LEAVING_STEP_S, close_in_time
from eos_client.confluent.consumer.start_offsets import ResetPolicy, StartOffsets
from eos_client.confluent.failures import committed_offsets_unknown, consumer_errors, input_error, is_fatal, kafka_error
from eos_client.confluent.thread_ownership import owned
from eos_client.core.hand_over import HandOver
from eos_client.core.model import CommittedOffset, InputPartition, InputPosition, InputPositions
from eos_client.core.uncommitted_work import UncommittedWork
from eos_client.errors import CommitRefusedError, EosError, FatalClientError
from eos_client.ports import Clock, keys_of

_SEEK_ATTEMPTS_MAX = 3
_SEEK_LIMIT_S = 5.0
_SEEK_AGAIN_S = 0.05
_DRAIN_ROUNDS_MAX = 10
_DRAIN_STEP = 100
_PREFETCH_STEP = 500
_PREFETCH_MAX = 20_000
_STABLE_TIMEOUT_S = 0.5
_REJOIN_ASK_S = 10.0
_SLICE_S = 1.0
"""How much later than raised an exception of a callback comes out of a call that has nothing to return."""
_GROUP_DECIDES = (OFFSET_INVALID, OFFSET_STORED)
_UNTOLD = (RuntimeError, KafkaException)


class FetchingConsumer(GroupMember):
    """A member that fetches, serves callbacks and can go back to its first uncommitted record."""

    def __init__(self, settings: dict[str, Any], factory: ConsumerFactory, clock: Clock) -> None:
        super().__init__(settings, factory)
        self._clock = clock
        self._handed = HandOver()
        self._rewind_goals: dict[InputPartition, tuple[int, int]] | None = None
        self._rewound: dict[InputPartition, tuple[int, int, int]] = {}
        self._stored: dict[InputPartition, TopicPartition] = {}
        self._fatal: KafkaError | None = None
        self._drained = False
        self._withheld = False
        self._may_keep_a_record = False
        self._chosen_in_call: dict[InputPartition, int] = {}
        self._chosen: set[InputPartition] = set()
        self._go_on_at: dict[InputPartition, int] = {}
        self._starts = StartOffsets(self, clock, ResetPolicy.of(self._settings))
        self._reads = ReadPositions()
        self._replaced_topics: frozenset[str] = frozenset()

    @property
    def _work(self) -> UncommittedWork:
        return self._handed.work

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition."""
        return self._work.positions

    @property
    def positions_of_ours(self) -> InputPositions:
        """Uncommitted work of the partitions that have not left since it was consumed."""
        return self._work.ours

    @property
    def records_in_hand(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        return self._work.in_hand

    # -- fetching ------------------------------------------------------------------------------------------------

    def _fetch(self, count: int, timeout: float) -> list[Any]:
        """Ask the client library, and keep what is still ours, not paused and not from before a rewind."""
        self._left_in_call = self._retained_in_call = frozenset()
        self._chosen_in_call = {}
        # Only an emptied queue proves a generation; while there is a backlog, asking for it would be in vain.
        before = self.snapshot().generation if self._drained else None
        try:
            with consumer_errors("consume()"):
                batch = self._ask(count, timeout)
        except FatalClientError:
            self._close_journal()  # such a client hands over nothing any more
            raise
        if self._callback_broke_off:
            self._guard.raise_kept()  # with an open journal: the next call fetches all this again
        self._drained = len(batch) < count
        asked = len(batch)
        if self._topics.replaced:
            batch = self._without_replaced(batch)
        if before is not None and self._drained:
            self._proven = before
        if self._left_in_call:
            batch = self._without_departed(batch)
        # Going back aborts a transaction, of which the application hears only once this call has returned.
        going_back = self._rewind_goals is not None
        if going_back:
            self._carried += batch
            batch = []
            self._rewind()
        else:
            batch = self._starts.admit(self._without_stale(batch) if self._rewound else batch)
        if self._paused and batch:
            batch = self._without_paused(batch)
        if self._guard.error is not None:
            self._carried += batch
            self._close_journal()
            self._guard.raise_kept()
        self._withheld = asked > 0 and not batch and not going_back
        return batch

    def _ask(self, count: int, timeout: float) -> list[Any]:
        """Ask the client library, in slices, so that what a callback raises need not wait for a record."""
        if not self._has_long_waits or not isinstance(timeout, (int, float)) or 0 <= timeout <= _SLICE_S:
            return self._ask_once(count, timeout)
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        batch: list[Any] = []
        while not batch and self._guard.error is None and (left := deadline - self._clock()) > 0:
            batch = self._ask_once(count, min(_SLICE_S, left))
        return batch

    @property
    def _has_long_waits(self) -> bool:
        return not getattr(self._clock, "is_simulated", False)

    def _ask_once(self, count: int, timeout: float) -> list[Any]:
        try:
            if count != 1:
                return in_library(self, lambda: self._raw_consume(count, timeout))
            message = in_library(self, lambda: self._raw.poll(timeout))
            return [] if message is None else [message]
        finally:
            self._in_callback = False

    def _raw_consume(self, count: int, timeout: float) -> list[Any]:
        try:
            batch: list[Any] = self._raw.consume(count, timeout)
        except BaseException:
            # Where it came out of a callback, librdkafka (2.16, `rd_kafka_q_serve_rkmessages`) neither hands over nor
            # frees the next record, which refers to a connection that `close` waits for.
            self._may_keep_a_record = True
            raise
        return batch

    # -- calls that are broken off ---------------------------------------------------------------------------------

    def _open_journal(self) -> bool:
        """Begin a call that changes what is handed over next; returns whether the call is the one to close it."""
        if self._handed.journal is None:
            self._handed.journal = []
            return True
        return False

    def _begin_change(self) -> bool:
        """Begin an application's own change of what is handed over next; returns what `_end_change` is given.

        The call before may have been broken off: what it has booked must not be undone after the change, and with it.
        """
        is_outermost = self._open_journal()
        self._handed.undo()
        return is_outermost

    def _end_change(self, *, is_outermost: bool) -> None:
        self._handed.stands()
        if is_outermost:
            self._close_journal()

    def _close_journal(self) -> None:
        self._handed.journal = None

    def _begin_fetching(self) -> None:
        """Begin a call that takes records from the client library; makes good what an earlier one has left undone.

        Nothing more is handed over by a closed consumer, so there is nothing to make good.
        """
        if not self._open_journal() and not self._in_callback and not self._closed:
            self._go_back_to_next()
        elif self._rewind_goals is not None and not self._in_callback:
            self._rewind()
        if self._rejoins and not self._in_callback and not self._closed:
            self._join_again()

    def _join_again(self) -> None:
        """Leave the group, and join it by a client library of its own: its member id is another one.

        ``unsubscribe`` and ``subscribe`` would do for a classic group only: a KIP-848 client joins again by its old id,
        and where its leaving was lost nothing tells that it is the member of before.
        """
        self._require_library()
        self._raw.unsubscribe()
        self._drop_carried_records()
        for _ in range(LEAVING_ROUNDS_MAX):
            if not self._raw.assignment():
                break
            self._fetch_for_later(1, LEAVING_STEP_S)
        self._require_library()
        self._hear_of(frozenset())
        committed = self.committed_for_sure(self._go_on_at, _REJOIN_ASK_S) if self._go_on_at else {}
        self._let_go(self._replace_library())
        self._starts.go_on({p: (committed.get(p), offset) for p, offset in self._go_on_at.items()})
        if self._listener is not None:
            self._subscribe(self._subscription, self._listener)
        self._go_on_at = {}

    def _require_library(self) -> None:
        """Raise FatalClientError where librdkafka has given the client up: a successor would fence the fencer."""
        self._fatal = self._fatal or self._why_given_up()
        self._require_not_given_up()

    def _note_where_to_go_on(self, keys: frozenset[InputPartition]) -> None:
        """Where the group is left only to join it again, a seek of the application's must not be lost."""
        if not self._rejoins:
            return
        for partition in keys & self._chosen:
            position = self._work.ours.get(partition)
            offset = self._handed.next_offsets.get(partition) if position is None else position.first_offset
            if offset is not None:
                self._go_on_at[partition] = offset

    def _let_go(self, library: Any) -> None:
        limit_s, self._may_keep_a_record = self._close_limit_s, False
        if not close_in_time(library.close, limit_s, self._clock):
            self.report(
                f"the group was left for a new membership, but the client library of the old one did not end within "
                f"{limit_s:g} s: its thread and connections stay to the process's end"
            )

    @property
    def _close_limit_s(self) -> float:
        return safe_close.CLOSE_LIMIT_AFTER_AN_EXCEPTION_S if self._may_keep_a_record else safe_close.CLOSE_LIMIT_S

    def _go_back_to_next(self) -> None:
        """Continue every partition at the first record that was not handed over.

        A call was broken off: records that the library has counted may be gone, and callbacks may have been half done.
        Where it was broken off by an exception out of a callback, librdkafka has dropped the next record without
        counting it; so a position says nothing of a partition whose start is not known.
        """
        self._handed.undo()
        self._drop_carried_records()
        self._fatal = self._fatal or self._why_given_up()
        if self._rewind_goals is not None:
            goals, self._rewind_goals = self._rewind_goals, None
            self._book_rewind(goals)
        assigned = self._raw.assignment()
        ours = keys_of(assigned)
        if self._listener is not None:
            self._hear_of(ours)
        self._prove_soon = self._is_member_epoch
        reached = {InputPartition(p.topic, p.partition): p.offset for p in self._raw.position(assigned)}
        for partition in ours & self._handed.next_offsets.keys():
            offset = self._handed.next_offsets[partition]
            self._go_back(partition, offset, reached[partition])
        begun = {p for p in ours - self._handed.next_offsets.keys() if reached[p] >= 0}
        if begun := begun - self._starts.held:
            self._reads.forget(begun)
            self._starts.came_back(frozenset(begun))
        self._resume_after(ours)
        self._starts.doubt(ours - self._handed.next_offsets.keys() - self._starts.held)

    def _drop_carried_records(self) -> None:
        """Drop what will be fetched again; the library does not tell an error twice."""
        self._carried = [m for m in self._carried if m.error() is not None]

    def _why_given_up(self) -> KafkaError | None:
        """Return the error if librdkafka has given the client up: it looks at that before it looks at the offsets."""
        try:
            self._raw.commit(offsets=[], asynchronous=False)
        except KafkaException as exception:
            error = kafka_error(exception)
            return error if is_fatal(error) else None
        return None

    def _note_given_up(self, events: Iterable[Any]) -> None:
        """Keep the fatal error among ``events``, which are about to be handed over."""
        errors = (event.error() for event in events)
        self._fatal = self._fatal or next((error for error in errors if is_fatal(error)), None)

    def _require_not_given_up(self) -> None:
        if self._fatal is not None:
            self._close_journal()
            raise input_error(self._fatal, is_fatal=True)

    def _hear_of(self, ours: frozenset[InputPartition]) -> None:
        """Make good rebalance callbacks that were broken off; what left unheard of counts as lost."""
        if gone := (self._assigned | self._half_heard) - ours:
            self._on_lost(self, to_kafka(gone))
        if new := ours - (self._assigned - self._half_heard):
            self._on_assign(self, to_kafka(new))
        self._half_heard = self._left_in_call = self._retained_in_call = frozenset()
        self._callback_broke_off = False

    def _go_back(self, partition: InputPartition, offset: int, reached: int) -> None:
        self._seek(partition, offset)
        self._rewound.pop(partition, None)
        if 0 <= offset < reached:
            self._rewound[partition] = (offset, reached, 0)

    def _without_departed(self, batch: list[Any]) -> list[Any]:
        kept = [m for m in batch if InputPartition(m.topic(), m.partition()) not in self._left_in_call]
        # Left and came back within one call: which of its records are from before cannot be told. The library goes on
        # reading what it has retained, perhaps at the end already, where no record would come that tells.
        back = (self._left_in_call if len(kept) < len(batch) else self._retained_in_call) & self._assigned
        if back:
            self._start_again(back)
        return kept

    def _without_replaced(self, batch: list[Any]) -> list[Any]:
        """Hand over nothing of a topic that was replaced by another, and commit nothing of the old one for the new."""
        for topic in self._topics.take_replaced():
            partitions = frozenset(p for p in keys_of(self._raw.assignment()) if p.topic == topic)
            if not partitions and topic not in self._named:
                continue
            batch = [m for m in batch if m.topic() != topic]
            self._carried = [m for m in self._carried if m.topic() != topic]
            if self._is_by_pattern(topic):
                self._begin_anew(partitions)
            else:
                self._work.forget(partitions)
                self.hold_back(partitions)
                self._replaced_topics |= {topic}
        return batch

    def _begin_anew(self, partitions: frozenset[InputPartition]) -> None:
        """Read the topic that has taken the name of another from its beginning."""
        read = frozenset(p for p in partitions if self._reads.has_read(p))
        self._work.forget(partitions)
        self._handed.forget_next(partitions)
        for partition in partitions:
            self._forget_way_back(partition)
        self._starts.begin_anew(partitions, read)

    def _without_stale(self, batch: list[Any]) -> list[Any]:
        kept: list[Any] = []
        sought: set[InputPartition] = set()
        for run in runs(batch):
            point = self._rewound.get(run.partition)
            if run.partition in sought and not run.is_error:
                continue  # it comes behind the records that the seek brings
            if point is not None and not run.is_error:
                back_to, reached, attempts = point
                if run.first_offset >= reached and attempts < _SEEK_ATTEMPTS_MAX:
                    self._rewound[run.partition] = (back_to, reached, attempts + 1)
                    self._seek(run.partition, back_to)
                    sought.add(run.partition)
                    continue
                del self._rewound[run.partition]
            kept += batch[run.start : run.stop]
        return kept

    def _without_paused(self, batch: list[Any]) -> list[Any]:
        """Keep what was paused until it is resumed: librdkafka does not heed a pause before a topic's first assignment.

        Handed over, such records would overtake those of their partition that wait.
        """
        coming = self._paused & {InputPartition(m.topic(), m.partition()) for m in batch}
        if not coming:
            return batch
        self._raw.pause(to_kafka(coming))
        self._carried += [m for m in batch if InputPartition(m.topic(), m.partition()) in coming]
        return [m for m in batch if InputPartition(m.topic(), m.partition()) not in coming]

    def _expect_start(self, keys: frozenset[InputPartition]) -> None:
        self._starts.assigned(keys)

    def _fix_starts(self) -> None:
        # Called inside on_assign: what fails here is tried again, and reported, by the next fetch.
        with contextlib.suppress(*_UNTOLD):
            self._starts.fix()

    def _await_own_start(self, partitions: Sequence[TopicPartition]) -> None:
        """Without a group nobody else looks up where ``latest`` lets ``partitions`` start."""
        if self._listener is None and ResetPolicy.of(self._settings) is ResetPolicy.LATEST:
            self._starts.settled(self._starts.waiting)
            self._starts.assigned(keys_of(partitions))

    def _fix_own_start(self) -> None:
        if self._listener is None:
            self._fix_starts()

    def _note_chosen(self, partitions: Sequence[TopicPartition]) -> None:
        """Take down where the application lets ``partitions`` start; without an offset it leaves that to the group."""
        self._reads.forget(keys_of(partitions))
        chosen = {InputPartition(p.topic, p.partition): p.offset for p in partitions if p.offset not in _GROUP_DECIDES}
        self._chosen_in_call.update(chosen)
        self._chosen.update(chosen)
        self._starts.settled(chosen)
        for partition, offset in chosen.items():
            self._handed.continues_at(partition, offset)

    def _forget_departed(self, keys: frozenset[InputPartition]) -> None:
        super()._forget_departed(keys)
        self._starts.settled(keys)
        self._reads.forget(keys)
        self._work.departed(keys)
        self._handed.forget_next(keys)
        for key in keys:
            self._stored.pop(key, None)
            self._chosen_in_call.pop(key, None)
            self._forget_way_back(key)

    # -- serving callbacks ---------------------------------------------------------------------------------------

    @owned(claims=True)
    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due.

        Callbacks queue up behind fetched records. ``drain`` pauses the partitions, which makes the queued records
        void, until the queue is empty: then nothing that happened before the call can still be waiting.
        """
        self._begin_fetching()
        if drain:
            self._drain()
        else:
            self._fetch_for_later(1, 0)
        self._close_journal()

    @owned()
    def serve_errors(self) -> None:
        """Let the client library report why it is not connected, also inside a call that fetches.

        What else it hands over meanwhile, a fatal error that it tells once or a record, comes with a later call.
        """
        self._fetch_for_later(1, 0)

    def _drain(self) -> None:
        before = self.snapshot().generation
        self._prove_soon = False
        pausing = self._pause_for_a_while()
        try:
            for _ in range(_DRAIN_ROUNDS_MAX):
                self._fetch_for_later(_DRAIN_STEP, 0)
                if self._drained:
                    self._proven = before
                    break
        finally:
            self._resume_after(pausing)

    def _pause_for_a_while(self) -> frozenset[InputPartition]:
        pausing = self._assigned - self._paused - self._starts.waiting
        self._raw.pause(to_kafka(pausing))
        return pausing

    def _resume_after(self, pausing: frozenset[InputPartition]) -> None:
        # A pause outlives revocation: resume what was paused, also what has left by now, but for what the application
        # has paused in a callback meanwhile.
        self._raw.resume(to_kafka(pausing - self._paused - self._starts.waiting))

    @owned(claims=True)
    def wait_while_paused(self, limit_s: float) -> None:
        """Consume nothing for up to ``limit_s`` seconds and serve callbacks."""
        self._begin_fetching()
        pausing = self._pause_for_a_while()
        try:
            self._fetch_for_later(1, limit_s)
        finally:
            self._resume_after(pausing)
        self._close_journal()

    @owned(claims=True)
    def prefetch(self) -> None:
        """Take records that are there already, for a later ``consume``; serves callbacks."""
        if len(self._carried) < _PREFETCH_MAX:
            self._begin_fetching()
            self._fetch_for_later(_PREFETCH_STEP, 0)
            self._close_journal()

    def _fetch_for_later(self, count: int, timeout: float) -> None:
        # The callbacks that fetching runs may replace the list that the records are added to: fetch first.
        batch = self._fetch(count, timeout)
        self._carried += batch

    # -- where a partition starts (Steering) ---------------------------------------------------------------------

    def stable_offsets(self, partitions: Iterable[InputPartition]) -> Mapping[InputPartition, int] | None:
        """Return the committed offsets; None while any of them is pending or cannot be read."""
        try:
            return self.committed_offsets(partitions, _STABLE_TIMEOUT_S)
        except KafkaException as error:
            if isinstance(error, EosError) and not isinstance(error, CommitRefusedError):
                raise
            return None

    def end_offset(self, partition: InputPartition) -> int | None:
        """Return the offset behind the last record that may be read now; None when nobody answers."""
        try:
            watermarks = self._raw.get_watermark_offsets(TopicPartition(*partition), _STABLE_TIMEOUT_S)
        except KafkaException:
            return None
        return None if watermarks is None else int(watermarks[1])

    def commit_starts(self, starts: Mapping[InputPartition, int]) -> bool:
        """Commit ``starts`` under our membership; a consumer that assigns by hand has none, and commits nothing."""
        if self._listener is None:
            return True
        generation = self.snapshot().generation
        positions = {p: InputPosition(offset, offset, generation) for p, offset in starts.items()}
        if not generation.is_active_member or not self._may_commit(positions):
            return False
        return self._commit_starts(positions)

    def _commit_starts(self, starts: InputPositions) -> bool:
        offsets = [TopicPartition(*p, position.next_offset) for p, position in starts.items()]
        try:
            answer = self._raw.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        return all(place.error is None for place in answer)

    def _may_commit(self, positions: InputPositions) -> bool:
        """Ask whoever decides about this consumer's commits."""
        del positions
        return True

    def steer(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``."""
        self._seek(partition, offset)

    def starts_at(self, partition: InputPartition, offset: int) -> None:
        """Go back to ``offset`` should the call that hands over ``partition``'s first records be broken off."""
        self._handed.continues_at(partition, offset)

    def hold_back(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch nothing of ``partitions``, which the application may have paused too."""
        if partitions:
            self._raw.pause(to_kafka(partitions))

    @owned()
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch ``partitions`` again, each as soon as it is known where it goes on."""
        held = self._starts.held
        self._raw.resume(to_kafka(keys_of(partitions) - held) if held else partitions)
        self._paused -= keys_of(partitions)

    def let_go(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch ``partitions`` again, unless the application has paused them."""
        self._raw.resume(to_kafka(partitions - self._paused))

    def report(self, what: str) -> None:
        """Tell the application ``what`` keeps its records waiting."""
        raise NotImplementedError

    # -- going back ----------------------------------------------------------------------------------------------

    def rewind_soon(self) -> None:
        """Rewind as soon as the running ``poll`` or ``consume`` has returned from the library, or in the next one."""
        self._rewind_goals = self._all_goals()
        self._work.clear()

    @owned(claims=True)
    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours.

        Records that wait to be handed over are dropped and read again. Raises FatalClientError when a partition cannot
        be rewound.
        """
        self._begin_fetching()
        self._rewind()
        self._close_journal()

    def _rewind(self) -> None:
        self._rewind_goals = goals = self._all_goals()
        self._drop_carried_records()
        self._book_rewind(goals)
        for partition, (offset, reached) in goals.items():
            if partition in self._assigned and not self._closed:
                self._go_back(partition, offset, reached)
        self._rewind_goals = None

    def _book_rewind(self, goals: Mapping[InputPartition, tuple[int, int]]) -> None:
        for partition in goals.keys() & self._assigned:
            self._handed.continues_at(partition, goals[partition][0])
        self._work.clear()

    def _forget_way_back(self, partition: InputPartition) -> None:
        """Note that ``partition`` goes on elsewhere than where a rewind would continue it."""
        self._rewound.pop(partition, None)
        if self._rewind_goals is not None:
            self._rewind_goals.pop(partition, None)

    def _all_goals(self) -> dict[InputPartition, tuple[int, int]]:
        return {**self._goals(), **(self._rewind_goals or {})}

    def _goals(self) -> dict[InputPartition, tuple[int, int]]:
        """Return where to go back to, and the offset that no record may reach before that."""
        goals: dict[InputPartition, tuple[int, int]] = {}
        for run in (r for r in runs(self._carried) if not r.is_error):
            first, _ = goals.get(run.partition, (run.first_offset, 0))
            goals[run.partition] = (first, run.next_offset)
        for partition, position in self._work.ours.items():
            _, reached = goals.get(partition, (0, 0))
            goals[partition] = (position.first_offset, max(reached, position.next_offset))
        return goals

    def _seek(self, partition: InputPartition, offset: int) -> None:
        self._handed.continues_at(partition, offset)
        place = TopicPartition(partition.topic, partition.partition, offset)
        # A rebalance that begins meanwhile pauses partitions inside the library, which makes the seek outdated.
        deadline = self._clock() + _SEEK_LIMIT_S
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type(KafkaException),
            stop=lambda _: self._clock() >= deadline,
            wait=tenacity.wait_fixed(_SEEK_AGAIN_S),
            reraise=True,
        )
        try:
            retrying(self._raw.seek, place)
            self._reads.goes_on_at(partition, offset)
        except KafkaException as error:
            raise FatalClientError(
                f"{partition} could not be rewound to {offset} ({error}): its next records would be lost to this "
                "process. End it; nothing uncommitted is lost, the group reads it again."
            ) from error

    def _start_again(self, partitions: frozenset[InputPartition]) -> None:
        """Continue where the application has chosen to in this call, else at the group's offset."""
        chosen = partitions & self._chosen_in_call.keys()
        for partition in chosen:
            self._seek(partition, self._chosen_in_call[partition])
        if rest := partitions - chosen:
            self._handed.forget_next(rest)
            self._starts.came_back(rest)

    @owned()
    def committed_offsets(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        """Read the group's stable committed offsets; partitions without one are left out."""
        return {partition: entry.offset for partition, entry in self.committed_entries(partitions, timeout_s).items()}

    def committed_for_sure(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        """Read the group's stable committed offsets; raises ClusterUnavailableError where they cannot be had."""
        asked = frozenset(partitions)
        try:
            return self.committed_offsets(asked, timeout_s)
        except FatalClientError:
            raise
        except KafkaException as error:
            raise committed_offsets_unknown(asked, timeout_s, error) from error

    @owned()
    def committed_entries(
        self, partitions: Iterable[InputPartition], timeout_s: float
    ) -> dict[InputPartition, CommittedOffset]:
        """Read the group's stable committed offsets with their metadata; partitions without one are left out."""
        answer = self.committed(to_kafka(partitions), timeout_s)
        for p in answer:
            if p.error is not None:
                raise KafkaException(p.error)
        return {
            InputPartition(p.topic, p.partition): CommittedOffset(p.offset, p.metadata or "")
            for p in answer
            if p.offset >= 0
        }
