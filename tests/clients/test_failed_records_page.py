"""What docs/how-to/failed-records.md shows runs on the simulated cluster."""

import re
from pathlib import Path
from typing import Any

from eos_client import ExactlyOnceLoop
from tests.clients.simulated_stage import SOURCE, SimulatedStage

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "failed-records.md").read_text(encoding="utf-8")
CONFIGURATION, POLICY, BLOCK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_settings_are_accepted():
    shown: dict[str, Any] = {}
    exec(CONFIGURATION, shown)
    config = shown["config"]
    assert config.dead_letter_topic == "orders.dead"
    assert config.transform_attempts_max == 3


def test_the_policy_repeats_what_it_names_and_nothing_else():
    shown: dict[str, Any] = {}
    exec(POLICY, shown)
    cluster = SimulatedStage(partitions=1, records=0).cluster
    cluster.create_topic("orders.dead")
    cluster.write(SOURCE, [b"4", b"pears"])
    tried: list[bytes] = []

    def transform(record):
        tried.append(record.value())
        if tried.count(b"4") < 3:
            raise ConnectionError("away")
        return b"%d" % int(record.value())

    loop = ExactlyOnceLoop(shown["config"], [SOURCE], transform, output_topic="invoices", clients=cluster)
    cluster.after(60, loop.stop)
    loop.run()
    assert tried == [b"4", b"4", b"4", b"pears"]
    assert cluster.values("invoices") == [b"4"]
    assert cluster.values("orders.dead") == [b"pears"]


def test_the_block_dead_letters_what_cannot_be_priced():
    stage = SimulatedStage(partitions=1, records=0)
    stage.cluster.create_topic("orders.dead")
    stage.cluster.write(SOURCE, [b"4", b"0", b"pears", b"5"])
    shown: dict[str, Any] = {}
    exec(BLOCK, shown)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.wait_for(lambda: len(stage.cluster.values("invoices")) == 2, lambda: shown["price_all"](consumer, producer))
    assert stage.cluster.values("invoices") == [b"25", b"20"]
    assert stage.cluster.values("orders.dead") == [b"0", b"pears"]
