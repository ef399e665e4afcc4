"""The benchmarks' own arithmetic: what is counted, over which time, and what a ratio is of."""

from __future__ import annotations

import json

import pytest

from eos_client.testing.java_runtime import JavaRuntime
from tests.benchmarks import publishing
from tests.benchmarks.contenders.assignment import BATCH, INLINE, KEYED, VALUE, report_commit
from tests.benchmarks.lineup import DEFAULTS, ENTRIES, OURS, TUNED, Entry
from tests.benchmarks.measure import (
    Mark,
    Measurement,
    TooFewCommitsError,
    is_complete,
    longest_gap_s,
    marks_in,
    measured,
    percentile,
    summary,
)
from tests.benchmarks.throughput import in_turn, missed, ratio


def commits(from_s, count, records, *, every_s=0.1, cpu_share=0.5):
    """Marks at an even pace; each commit takes 10 ms."""
    at_s = [from_s + number * every_s for number in range(count)]
    return [Mark(each, 100 + cpu_share * (each - from_s), records, 0.01) for each in at_s]


def turn(rate, commits_s=(0.01,), cpu_us=1.0, peak_mb=50.0):
    return Measurement(rate, cpu_us, tuple(commits_s), peak_mb)


def test_what_a_contender_prints_is_read_back_and_a_line_under_way_is_left(capsys):
    report_commit(7, 0.25)
    report_commit(8, 0.5)
    printed = capsys.readouterr().out
    assert [(mark.records, mark.commit_s) for mark in marks_in(f"a warning\n{printed}commit 1.0 2.0 3 0.2")] == [
        (7, 0.25),
        (8, 0.5),
    ]


def test_rate_and_cpu_are_those_between_the_first_and_the_last_commit_after_the_warm_up():
    slow_start = [Mark(0.0, 90.0, 5, 9.0), Mark(0.9, 99.0, 5, 9.0)]
    found = measured([[*slow_start, *commits(1.0, 11, 1000)]], warm_up_s=1.0, peak_mb=70)
    assert found.records_per_s == pytest.approx(10_000)
    assert found.cpu_us_per_record == pytest.approx(50.0)
    assert found.commits_s == (0.01,) * 10
    assert found.peak_mb == 70


def test_two_processes_are_added_up_over_the_time_in_which_both_are_at_work():
    early, late = commits(0.0, 21, 1000), commits(1.0, 31, 500)
    found = measured([early, late], warm_up_s=0.0, peak_mb=1)
    assert found.records_per_s == pytest.approx(10_000 + 5_000)
    assert len(found.commits_s) == 20


@pytest.mark.parametrize("marks", [[[]], [commits(0, 5, 10), []], [commits(0, 5, 10)[:1]]])
def test_a_process_that_hardly_commits_has_no_rate(marks):
    with pytest.raises(TooFewCommitsError, match="committed"):
        measured(marks, warm_up_s=0.0, peak_mb=1)


@pytest.mark.parametrize(
    ("processes", "complete"),
    [
        ([commits(0, 31, 10)], True),
        ([commits(0, 30, 10)], False),
        ([commits(0, 90, 10), commits(7.0, 20, 10)], False),
        ([commits(0, 90, 10), []], False),
        ([commits(0, 9, 100_000)], True),
    ],
    ids=["long enough", "too short", "the second came late", "the second did not come", "the input is at its end"],
)
def test_a_turn_is_complete_after_its_time_or_near_the_end_of_the_input(processes, complete):
    assert is_complete(processes, warm_up_s=1.0, seconds=1.9999, records=1_000_000) is complete


def test_percentiles_are_nearest_ranks():
    assert percentile(range(1, 101), 50) == 50
    assert percentile(range(1, 101), 99) == 99
    assert percentile([3.0], 99) == 3.0
    assert percentile([1.0, 9.0], 0) == 1.0


def test_a_summary_has_medians_of_turns_and_percentiles_of_all_commits():
    found = summary([turn(100, [0.001] * 50, 3.0, 40), turn(900, [0.002] * 49, 1.0, 60), turn(200, [0.5], 2.0, 50)])
    assert (found.records_per_s, found.slowest, found.fastest) == (200, 100, 900)
    assert (found.commit_p50_ms, found.commit_p99_ms) == (1.0, 2.0)
    assert (found.cpu_us_per_record, found.peak_mb) == (2.0, 60)


def test_a_ratio_is_of_the_hand_written_loop_that_does_the_same_with_as_many_processes():
    rates = [
        (Entry(TUNED, VALUE), 1000), (Entry(TUNED, KEYED), 800), (Entry(TUNED, KEYED, 2), 500),
        (Entry(OURS, KEYED), 600), (Entry(OURS, KEYED, 2), 400), (Entry(DEFAULTS, VALUE), 100),
        (Entry(TUNED, BATCH), 880), (Entry(TUNED, INLINE), 840),
    ]  # fmt: skip
    found = {entry.name: summary([turn(rate)]) for entry, rate in rates}
    assert {entry.name: ratio(entry, found) for entry, _ in rates} == {
        "hand-written, value": 1.0,
        "hand-written, keyed": 1.0,
        "hand-written, keyed, 2 processes": 1.0,
        "eos-client, keyed": 0.75,
        "eos-client, keyed, 2 processes": 0.8,
        "hand-written, librdkafka's defaults, value": 0.1,
        "hand-written, batch": 1.1,
        "hand-written, keyed, inline": 1.05,
    }
    assert ratio(Entry(OURS, VALUE), {"eos-client, value": summary([turn(1)])}) is None


def test_a_target_is_missed_only_below_it():
    entries = [Entry(TUNED, KEYED), Entry(OURS, KEYED, target=0.95)]
    for rate, slow in ((94.9, ["eos-client, keyed"]), (95.0, [])):
        found = {"hand-written, keyed": summary([turn(100)]), "eos-client, keyed": summary([turn(rate)])}
        assert missed(entries, found) == slow


def test_every_row_has_its_baseline_in_the_table_and_each_round_an_order_of_its_own():
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    assert {entry.baseline.name for entry in ENTRIES} <= set(names)
    orders = [in_turn(number, ENTRIES) for number in range(3)]
    assert all(sorted(each.name for each in order) == sorted(names) for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_a_table_is_kept_beside_its_figures_and_the_conditions(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(publishing, "RESULTS", tmp_path)
    monkeypatch.setattr(publishing, "find_java", lambda: JavaRuntime(tmp_path, 17, "build"))
    publishing.publish("speed", "how fast", ("who", "rate"), [("ours", 7)], {"rows": [{"rate": 7.25}]})
    assert (tmp_path / "speed.txt").read_text() in capsys.readouterr().out
    assert "ours     7" in (tmp_path / "speed.txt").read_text()
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert kept["rows"] == [{"rate": 7.25}]
    assert kept["conditions"]["java"] == 17
    assert kept["conditions"]["broker settings"]["group.initial.rebalance.delay.ms"] == "1000"


def test_the_longest_gap_reaches_from_either_end_of_the_span():
    seen_s = [0.5, 1.0, 1.2, 3.0, 9.0]
    assert longest_gap_s(seen_s, 0.9, 3.1) == pytest.approx(1.8)
    assert longest_gap_s(seen_s, 1.1, 1.9) == pytest.approx(0.7)
    assert longest_gap_s([], 1.0, 6.0) == pytest.approx(5.0)
