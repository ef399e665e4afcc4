"""What is said of a running loop: folded from events, and shown in lines and on a screen of 80 columns."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from eos_client.cli.run_figures import Seen, Snapshot, rates_between
from eos_client.cli.run_words import plain_line, screen, stopping_line, summary_line
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.observe import (
    CommitSkipped,
    LagMeasured,
    LoopStarted,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RecordDeadLettered,
    RecordSkipped,
    TransactionAborted,
    TransactionCommitted,
)

GENERATION = GroupGeneration(5, "member")
ORDERS_0, ORDERS_1 = InputPartition("orders", 0), InputPartition("orders", 1)
BOTH = frozenset({ORDERS_0, ORDERS_1})
ASSIGNED = PartitionsAssigned(partitions=BOTH, generation=GENERATION)
LAG = LagMeasured(records={ORDERS_0: 40, ORDERS_1: 16})
SKIPPED = CommitSkipped(generation=GENERATION, revocation_generation=GENERATION, held_for_s=1.5, reason="same")
COMMITTED = TransactionCommitted(
    records_in=1, records_out=1, duration_s=0.01, generation=GENERATION, inside_revoke=False
)
ABORTED = TransactionAborted(reason="the generation moved", rule=None, records_in=3)
FAILED: Any = {"topic": "orders", "partition": 0, "offset": 7, "error": "no price"}
TOTALS = {"committed": 120, "records_in": 12345, "records_out": 12300, "aborted": 2}


def seen(*events: Any, now_s: float = 100.0) -> Seen:
    state = Seen()
    for event in events:
        state = state.after(event, now_s)
    return state


def snapshot(*events: Any, **changes: Any) -> Snapshot:
    usual = Snapshot(elapsed_s=12.3, in_per_s=1234, out_per_s=1230, totals=TOTALS, seen=seen(*events))
    return replace(usual, **changes)


def shown(now: Snapshot, title: str = "billing: orders -> invoices") -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, no_color=True, width=80, color_system=None)
    console.print(screen(now, title))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_a_rebalance_moves_partitions_and_takes_their_lag_along() -> None:
    revoked = PartitionsRevoked(partitions=frozenset({ORDERS_0}), generation=GENERATION, uncommitted=frozenset())
    lost = PartitionsLost(partitions=frozenset({ORDERS_1}), uncommitted=frozenset())
    assert seen(ASSIGNED, LAG).lag == {ORDERS_0: 40, ORDERS_1: 16}
    after = seen(ASSIGNED, LAG, revoked)
    assert (after.partitions, after.lag) == (frozenset({ORDERS_1}), {ORDERS_1: 16})
    assert seen(ASSIGNED, LAG, revoked, lost).partitions == frozenset()


@pytest.mark.parametrize("ending", [COMMITTED, ABORTED])
def test_a_transaction_is_held_from_its_first_skip_to_its_end(ending: Any) -> None:
    assert seen(SKIPPED).held_since_s == 98.5
    assert seen(SKIPPED, ending).held_since_s is None


def test_failed_records_and_the_reason_of_the_last_abort_are_remembered() -> None:
    other = TransactionAborted(reason="an earlier one", rule=None, records_in=1)
    letter = RecordDeadLettered(**FAILED, dead_letter_topic="dead")
    after = seen(LoopStarted(group_id="g", transactional_id="t", topics=("orders",)), other, ABORTED, letter, letter)
    assert (after.is_started, after.last_abort, after.dead_letters) == (True, "the generation moved", 2)
    assert seen(RecordSkipped(**FAILED)).skipped_records == 1


def test_snapshots_are_equal_while_only_time_passes() -> None:
    assert snapshot(ASSIGNED) == snapshot(ASSIGNED, elapsed_s=99.0)
    assert snapshot(ASSIGNED) != snapshot(ASSIGNED, LAG)


def test_rates_are_per_second_between_two_readings() -> None:
    before, now = {"records_in": 100, "records_out": 10}, {"records_in": 300, "records_out": 20}
    assert rates_between(before, now, 2.0) == (100, 5)
    assert rates_between({}, {}, 0.0) == (0, 0)


def test_the_plain_line_begins_with_speed_and_lag() -> None:
    line = plain_line(snapshot(ASSIGNED, LAG, totals={**TOTALS, "aborted": 0}))
    assert line == "1,234 records/s, lag 56, 12,345 records in 120 commits"


def test_trouble_stands_before_the_totals_in_the_plain_line() -> None:
    letter = RecordDeadLettered(**FAILED, dead_letter_topic="dead")
    line = plain_line(snapshot(ASSIGNED, letter, RecordSkipped(**FAILED), held_s=3))
    assert line == (
        "1,234 records/s, held for 3 s, 2 aborts, 1 dead letter, 1 skipped record, 12,345 records in 120 commits"
    )


def test_a_member_without_partitions_says_so_first() -> None:
    assert plain_line(snapshot(in_per_s=0)).startswith("no partitions, 0 records/s")


@pytest.mark.parametrize(("is_done", "how"), [(True, "read to the end"), (False, "ended")])
def test_the_summary_sums_up_the_whole_run(is_done: bool, how: str) -> None:
    line = summary_line(snapshot(ASSIGNED, elapsed_s=3725.0), is_done=is_done)
    assert line == f"{how} after 1:02:05: 12,345 records in 120 commits, 12,300 out, 2 aborts"


def test_the_first_signal_says_how_to_end_at_once() -> None:
    assert "SIGINT: finishing the open transaction" in stopping_line("SIGINT")
    assert "Ctrl-C again ends at once" in stopping_line("SIGINT")
    assert "a second signal ends at once" in stopping_line("SIGTERM")


def test_the_screen_shows_every_figure_in_80_columns() -> None:
    letter = RecordDeadLettered(**FAILED, dead_letter_topic="dead")
    long_abort = replace(ABORTED, reason="the coordinator refused the offsets of an older generation " * 5)
    huge = {"committed": 98_765_432, "records_in": 9_876_543_210, "records_out": 9_876_543_210, "aborted": 123_456}
    lag = LagMeasured(records={ORDERS_0: 4_000_000_000, ORDERS_1: 16})
    lines = shown(snapshot(ASSIGNED, lag, letter, long_abort, held_s=3, in_per_s=1_234_567, totals=huge), "t" * 300)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    headings = ("records/s", "committed", "out", "commits", "lag", "held", "aborts", "dead letters")
    assert all(heading in text for heading in headings)
    assert all(figure in text for figure in ("1,234,567", "9,876M", "98,765k", "123k", "4,000M", "3 s"))
    assert "orders[0]  4,000,000,000" in text
    assert "last abort: the coordinator refused" in text


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"held_s": 3}, "held for 3 s"),
        ({"held_s": 3, "stop_reason": "SIGTERM"}, "finishing (SIGTERM)"),
    ],
)
def test_the_screen_says_what_the_loop_is_doing(changes: Any, state: str) -> None:
    assert f"billing: orders -> invoices   {state}   12.3 s" in shown(snapshot(ASSIGNED, **changes))[0]


def test_of_many_partitions_those_furthest_behind_are_shown() -> None:
    lag = {InputPartition("orders", number): number for number in range(100)}
    lines = shown(snapshot(ASSIGNED, LagMeasured(records=lag)))
    told = [line.split() for line in lines if "orders[" in line]
    assert told == [[f"orders[{number}]", str(number)] for number in range(92, 100)]
    assert any(line.split() == ["92", "more", "4,186"] for line in lines)


def test_foreign_text_cannot_move_the_cursor_of_the_terminal() -> None:
    evil = replace(ABORTED, reason="\x1b[2Jgone")
    assert "\x1b[2J" not in "\n".join(shown(snapshot(ASSIGNED, evil), "a\x1b[2J"))
