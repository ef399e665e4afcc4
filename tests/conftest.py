"""What all tests share: everything below tests/kafka is marked `kafka`; what is marked `soak` runs when asked for."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_KAFKA_TESTS = Path(__file__).parent / "kafka"

# On a machine with other work, how long an example took says nothing of the code.
settings.register_profile("tests", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.is_relative_to(_KAFKA_TESTS):
            item.add_marker(pytest.mark.kafka)
    if "soak" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
