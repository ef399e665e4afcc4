"""With 60 ms of added round trip: what the proxy sees of refused commits in a join/leave storm."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.brokers import SharedBrokers
from tests.support.waiting import wait_for
from tests.verification.brokers import PATIENT_PROPERTIES, RunningBroker
from tests.verification.commands import Contender
from tests.verification.leaving import leave
from tests.verification.protocols import LATEST_VERSION, STRICT_VERSION, GroupProtocol, patient_config
from tests.verification.refusals import ILLEGAL_GENERATION, Refusal, analyse
from tests.verification.storm import Storm, StormOutcome, perform
from tests.verification.topics import create_topics
from tests.verification.wire import Api

pytestmark = pytest.mark.timeout(480)

ADDED_RTT_S = 0.06
SECONDS = 8.0  # and longer where it has not shown enough
SEEDS = (5, 6)
COMMITS_MIN = 30
REBALANCES_MIN = 3
CALL_TIMEOUT_S = 60.0
REACTION_S = 0.05  # metadata taken when a transaction begins are 0.07 s to 0.25 s old when they are refused


@pytest.fixture(scope="module")
def latest(brokers: SharedBrokers) -> RunningBroker:
    return brokers.proxied(LATEST_VERSION, properties=PATIENT_PROPERTIES, added_rtt_s=ADDED_RTT_S)


@pytest.fixture(scope="module")
def strict(brokers: SharedBrokers) -> RunningBroker:
    return brokers.proxied(STRICT_VERSION, properties=PATIENT_PROPERTIES, added_rtt_s=ADDED_RTT_S)


def storm(broker: RunningBroker, protocol: GroupProtocol, directory: Path, seed: int = SEEDS[0]) -> StormOutcome:
    """One storm of the client under test, checked for what every storm must show."""
    told = Storm(Contender.OURS, protocol, SECONDS, seed, commits_min=COMMITS_MIN, rebalances_min=REBALANCES_MIN)
    outcome = perform(told, broker, directory / str(seed))
    assert outcome.report.commits >= COMMITS_MIN, outcome.explain()
    assert outcome.report.rebalances >= REBALANCES_MIN, outcome.explain()
    assert outcome.undecoded == []
    assert outcome.report.anonymous == 0, outcome.explain()
    assert outcome.judgement.passed, outcome.explain()
    return outcome


def avoidable(outcome: StormOutcome) -> list[Refusal]:
    """Less what reached the client within a scheduler's delay of its own request, on a machine with other work."""
    return [refusal for refusal in outcome.report.avoidable if (refusal.known_for_s or 0.0) > REACTION_S]


def assert_none_avoidable(broker: RunningBroker, protocol: GroupProtocol, directory: Path) -> None:
    """A worker may once have had to wait for longer than that for its turn; a client that clings does so every time."""
    told = []
    for seed in SEEDS:
        outcome = storm(broker, protocol, directory, seed)
        if not avoidable(outcome):
            return
        told.append(outcome.explain())
    pytest.fail("\n".join(told))


def test_no_commit_is_refused_by_a_broker_with_assignment_epochs(latest: RunningBroker, tmp_path: Path) -> None:
    outcome = storm(latest, GroupProtocol.KIP_848, tmp_path)
    assert outcome.report.refusals == [], outcome.explain()


@pytest.mark.soak
def test_no_refusal_of_a_classic_group_was_avoidable(latest: RunningBroker, tmp_path: Path) -> None:
    assert_none_avoidable(latest, GroupProtocol.COOPERATIVE, tmp_path)


@pytest.mark.soak
def test_no_refusal_by_a_strict_broker_was_avoidable(strict: RunningBroker, tmp_path: Path) -> None:
    assert_none_avoidable(strict, GroupProtocol.KIP_848, tmp_path)


def subscribed(broker: RunningBroker, group: str, protocol: GroupProtocol) -> Consumer:
    """A raw consumer of the topic that is named like its group."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **patient_config(protocol),
    })  # fmt: skip
    consumer.subscribe([group])
    return consumer


def balanced(*members: Consumer, partitions: int) -> None:
    def shared() -> bool:
        for member in members:
            member.poll(0.05)
        counts = [len(member.assignment()) for member in members]
        return sum(counts) == partitions and min(counts) > 0

    wait_for(shared, f"{len(members)} members to share {partitions} partitions")


@pytest.mark.parametrize("protocol", [GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE])
def test_a_client_that_clings_to_old_metadata_is_caught_as_avoidable(
    latest: RunningBroker, protocol: GroupProtocol
) -> None:
    """The instrument itself, on real traffic: a stale commit is seen and judged avoidable."""
    assert latest.proxy is not None
    group = topic = f"stale-{protocol.value}"
    create_topics(latest.bootstrap, {topic: 4})
    latest.proxy.reset()
    first = subscribed(latest, group, protocol)
    balanced(first, partitions=4)
    stale, owned = first.consumer_group_metadata(), first.assignment()
    second = subscribed(latest, group, protocol)
    balanced(first, second, partitions=4)
    producer = Producer({"bootstrap.servers": latest.bootstrap, "transactional.id": group})
    producer.init_transactions(CALL_TIMEOUT_S)
    offsets = [TopicPartition(topic, place.partition, 1) for place in owned]

    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction(offsets, stale, CALL_TIMEOUT_S)
    producer.abort_transaction(CALL_TIMEOUT_S)

    producer.begin_transaction()
    current, mine = first.consumer_group_metadata(), first.assignment()
    offsets = [TopicPartition(topic, place.partition, 1) for place in mine]
    producer.send_offsets_to_transaction(offsets, current, CALL_TIMEOUT_S)
    producer.commit_transaction(CALL_TIMEOUT_S)
    for member in (first, second):
        leave(member)

    report = analyse(list(latest.proxy.exchanges))
    (refusal,) = report.refusals
    assert (refusal.error, refusal.avoidable) == (ILLEGAL_GENERATION, True)
    assert (report.commits, report.transactions_committed, report.transactions_aborted) == (2, 1, 1)
    assert report.rebalances >= 1
    assert report.anonymous == 0
    assert latest.proxy.undecoded == []
    seen = {exchange.api for exchange in latest.proxy.exchanges}
    assert {Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN} <= seen
