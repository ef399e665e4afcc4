import io
from typing import Any

import pytest
from rich.console import Console

from eos_client.cli.demo.audit import Findings
from eos_client.cli.demo.display import Display, Progress, show_outcome
from eos_client.cli.demo.verdict import Verdict
from eos_client.cli.demo.worker import Tally, Worker

GOOD = Verdict(Findings(inputs=500, outputs=500), lines=500, loaded=500, hidden=37, behind={})


def plain_console() -> Any:
    return Console(file=io.StringIO(), force_terminal=False, width=140)


def shown(console: Any) -> Any:
    return console.file.getvalue()


def note_all(tally: Any, *entries: Any) -> Any:
    for entry in entries:
        tally.apply(entry)


def test_a_worker_is_counted_by_its_log_lines() -> None:
    tally = Tally()
    tally.begin_life()
    note_all(
        tally,
        {"event": "partitions_assigned"},
        {"event": "loop_progress", "records_in_per_s": 10, "generation_id": 4, "partitions": 2},
        {"event": "transaction_committed", "records_in": 10, "records_out": 11},
        {"event": "transaction_committed", "records_in": 1, "records_out": 1},
        {"event": "commit_skipped"},
        {"event": "transaction_aborted", "records_in": 5, "reason": "lost"},
        {"event": "producer_rebuilt", "reason": "timed out"},
        {"event": "loop_progress", "records_in_per_s": 2500, "generation_id": 5, "partitions": 1},
        {"event": "something_else"},
        {},
    )
    assert (tally.committed, tally.records_in) == (2, 11)
    assert (tally.skipped, tally.aborted, tally.rebalances) == (1, 1, 1)
    assert list(tally.incidents) == ["aborted a transaction of 5 records: lost", "rebuilt its producer: timed out"]
    assert (tally.generation_id, tally.partitions, tally.records_per_s) == (5, 1, 2500)


def test_a_second_life_owns_nothing_yet_and_goes_on_counting() -> None:
    tally = Tally()
    tally.begin_life()
    note_all(
        tally,
        {"event": "loop_progress", "records_in_per_s": 10, "generation_id": 4, "partitions": 1},
        {"event": "transaction_committed", "records_in": 10, "records_out": 10},
    )
    tally.begin_life()
    assert (tally.lives, tally.partitions, tally.committed) == (2, 0, 1)


def test_without_a_terminal_progress_is_plain_lines() -> None:
    console = plain_console()
    worker = Worker("w1", [])
    worker.tally.begin_life()
    with Display(console, [worker], Progress(total=100, loaded=50, committed=40)) as display:
        display.emit("w1 started")
        display.refresh()
    text = shown(console)
    assert "w1 started" in text
    assert "40 of 100 committed (50 loaded)" in text
    assert "w1 waiting gen -1 owns 0: 0 committed, 0 skipped, 0 aborted" in text
    assert "\x1b" not in text


def test_plain_lines_are_seconds_apart() -> None:
    console = plain_console()
    with Display(console, [], Progress(total=100, loaded=50)) as display:
        for _ in range(100):
            display.refresh()
    assert len(shown(console).splitlines()) == 1


def test_on_a_terminal_the_table_shows_every_worker() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    worker = Worker("w1", [])
    note_all(worker.tally, {"event": "transaction_committed", "records_in": 1234, "records_out": 1, "generation": 9})
    with Display(console, [worker], Progress(total=2000, loaded=1500, committed=1234)) as display:
        display.refresh()
        console.print(display._screen())
    assert all(text in shown(console) for text in ("w1", "1,234", "rebal.", "rec/s"))


@pytest.mark.parametrize(
    ("verdict", "complaints", "passed"),
    [
        (GOOD, [], True),
        (GOOD, ["w2 ended with status 9 after SIGTERM"], False),
        (Verdict(Findings(inputs=500, outputs=499, missing=1), 500, 500, 0, {}), [], False),
    ],
)
def test_the_outcome_says_the_verdict_in_words(verdict: Any, complaints: Any, passed: Any) -> None:
    console = plain_console()
    display = Display(console, [Worker("w1", [])], Progress(total=500))
    display.emit("w1 killed (SIGKILL) while it owned 2 partitions")
    assert show_outcome(display, verdict, complaints) is passed
    text = shown(console)
    assert ("NOT EXACTLY ONCE" in text) is not passed
    assert "EXACTLY ONCE: 500 records" in text
    assert "w1 killed (SIGKILL)" in text
    assert f"{verdict.hidden} more outputs" in text
    assert all(complaint in text for complaint in complaints)
