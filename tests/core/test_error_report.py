"""What is told of an error of the application: where it was raised, and a traceback that cannot grow."""

import asyncio
import builtins
import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tenacity

from eos_client.core.error_report import TRACEBACK_CHARACTERS_MAX, place_of, report_of
from eos_client.errors import EosError
from eos_client.loop.transform_results import collected


def caught(call, *given):
    """What ``call`` raises, as its caller sees it, but without this function's frame."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # any of the application's
        call(*given)
    first = raised.value.__traceback__
    assert first
    return raised.value.with_traceback(first.tb_next)


def trace_of(error) -> str:
    """The traceback that is told of ``error``."""
    return report_of(error).traceback or ""


def line_of(call, words):
    """The place of the line of ``call`` that holds ``words``."""
    code = call.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    numbers = [n for n, line in enumerate(lines, 1) if n >= code.co_firstlineno and words in line]
    return f"test_error_report.py:{numbers[0]} in {code.co_name}"


def price(value):
    if not value:
        raise ValueError("no price")
    return json.loads(value)


def wrapped(value):
    try:
        return price(value)
    except ValueError as error:
        raise KeyError("wrapped") from error


@pytest.fixture
def installed(tmp_path):
    """Load the text of a module as one that is installed below ``site-packages``."""

    def load(source, name="carrier", folder="site-packages"):
        path = tmp_path / folder / name / "__init__.py"
        path.parent.mkdir(parents=True)
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_the_place_is_the_frame_that_raised():
    assert place_of(caught(price, "")) == line_of(price, "raise ValueError")


def test_of_a_library_that_the_application_called_the_place_is_the_call():
    assert place_of(caught(price, "{")) == line_of(price, "json.loads")


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_an_installed_library_is_no_place_where_the_application_called_it(installed, folder):
    library = installed("def call(back):\n    return back()\n\n\ndef fail():\n    raise OSError\n", folder=folder)

    def transform():
        return library.fail()

    def through():
        return library.call(lambda: price(""))

    assert place_of(caught(transform)) == line_of(transform, "library.fail()")
    assert place_of(caught(through)) == line_of(price, "raise ValueError")


def test_a_transform_that_is_itself_installed_has_its_place_too(installed):
    transform = installed("import json\n\n\ndef price(value):\n    return json.loads(value)\n").price
    assert place_of(caught(transform, "{")) == "carrier/__init__.py:5 in price"


def test_where_only_the_standard_library_ran_its_innermost_frame_is_the_place():
    assert str(place_of(caught(json.loads, "{"))).startswith("decoder.py:")


def test_an_error_of_a_thread_or_a_coroutine_has_the_place_where_it_was_raised():
    async def awaits():
        await asyncio.sleep(0)
        price("")

    with ThreadPoolExecutor(1) as pool:
        assert place_of(caught(pool.submit(price, "").result)) == line_of(price, "raise ValueError")
    assert place_of(caught(asyncio.run, awaits())) == line_of(price, "raise ValueError")


def test_what_the_client_itself_raises_has_no_place_although_it_called_through_a_retry_policy():
    repeated = tenacity.Retrying(stop=tenacity.stop_after_attempt(1), reraise=True).wraps(partial(collected, 5))
    error = caught(repeated)
    assert "tenacity" in error.__traceback__.tb_frame.f_code.co_filename
    assert place_of(error) is None


def test_an_error_that_was_never_raised_has_neither_place_nor_traceback():
    report = report_of(ValueError("no price"))
    assert (report.text, report.place, report.traceback) == ("ValueError: no price", None, None)


def test_an_error_without_a_frame_of_the_application_has_the_place_of_its_cause():
    refused = EosError("the value cannot be serialised")
    refused.__cause__ = caught(price, "")
    assert place_of(refused) == line_of(price, "raise ValueError")
    assert place_of(caught(wrapped, "")) == line_of(wrapped, "raise KeyError"), "the error's own frame comes first"


def test_the_traceback_shows_the_frames_and_the_causes_in_the_order_of_python():
    told = trace_of(caught(wrapped, ""))
    lines = told.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "Traceback (most recent call last):",
        "ValueError: no price",
        "The above exception was the direct cause of the following exception:",
        "Traceback (most recent call last):",
        "KeyError: 'wrapped'",
    ]
    assert f'  File "{__file__}", line {price.__code__.co_firstlineno + 2}, in price' in lines
    assert '    raise ValueError("no price")' in lines


def test_a_cause_that_was_suppressed_is_left_out_and_one_that_was_not_is_told():
    def during():
        try:
            price("")
        except ValueError:
            raise KeyError("next")  # noqa: B904  # what this tests

    def instead():
        try:
            price("")
        except ValueError:
            raise KeyError("next") from None

    assert "During handling of the above exception" in trace_of(caught(during))
    assert "no price" not in trace_of(caught(instead))


def deep(depth):
    if depth:
        return deep(depth - 1)
    raise ValueError("at the bottom " + "x" * 100_000)


def test_the_traceback_is_bounded_and_keeps_the_innermost_frame_and_the_error():
    told = trace_of(caught(deep, 500))
    assert len(told) <= TRACEBACK_CHARACTERS_MAX
    assert 'raise ValueError("at the bottom "' in told
    assert "ValueError: at the bottom xxx" in told
    assert "  ..." in told.splitlines()


def chained(length):
    error = caught(deep, 50)
    for number in range(length):
        following = caught(deep, 50)
        following.args = (f"number {number} " + "y" * 5000,)
        following.__cause__, error = error, following
    return error


@pytest.mark.parametrize("length", [1, 3, 4, 40])
def test_each_of_a_chain_of_causes_has_a_share_of_the_bound_and_the_first_and_last_are_kept(length):
    told = trace_of(chained(length))
    assert len(told) <= TRACEBACK_CHARACTERS_MAX
    assert "at the bottom xxx" in told
    assert f"number {length - 1} yyy" in told
    assert told.count('raise ValueError("at the bottom "') == min(length + 1, 4), "each with its innermost frame"


def test_causes_that_are_each_other_s_end():
    first, second = caught(price, ""), caught(wrapped, "")
    first.__cause__, second.__cause__ = second, first
    assert place_of(first) == line_of(price, "raise ValueError")
    assert trace_of(first).count("ValueError: no price") == 1


class UnreadableError(ValueError):
    """An error of which no attribute can be read."""

    def __getattribute__(self, name):
        raise RuntimeError("not even its traceback")


def test_an_error_whose_attributes_cannot_be_read_is_told_all_the_same():
    def fails():
        raise UnreadableError("no price")

    try:
        fails()
    except ValueError as error:
        told = report_of(error)
    assert told.text == "UnreadableError: no price"
    assert told.place == line_of(fails, "raise UnreadableError")
    assert "raise UnreadableError" in str(told.traceback)


GROUPS = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")


@GROUPS
def test_a_group_of_errors_is_told_with_the_first_of_them():
    group: Any = vars(asyncio)["TaskGroup"]

    async def prices():
        async with group() as tasks:
            tasks.create_task(asyncio.to_thread(price, ""))

    told = report_of(caught(asyncio.run, prices()))
    assert told.text == "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception): ValueError: no price"
    assert told.place == line_of(price, "raise ValueError")
    lines = str(told.traceback).splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "Traceback (most recent call last):",
        "ValueError: no price",
        "The above exception is the first of the following group:",
        "Traceback (most recent call last):",
        "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception): ValueError: no price",
    ]


@GROUPS
def test_a_group_of_groups_without_a_frame_of_the_application_has_the_place_of_the_first_error():
    group_of: Any = vars(builtins)["ExceptionGroup"]
    group = group_of("outer", [group_of("inner", [caught(price, ""), OSError("other")])])
    told = report_of(group)
    assert told.text == (
        "ExceptionGroup: outer (1 sub-exception): ExceptionGroup: inner (2 sub-exceptions): ValueError: no price"
    )
    assert told.place == line_of(price, "raise ValueError")


@pytest.mark.parametrize("notes", [["of the order 7", "in Paris"], "none of Python's", [7]])
def test_the_notes_of_an_error_are_told_with_it(notes):
    error = caught(price, "")
    error.__notes__ = notes
    _, _, text = trace_of(error).partition("ValueError: ")
    assert text.splitlines() == ["no price", *(notes if isinstance(notes[0], str) and type(notes) is list else [])]
    error.__notes__ = ["x" * 100_000] * 1000
    assert len(trace_of(error)) <= TRACEBACK_CHARACTERS_MAX


def test_a_long_name_and_a_long_line_are_shortened():
    name = "f" * 5000
    scope: dict[str, Any] = {}
    exec(compile(f"def {name}():\n    raise ValueError\n", "/app/" + "d" * 5000 + ".py", "exec"), scope)
    error = caught(scope[name])
    place, told = str(place_of(error)), trace_of(error)
    assert len(place) <= 200
    assert place.startswith("...ddd")
    assert len(told) <= TRACEBACK_CHARACTERS_MAX
    assert f", line 2, in {name[:80]}" in told
    assert told.endswith("ValueError: ")


def test_an_error_whose_text_cannot_be_had_has_a_traceback_all_the_same():
    class UntellableError(Exception):
        def __str__(self):
            raise RuntimeError("not loaded")

    def fails():
        raise UntellableError

    assert trace_of(caught(fails)).endswith("no text, because its __str__ raised RuntimeError")


def test_no_value_of_a_variable_is_told():
    def fails():
        secret = "4111" + "1111"
        raise ValueError(len(secret))

    told = trace_of(caught(fails))
    assert "41111111" not in told


def test_a_long_chain_tells_how_many_exceptions_are_left_out():
    def fail(level: int) -> None:
        try:
            if level:
                fail(level - 1)
        except ValueError as cause:
            raise ValueError(f"level {level}") from cause
        raise ValueError("level 0")

    with pytest.raises(ValueError, match="level 7") as raised:
        fail(7)
    error = raised.value
    told = report_of(error).traceback
    assert told is not None
    assert "... 4 exceptions between these are left out ..." in told
    assert [line for line in told.splitlines() if line.startswith("ValueError")] == [
        f"ValueError: level {level}" for level in (0, 1, 6, 7)
    ]
    assert told.count("direct cause") == 2
