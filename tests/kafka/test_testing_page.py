"""What docs/how-to/testing-your-loop.md shows of a real broker holds on one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.code_blocks import REPOSITORY, code_blocks

PAGE = REPOSITORY / "docs" / "how-to" / "testing-your-loop.md"
BEGINNING, *_, REAL = (block.code for block in code_blocks(PAGE, "python"))


@pytest.mark.soak  # brokers that are killed: test_loop_recovery.py
@pytest.mark.kafka
def test_the_loop_on_a_real_broker_holds(make_kafka_broker: Any) -> None:
    names: dict[str, Any] = {}
    exec(BEGINNING, names)
    exec(REAL, names)
    names["test_orders_are_priced_on_a_real_broker_that_was_killed"](make_kafka_broker)
