"""The power of the generator: each repair that is undone on purpose is found by an application.

python -m tests.applications.mutants [--applications 300]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from msgspec.structs import replace

from eos_client.clients import session_close, transaction_block
from eos_client.clients.block_state import INTERRUPTED, BlockState
from eos_client.clients.dead_letters import letters_for
from eos_client.clients.input_events import InputEvents
from eos_client.clients.open_work import OpenWork
from eos_client.clients.plain_commit import PlainCommits
from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.consumer import confluent_consumer, library_consumer
from eos_client.confluent.consumer.fetching import Fetching
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.producer.bounded_calls import BoundedCalls
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.producer.library_producer import LibraryProducer
from eos_client.confluent.producer.registration import Registration
from eos_client.core import commit_gate, hand_over, partition_states, record_runs
from eos_client.core.commit_gate import CommitGate, GateEvent, HoldEnded
from eos_client.core.model import GroupGeneration, Outcome
from eos_client.core.partition_events import Chosen, WorkTakenBack
from eos_client.core.partition_row import PartitionRow
from eos_client.core.partition_states import ConsumerState
from eos_client.core.producer_states import ProducerState
from eos_client.core.record_runs import Run, take
from eos_client.errors import AbortableError, TransformError
from eos_client.loop.record_failures import FailedRecords
from eos_client.loop.record_outputs import RecordOutputs
from eos_client.loop.transaction_size import TransactionSize
from eos_client.observe import _SafeHook
from tests.applications.found import (
    ASSIGNED_AGAIN,
    ASSIGNED_UNHEARD_AND_RESTARTED,
    LOST_AND_BACK_AND_PUT_BACK,
    REPEATED_COMMIT_OF_A_FORGOTTEN_ID,
)
from tests.applications.generator import draw
from tests.applications.program import Program
from tests.applications.search import judged
from tests.verification.tables import table

Patch = AbstractContextManager[Any]
APPLICATIONS = 300


@dataclass(frozen=True)
class Mutant:
    """One repair undone, and the ingredients that it matters for.

    ``says``: what is in the violation, where that of another defect begins alike. ``seed``: an application that finds
    it; ``found``: one that a search of thousands has found, where few others would.
    """

    name: str
    patch: Callable[[], Patch]
    ingredients: frozenset[str]
    says: str = ""
    seed: int = 0
    found: Program | None = None


def _of(*ingredients: str) -> frozenset[str]:
    return frozenset(ingredients)


def _never(*_: object) -> bool:
    return False


def _nothing(_: object) -> None:
    return None


def _forgets_broken_calls() -> Patch:
    return mock.patch.object(Fetching, "_repair", return_value=None)


@contextlib.contextmanager
def _callbacks_raise_inside() -> Iterator[None]:
    unguarded = mock.patch.object(CallbackGuard, "added_to", lambda _, settings: dict(settings))
    with unguarded, _forgets_broken_calls():
        yield


def _processed_at_once() -> Patch:
    return mock.patch.object(TransactionSession, "has_unprocessed_work", property(_never))


@contextlib.contextmanager
def _commits_after_a_failure() -> Iterator[None]:
    forgiven = mock.patch.object(ProducerState, "transaction_failure", property(_nothing))
    with forgiven, mock.patch.object(BlockState, "fail", return_value=None):
        yield


def _nested_blocks() -> Patch:
    def enter(self: Any) -> Any:
        self._session = self._join()
        self._session.block.open(lambda: False, self._on_outcome)
        self._number = self._session.block.number
        return self

    return mock.patch.object(transaction_block.Transaction, "__enter__", enter)


def _start_is_not_fixed() -> Patch:
    return mock.patch.object(OpenWork, "commit_starts", return_value=None)


def _library_skips_to_the_end() -> Patch:
    return mock.patch.object(library_consumer, "library_settings", dict)


def _late_copies_are_ignored() -> Patch:
    return mock.patch.object(Registration, "may_have_sent_twice", property(_never))


def _every_refusal_is_definite() -> Patch:
    return mock.patch.object(BoundedCalls, "_may_answer_second_copy", _never)


def _events_pass_as_records() -> Patch:
    return mock.patch.object(InputEvents, "records", lambda _, batch: batch)


def _one_refused_output_is_found_at_a_time() -> Patch:
    def record(self: Any, found: Any) -> Any:
        try:
            self._failed.record_refusal(*found[0])
        except TransformError as stop:
            return stop
        return AbortableError("an output was refused")

    return mock.patch.object(RecordOutputs, "_record_refusals", record)


def _refusals_by_brokers_are_nobodys() -> Patch:
    return mock.patch.object(ConfluentProducer, "take_refusal", return_value=None)


def _late_transactions_stay_large() -> Patch:
    return mock.patch.object(TransactionSize, "shrink_to_one", _never)


def _huge_numbers_break_through() -> Patch:
    def write(produce: Any, topic: str, record: Any, _: Any) -> None:
        numbers = {"partition": record.partition, "timestamp": record.timestamp_ms}
        given = {name: number for name, number in numbers.items() if number is not None}
        produce(topic, record.value, record.key, headers=record.headers, **given)

    return mock.patch("eos_client.clients.transaction_outputs.write_by", write)


def _letters_only_whole() -> Patch:
    only_whole = "eos_client.loop.record_failures.letters_for"
    return mock.patch(only_whole, lambda *about: letters_for(*about)[:1])


def _revocation_is_not_undone() -> Patch:
    return mock.patch.object(commit_gate, "_revocation_in_force", lambda revocation, _: revocation)


@contextlib.contextmanager
def _goes_on_without_a_start() -> Iterator[None]:
    unheard = mock.patch.object(record_runs, "RESET_FORBIDDEN", "")
    refusal = hand_over.standing_refusal

    def without_missing(state: ConsumerState) -> hand_over.Refusal | None:
        found = refusal(state)
        return None if isinstance(found, hand_over.MissingStart) else found

    with unheard, mock.patch.object(hand_over, "standing_refusal", without_missing):
        yield


def _library_chooses_a_start() -> Patch:
    return mock.patch.object(
        library_consumer, "library_settings", lambda each: {**each, "auto.offset.reset": "earliest"}
    )


def _asynchronous_commits_count_at_once() -> Patch:
    send = PlainCommits.send

    def sent(self: Any, offsets: Any, *, asynchronous: bool) -> Any:
        answer = send(self, offsets, asynchronous=asynchronous)
        self._record_committed(offsets.values() if asynchronous else ())
        return answer

    return mock.patch.object(PlainCommits, "send", sent)


def _any_consumer_may_enter_a_block() -> Patch:
    return mock.patch.object(OpenWork, "_refuse_after_plain_use", return_value=None)


def _commits_are_sent_beside_blocks() -> Patch:
    return mock.patch.object(OpenWork, "refuse_plain_use", return_value=None)


def _put_back_covers_what_departed() -> Patch:
    hand_over = PartitionRow.handed_over

    def handed_over(row: PartitionRow, run: Run, generation: GroupGeneration) -> PartitionRow:
        return hand_over(replace(row, orphan=None), run, generation)

    return mock.patch.object(PartitionRow, "handed_over", handed_over)


def _seeks_are_undone() -> Patch:
    def unless_in_call(change: Callable[[ConsumerState, Any], ConsumerState]) -> Any:
        return lambda state, event: state if state.call_is_unfinished else change(state, event)

    changes = {event: unless_in_call(partition_states._CHANGES[event]) for event in (Chosen, WorkTakenBack)}
    return mock.patch.dict(partition_states._CHANGES, changes)


def _paused_records_come_out() -> Patch:
    return mock.patch.object(hand_over, "take", lambda waiting, count, _: take(waiting, count, frozenset()))


def _holds_never_end() -> Patch:
    tell = CommitGate.tell

    def ignoring(self: CommitGate, event: GateEvent) -> None:
        if not isinstance(event, HoldEnded):
            tell(self, event)

    return mock.patch.object(CommitGate, "tell", ignoring)


@contextlib.contextmanager
def _commits_of_before_stay_pending() -> Iterator[None]:
    decide = PlainCommits._decide
    unconfirmed = mock.patch.object(PlainOffsets, "record_commit", return_value=None)
    unanswered = mock.patch.object(PlainOffsets, "drop_pending", return_value=None)

    def ruled(self: Any, requested: Any) -> Any:
        pending = self._offsets.pending
        older = {partition: pending[partition] for partition in requested if partition in pending}
        ruling = decide(self, requested)
        pending.update(older)
        return ruling

    with unconfirmed, unanswered, mock.patch.object(PlainCommits, "_decide", ruled):
        yield


def _stored_offsets_outlive_their_partition() -> Patch:
    return mock.patch.object(PlainOffsets, "forget_stored", return_value=None)


def _every_assign_chooses_a_start() -> Patch:
    return mock.patch.object(confluent_consumer, "_GROUP_DECIDES", ())


def _every_id_is_pinned() -> Patch:
    build = LibraryProducer.__init__

    def built(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.id_is_generated = False

    return mock.patch.object(LibraryProducer, "__init__", built)


@contextlib.contextmanager
def _broken_blocks_are_told_the_last_outcome() -> Iterator[None]:
    finish = BlockState.finish_leaving
    last: dict[int, tuple[Outcome, str]] = {}

    def told(self: Any, outcome: Outcome, reason: str) -> None:
        if reason.startswith((INTERRUPTED, "its end failed")):
            outcome, reason = last.get(id(self), (Outcome.COMMITTED, "nothing was done yet"))
        last[id(self)] = outcome, reason
        finish(self, outcome, reason)

    with mock.patch.object(BlockState, "finish_leaving", told):
        yield


def _skips_are_told_at_once() -> Patch:
    settle = FailedRecords.substitutes_for

    def settled(self: Any, record: Any, error: Any) -> Any:
        instead = settle(self, record, error)
        self.committed()
        return instead

    return mock.patch.object(FailedRecords, "substitutes_for", settled)


def _a_clock_is_never_at_fault() -> Patch:
    return mock.patch.object(LibraryProducer, "clock_is_at_fault", property(_never))


def _times_given_are_kept() -> Patch:
    return mock.patch.object(BoundedCalls, "record_acknowledged_outputs", return_value=None)


def _outputs_with_times_are_batched_with_others() -> Patch:
    write = RecordOutputs._write_all

    def written(self: Any, outputs: Any) -> None:
        self._writes_apart = False
        write(self, outputs)

    return mock.patch.object(RecordOutputs, "_write_all", written)


def _matched_topics_never_leave() -> Patch:
    return mock.patch("eos_client.confluent.producer.bounded_calls.is_of_matched_topics", _never)


def _closed_producers_end_no_block() -> Patch:
    return mock.patch.object(session_close, "prepare_producer_close", return_value=None)


def _blocks_commit_what_they_gave_back() -> Patch:
    return mock.patch.object(TransactionSession, "fail_block_after_seek", _nothing)


def _hooks_break_through() -> Patch:
    return mock.patch.object(_SafeHook, "__call__", lambda self, event: self._hook(event))


MUTANTS = (
    Mutant("what an interrupted call had collected is lost", _forgets_broken_calls, _of("async_exceptions")),
    Mutant("callbacks raise inside the client library", _callbacks_raise_inside, _of("error_callback_raises")),
    Mutant(
        "records in hand count as processed",
        _processed_at_once,
        _of("late_outputs", "several_polls", "groups"),
        seed=582,
    ),
    Mutant(
        "a block commits after a failed call", _commits_after_a_failure, _of("swallowed_errors", "async_exceptions")
    ),
    Mutant("a block inside a block is accepted", _nested_blocks, _of("misuse")),
    Mutant("error events pass as records", _events_pass_as_records, _of("end_events"), seed=3),
    Mutant("with latest, the first start is not committed", _start_is_not_fixed, _of("latest")),
    Mutant(
        "the client library is told latest",
        _library_skips_to_the_end,
        _of("latest", "log_start_moves", "groups"),
        seed=646,
    ),
    Mutant("a hook that raises breaks through", _hooks_break_through, _of("hooks_raise")),
    Mutant("a handle goes on after a request was sent twice", _late_copies_are_ignored, _of("late_copies", "faults")),
    Mutant(
        "every refusal of a commit is definite",
        _every_refusal_is_definite,
        _of(),
        found=REPEATED_COMMIT_OF_A_FORGOTTEN_ID,
    ),
    Mutant(
        "refused outputs of a batch are found one by one",
        _one_refused_output_is_found_at_a_time,
        _of("rows_of_refusals", "refused_outputs", "batches"),
        says="an output was refused",
        seed=522,
    ),
    Mutant(
        "outputs that brokers refuse by-pass on_error",
        _refusals_by_brokers_are_nobodys,
        _of("broker_refusals"),
        says="failed with MSG_SIZE_TOO_LARGE",
    ),
    Mutant(
        "a transaction that timed out stays as large",
        _late_transactions_stay_large,
        _of("long_transforms"),
        says="failed with _FENCED",
    ),
    Mutant("a number beyond C's breaks through", _huge_numbers_break_through, _of("odd_numbers"), seed=5),
    Mutant("a dead letter is only tried whole", _letters_only_whole, _of("near_limit_letters")),
    Mutant("without a start, and with no leave to choose one, it idles", _goes_on_without_a_start, _of("no_reset")),
    Mutant("a start is chosen with no leave to", _library_chooses_a_start, _of("no_reset")),
    Mutant(
        "an asynchronous commit counts before it is confirmed",
        _asynchronous_commits_count_at_once,
        _of("failed_commits"),
    ),
    Mutant(
        "a consumer that has committed plainly may enter a block",
        _any_consumer_may_enter_a_block,
        _of("commits_before_blocks"),
        seed=3,
    ),
    Mutant(
        "commit() of a consumer with blocks is sent",
        _commits_are_sent_beside_blocks,
        _of("commits_after_blocks"),
        seed=14,
    ),
    Mutant(
        "records that come again and are put back cover what was lost before",
        _put_back_covers_what_departed,
        _of(),
        found=LOST_AND_BACK_AND_PUT_BACK,
    ),
    Mutant(
        "a seek is undone with the call before it",
        _seeks_are_undone,
        _of("gives_back", "async_exceptions", "faults", "several_polls", "stats_callback_raises"),
        seed=355,
    ),
    Mutant(
        "a block that gives back all of its records commits its outputs",
        _blocks_commit_what_they_gave_back,
        _of("callbacks_seek"),
    ),
    Mutant("records that wait come out though their partition is paused", _paused_records_come_out, _of("keeps_alive")),
    Mutant(
        "a commit that failed is sent after a newer one",
        _commits_of_before_stay_pending,
        _of("failed_commits", "given_offsets"),
    ),
    Mutant(
        "offsets that were stored outlive their partition",
        _stored_offsets_outlive_their_partition,
        _of("stored_offsets", "groups", "faults"),
        seed=752,
    ),
    Mutant(
        "an assign without an offset chooses a start",
        _every_assign_chooses_a_start,
        _of("callbacks_go_to_committed", "groups", "latest", "faults"),
        seed=173,
    ),
    Mutant(
        "a generated id counts as pinned",
        _every_id_is_pinned,
        _of("generated_ids", "faults", "outages", "late_copies", "long_transforms", "stalls"),
        says="nobody else has the generated id",
        seed=2520,
    ),
    Mutant(
        "a block that was interrupted is told the last outcome",
        _broken_blocks_are_told_the_last_outcome,
        _of("strikes_at_the_end", "async_exceptions"),
    ),
    Mutant("a skip is told before it is committed", _skips_are_told_at_once, _of("faults", "refused_outputs"), seed=26),
    Mutant("a wrong clock is a failure of records", _a_clock_is_never_at_fault, _of("wrong_clocks")),
    Mutant(
        "a time that was given once excuses the clock in later outputs",
        _times_given_are_kept,
        _of("wrong_clocks"),
        says="expected 2",
        seed=40,
    ),
    Mutant(
        "outputs with times of their own are batched with others",
        _outputs_with_times_are_batched_with_others,
        _of("wrong_clocks"),
        says="expected 2",
        seed=40,
    ),
    Mutant(
        "offsets of a topic that a pattern has matched, and that is gone, end the process",
        _matched_topics_never_leave,
        _of("unknown_topics", "patterns"),
        says="nothing is wrong with the cluster",
        seed=21,
    ),
    Mutant(
        "a producer that is closed ends no block",
        _closed_producers_end_no_block,
        _of("replaces_producers", "async_exceptions", "strikes_at_the_end"),
        says="its producer is closed",
        seed=3,
    ),
    Mutant("a gate stays closed when a revocation is undone", _revocation_is_not_undone, _of(), found=ASSIGNED_AGAIN),
    Mutant("a gate stays closed beyond its hold limit", _holds_never_end, _of(), found=ASSIGNED_UNHEARD_AND_RESTARTED),
)

OUT_OF_REACH = (
    (
        "equal offsets prove a commit",
        "they must have been committed before, so an application would have to read twice",
    ),
    ("a replaced topic goes unnoticed", "simulated topics have no ids, and real programs delete none"),
    ("an unrelated abort counts for ever", "a standby is idle for minutes, and programs live for seconds"),
    ("a remembered failure keeps its frames", "it costs memory, and nothing that the oracle knows"),
    ("a loop is closed by another thread", "simulated members have one thread each"),
    (
        "a secret is in the repr of the settings",
        "no record, offset or outcome shows it: test_repr_masks_secrets",
    ),
    (
        "a loop that is run twice says that a handle is closed",
        "refused either way: test_a_loop_that_has_ended_says_that_another_one_is_to_be_built",
    ),
    (
        "a write that a thread was refused lets its block commit",
        "one thread: test_a_block_one_of_whose_outputs_was_refused_by_thread_commits_nothing_and_says_why",
    ),
    (
        "an output that is not taken lets a failed transaction commit",
        "transactions by hand are no part: test_an_output_to_a_missing_topic_lets_no_failed_transaction_commit",
    ),
    (
        "a log end without an answer counts as a deleted topic",
        "ListOffsets is always answered: test_a_log_end_without_an_answer_is_asked_for_again_and_hides_no_outcome",
    ),
    (
        "what a signal handler tells is overwritten by the call that it interrupts",
        "none strikes in the core: test_what_a_signal_handler_tells_is_kept_by_the_call_that_it_has_interrupted",
    ),
    (
        "a transaction time-out below the gate's limits is accepted",
        "settings are drawn from what is accepted: tests/confluent/test_transaction_timeout.py",
    ),
    (
        "a closed producer keeps the records of its consumer",
        "one abort more: test_another_producer_takes_over_from_a_block_that_nobody_left",
    ),
    (
        "an abort by producer.close() is not counted",
        "only commits are compared with the logs: test_the_block_ends_as_aborted_and_the_records_come_again",
    ),
)
"""Mistakes of which no generated application can know, and why; tests of their own find them."""


def hunt(mutant: Mutant, count: int) -> tuple[int, str] | None:
    """Return the seed and the worst violation of the first application that holds, and does not with ``mutant``."""
    drawn = (draw(seed, mutant.ingredients) for seed in (mutant.seed, *range(count)))
    for program in (mutant.found,) if mutant.found else drawn:
        with mutant.patch():
            verdict = judged(program)
        said = next((each for each in verdict.violations if each.startswith(verdict.rule)), "")
        if said and mutant.says in said and not judged(program).violations:
            return program.seed, f"{said[: said.find(':')]}: …{said[said.find(mutant.says) :]}" if mutant.says else said
    return None


def main() -> int:
    """Hunt all of them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=APPLICATIONS)
    count = parser.parse_args().applications
    rows = []
    for mutant in MUTANTS:
        found = hunt(mutant, count)
        rows.append(
            (mutant.name, "SURVIVED" if found is None else str(found[0]), "" if found is None else found[1][:90])
        )
    sys.stdout.write(table(("repair undone", "seed", "first violation"), rows) + "\n")
    sys.stdout.write(table(("not to be found", "why"), OUT_OF_REACH) + "\n")
    return 1 if any(seed == "SURVIVED" for _, seed, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
