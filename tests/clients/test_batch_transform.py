"""A loop with a transform of batches on the simulated cluster, and what docs/how-to/batch-transform.md shows."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eos_client
from eos_client import ExactlyOnceLoop
from eos_client.observe import ClientReported, RecordDeadLettered, TransactionAborted
from eos_client.testing import SimulatedCluster
from tests.clients.conftest import Job

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "batch-transform.md").read_text(encoding="utf-8")
(SHOWN,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ORDERS = [b"%d" % number for number in range(300)]


def test_what_the_page_shows_prices_each_order_once(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    monkeypatch.setattr(eos_client, "ExactlyOnceLoop", partial(ExactlyOnceLoop, clients=cluster))
    exec(compile(SHOWN, "docs/how-to/batch-transform.md", "exec"), names)
    cluster.write("orders", [b"apples", b"pears", b"apples"], partition=0)
    cluster.after(30, names["loop"].stop)
    names["loop"].run()
    assert cluster.values("invoices") == [b"3", b"4", b"3"]


def test_each_record_takes_effect_once_through_rebalances_and_lost_replies(cluster: SimulatedCluster) -> None:
    sizes: list[int] = []

    def price(records: list[Any]) -> list[bytes]:
        sizes.append(len(records))
        return [record.value() for record in records]

    job = Job(cluster, kind=ExactlyOnceLoop, transform_batch=price, batch_size=20)
    for second in range(30):
        orders = ORDERS[second * 10 : second * 10 + 10]
        cluster.after(second, partial(cluster.write, "orders", orders, partition=second % 3))
    for second, request in ((4, "EndTxn"), (11, "Produce"), (17, "TxnOffsetCommit")):
        cluster.after(second, partial(cluster.lose_reply, request))
    for second in (6, 13):
        cluster.after(second, partial(cluster.revoke, ("orders", 1)))
        cluster.after(second + 3, cluster.give_back)
    cluster.after(20, cluster.rebalance)
    job.loop.run()
    assert sorted(cluster.values("invoices"), key=int) == ORDERS
    assert max(sizes) > 1


def test_a_record_of_a_batch_that_fails_is_dead_lettered_in_the_transaction_of_the_others(
    cluster: SimulatedCluster,
) -> None:
    def price(records: list[Any]) -> Any:
        for record in records:
            yield b"%d" % (1000 // int(record.value()))

    failing = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
    twice = {"transform_attempts_max": 2, "transform_backoff_s": 0.01}
    job = Job(cluster, kind=ExactlyOnceLoop, transform_batch=price, **failing, **twice)
    cluster.write("orders", [b"1", b"2", b"none", b"4", b"0", b"5"], partition=2)
    job.loop.run()
    assert cluster.values("invoices") == [b"1000", b"500", b"250", b"200"]
    assert cluster.values("letters") == [b"none", b"0"]
    told = [event for event in job.events if isinstance(event, RecordDeadLettered)]
    assert [event.offset for event in told] == [2, 4]
    places = {f"test_batch_transform.py:{price.__code__.co_firstlineno + 2} in price"}
    assert {event.place for event in told} == places
    assert {dict(each.headers)["eos.error.place"] for each in cluster.read("letters")} == {*map(str.encode, places)}
    (halved,) = [event.error for event in job.events if isinstance(event, ClientReported)]
    assert [place for place in places if f"({place})" in halved]
    assert not [event for event in job.events if isinstance(event, TransactionAborted)]
    assert job.loop.counters.records_failed == 2
