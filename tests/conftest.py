"""What all tests share.

Everything in the folders that need real brokers is marked `kafka`, everything below tests/spark `spark`; what is
marked `soak` runs when asked for. The conformance suite marks those of its cases that run on brokers itself.
"""

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.interruption import interrupting

_MARKED = {
    "cli": "kafka",
    "kafka": "kafka",
    "recovery": "kafka",
    "verification": "kafka",
    "spark": "spark",
}

# On a machine with other work, how long an example took says nothing of the code; and a new example that fails says
# nothing of the change that is tested. `--hypothesis-profile=search` looks for new ones.
_UNHURRIED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("search", settings(), **_UNHURRIED)
settings.register_profile("tests", settings(), derandomize=True, database=None, **_UNHURRIED)
settings.load_profile("tests")


@pytest.fixture(scope="module", autouse=True)
def _no_clients_of_earlier_modules():
    """Free the clients that a module's tests have not closed: by the hundreds, their threads take the machine."""
    yield
    gc.collect()


@pytest.fixture
def interrupt():
    """A function that makes the test's signal handler raise, from any thread."""
    with interrupting() as strike:
        yield strike


def pytest_collection_modifyitems(config, items):
    for item in items:
        for folder, marker in _MARKED.items():
            if item.path.is_relative_to(Path(__file__).parent / folder):
                item.add_marker(marker)
    if "soak" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
