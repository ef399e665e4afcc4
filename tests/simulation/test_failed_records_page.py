"""What docs/how-to/failed-records.md shows runs on the simulated cluster."""

import re
from pathlib import Path
from typing import Any

from tests.simulation.simulated_stage import SOURCE, SimulatedStage

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "failed-records.md").read_text(encoding="utf-8")
CONFIGURATION, BLOCK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_settings_are_accepted():
    shown: dict[str, Any] = {}
    exec(CONFIGURATION, shown)
    config = shown["config"]
    assert config.dead_letter_topic == "orders.dead"
    assert config.transform_attempts_max == 3


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
