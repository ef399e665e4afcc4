"""Real brokers that tests share: the first test of a session that wants a kind of broker starts it, the rest reuse it.

A start costs seconds of every processor. Tests on a shared broker name topics, groups and transactional ids of their
own. A test that kills, stops or reconfigures a broker starts one for itself, or takes `SharedBrokers.mortal` or
`SharedBrokers.cluster`. Those of `SharedBrokers.chosen` are shared by all workers (`session_brokers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from eos_client.testing.broker_choice import BrokerChoice
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
from tests.support.session_brokers import SessionBroker, session_broker
from tests.verification.brokers import RunningBroker, direct_broker, proxied_broker

if TYPE_CHECKING:
    from typing_extensions import Self

    from eos_client.testing.broker import KafkaBroker
    from tests.support.secured_broker import SecuredBroker

_T = TypeVar("_T")


SOON_TIMED_OUT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
# Coordinators move when a test moves them; the other is one that shows by its value that it was set.
CLUSTER_PROPERTIES = {"auto.leader.rebalance.enable": "false", "log.retention.hours": "7"}


class SharedCluster(NamedTuple):
    """A cluster of three brokers, and what their logs said by the time that it was ready."""

    running: EmbeddedKafkaCluster
    said_until_ready: str


class SharedBrokers:
    """The brokers that one test process has started, by how they are set up; a context manager that stops them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started: dict[tuple[Any, ...], Any] = {}
        self._endings: list[ExitStack] = []

    def chosen(self, properties: Mapping[str, str], version: str | None = None) -> KafkaBroker | SessionBroker:
        """A broker of the kind, and unless one is given of the version, that this session runs."""
        return session_broker(self._config, properties, version) or self._own(properties, version)

    def _own(self, properties: Mapping[str, str], version: str | None = None) -> KafkaBroker:

        def start(ending: ExitStack) -> KafkaBroker:
            broker = BrokerChoice(self._config).new_broker(properties=properties, version=version)
            ending.callback(broker.stop)
            return broker

        return self._once(("own", version, frozenset(properties.items())), start)

    def mortal(self) -> KafkaBroker:
        """A broker that a test may kill and restart. It runs when one asks, and soon aborts what takes too long."""
        broker = self._own(SOON_TIMED_OUT)
        if not broker.running:
            broker.restart()
        return broker

    def direct(self, version: str) -> RunningBroker:
        """A broker with short sessions, whose data and log a test may read."""
        started = self._once(("direct", version), lambda ending: ending.enter_context(direct_broker(version)))
        return started.from_now_on()

    def proxied(
        self, version: str = DEFAULT_VERSION, *, properties: Mapping[str, str], added_rtt_s: float = 0.0
    ) -> RunningBroker:
        """A broker behind a proxy that can hold, lose and record requests."""

        def start(ending: ExitStack) -> RunningBroker:
            return ending.enter_context(proxied_broker(version, added_rtt_s=added_rtt_s, properties=properties))

        return self._once(("proxied", version, frozenset(properties.items()), added_rtt_s), start).from_now_on()

    def cluster(self) -> SharedCluster:
        """Three brokers that a test may kill, shut down and restart one by one; all run when a module asks for them."""

        def start(ending: ExitStack) -> SharedCluster:
            running = ending.enter_context(EmbeddedKafkaCluster(properties=CLUSTER_PROPERTIES))
            said = "".join(broker.log_path.read_text(encoding="utf-8") for broker in running.brokers.values())
            return SharedCluster(running, said)

        shared = self._once(("cluster",), start)
        for broker in shared.running.brokers.values():
            if not broker.running:
                broker.restart()
        return shared

    def secured(self) -> SecuredBroker:
        """A broker that asks its clients who they are, and an authorizer what they may do."""
        from tests.support.secured_broker import secured_broker  # noqa: PLC0415  what makes certificates loads slowly

        return self._once(("secured",), lambda ending: ending.enter_context(secured_broker()))

    def _once(self, kind: tuple[Any, ...], start: Callable[[ExitStack], _T]) -> _T:
        if kind not in self._started:
            ending = ExitStack()
            self._endings.append(ending)
            self._started[kind] = start(ending)
        found: _T = self._started[kind]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop all of them; who asks again gets new ones."""
        endings, self._endings, self._started = self._endings, [], {}
        with ThreadPoolExecutor() as side_by_side:
            for ended in [side_by_side.submit(ending.close) for ending in endings]:
                ended.result()
