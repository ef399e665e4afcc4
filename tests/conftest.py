"""What all tests share: everything below tests/kafka is marked `kafka`."""

from pathlib import Path

import pytest

_KAFKA_TESTS = Path(__file__).parent / "kafka"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(_KAFKA_TESTS):
            item.add_marker(pytest.mark.kafka)
