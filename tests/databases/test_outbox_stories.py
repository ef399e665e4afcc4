"""Random stories of relays, told with seeds: whatever happens, each row is published once, and in order per key."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from eos_client.testing.simulator.brokers.model import BrokerError
from tests.databases.outbox_stage import BreakableStore, OutboxStage, breakable_stores
from tests.support.protocols import NAMES

STORIES = 30
TOLD = 9  # the others are soak tests
STEPS = 120
RELAYS_MAX = 3
KEYS = (b"ann", b"bob", b"cyd", b"dan", b"eve")
REQUESTS = ("EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "Produce", "OffsetFetch", "Heartbeat")


def tell(stage: OutboxStage, random: Random) -> None:
    """Tell one story: ``STEPS`` steps, most of them turns of a relay."""
    for _ in range(STEPS):
        step(stage, random)


def step(stage: OutboxStage, random: Random) -> None:
    if not stage.relays:
        stage.start()
    (act,) = random.choices(list(ACTS), list(ACTS.values()))
    act(stage, random)


def let_work(stage: OutboxStage, random: Random) -> None:
    relay = random.choice(stage.relays)
    for _ in range(random.randint(1, 6)):
        if relay in stage.relays:
            stage.turn(relay)


def write(stage: OutboxStage, random: Random) -> None:
    stage.application.write(*random.choices(KEYS, k=random.randint(1, 6)))


def begin_late(stage: OutboxStage, random: Random) -> None:
    stage.application.begin_late(*random.choices(KEYS, k=random.randint(1, 3)))


def commit_late(stage: OutboxStage, _: Random) -> None:
    stage.application.commit_late()


def disturb_the_network(stage: OutboxStage, random: Random) -> None:
    cluster, request = stage.cluster, random.choice(REQUESTS)
    if random.random() < 0.3:
        cluster.delay(request, random.choice((0.5, 3.0, 20.0)))
    else:
        random.choice((cluster.lose_reply, cluster.lose_request, cluster.duplicate))(request)


def lose_a_connection(_: OutboxStage, random: Random) -> None:
    request = random.choice(("states", "number", "read", "clear"))
    BreakableStore.faults.append((request, random.choice(("request", "reply"))))


def kill(stage: OutboxStage, random: Random) -> None:
    stage.kill(random.choice(stage.relays))


def close(stage: OutboxStage, random: Random) -> None:
    stage.close(random.choice(stage.relays))


def start(stage: OutboxStage, _: Random) -> None:
    if len(stage.relays) < RELAYS_MAX:
        stage.start()


def sleep(stage: OutboxStage, random: Random) -> None:
    stage.cluster.advance(random.choice((0.5, 5.0, 70.0)))


def move_the_group(stage: OutboxStage, random: Random) -> None:
    try:
        if random.random() < 0.5:
            stage.cluster.rebalance()
        elif random.random() < 0.5:
            stage.cluster.lose(random.choice(stage.relays).name)
        else:
            stage.cluster.restart_coordinator()
    except (BrokerError, ValueError):
        pass  # there is no such member, or no group yet


ACTS = {
    let_work: 50,
    write: 14,
    begin_late: 4,
    commit_late: 4,
    disturb_the_network: 6,
    lose_a_connection: 6,
    kill: 3,
    close: 2,
    start: 4,
    move_the_group: 4,
    sleep: 3,
}
"""What may happen, and how often."""


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize(
    "seed", [seed if seed < TOLD else pytest.param(seed, marks=pytest.mark.soak) for seed in range(STORIES)]
)
def test_each_row_is_published_once_and_in_order_per_key(tmp_path: Path, seed: int, protocol: str):
    with breakable_stores():
        stage = OutboxStage(tmp_path, seed, keep=seed % 3 == 0, protocol=NAMES[protocol])
        tell(stage, Random(seed))
        stage.finish()
    assert stage.violations() == []
    assert stage.left() == (len(stage.application.written) if stage.keep else 0)
