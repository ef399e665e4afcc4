"""Fetching: what the client library gives, less what is not ours any more, from before a rewind, or started wrongly.

``consume`` may collect records, run a revoke callback and then return what it had collected before it. Records that
were fetched but not handed over yet are *carried*: they count as nothing, and leave with their partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tenacity
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from eos_client.confluent.failures import consumer_errors
from eos_client.confluent.group_member import ConsumerFactory, GroupMember, to_kafka
from eos_client.confluent.record_runs import runs
from eos_client.confluent.start_offsets import StartOffsets
from eos_client.confluent.thread_ownership import owned
from eos_client.core.model import InputPartition, InputPositions
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
_GROUP_DECIDES = (OFFSET_INVALID, OFFSET_STORED)
_START = {"earliest": -2, "beginning": -2, "smallest": -2, "latest": -1, "end": -1, "largest": -1, "error": -1}


class FetchingConsumer(GroupMember):
    """A member that fetches, serves callbacks and can go back to its first uncommitted record."""

    def __init__(self, settings: dict[str, Any], factory: ConsumerFactory, clock: Clock) -> None:
        super().__init__(settings, factory)
        self._clock = clock
        self._work = UncommittedWork()
        self._rewind_goals: dict[InputPartition, tuple[int, int]] | None = None
        self._rewound: dict[InputPartition, tuple[int, int, int]] = {}
        self._stored: dict[InputPartition, TopicPartition] = {}
        self._drained = False
        self._chosen_in_call: dict[InputPartition, int] = {}
        self._starts = StartOffsets(self, clock)

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition."""
        return self._work.positions

    @property
    def positions_of_ours(self) -> InputPositions:
        """Uncommitted work of the partitions that have not left since it was consumed."""
        return self._work.ours

    # -- fetching ------------------------------------------------------------------------------------------------

    def _fetch(self, count: int, timeout: float) -> list[Any]:
        """Ask the client library, and keep of its answer what is still ours and not from before a rewind."""
        self._left_in_call = frozenset()
        self._chosen_in_call = {}
        # Only an emptied queue proves a generation; while there is a backlog, asking for it would be in vain.
        before = self.snapshot().generation if self._drained else None
        with consumer_errors("consume()"):
            batch = self._ask(count, timeout)
        self._drained = len(batch) < count
        if before is not None and self._drained:
            self._proven = before
        if self._left_in_call:
            batch = self._without_departed(batch)
        if self._rewind_goals is not None:
            self._carried += batch
            batch = []
            self.rewind()
        else:
            batch = self._starts.admit(self._without_stale(batch) if self._rewound else batch)
        if self._callback_error is not None:
            self._carried += batch
            self._raise_callback_error()
        return batch

    def _ask(self, count: int, timeout: float) -> list[Any]:
        if count != 1:
            batch: list[Any] = self._raw.consume(count, timeout)
            return batch
        message = self._raw.poll(timeout)
        return [] if message is None else [message]

    def _without_departed(self, batch: list[Any]) -> list[Any]:
        kept = [m for m in batch if InputPartition(m.topic(), m.partition()) not in self._left_in_call]
        back = self._left_in_call & self._assigned
        if back and len(kept) < len(batch):
            # Left and came back within one call: which of its records are from before cannot be told.
            self._start_again(back)
        return kept

    def _without_stale(self, batch: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for run in runs(batch):
            point = self._rewound.get(run.partition)
            if point is not None and not run.is_error:
                back_to, reached, attempts = point
                if run.first_offset >= reached and attempts < _SEEK_ATTEMPTS_MAX:
                    self._rewound[run.partition] = (back_to, reached, attempts + 1)
                    self._seek(run.partition, back_to)
                    continue
                del self._rewound[run.partition]
            kept += batch[run.start : run.stop]
        return kept

    def _expect_start(self, keys: frozenset[InputPartition]) -> None:
        self._starts.assigned(keys)

    def _note_chosen(self, partitions: Iterable[TopicPartition]) -> None:
        """Take down where the application lets ``partitions`` start; without an offset it leaves that to the group."""
        chosen = {InputPartition(p.topic, p.partition): p.offset for p in partitions if p.offset not in _GROUP_DECIDES}
        self._chosen_in_call.update(chosen)
        self._starts.settled(chosen)

    def _forget_departed(self, keys: frozenset[InputPartition]) -> None:
        super()._forget_departed(keys)
        self._starts.settled(keys)
        self._work.departed(keys)
        for key in keys:
            self._stored.pop(key, None)
            self._chosen_in_call.pop(key, None)
            self._rewound.pop(key, None)
            if self._rewind_goals is not None:
                self._rewind_goals.pop(key, None)

    # -- serving callbacks ---------------------------------------------------------------------------------------

    @owned(claims=True)
    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due.

        Callbacks queue up behind fetched records. ``drain`` pauses the partitions, which makes the queued records
        void, until the queue is empty: then nothing that happened before the call can still be waiting.
        """
        if not drain:
            self._fetch_for_later(1, 0)
            return
        before = self.snapshot().generation
        self._prove_soon = False
        pausing = self._pause_for_a_while()
        try:
            for _ in range(_DRAIN_ROUNDS_MAX):
                if not self._fetch_for_later(_DRAIN_STEP, 0):
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
        pausing = self._pause_for_a_while()
        try:
            self._fetch_for_later(1, limit_s)
        finally:
            self._resume_after(pausing)

    @owned(claims=True)
    def prefetch(self) -> None:
        """Take records that are there already, for a later ``consume``; serves callbacks."""
        if len(self._carried) < _PREFETCH_MAX:
            self._fetch_for_later(_PREFETCH_STEP, 0)

    def _fetch_for_later(self, count: int, timeout: float) -> int:
        # The callbacks that fetching runs may replace the list that the records are added to: fetch first.
        batch = self._fetch(count, timeout)
        self._carried += batch
        return len(batch)

    # -- where a partition starts (Steering) ---------------------------------------------------------------------

    def stable_offsets(self, partitions: Iterable[InputPartition]) -> Mapping[InputPartition, int] | None:
        """Return the committed offsets; None while any of them is pending or cannot be read."""
        try:
            return self.committed_offsets(partitions, _STABLE_TIMEOUT_S)
        except KafkaException as error:
            if isinstance(error, EosError) and not isinstance(error, CommitRefusedError):
                raise
            return None

    def steer(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``."""
        self._seek(partition, offset)

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

    # -- going back ----------------------------------------------------------------------------------------------

    def rewind_soon(self) -> None:
        """Rewind as soon as the running ``poll`` or ``consume`` has returned from the client library."""
        self._rewind_goals = self._goals()
        self._work.clear()

    @owned(claims=True)
    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours.

        Records that wait to be handed over are dropped and read again. Raises FatalClientError when a partition cannot
        be rewound.
        """
        goals = {**self._goals(), **(self._rewind_goals or {})}
        self._rewind_goals = None
        self._carried = []
        self._work.clear()
        for partition, (offset, reached) in goals.items():
            if partition in self._assigned:
                self._seek(partition, offset)
                self._rewound[partition] = (offset, reached, 0)

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
            self._go_on_at_committed(rest)

    def _go_on_at_committed(self, partitions: frozenset[InputPartition]) -> None:
        start = _START[str(self._settings["auto.offset.reset"]).lower()]
        known = self.stable_offsets(partitions)
        if known is None:  # pending, perhaps for as long as a dead member's transaction
            self._starts.came_back(partitions, start)
            return
        for partition in partitions:
            self._seek(partition, known.get(partition, start))

    @owned()
    def committed_offsets(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        """Read the group's stable committed offsets; partitions without one are left out."""
        answer = self.committed(to_kafka(partitions), timeout_s)
        for p in answer:
            if p.error is not None:
                raise KafkaException(p.error)
        return {InputPartition(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}
