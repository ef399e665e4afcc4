"""A loop that was set up wrongly says so at once or with its first record, and gives no record up for it."""

import asyncio
import functools
import gc
from concurrent.futures import Future
from typing import Any

import pytest
import tenacity

from eos_client import AsyncExactlyOnceLoop, ExactlyOnceLoop, OutputRecord
from eos_client.errors import ConfigurationError
from eos_client.testing.simulator import SimulatedCluster
from tests.loop.bench import config


def plain(record):
    return OutputRecord("invoices", value=record.value())


async def coroutine(record):
    return plain(record)


async def generator(record):
    yield plain(record)


class Coroutine:
    async def __call__(self, record):
        return plain(record)


def of_nothing():
    return None


def of_two(record, rate):
    return rate


@functools.wraps(of_two)
def decorated(record):
    return of_two(record, 2)


IS_ASYNC = "is async: make it a plain function or generator, or give it to AsyncExactlyOnceLoop"
UNCALLABLE: dict[Any, str] = {
    5: " is a int, not a function",
    of_nothing: r"\(\) cannot be called with one .*Give it one parameter, record",
    of_two: r"\(record, rate\) cannot be called with one .*Give it one parameter, record",
}
ASYNC = [coroutine, generator, Coroutine(), functools.partial(coroutine), functools.partial(Coroutine())]


@pytest.mark.parametrize("name", ["transform", "transform_batch"])
@pytest.mark.parametrize(("transform", "words"), [*UNCALLABLE.items(), *((each, IS_ASYNC) for each in ASYNC)])
def test_a_transform_that_the_loop_cannot_call_is_refused_before_anything_is_consumed(name, transform, words):
    given: dict[str, Any] = {name: transform}
    with pytest.raises(ConfigurationError, match=f"^{name}=.*{words}"):
        ExactlyOnceLoop(config(), ["orders"], **given)


@pytest.mark.parametrize("name", ["transform", "transform_batch"])
@pytest.mark.parametrize(("transform", "words"), UNCALLABLE.items())
def test_so_is_one_of_the_async_loop(name, transform, words):
    with pytest.raises(ConfigurationError, match=f"^{name}=.*{words}"):
        AsyncExactlyOnceLoop(config(), ["orders"], **{name: transform})


@pytest.mark.parametrize("transform", [decorated, functools.partial(of_two, rate=2), bytes, max])
def test_what_can_be_called_with_a_record_is_taken_whatever_it_is(transform):
    ExactlyOnceLoop(config(), ["orders"], transform, clients=SimulatedCluster(seed=1))


@pytest.mark.parametrize("loop", [ExactlyOnceLoop, AsyncExactlyOnceLoop])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"output_topic": 5}, "output_topic=5 must be the name of a topic"),
        ({"output_topic": ""}, "output_topic='' must be the name of a topic"),
        ({"output_topic": "all invoices"}, "output_topic='all invoices' cannot be written: .* has 1 to 249"),
        ({"output_topic": "__consumer_offsets"}, "'__consumer_offsets' cannot be written: it is one of Kafka's own"),
        ({"hook": 5}, "hook=5 must be a function of one event"),
    ],
)
def test_another_argument_that_is_none_of_its_kind_is_refused(loop, given, words):
    with pytest.raises(ConfigurationError, match=words):
        loop(config(), ["orders"], plain, clients=SimulatedCluster(seed=1), **given)


def test_a_dead_letter_topic_that_nobody_can_write_is_refused():
    letters = config(on_error="dead_letter", dead_letter_topic="__transaction_state")
    with pytest.raises(ConfigurationError, match="dead_letter_topic='__transaction_state' cannot be written"):
        ExactlyOnceLoop(letters, ["orders"], plain, clients=SimulatedCluster(seed=1))


@pytest.mark.parametrize("concurrency_max", ["5", None, 1.5, True, 0])
def test_a_concurrency_that_is_no_whole_number_is_refused(concurrency_max):
    with pytest.raises(ConfigurationError, match=f"concurrency_max={concurrency_max!r} must be a whole number"):
        AsyncExactlyOnceLoop(config(), ["orders"], coroutine, concurrency_max=concurrency_max)


# What a function gives instead of outputs is known when it was called.
UNFIT = {
    "coroutine": (coroutine, "is not awaited: make it a plain function"),
    "async generator": (generator, "is not awaited: make it a plain function"),
    "list of coroutines": (lambda record: [coroutine(record)], "is not awaited: make it a plain function"),
    "coroutines one by one": (lambda record: map(coroutine, [record]), "is not awaited: make it a plain function"),
    "future": (lambda record: Future(), "is not awaited: make it a plain function"),
    "list of futures": (lambda record: [Future()], "is not awaited: make it a plain function"),
    "no topic": (lambda record: b"1", "names no topic and the loop has no output_topic"),
    "one of them without": (lambda record: [b"1", plain(record)], "names no topic and the loop has no output_topic"),
}
PATIENCE: dict[str, dict[str, Any]] = {
    "one attempt": {},
    "some": {"transform_attempts_max": 3},
    "any failure again": {
        "transform_retry": tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(BaseException), stop=tenacity.stop_after_attempt(3)
        )
    },
}


ON_ERROR = ("stop", "skip")
# Each form by itself and in batches, with the ways to go on in turn; one form with all of these.
SET_UPS = {
    *(
        (form, takes_batches, ON_ERROR[(number + takes_batches) % 2], list(PATIENCE)[number % 3])
        for number, form in enumerate(UNFIT)
        for takes_batches in (False, True)
    ),
    *(("no topic", False, on_error, patience) for on_error in ON_ERROR for patience in PATIENCE),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("form", "takes_batches", "on_error", "patience"), sorted(SET_UPS))
def test_a_transform_that_does_not_fit_its_loop_ends_it_and_no_record_is_given_up(
    form, takes_batches, on_error, patience
):
    transform, words = UNFIT[form]
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    calls: list[float] = []

    def noted(given):
        calls.append(cluster.clock())
        return transform(given[0] if takes_batches else given)

    given: dict[str, Any] = {"transform_batch" if takes_batches else "transform": noted}
    loop = ExactlyOnceLoop(config(on_error=on_error, **PATIENCE[patience]), ["orders"], **given, clients=cluster)
    cluster.after(60, loop.stop)
    with pytest.raises(ConfigurationError, match=words):
        loop.run()
    assert len(calls) == 1 if "plain function" in words else calls
    assert cluster.committed() == {}
    assert cluster.values("invoices") == []
    assert loop.counters.records_failed == 0
    gc.collect()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("takes_batches", [False, True])
@pytest.mark.parametrize("inner", [lambda: coroutine(None), Future, lambda: generator(None)])
def test_what_an_async_transform_gives_without_awaiting_it_ends_its_loop_too(inner, takes_batches):
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1"])

    async def transform(_given):
        return [inner()]

    given: dict[str, Any] = {"transform_batch" if takes_batches else "transform": transform}
    loop = AsyncExactlyOnceLoop(config(on_error="skip"), ["orders"], **given, clients=cluster)
    cluster.after(60, loop.stop)
    with pytest.raises(
        ConfigurationError, match="is not awaited: make it a plain function or generator, or await what"
    ):
        asyncio.run(loop.run())
    assert cluster.committed() == {}
    gc.collect()
