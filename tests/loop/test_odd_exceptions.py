"""An exception of the application is a failure of its record, whatever kind of object it is."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import sys
from typing import Any

import pytest

from eos_client import AsyncExactlyOnceLoop, EosConfig, ExactlyOnceLoop
from eos_client.core.error_report import report_of
from eos_client.errors import TransformError, text_of
from eos_client.observe import RecordDeadLettered, RecordSkipped
from tests.loop.bench import BROKERS, numbers

FORMS = ["transform", "transform_batch", "async", "async generator", "async batch"]
POLICIES: list[dict[str, Any]] = [
    {"on_error": "skip"},
    {"on_error": "dead_letter", "dead_letter_topic": "letters"},
    {"on_error": "stop"},
]


class EmptyError(ValueError):
    """An error that counts as false, as one that is a collection of nothing does."""

    def __len__(self):
        return 0


class UndecidedError(ValueError):
    """An error that does not say whether it counts as true."""

    def __bool__(self):
        raise RuntimeError("neither")


ERRORS = [EmptyError, UndecidedError, concurrent.futures.CancelledError, TimeoutError, asyncio.TimeoutError]


def transform_of(form: str, error: type[Exception]) -> dict[str, Any]:
    def price(record):
        if record.offset() == 1:
            raise error("no price")
        return record.value()

    async def price_later(record):
        return price(record)

    async def price_each(record):
        yield price(record)

    def price_all(records):
        return [price(record) for record in records]

    async def price_all_later(records):
        return price_all(records)

    forms = {"async": price_later, "async generator": price_each, "transform": price}
    forms |= {"transform_batch": price_all, "async batch": price_all_later}
    return {"transform_batch" if form.endswith("batch") else "transform": forms[form]}


def run(cluster, form, error, **options) -> list[Any]:
    for topic in ("orders", "invoices", "letters"):
        cluster.create_topic(topic)
    cluster.write("orders", numbers(3))
    events: list[Any] = []
    config = EosConfig(BROKERS, group_id="billing", **options)
    kind: Any = AsyncExactlyOnceLoop if form.startswith("async") else ExactlyOnceLoop
    loop = kind(
        config, ["orders"], **transform_of(form, error), output_topic="invoices", hook=events.append, clients=cluster
    )
    cluster.after(30, loop.stop)
    ran = loop.run()
    if asyncio.iscoroutine(ran):
        asyncio.run(ran)
    return [event for event in events if isinstance(event, (RecordSkipped, RecordDeadLettered))]


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["on_error"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{error.__module__}.{error.__name__}")
@pytest.mark.parametrize("form", FORMS)
def test_an_odd_exception_is_its_records_failure(simulated_cluster, form, error, policy, attempts):
    options = {"transform_attempts_max": attempts, "transform_backoff_s": 0.01, **policy}
    if policy["on_error"] == "stop":
        with pytest.raises(TransformError) as caught:
            run(simulated_cluster, form, error, **options)
        assert caught.value.offset == 1
        assert type(caught.value.__cause__) is error
        assert str(caught.value.place).endswith(" in price")
        return
    (told,) = run(simulated_cluster, form, error, **options)
    assert (told.offset, told.error) == (1, f"{error.__name__}: no price")
    assert str(told.place).endswith(" in price")
    assert simulated_cluster.values("invoices") == [b"0", b"2"]
    assert simulated_cluster.values("letters") == ([b"1"] if policy["on_error"] == "dead_letter" else [])


def raised(error: Any) -> Any:
    def fail():
        raise error

    try:
        fail()
    except BaseException as caught:  # noqa: BLE001  # any of the application's
        return caught


class Text(str):
    __slots__ = ()

    def __getitem__(self, _place):
        raise RuntimeError("no text")

    def __format__(self, _kind):
        raise RuntimeError("no text")


class BrokenTextError(ValueError):
    def __str__(self):
        return Text("broken")


class ExitingTextError(ValueError):
    def __str__(self):
        raise SystemExit(0)


@pytest.mark.parametrize("error", [BrokenTextError("x"), ExitingTextError("x")], ids=["broken", "exits"])
def test_whatever_cannot_be_had_of_an_error_it_is_told(error):
    told = report_of(raised(error))
    assert told.text
    assert text_of(error)
    assert "in fail" in str(told.place)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
def test_groups_may_be_nested_as_deep_as_they_are():
    group: Any = raised(ValueError("no price"))
    for _ in range(5000):
        group = vars(builtins)["ExceptionGroup"]("many", [group])
    told = report_of(group)
    assert told.text.startswith("ExceptionGroup: many (1 sub-exception): ExceptionGroup: many")
    assert "in fail" in str(told.place)


def test_an_error_whose_source_cannot_be_read_any_more_is_told_with_its_place():
    class Loader:
        def get_source(self, _name):
            raise RuntimeError("Error -5 while decompressing data")

    scope: dict[str, Any] = {"__name__": "zipped", "__loader__": Loader()}
    exec(compile("def price():\n    raise ValueError('no price')\n", "/app/zipped.py", "exec"), scope)
    with pytest.raises(ValueError, match="no price") as caught:
        scope["price"]()
    told = report_of(caught.value)
    assert (told.text, told.place) == ("ValueError: no price", "zipped.py:2 in price")
    assert "ValueError: no price" in str(told.traceback)
