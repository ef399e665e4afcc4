import json
import logging
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from eos_client.cli.logs import LogFormat, configure_logs
from eos_client.cli.progress import LoopProgress
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.loop.until_end import READ_TO_THE_END
from eos_client.observe import (
    Counters,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RecordSkipped,
    TransactionCommitted,
    log_event,
)
from tests.support.waiting import wait_for

GENERATION = GroupGeneration(5, "member")
ORDERS_0, ORDERS_1 = InputPartition("orders", 0), InputPartition("orders", 1)


def committed() -> Any:
    return TransactionCommitted(
        records_in=3, records_out=4, duration_s=0.01, generation=GENERATION, inside_revoke=False
    )


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda: capsys.readouterr().err


def test_json_logs_are_one_object_a_line_with_level_time_and_fields(stderr: Any) -> None:
    configure_logs(LogFormat.JSON, verbose=True)
    log_event(committed())
    (line,) = stderr().splitlines()
    entry = json.loads(line)
    assert entry["event"] == "transaction_committed"
    assert entry["level"] == "debug"
    assert entry["timestamp"].endswith("Z")
    assert (entry["records_in"], entry["records_out"], entry["generation"]) == (3, 4, 5)


def test_the_console_leaves_out_every_single_transaction_unless_verbose(stderr: Any) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    log_event(committed())
    assert stderr() == ""
    configure_logs(LogFormat.CONSOLE, verbose=True)
    log_event(committed())
    assert "transaction_committed" in stderr()


def test_the_console_shows_what_is_out_of_the_ordinary(stderr: Any) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    log_event(RecordSkipped(topic="orders", partition=3, offset=17, error="no price"))
    text = stderr()
    assert "record_skipped" in text
    assert "no price" in text


def test_a_log_that_is_no_terminal_has_no_colour_codes(stderr: Any) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    structlog.get_logger().warning("anything")
    assert "\x1b" not in stderr()


def test_what_other_libraries_log_keeps_the_format(stderr: Any) -> None:
    configure_logs(LogFormat.JSON, verbose=False)
    logging.getLogger("some.library").warning("disk %s", "full")
    entry = json.loads(stderr())
    assert (entry["logger"], entry["message"], entry["level"]) == ("some.library", "disk full", "warning")


def test_a_warning_of_another_library_keeps_the_format(stderr: Any) -> None:
    configure_logs(LogFormat.JSON, verbose=False)
    with warnings.catch_warnings():  # puts back what capturing replaced
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("closed late", RuntimeWarning, stacklevel=1)
    entry = json.loads(stderr())
    assert (entry["logger"], entry["level"]) == ("py.warnings", "warning")
    assert "closed late" in entry["message"]


class Watched:
    """A loop of which only the totals count; ``totals`` gives those that are read next."""

    stop_reason: str | None = None

    def __init__(self, totals: Callable[[], Any] = Counters) -> None:
        self._totals = totals

    @property
    def counters(self) -> Any:
        return self._totals()


def reports_of(progress: LoopProgress, *, events: Any = (), **counters: int) -> list[Any]:
    """The reports of a loop that gets these events and does two more transactions while it runs."""
    totals = Counters(**counters)
    with capture_logs() as reports, progress.watch(Watched(lambda: totals)):
        for event in events:
            progress(event)
        for count in (1, 2):
            totals.skipped = count
            wait_for(lambda told=count: any(r["skipped"] == told for r in reports), "a report")
        return [report for report in reports if report["skipped"]]


def test_progress_reports_totals_at_each_interval() -> None:
    progress = LoopProgress(0.02, forward=lambda _event: None)
    reports = reports_of(progress, committed=7, records_in=70, records_out=71)
    assert all((report["committed"], report["records_in"]) == (7, 70) for report in reports)


def test_what_happened_since_the_last_report_is_told_when_the_loop_ends() -> None:
    totals = iter([0])
    watched = Watched(lambda: Counters(committed=next(totals, 1)))
    with capture_logs() as reports, LoopProgress(60).watch(watched):
        pass
    assert [report["committed"] for report in reports] == [1]


@pytest.mark.parametrize(
    ("reason", "told"),
    [("SIGTERM", ["SIGTERM"]), ("SIGINT", ["SIGINT"]), ("TransformError", []), (READ_TO_THE_END, [])],
)
def test_only_a_signal_is_told_as_what_stops_the_loop_and_how_to_end_at_once(reason: str, told: list[str]) -> None:
    looked = threading.Semaphore(0)

    def look() -> Counters:
        looked.release()
        return Counters()

    watched = Watched(look)
    watched.stop_reason = reason
    with capture_logs() as reports, LoopProgress(0.02).watch(watched):
        for _ in range(4):
            assert looked.acquire(timeout=60)
    assert [report["reason"] for report in reports if report["event"] == "loop_stopping"] == told


def test_a_loop_that_did_nothing_ends_without_a_report() -> None:
    with capture_logs() as reports, LoopProgress(60).watch(Watched()):
        pass
    assert reports == []


def test_an_idle_loop_tells_once_that_it_is_idle_and_then_nothing() -> None:
    looked = 0

    def totals() -> Counters:
        nonlocal looked
        looked += 1
        return Counters(records_in=0 if looked == 1 else 100)

    with capture_logs() as reports, LoopProgress(0.01).watch(Watched(totals)):
        wait_for(lambda: looked >= 6, "some intervals")
    assert [(report["records_in"], report["records_in_per_s"] > 0) for report in reports] == [(100, True), (100, False)]


def test_progress_tells_records_per_second_since_the_last_report() -> None:
    totals = iter([(0, 0), (1000, 500)])
    began_at = time.monotonic()

    def read() -> Counters:
        records_in, records_out = next(totals, (1000, 501))
        return Counters(records_in=records_in, records_out=records_out)

    with capture_logs() as reports, LoopProgress(0.1).watch(Watched(read)):
        wait_for(lambda: len(reports) >= 2, "two reports")
    took_s = time.monotonic() - began_at
    assert 1000 / took_s - 1 < reports[0]["records_in_per_s"] <= 10_100
    assert reports[0]["records_out_per_s"] == pytest.approx(reports[0]["records_in_per_s"] / 2, abs=1)
    assert reports[-1]["records_in_per_s"] == 0


def test_progress_follows_the_assignment_through_revoked_and_lost() -> None:
    events = [
        PartitionsAssigned(
            partitions=frozenset({ORDERS_0, ORDERS_1, InputPartition("orders", 2)}), generation=GENERATION
        ),
        PartitionsRevoked(partitions=frozenset({ORDERS_0}), generation=GENERATION, uncommitted=frozenset()),
        PartitionsLost(partitions=frozenset({ORDERS_1}), uncommitted=frozenset()),
    ]
    forwarded: list[Any] = []
    reports = reports_of(LoopProgress(0.02, forward=forwarded.append), events=events)
    assert reports[-1]["partitions"] == 1
    assert forwarded == events


def test_progress_stops_with_the_loop_even_when_it_fails() -> None:
    def loop() -> None:
        with LoopProgress(60).watch(Watched()):
            assert "loop-progress" in [thread.name for thread in threading.enumerate()]
            raise RuntimeError("loop failed")

    with pytest.raises(RuntimeError, match="loop failed"):
        loop()
    assert "loop-progress" not in [thread.name for thread in threading.enumerate()]
