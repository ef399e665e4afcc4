import io
from typing import Any

import pytest
from rich.console import Console

from eos_client.cli.demo.display import Display, StalledError, workers_table
from eos_client.cli.demo.verdict import Findings
from eos_client.cli.demo.worker import Worker

GOOD = Findings(inputs=500, outputs=500, hidden=37)


def plain_console() -> Any:
    return Console(file=io.StringIO(), force_terminal=False, width=140)


def shown(console: Any) -> Any:
    return console.file.getvalue()


def test_a_worker_is_counted_by_its_log_lines() -> None:
    tally = Worker("w1", [])
    for entry in (
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
    ):
        tally.apply(entry)
    assert (tally.committed, tally.records_in) == (2, 11)
    assert (tally.skipped, tally.aborted, tally.rebalances) == (1, 1, 1)
    assert list(tally.incidents) == ["aborted a transaction of 5 records: lost", "rebuilt its producer: timed out"]
    assert (tally.generation_id, tally.partitions, tally.records_per_s) == (5, 1, 2500)


def test_a_second_life_owns_nothing_yet_and_goes_on_counting() -> None:
    worker = Worker("w1", ["--no-such-option"])
    for lives in (1, 2):
        worker.start()
        assert (worker.lives, worker.partitions, worker.committed) == (lives, 0, lives - 1)
        worker.apply({"event": "loop_progress", "records_in_per_s": 10, "generation_id": 4, "partitions": 1})
        worker.apply({"event": "transaction_committed", "records_in": 10, "records_out": 10})
        assert worker.wait(60) == 2
        assert (worker.partitions, worker.records_per_s, worker.state) == (0, 0, "failed (2)")
    assert worker.wait(1) == 2
    assert "No such option" in " ".join(worker.log_tail)


def test_without_a_terminal_progress_is_plain_lines() -> None:
    console = plain_console()
    worker = Worker("w1", [], lives=1)
    with Display(console, [worker], total=100, loaded=50, committed=40) as display:
        display.emit("w1 started")
        display.refresh()
    text = shown(console)
    assert "w1 started" in text
    assert "40 of 100 committed (50 loaded)" in text
    assert "w1 waiting gen -1 owns 0: 0 committed, 0 skipped, 0 aborted" in text
    assert "\x1b" not in text


def test_what_stands_in_brackets_is_shown() -> None:
    console = plain_console()
    with Display(console, [], total=500) as display:
        display.emit("no Spark stage: pip install 'eos-client[spark]'")
    display.show_verdict([("no [loss]", True, "at orders[1]@7")], GOOD)
    text = shown(console)
    assert text.count("'eos-client[spark]'") == 2
    assert "at orders[1]@7" in text


def test_the_workers_fit_into_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    worker = Worker("w1", [])
    worker.apply({"event": "loop_progress", "records_in_per_s": 2500, "generation_id": 123, "partitions": 12})
    worker.apply({"event": "transaction_committed", "records_in": 123_456, "records_out": 1})
    console.print(workers_table([worker]))
    text = shown(console)
    headings = ("worker", "state", "gen", "owns", "records", "rec/s", "commits", "skips", "aborts", "rebal.", "starts")
    assert all(heading in text for heading in headings)
    assert all(figure in text for figure in ("waiting", "123,456", "2,500"))


def test_plain_lines_are_seconds_apart() -> None:
    console = plain_console()
    with Display(console, [], total=100, loaded=50) as display:
        for _ in range(100):
            display.refresh()
    assert len(shown(console).splitlines()) == 1


def test_on_a_terminal_the_table_shows_every_worker() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    worker = Worker("w1", [])
    worker.apply({"event": "transaction_committed", "records_in": 1234, "records_out": 1, "generation": 9})
    with Display(console, [worker], total=2000, loaded=1500, committed=1234) as display:
        display.refresh()
        console.print(display._picture())
    assert all(text in shown(console) for text in ("w1", "1,234", "rebal.", "rec/s"))


@pytest.mark.parametrize(
    ("findings", "complaint", "passed"),
    [
        (GOOD, "", True),
        (GOOD, "w2 ended with status 9 after SIGTERM", False),
        (Findings(inputs=500, outputs=499, missing=1), "", False),
    ],
)
def test_the_outcome_says_the_verdict_in_words(findings: Findings, complaint: str, passed: bool) -> None:
    console = plain_console()
    display = Display(console, [Worker("w1", [])], total=500)
    display.emit("w1 killed (SIGKILL) while it owned 2 partitions")
    checks = [*findings.worker_checks(500, 500, {}), ("workers stopped cleanly", not complaint, complaint)]
    assert display.show_verdict(checks, findings) is passed
    text = shown(console)
    assert ("NOT EXACTLY ONCE" in text) is not passed
    assert "EXACTLY ONCE: 500 records" in text
    assert "w1 killed (SIGKILL)" in text
    assert f"{findings.hidden} more outputs" in text
    assert complaint in text


def test_a_run_that_was_given_up_says_so_and_is_not_exactly_once_whatever_the_topics_hold() -> None:
    console = plain_console()
    with Display(console, [], total=500) as display:
        raise StalledError("nothing moved")
    assert display.show_verdict(GOOD.worker_checks(500, 500, {}), GOOD) is False
    assert "given up: nothing moved" in shown(console)
    assert "NOT EXACTLY ONCE" in shown(console)
