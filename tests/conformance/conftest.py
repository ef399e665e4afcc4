"""Each conformance test runs on the simulated cluster and on real brokers.

The simulated cluster runs as each of the versions that are compared. Of the real brokers, `make test` takes the newest
for all tests and the oldest for those that are marked `differs_by_version`; `pytest -m "kafka or soak"` takes both for
all.
"""

import functools
import zlib

import pytest

from tests.conformance.backends import RealBackend, SimulatedBackend, closing
from tests.conformance.transactions import Group, started
from tests.conformance.versions import BROKER_PROPERTIES, NEWEST, VERSIONS

_SIMULATED = [pytest.param(("simulated", version), id=f"simulated-{version}") for version in VERSIONS]
_REAL = [pytest.param(("real", version), id=f"kafka-{version}", marks=pytest.mark.kafka) for version in VERSIONS]


def pytest_generate_tests(metafunc):
    """A run that is about brokers collects nothing for the simulated cluster, which would take longer than the rest."""
    if "make_backend" in metafunc.fixturenames:
        is_about_brokers = metafunc.config.option.markexpr.startswith("kafka and ")
        backends = _REAL if is_about_brokers else _SIMULATED + _REAL
        metafunc.parametrize("make_backend", backends, indirect=True, scope="module")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("kafka") and _takes_long(item):
            item.add_marker(pytest.mark.soak)


def _takes_long(item):
    """Whether only `pytest -m "kafka or soak"` runs this test on its real broker."""
    if getattr(getattr(item, "function", None), "waits_long", False):
        return True
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    _, version = parameters.get("make_backend", ("real", NEWEST))
    return version != NEWEST and not item.get_closest_marker("differs_by_version")


@pytest.fixture(scope="module")
def make_backend(request):
    """A function that makes one test's backend; pytest runs all tests of one broker before it starts the next."""
    kind, version = request.param
    if kind == "simulated":
        return lambda name: SimulatedBackend(zlib.crc32(name.encode()), VERSIONS[version])
    broker = request.getfixturevalue("brokers").chosen(BROKER_PROPERTIES, version)
    return lambda name: RealBackend(broker.bootstrap_servers, VERSIONS[version])


@pytest.fixture
def backend(make_backend, request):
    """Where the test runs; closes the test's clients."""
    with closing(make_backend(request.node.nodeid)) as made:
        yield made


@pytest.fixture
def start(backend):
    """A function that starts a transactional producer."""

    def start_one(transactional_id=None, **settings):
        (producer,) = started(backend, [transactional_id or backend.unique("id")], **settings)
        return producer

    return start_one


@pytest.fixture
def start_all(backend):
    """A function that starts one transactional producer for each id."""
    return functools.partial(started, backend)


@pytest.fixture
def two(backend):
    """Two transactional producers."""
    return started(backend, [backend.unique("id"), backend.unique("id")])


@pytest.fixture
def group(backend):
    """A group without members, by which offsets are committed and looked up."""
    return Group(backend)
