"""What all tests share: everything below tests/kafka is marked `kafka`; what is marked `soak` runs when asked for."""

from pathlib import Path

import pytest

_KAFKA_TESTS = Path(__file__).parent / "kafka"


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.is_relative_to(_KAFKA_TESTS):
            item.add_marker(pytest.mark.kafka)
    if "soak" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
