"""Where `eos-client tail` begins, where no broker is needed."""

from datetime import datetime, timezone
from typing import Any

import pytest

from eos_client.cli.failures import CommandLineError
from eos_client.cli.tail_start import TailStart, start_of_last, tail_start, time_of, within

NOW_S = 1_800_000_000.5
NOTHING: dict[str, Any] = {"only_new": False, "offset": None, "since": None, "last": None, "now_s": NOW_S}


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, TailStart()),
        ({"only_new": True}, TailStart(only_new=True)),
        ({"offset": 0}, TailStart(offset=0)),
        ({"since": "30s"}, TailStart(since_ms=1_799_999_970_500)),
        ({"last": 5}, TailStart(last=5)),
    ],
)
def test_each_option_says_where_to_begin(given: Any, start: TailStart) -> None:
    assert tail_start(**{**NOTHING, **given}) == start


def test_two_beginnings_contradict_each_other() -> None:
    with pytest.raises(CommandLineError, match="--new and --from-offset contradict each other"):
        tail_start(**{**NOTHING, "only_new": True, "offset": 0})


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7200), ("1d", 86_400), ("0s", 0)])
def test_an_age_counts_back_from_now(text: str, seconds: int) -> None:
    assert time_of(text, NOW_S) == round((NOW_S - seconds) * 1000)


def test_a_time_is_local_unless_it_says_otherwise() -> None:
    expected = round(datetime(2026, 11, 30, 17, tzinfo=timezone.utc).timestamp() * 1000)
    assert time_of("2026-11-30T17:00Z", NOW_S) == time_of("2026-11-30T18:00+01:00", NOW_S) == expected
    local = datetime(2026, 11, 30, 17).astimezone()
    assert time_of("2026-11-30T17:00", NOW_S) == round(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["yesterday", "15", "m", "-5m", ""])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(CommandLineError, match="is no time: give an age such as 30s"):
        time_of(text, NOW_S)


def test_an_offset_outside_of_the_log_begins_at_its_nearer_end() -> None:
    wanted, starts, ends = {0: 5, 1: 5, 2: 5}, {0: 0, 1: 7, 2: 0}, {0: 9, 1: 9, 2: 3}
    assert within(wanted, starts, ends) == {0: 5, 1: 7, 2: 3}


@pytest.mark.parametrize(
    ("count", "start", "records", "expected"),
    [
        (2, 0, [0, 1, 2, 3], 2),
        (2, 0, [0, 1, 90, 99], 90),
        (3, 0, [0, 1, 90], 0),
        (9, 40, [41, 50], 41),
        (2, 0, [], 100),
    ],
)
def test_the_last_records_are_found_behind_markers(count: int, start: int, records: list[int], expected: int) -> None:
    def between(begin: int, end: int) -> list[int]:
        assert begin >= start
        return [offset for offset in records if begin <= offset < end]

    assert start_of_last(count, start, 100, between) == expected
