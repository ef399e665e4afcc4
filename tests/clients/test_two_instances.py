"""Two live instances with one pinned transactional.id: the id stays with the last init, and they never take turns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from eos_client import EosProducer
from eos_client.core.model import ProducerLimits
from eos_client.errors import AbortableError, EosError, ProducerFencedError, RebuildProducerError, UnknownOutcomeError
from eos_client.testing.simulator import SimulatedCluster

TIMEOUT_MS, REQUEST_S, COMMIT_S = 10_000, 1.0, 2.0
ROUNDS = 4
QUIET = logging.getLogger("two instances")
QUIET.disabled = True


class Instance:
    """One process, which does what each error says. ``writes``: its name, in every output."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, before_a_handle: Callable[[], None] = lambda: None
    ) -> None:
        def factory(config: Any) -> Any:
            before_a_handle()
            return cluster.producer(config)

        self.name = name.encode()
        self.stopped: EosError | None = None
        self.producer = EosProducer(
            {
                "bootstrap.servers": "simulated",
                "client.id": name,
                "transactional.id": "t",
                "transaction.timeout.ms": TIMEOUT_MS,
                "logger": QUIET,
            },
            limits=ProducerLimits(commit_timeout_s=COMMIT_S),
            factory=factory,
            clock=cluster.clock,
            hook=lambda _: None,
        )

    def start(self) -> None:
        self.producer.init_transactions()

    def open(self) -> None:
        self.producer.begin_transaction()
        self.producer.produce("out", self.name)
        self.producer.flush()

    def commit(self) -> None:
        try:
            self.producer.commit_transaction()
        except AbortableError:
            self.producer.abort_transaction()

    def turn(self, act: Callable[[], None]) -> None:
        """Make one attempt, and obey."""
        try:
            act()
        except ProducerFencedError as error:
            self.stopped = error
        except (RebuildProducerError, UnknownOutcomeError):
            self.turn(self.start)

    def work(self) -> None:
        self.open()
        self.commit()


class Pair:
    """An older instance that has committed, and a newer one that is about to start."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=3, request_timeout_s=REQUEST_S)
        self.cluster.create_topic("out")
        self.newer_is_due = False
        self.older = Instance(self.cluster, "older", self._newer_starts)
        self.newer = Instance(self.cluster, "newer")
        self.older.start()
        self.older.work()

    def _newer_starts(self) -> None:
        if self.newer_is_due:
            self.newer_is_due = False
            self.newer.start()

    def goes_on(self) -> list[str]:
        """Let both work in turn; returns whose outputs there are since."""
        before = len(self.cluster.values("out"))
        for _ in range(ROUNDS):
            for each in (self.older, self.newer):
                if each.stopped is None:
                    each.turn(each.work)
        return [value.decode() for value in self.cluster.values("out")[before:]]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def outage_while_idle(pair: Pair) -> None:
    for _ in range(3):
        pair.cluster.lose_request("InitProducerId")
    pair.cluster.advance(2 * TIMEOUT_MS / 1000)
    pair.newer.start()


def newer_starts_in_an_open_transaction(pair: Pair) -> None:
    pair.older.open()
    pair.newer.start()
    pair.older.turn(pair.older.commit)


def transaction_outlives_its_time(pair: Pair) -> None:
    pair.older.open()
    pair.cluster.advance(2 * TIMEOUT_MS / 1000)
    pair.newer.start()
    pair.older.turn(pair.older.commit)


def commit_has_no_answer(pair: Pair) -> None:
    pair.older.open()
    for _ in range(5):
        pair.cluster.lose_request("EndTxn")
    pair.newer_is_due = True
    pair.older.turn(pair.older.commit)
    pair.cluster.faults.withdraw()


def connection_is_lost_in_a_commit(pair: Pair) -> None:
    pair.older.open()
    pair.cluster.lose_reply("EndTxn")
    pair.newer_is_due = True
    pair.older.turn(pair.older.commit)


@pytest.mark.parametrize("story", [outage_while_idle, newer_starts_in_an_open_transaction])
def test_an_older_instance_that_need_not_initialise_again_stops_and_the_newer_goes_on(
    story: Callable[[Pair], None], pair: Pair
) -> None:
    story(pair)
    assert set(pair.goes_on()) == {"newer"}
    assert isinstance(pair.older.stopped, ProducerFencedError)
    assert pair.newer.stopped is None


@pytest.mark.parametrize("story", [transaction_outlives_its_time, commit_has_no_answer, connection_is_lost_in_a_commit])
def test_an_older_instance_that_has_to_initialise_again_keeps_the_id_and_the_newer_stops(
    story: Callable[[Pair], None], pair: Pair
) -> None:
    """A new handle's InitProducerId names no epoch, so Kafka gives the id to the one that it serves last."""
    story(pair)
    assert not pair.newer_is_due
    assert pair.goes_on() == ["older"] * ROUNDS
    assert isinstance(pair.newer.stopped, ProducerFencedError)
    assert pair.older.stopped is None


def test_an_instance_that_is_started_again_takes_the_id_back_whenever_it_was_fenced() -> None:
    """Kafka cannot tell a restart from a takeover, so a supervisor that restarts the fenced one keeps up the fight."""
    cluster = SimulatedCluster(seed=3, request_timeout_s=REQUEST_S)
    cluster.create_topic("out")
    running = Instance(cluster, "0")
    running.start()
    for number in range(1, ROUNDS):
        started_again = Instance(cluster, str(number))
        started_again.start()
        running.turn(running.work)
        assert isinstance(running.stopped, ProducerFencedError)
        started_again.work()
        running = started_again


@pytest.mark.parametrize("last", ["older", "newer"])
def test_of_two_inits_on_their_way_at_once_the_one_that_is_served_last_keeps_the_id(last: str, pair: Pair) -> None:
    """After an outage that is often the older's: its client has waited longer, so it connects again later."""
    pair.older.open()
    for _ in range(5):
        pair.cluster.lose_request("EndTxn")
    first, second = (pair.newer, pair.older) if last == "older" else (pair.older, pair.newer)
    with pytest.raises(UnknownOutcomeError):
        pair.older.commit()
    pair.cluster.faults.withdraw()
    first.start()
    second.start()
    assert set(pair.goes_on()) == {last}
    assert isinstance((pair.newer if last == "older" else pair.older).stopped, ProducerFencedError)
