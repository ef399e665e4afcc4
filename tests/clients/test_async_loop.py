"""An async transform on the simulated cluster: order, failures, cancellation, and the page docs/how-to/asyncio.md."""

from __future__ import annotations

import asyncio
import contextvars
import re
import signal
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eos_client
from eos_client import AsyncExactlyOnceLoop, EosConfig, OutputRecord
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import ConfigurationError, TransformError
from eos_client.integration.probes import ProbeServer
from eos_client.observe import RecordDeadLettered
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator import PartitionKey
from tests.clients.conftest import Job
from tests.support.waiting import WAIT_S

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "asyncio.md").read_text(encoding="utf-8")
(SHOWN,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LETTERS = {"on_error": "dead_letter", "dead_letter_topic": "letters"}


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def returned(record: Any) -> list[bytes]:
    await asyncio.sleep(0)
    return [record.value()]


async def alone(record: Any) -> Any:
    return OutputRecord(value=record.value(), headers=[("seen", b"yes")])


async def yielded(record: Any) -> Any:
    yield record.value()
    await asyncio.sleep(0)


class Callable:
    def __call__(self, record: Any) -> Any:
        return returned(record)


@pytest.mark.parametrize("transform", [returned, alone, yielded, Callable(), partial(returned)])
def test_every_form_of_async_transform_writes_its_outputs_in_order(cluster: SimulatedCluster, transform: Any) -> None:
    cluster.write("orders", values(*range(20)))
    job = Job(cluster, transform)
    job.run()
    assert cluster.values("invoices") == values(*range(20))
    assert (job.loop.counters.records_in, job.loop.gate.counters.skips) == (20, 0)


def test_a_batch_transform_may_be_async(cluster: SimulatedCluster) -> None:
    sizes = []

    async def all_at_once(records: list[Any]) -> Any:
        sizes.append(len(records))
        for record in records:
            yield record.value()

    cluster.write("orders", values(*range(20)))
    Job(cluster, transform_batch=all_at_once).run()
    assert cluster.values("invoices") == values(*range(20))
    assert sizes == [20]


def test_it_commits_the_position_behind_transaction_markers(cluster: SimulatedCluster) -> None:
    upstream = cluster.producer({"transactional.id": "upstream"})
    upstream.init_transactions()
    upstream.begin_transaction()
    upstream.produce("orders", b"1", partition=0)
    upstream.commit_transaction()
    Job(cluster, returned).run()
    assert cluster.committed("billing") == {PartitionKey("orders", 0): 2}


def test_it_reads_to_the_end_and_says_whether_it_was_stopped_before(cluster: SimulatedCluster) -> None:
    async def stops(record: Any) -> list[bytes]:
        stopped.loop.stop()
        return [record.value()]

    cluster.write("orders", values(*range(20)))
    stopped = Job(cluster, stops, max_records=5)
    assert asyncio.run(stopped.loop.run(until_end=True)) is False
    assert asyncio.run(Job(cluster, returned).loop.run(until_end=True)) is True
    assert cluster.values("invoices") == values(*range(20))


class Crowd:
    """A transform that remembers how many were inside at once, over all and of each key."""

    def __init__(self) -> None:
        self.inside: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.begun: list[bytes] = []

    async def __call__(self, record: Any) -> list[bytes]:
        self.begun.append(record.value())
        places = ("all", record.key())
        self.inside.update(places)
        self.most |= self.inside
        await asyncio.sleep(0.001 * (len(self.begun) % 3))
        self.inside.subtract(places)
        return [record.value()]


def test_as_many_run_at_once_as_the_loop_was_told_to(cluster: SimulatedCluster) -> None:
    crowd = Crowd()
    cluster.write("orders", values(*range(40)))
    Job(cluster, crowd, concurrency_max=7).run()
    assert crowd.most["all"] == 7
    assert cluster.values("invoices") == values(*range(40))


def keyed(cluster: SimulatedCluster, keys: list[bytes]) -> None:
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    for number, key in enumerate(keys):
        producer.produce("orders", b"%s-%d" % (key, number), key, partition=0)
    producer.flush()


def test_records_of_one_key_are_transformed_one_after_another_and_others_beside_them(cluster: SimulatedCluster) -> None:
    crowd = Crowd()
    keyed(cluster, [b"a", b"b", b"a", b"c", b"b", b"a", b"a"])
    Job(cluster, crowd).run()
    assert (crowd.most[b"a"], crowd.most[b"b"], crowd.most["all"]) == (1, 1, 3)
    assert [value for value in crowd.begun if value.startswith(b"a")] == [b"a-0", b"a-2", b"a-5", b"a-6"]
    assert cluster.values("invoices") == [b"a-0", b"b-1", b"a-2", b"c-3", b"b-4", b"a-5", b"a-6"]


def test_the_record_that_fails_is_dead_lettered_and_no_other_runs_twice(cluster: SimulatedCluster) -> None:
    runs: list[bytes] = []

    async def price(record: Any) -> list[bytes]:
        runs.append(record.value())
        await asyncio.sleep(0)
        return [b"%d" % (100 // int(record.value()))]

    cluster.write("orders", values(1, 0, 5, 10))
    job = Job(cluster, price, **LETTERS, transform_attempts_max=3, transform_backoff_s=0.1)
    job.run()
    assert (cluster.values("invoices"), cluster.values("letters")) == (values(100, 20, 10), [b"0"])
    assert Counter(runs) == {b"1": 1, b"0": 3, b"5": 1, b"10": 1}
    (event,) = [event for event in job.events if isinstance(event, RecordDeadLettered)]
    assert (event.offset, event.error.split(":")[0]) == (1, "ZeroDivisionError")


def test_no_record_of_a_key_is_transformed_before_the_one_that_failed_was_tried_again(
    cluster: SimulatedCluster,
) -> None:
    runs: list[bytes] = []

    async def fails_once(record: Any) -> list[bytes]:
        runs.append(record.value())
        if runs == [b"a-0"]:
            raise ConnectionError("try again")
        return [record.value()]

    keyed(cluster, [b"a", b"a", b"a"])
    Job(cluster, fails_once, transform_attempts_max=2, transform_backoff_s=0.1).run()
    assert runs == [b"a-0", b"a-0", b"a-1", b"a-2"]
    assert cluster.values("invoices") == [b"a-0", b"a-1", b"a-2"]


def test_stop_names_the_record_and_the_error_keeps_its_cause(cluster: SimulatedCluster) -> None:
    async def price(record: Any) -> list[bytes]:
        raise KeyError(record.value())

    cluster.write("orders", values(1))
    with pytest.raises(TransformError, match=r"orders\[0\]@0") as caught:
        Job(cluster, price).run()
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.place == f"test_async_loop.py:{price.__code__.co_firstlineno + 1} in price"
    assert cluster.values("invoices") == []


@pytest.mark.parametrize("name", ["transform", "transform_batch"])
def test_a_plain_function_is_told_where_it_belongs_and_no_record_is_given_up(
    cluster: SimulatedCluster, name: str
) -> None:
    cluster.write("orders", values(1, 2))
    given: dict[str, Any] = {"transform": None, name: lambda _: []}
    words = "AsyncExactlyOnceLoop takes async functions, ExactlyOnceLoop the others"
    with pytest.raises(ConfigurationError, match=words):
        Job(cluster, **given, on_error="skip").run()
    assert cluster.committed() == {}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("made", [returned, yielded])
def test_an_async_function_that_returns_what_nobody_awaits_is_told_to_await_it(
    cluster: SimulatedCluster, made: Any
) -> None:
    async def price(record: Any) -> Any:
        return made(record)

    cluster.write("orders", values(1))
    with pytest.raises(ConfigurationError, match=r"is not awaited: .* await what it makes in an async one"):
        Job(cluster, price, on_error="skip").run()
    assert cluster.committed() == {}


def test_two_transforms_are_named_as_they_were_given(cluster: SimulatedCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"transform=<function returned .* transform_batch=<function yielded "):
        Job(cluster, returned, transform_batch=yielded)


@pytest.mark.parametrize(("given", "words"), [({"concurrency_max": 0}, "concurrency_max=0"), ({}, "one of the two")])
def test_what_the_loop_cannot_be_built_with_is_named(
    cluster: SimulatedCluster, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Job(cluster, returned if given else None, **given)


def test_each_record_takes_effect_once_through_rebalances_and_lost_replies(cluster: SimulatedCluster) -> None:
    orders = values(*range(200))
    job = Job(cluster, returned, batch_size=20)
    for second in range(20):
        written = orders[second * 10 : second * 10 + 10]
        cluster.after(second, partial(cluster.write, "orders", written, partition=second % 2))
    for second, request in ((4, "EndTxn"), (11, "Produce"), (17, "TxnOffsetCommit")):
        cluster.after(second, partial(cluster.lose_reply, request))
    cluster.after(6, partial(cluster.revoke, ("orders", 1)))
    cluster.after(9, cluster.give_back)
    job.run()
    assert sorted(cluster.values("invoices"), key=int) == orders


CUSTOMER: contextvars.ContextVar[str] = contextvars.ContextVar("customer")


def test_the_transform_sees_the_context_of_the_task_that_runs_the_loop(cluster: SimulatedCluster) -> None:
    async def price(record: Any) -> bytes:
        return CUSTOMER.get("unknown").encode()

    async def main() -> None:
        CUSTOMER.set("known")
        await Job(cluster, price).loop.run()

    cluster.write("orders", values(1))
    asyncio.run(main())
    assert cluster.values("invoices") == [b"known"]


def test_health_is_that_of_the_loop_for_a_probe_and_for_metrics(cluster: SimulatedCluster) -> None:
    job = Job(cluster, returned)
    seen: list[LoopHealth] = []
    with ProbeServer(job.loop.health, 0, "127.0.0.1"):
        cluster.after(10, lambda: seen.append(job.loop.health()))
        job.run()
    assert [(health.live, health.ready) for health in (*seen, job.loop.health())] == [(True, True), (False, False)]


def test_what_the_page_shows_prices_each_order_until_sigterm(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_for_rate(product: bytes) -> int:
        await asyncio.sleep(0)
        return len(product)

    names: dict[str, Any] = {"ask_for_rate": ask_for_rate}
    monkeypatch.setattr(eos_client, "AsyncExactlyOnceLoop", partial(AsyncExactlyOnceLoop, clients=cluster))
    exec(compile(SHOWN, "docs/how-to/asyncio.md", "exec"), names)
    cluster.write("orders", [b"apples", b"pears"])
    cluster.after(60, partial(signal.raise_signal, signal.SIGTERM))
    asyncio.run(asyncio.wait_for(names["main"](), WAIT_S))
    assert cluster.values("invoices") == [b"6", b"5"]


def test_a_plain_loop_can_be_awaited_in_a_thread(cluster: SimulatedCluster) -> None:
    threads: set[str] = set()

    def price(record: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return b"priced"

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = eos_client.ExactlyOnceLoop(config, ["orders"], price, output_topic="invoices", clients=cluster)
    cluster.write("orders", values(1))
    cluster.after(60, loop.stop)
    asyncio.run(asyncio.to_thread(loop.run))
    assert cluster.values("invoices") == [b"priced"]
    assert threads.isdisjoint({threading.main_thread().name})


@pytest.mark.parametrize("kind", ["transform", "transform_batch"])
def test_what_the_transform_gets_is_deserialised_and_what_cannot_be_is_a_letter(
    cluster: SimulatedCluster, kind: str
) -> None:
    cluster.write("orders", [b"2", b"\xff", b"3"], partition=0)

    async def squared(record: Any) -> list[OutputRecord]:
        await asyncio.sleep(0)
        return [OutputRecord(value=record.value() ** 2)]

    async def all_squared(records: list[Any]) -> list[OutputRecord]:
        return [output for record in records for output in await squared(record)]

    job = Job(
        cluster,
        **{kind: squared if kind == "transform" else all_squared},
        value_deserializer=lambda value, _context: int(value.decode()),
        value_serializer=lambda value, _context: b"%d" % value,
        **LETTERS,
    )
    job.run()
    assert cluster.values("invoices") == values(4, 9)
    assert cluster.values("letters") == [b"\xff"]
