"""What all tests share: brokers, markers, and what a session is judged by.

A test that asks for a broker or a database server is marked `kafka`, everything below tests/spark `spark`; what is
marked `soak` runs when asked for, and with it the cases of a test marked `in_turn` that others stand for.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.interruption import interrupting
from tests.support.scheduling import BrokerScheduling, rank, sharing

_BROKERS = pytest.StashKey[Any]()
_BROKER_FIXTURES = frozenset({"kafka_broker", "make_kafka_broker", "brokers", "postgres_server", "mysql_server"})
_BROKER_MARKERS = ("kafka", "spark")
_JAVA_MARKERS = (*_BROKER_MARKERS, "soak")
_TESTS = Path(__file__).parent
_SPARK_TESTS = _TESTS / "spark"
_SPARK_TIMEOUT_S = 600  # the first of them starts Spark, which on a busy machine takes minutes
_BROKER_LIST = _TESTS / "broker_tests.txt"
_BROKER_TESTS = tuple(_BROKER_LIST.read_text(encoding="utf-8").split())

# On a machine with other work, how long an example took says nothing of the code; and a new example that fails says
# nothing of the change that is tested. `--hypothesis-profile=search` looks for new ones, and `fuzz` for fifty times
# as many.
_UNHURRIED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("search", settings(), **_UNHURRIED)
settings.register_profile("tests", settings(), derandomize=True, database=None, **_UNHURRIED)
settings.register_profile("fuzz", settings(), max_examples=5_000, database=None, **_UNHURRIED)
settings.load_profile("tests")


def pytest_configure(config):
    config.pluginmanager.import_plugin("tests.support.broker_skips")
    config.pluginmanager.import_plugin("tests.support.session_brokers")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while tests are collected, which makes hardly any and takes a fifth longer with it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Spare a run without Spark what its tests import."""
    return True if collection_path == _SPARK_TESTS and "not spark" in config.option.markexpr else None


def pytest_collection_finish():
    """What was imported and collected stays to the end: no collection of garbage need look through it again."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _no_clients_of_earlier_modules():
    """Free the clients that a module's tests have not closed: by the hundreds, their threads take the machine."""
    yield
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _logs_as_before():
    """Commands and `capture_logs` leave structlog configured, and events go there then."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def interrupt():
    """A function that makes the test's signal handler raise, from any thread."""
    with interrupting() as strike:
        yield strike


@pytest.fixture(scope="session")
def brokers(pytestconfig):
    """The real brokers that the tests of this process share, each started when a test first asks for it."""
    from tests.support.brokers import SharedBrokers  # noqa: PLC0415  not in every test run

    with SharedBrokers(pytestconfig) as shared:
        pytestconfig.stash[_BROKERS] = shared
        yield shared


@pytest.fixture(scope="module")
def secured_broker(brokers):
    """A broker that asks its clients who they are, and an authorizer what they may do."""
    return brokers.secured()


@pytest.fixture(scope="module")
def proxied_broker(brokers):
    """A broker with the settings of `kafka_broker`, behind a proxy that can hold, lose and record requests."""
    return brokers.proxied(properties={})


@pytest.fixture(scope="module")
def proxy(proxied_broker):
    """The proxy of `proxied_broker`: name the group or the id whose requests it is to catch, as others use it, too."""
    return proxied_broker.proxy


@pytest.fixture(scope="session")
def mysql_programs():
    """The folder of MySQL; where it cannot be had, tests that need it are skipped."""
    from eos_client.errors import EmbeddedDatabaseError  # noqa: PLC0415  not in every test run
    from eos_client.testing.mysql_programs import mysql_home  # noqa: PLC0415

    try:
        return mysql_home(print)
    except EmbeddedDatabaseError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mysql_server(mysql_programs, mysql_server):
    """The fixture of the package, or a skip."""
    return mysql_server


@pytest.fixture
def alive():
    """A function that tells whether a process runs; one that has ended and was not yet reaped does not."""

    def is_alive(pid):
        try:
            os.kill(pid, 0)
            return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
        except (ProcessLookupError, FileNotFoundError):
            return False

    return is_alive


@pytest.fixture
def run_pytest(tmp_path):
    """A function that runs pytest in a project of its own; returns the exit code and what it printed."""

    def run(source, *arguments, **environment):
        (tmp_path / "test_application.py").write_text(source)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    return run


def _is_left_out(item, seen):
    """Whether others of the cases of a test that is marked `in_turn` stand for this one.

    ``seen`` has, by test and parameter, the values that came, whose places are summed up: so each comes with some of
    the others.
    """
    marker = item.get_closest_marker("in_turn")
    if marker is None:
        return False
    given = dict(item.callspec.params)
    for mark in item.iter_markers("parametrize"):
        for name in [] if isinstance(mark.args[0], str) else mark.args[0][1:]:
            del given[name]  # it goes with the first one
    places = []
    for name, value in given.items():
        came = seen.setdefault((item.nodeid.partition("[")[0], name), [])
        if id(value) not in came:
            came.append(id(value))
        places.append(came.index(id(value)))
    return sum(places) % marker.args[0] != 0


def pytest_collection_modifyitems(config, items):
    seen: dict[tuple[str, str], list[int]] = {}
    for item in items:
        if _is_left_out(item, seen):
            item.add_marker("soak")
        if item.path.is_relative_to(_SPARK_TESTS):
            item.add_marker("spark")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))
            continue
        if not _BROKER_FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker("kafka")
        is_left_out = item.get_closest_marker("soak") or item.nodeid.startswith(_BROKER_TESTS)
        if item.get_closest_marker("kafka") and not is_left_out:
            raise pytest.UsageError(f"{item.nodeid} needs a server: `make test` looks for such in {_BROKER_LIST}")
    items.sort(key=lambda item: rank(item.nodeid))
    if "soak" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests that share brokers go to one worker."""
    return BrokerScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """End the shared brokers of tests that go to one worker when it has run the last of them: idle ones cost, too."""
    shared = sharing(item.nodeid)
    if shared and nextitem and sharing(nextitem.nodeid) != shared and _BROKERS in item.config.stash:
        item.config.stash[_BROKERS].end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Hide Java from the tests that are marked as needing no broker: one that starts a broker all the same fails."""
    with pytest.MonkeyPatch.context() as environment:
        if not any(item.get_closest_marker(marker) for marker in _JAVA_MARKERS):
            environment.setenv("JAVA_HOME", f"a test that starts a broker is marked {_BROKER_MARKERS[0]}")
        return (yield)
