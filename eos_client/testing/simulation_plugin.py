"""pytest fixtures with a simulated cluster: ``simulated_cluster``, and ``make_simulated_cluster`` for other settings.

A failing test prints the seed of every cluster in use and the last requests; ``--eos-simulation-seed`` repeats it with
that seed. A scripted fault that has not happened fails the test, which does not test that fault; of an action of
``after`` that was due later than the test's end a warning tells.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from eos_client.testing.simulator import SimulatedCluster

_REQUESTS_SHOWN = 20
_FRAMES = "frames of eos_client are left out of the traceback: --full-trace shows them"
_BEFORE = pytest.StashKey[frozenset[int]]()


class MakeSimulatedCluster(Protocol):
    """The type of the fixture ``make_simulated_cluster``."""

    def __call__(self, **options: Any) -> SimulatedCluster:
        """Return one more cluster; ``options`` are further arguments of `SimulatedCluster`."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--eos-simulation-seed``."""
    group = parser.getgroup("eos-client-simulation", "simulated Kafka clusters (eos-client)")
    group.addoption("--eos-simulation-seed", type=int, default=0, help="seed of simulated clusters (%(default)s)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store which clusters existed before the test."""
    item.stash[_BEFORE] = frozenset(_clusters())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed and the last requests to a failure."""
    report = yield
    if report.failed:
        before = item.stash.get(_BEFORE, frozenset())
        for _, cluster in sorted(each for each in _clusters().items() if each[0] not in before):
            last = cluster.history[-_REQUESTS_SHOWN:]
            lines = [f"{each.at_s:10.3f} s  {each.client}  {each.request}: {each.result}" for each in last]
            title = f"simulated cluster: repeat with --eos-simulation-seed={cluster.seed}"
            report.sections.append((title, "\n".join([repr(cluster), *lines, _FRAMES])))
    return report


def _clusters() -> dict[int, SimulatedCluster]:
    # Not imported for this: most test runs have no simulated cluster.
    module = sys.modules.get("eos_client.testing.simulator.cluster")
    return (
        {} if module is None else dict(module.clusters_alive.items())
    )  # a copy: a cluster may be freed during an iteration


def _is_stop(action: Any) -> bool:
    """Whether ``action`` is a loop's ``stop``, or a partial of it: a test has one lest its loop never ends."""
    return getattr(getattr(action, "func", action), "__name__", "") == "stop"


def _warn_of_waiting_actions(cluster: SimulatedCluster) -> None:
    late = [when_s for when_s, action in cluster.actions_waiting if not _is_stop(action)]
    if late:
        warnings.warn(
            f"{len(late)} action(s) of cluster.after() have not run, so the test does not cover them: the test ended "
            f"before the first was due at {late[0]:.3f} s ({cluster!r})",
            pytest.PytestWarning,
            stacklevel=1,
        )


@pytest.fixture
def make_simulated_cluster(pytestconfig: pytest.Config) -> Iterator[MakeSimulatedCluster]:
    """Return a function that makes simulated clusters; at the end each scripted fault must have happened."""
    from eos_client.testing.simulator import SimulatedCluster  # noqa: PLC0415  # not in every test run

    made: list[SimulatedCluster] = []

    def make(**options: Any) -> SimulatedCluster:
        options.setdefault("seed", pytestconfig.getoption("--eos-simulation-seed"))
        made.append(SimulatedCluster(**options))
        return made[-1]

    yield make
    for cluster in made:
        _warn_of_waiting_actions(cluster)
    idle = [f"{fault} ({cluster!r})" for cluster in made for fault in cluster.faults.waiting]
    if idle:
        uncovered = "no request met these scripted faults, so the test does not cover them: " + "; ".join(idle)
        pytest.fail(uncovered, pytrace=False)


@pytest.fixture
def simulated_cluster(make_simulated_cluster: MakeSimulatedCluster) -> SimulatedCluster:
    """Return a simulated cluster without topics."""
    return make_simulated_cluster()
