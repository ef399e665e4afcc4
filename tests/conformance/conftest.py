"""Each conformance test runs on the simulated cluster and on real brokers, as both versions that are compared."""

import zlib

import pytest

from eos_client.testing.broker_choice import BrokerChoice
from tests.conformance.backends import BROKER_PROPERTIES, VERSIONS, RealBackend, SimulatedBackend, closing

_BACKENDS = [
    *(pytest.param(("simulated", version), id=f"simulated-{version}") for version in VERSIONS),
    *(pytest.param(("real", version), id=f"kafka-{version}", marks=pytest.mark.kafka) for version in VERSIONS),
]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("kafka") and getattr(getattr(item, "function", None), "waits_long", False):
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="module", params=_BACKENDS)
def make_backend(request):
    """A function that makes one test's backend; pytest runs all tests of one broker before it starts the next."""
    kind, version = request.param
    if kind == "simulated":
        yield lambda name: SimulatedBackend(zlib.crc32(name.encode()), VERSIONS[version])
        return
    broker = BrokerChoice(request.config).new_broker(version=version, properties=BROKER_PROPERTIES)
    yield lambda name: RealBackend(broker.bootstrap_servers, VERSIONS[version])
    broker.stop()


@pytest.fixture
def backend(make_backend, request):
    """Where the test runs; closes the test's clients."""
    with closing(make_backend(request.node.nodeid)) as made:
        yield made
