"""The script of a simulated cluster: each event and each fault does what its name says, once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import BrokerError
from tests.support import protocols
from tests.support.protocols import CONSUMER, EAGER, settings_of

GROUP = "billing"
PROTOCOLS = [settings_of(protocol) for protocol in protocols.PROTOCOLS]


class Rebalances:
    """What a member's callbacks were told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def callbacks(self) -> dict[str, Any]:
        return {f"on_{name}": self._teller(name) for name in ("assign", "revoke", "lost")}

    def _teller(self, name: str) -> Any:
        return lambda _, partitions: self.told.append((name, sorted(p.partition for p in partitions)))

    def of(self, name: str) -> list[list[int]]:
        return [partitions for told, partitions in self.told if told == name and partitions]


@pytest.fixture
def cluster(simulated_cluster: SimulatedCluster) -> SimulatedCluster:
    simulated_cluster.create_topic("orders", 2)
    return simulated_cluster


def member(cluster: SimulatedCluster, rebalances: Rebalances, name: str = "a", **config: Any) -> Any:
    settings = {"group.id": GROUP, "client.id": name, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
    if config.get("group.protocol") == "consumer":
        del settings["session.timeout.ms"]
    consumer = cluster.consumer({"bootstrap.servers": "simulated", **settings, **config})
    consumer.subscribe(["orders"], **rebalances.callbacks())
    poll(consumer, 12)
    return consumer


def poll(consumer: Any, seconds: float) -> list[bytes]:
    """Poll for so long; return the values that came."""
    found = [consumer.poll(0.1) for _ in range(round(seconds * 10))]
    return [message.value() for message in found if message is not None and message.error() is None]


def transactional(cluster: SimulatedCluster, name: str = "billing-0") -> Any:
    settings = {"transactional.id": name, "socket.timeout.ms": 10_000}
    producer = cluster.producer({"bootstrap.servers": "simulated", **settings})
    producer.init_transactions(5)
    return producer


def generation(consumer: Any) -> int:
    return int.from_bytes(consumer.consumer_group_metadata()[7:11], "little", signed=True)


# -- rebalances ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_a_revoked_partition_leaves_and_comes_back(cluster: SimulatedCluster, protocol: dict[str, str]) -> None:
    rebalances = Rebalances()
    consumer = member(cluster, rebalances, **protocol)
    assert rebalances.of("assign") == [[0, 1]]
    peer = cluster.revoke(("orders", 1))
    poll(consumer, 12)
    assert {p.partition for p in consumer.assignment()} == {0}
    assert {p.partition for p in peer.owned} == {1}
    assert 1 in rebalances.of("revoke")[0]
    cluster.give_back()
    poll(consumer, 12)
    assert {p.partition for p in consumer.assignment()} == {0, 1}
    assert rebalances.of("lost") == []


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_partitions_come_back_from_an_instance_that_was_evicted(
    cluster: SimulatedCluster, protocol: dict[str, str]
) -> None:
    consumer = member(cluster, Rebalances(), **protocol)
    peer = cluster.revoke(("orders", 1))
    poll(consumer, 12)
    cluster.brokers.groups.evict(GROUP, peer.member_id)
    cluster.give_back()
    poll(consumer, 12)
    assert {p.partition for p in consumer.assignment()} == {0, 1}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_a_rebalance_moves_the_generation_and_nobody_loses_a_partition(
    cluster: SimulatedCluster, protocol: dict[str, str]
) -> None:
    rebalances = Rebalances()
    consumer = member(cluster, rebalances, **protocol)
    before = generation(consumer)
    cluster.rebalance()
    poll(consumer, 12)
    assert generation(consumer) > before
    assert {p.partition for p in consumer.assignment()} == {0, 1}
    if protocol != settings_of(EAGER):
        assert rebalances.of("revoke") == []


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_a_lost_member_hears_of_it_and_joins_again(cluster: SimulatedCluster, protocol: dict[str, str]) -> None:
    rebalances = Rebalances()
    consumer = member(cluster, rebalances, **protocol)
    cluster.lose("a")
    poll(consumer, 20)
    assert rebalances.of("lost") == [[0, 1]]
    assert rebalances.of("assign") == [[0, 1], [0, 1]]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_a_zombie_loses_its_partitions_to_others_and_learns_it_when_it_wakes(
    cluster: SimulatedCluster, protocol: dict[str, str]
) -> None:
    rebalances = Rebalances()
    consumer = member(cluster, rebalances, **protocol)
    other = member(cluster, Rebalances(), "b", **protocol)
    poll(consumer, 12)
    with cluster.zombie("a"):
        poll(other, 60)
        assert {p.partition for p in other.assignment()} == {0, 1}
        with pytest.raises(RuntimeError, match="consumer-1"):
            consumer.poll(0)
    poll(consumer, 1)
    assert len(rebalances.of("lost")) == 1


def test_a_zombie_that_is_killed_does_not_wake(cluster: SimulatedCluster) -> None:
    member(cluster, Rebalances(), "a")
    other = member(cluster, Rebalances(), "b")
    with cluster.zombie("a"):
        cluster.kill("a")
    served = len(cluster.history)
    poll(other, 120)
    assert {p.partition for p in other.assignment()} == {0, 1}
    assert not [each for each in list(cluster.history)[served:] if each.client == "consumer-1"]


def test_a_killed_process_says_nothing_and_its_session_ends(cluster: SimulatedCluster) -> None:
    member(cluster, Rebalances(), "a")
    served = len(cluster.history)
    cluster.kill("a")
    cluster.advance(5)
    assert all(each.client != "consumer-1" for each in cluster.history[served:])
    assert len(cluster.brokers.groups.describe(GROUP).members) == 1
    cluster.advance(10)
    assert not cluster.brokers.groups.describe(GROUP).members


def test_a_killed_process_does_nothing_more_about_what_it_is_told(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    cluster.delay("AddPartitionsToTxn", 1)
    producer.produce("orders", b"1", partition=0)
    producer.poll(0.1)
    cluster.kill("billing-0")
    cluster.advance(5)
    assert [each.request for each in cluster.history][-1] == "AddPartitionsToTxn"


def test_answers_that_come_while_a_process_stands_still_reach_it_when_it_goes_on(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    cluster.delay("AddPartitionsToTxn", 1)
    producer.produce("orders", b"1", partition=0)
    producer.poll(0.1)
    with cluster.zombie("billing-0"):
        cluster.advance(5)
        assert [each.request for each in cluster.history][-1] == "AddPartitionsToTxn"
    went_on_s = cluster.clock()
    producer.commit_transaction(5)
    assert cluster.values("orders") == [b"1"]
    assert cluster.clock() - went_on_s < 1


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_only_what_is_revoked_moves_and_afterwards_everything_is_shared_again(
    make_simulated_cluster: Any, protocol: dict[str, str]
) -> None:
    cluster = make_simulated_cluster()
    cluster.create_topic("orders", 4)
    consumer = member(cluster, Rebalances(), **protocol)
    cluster.revoke(("orders", 3))
    poll(consumer, 12)
    assert {p.partition for p in consumer.assignment()} == {0, 1, 2}
    cluster.give_back()
    other = member(cluster, Rebalances(), "b", **protocol)
    for _ in range(10):
        poll(consumer, 2)
        poll(other, 2)
    assert [len(each.assignment()) for each in (consumer, other)] == [2, 2]


def test_lose_evicts_only_the_named_client(cluster: SimulatedCluster) -> None:
    lost, kept = Rebalances(), Rebalances()
    consumer, other = (
        member(cluster, heard, name, **settings_of(CONSUMER)) for heard, name in ((lost, "a"), (kept, "b"))
    )
    poll(consumer, 12)
    poll(other, 12)
    cluster.lose("a")
    for _ in range(10):
        poll(consumer, 2)
        poll(other, 2)
    assert (len(lost.of("lost")), kept.of("lost")) == (1, [])


def test_a_deleted_topic_takes_its_records_and_offsets_with_it(cluster: SimulatedCluster) -> None:
    cluster.create_topic("invoices")
    cluster.write("orders", [b"old"], partition=1)
    consumer = cluster.consumer({"bootstrap.servers": "simulated", "group.id": GROUP})
    places = [TopicPartition("orders", 1, 1), TopicPartition("invoices", 0, 0)]
    consumer.commit(offsets=places, asynchronous=False)
    cluster.delete_topic("orders")
    assert cluster.committed(GROUP) == {("invoices", 0): 0}
    with pytest.raises(ValueError, match="no topic 'orders'"):
        cluster.read("orders")
    cluster.create_topic("orders", 3)
    assert cluster.values("orders") == []


def test_what_is_no_topic_is_not_deleted(cluster: SimulatedCluster) -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PART"):
        cluster.delete_topic("invoices")


def test_a_transaction_ends_though_a_topic_of_it_was_deleted(cluster: SimulatedCluster) -> None:
    cluster.create_topic("invoices")
    producer = transactional(cluster)
    producer.begin_transaction()
    for topic in ("orders", "invoices"):
        producer.produce(topic, b"paid", partition=0)
    producer.flush(10.0)
    cluster.delete_topic("invoices")
    producer.commit_transaction(10.0)
    assert cluster.values("orders") == [b"paid"]


def test_a_restart_begins_both_coordinators_anew(cluster: SimulatedCluster) -> None:
    offsets = cluster.brokers.groups.offsets
    transactional(cluster)
    cluster.brokers.transactions._known = {}
    cluster.restart_coordinator()
    assert cluster.brokers.groups.offsets is not offsets
    assert cluster.brokers.transactions.describe("billing-0") is not None


def test_a_restart_of_the_coordinators_keeps_the_group_and_its_offsets(cluster: SimulatedCluster) -> None:
    consumer = member(cluster, Rebalances(), **settings_of(CONSUMER))
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    before = generation(consumer)
    cluster.restart_coordinator()
    poll(consumer, 6)
    assert (generation(consumer), {k.partition: v for k, v in cluster.committed().items()}) == (before, {0: 7})


# -- producers -------------------------------------------------------------------------------------------------------


def test_a_fenced_producer_cannot_commit_and_what_it_wrote_is_never_visible(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.flush(1)
    cluster.fence_producer()
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(5)
    assert caught.value.args[0].fatal()
    assert cluster.values("orders") == []
    assert cluster.values("orders", read_committed=False) == [b"1"]


def test_an_expired_id_is_not_known_any_more(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    cluster.expire_transactional_id()
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(5)
    assert caught.value.args[0].name() == "INVALID_PRODUCER_ID_MAPPING"


# -- one-shot faults -------------------------------------------------------------------------------------------------


def test_a_lost_reply_leaves_the_caller_without_an_answer_and_the_transaction_committed(
    cluster: SimulatedCluster,
) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    cluster.lose_reply("EndTxn")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(2)
    assert (caught.value.args[0].name(), caught.value.args[0].retriable()) == ("_TIMED_OUT", True)
    assert cluster.values("orders") == [b"1"]
    producer.commit_transaction(15)


def test_a_lost_request_reaches_nobody_and_is_sent_again(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    cluster.lose_request("Produce")
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.commit_transaction(30)
    assert cluster.values("orders") == [b"1"]
    assert cluster.clock() > 10
    assert [each.request for each in cluster.history].count("Produce") == 1


def test_a_delayed_request_arrives_late_also_when_it_was_sent_again(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    cluster.delay("Produce", 15)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.commit_transaction(30)
    cluster.advance(20)
    served = [each.result for each in cluster.history if each.request == "Produce"]
    assert len(served) == 2
    assert cluster.values("orders") == [b"1"]


def test_a_doubled_request_is_served_twice_and_its_records_written_once(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    cluster.duplicate("Produce")
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.commit_transaction(5)
    assert [each.request for each in cluster.history].count("Produce") == 2
    assert cluster.values("orders") == [b"1"]


def test_a_refused_request_is_answered_with_that_error_and_does_nothing(cluster: SimulatedCluster) -> None:
    producer = transactional(cluster)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.flush(1)
    cluster.refuse("EndTxn", "INVALID_TXN_STATE")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(5)
    assert (caught.value.args[0].name(), caught.value.args[0].fatal()) == ("INVALID_TXN_STATE", True)
    assert cluster.values("orders") == []


def test_a_fault_of_a_named_client_is_nobody_elses_and_happens_once(cluster: SimulatedCluster) -> None:
    first, second = transactional(cluster, "first"), transactional(cluster, "second")
    cluster.refuse("EndTxn", "INVALID_TXN_STATE", "second")
    for producer, fails in ((first, False), (second, True), (first, False)):
        producer.begin_transaction()
        producer.produce("orders", b"1", partition=0)
        if fails:
            with pytest.raises(KafkaException):
                producer.commit_transaction(5)
        else:
            producer.commit_transaction(5)
    assert cluster.faults.waiting == ()


# -- time, names, wrong scripts ----------------------------------------------------------------------------------------


def test_an_action_happens_at_its_time_in_the_middle_of_a_call(cluster: SimulatedCluster) -> None:
    consumer = member(cluster, Rebalances())
    began = cluster.clock()
    cluster.after(3, lambda: cluster.write("orders", [b"1"]))
    message = consumer.poll(10)
    assert message.value() == b"1"
    assert 3 <= cluster.clock() - began < 3.5


def test_actions_of_one_moment_keep_their_order(cluster: SimulatedCluster) -> None:
    told: list[int] = []
    for number in range(5):
        cluster.after(1, partial(told.append, number))
    cluster.advance(2)
    assert told == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore:1 action.s. of cluster.after")
def test_actions_that_schedule_themselves_for_ever_are_an_error(cluster: SimulatedCluster) -> None:
    def again() -> None:
        cluster.after(0, again)

    again()
    with pytest.raises(RuntimeError, match="does not come to rest"):
        cluster.advance(1)


def test_a_script_for_nobody_names_who_there_is(cluster: SimulatedCluster) -> None:
    member(cluster, Rebalances(), "a")
    with pytest.raises(ValueError, match=r"no client is called 'b'; there are .*a"):
        cluster.zombie("b").__enter__()
    with pytest.raises(ValueError, match=r"name the transactional\.id: there are none yet"):
        cluster.fence_producer()
    with pytest.raises(ValueError, match="nothing of group 'billing' was revoked"):
        cluster.give_back()
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("orders")


def test_a_fault_for_a_request_or_an_error_that_does_not_exist_is_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(ValueError, match=r"'EndTnx' is no request of a client; there are .*EndTxn"):
        cluster.lose_reply("EndTnx")
    for wrong in ("NOT_COORDINATR", "_TIMED_OUT", "name"):
        with pytest.raises(ValueError, match=f"{wrong!r} is no error of a broker"):
            cluster.refuse("EndTxn", wrong)


@pytest.mark.parametrize(
    "wrong", [("orders", 0), (("orders", "1"),), ("orders",), (("orders",),), ((0, "orders"),), ()]
)
def test_what_names_no_partitions_cannot_be_revoked(cluster: SimulatedCluster, wrong: Any) -> None:
    member(cluster, Rebalances(), "a")
    with pytest.raises((TypeError, ValueError), match=r'give pairs of a topic and a number: revoke\(\("orders", 0\)\)'):
        cluster.revoke(*wrong)


def test_a_killed_client_says_that_it_was_killed(cluster: SimulatedCluster) -> None:
    consumer, producer = member(cluster, Rebalances(), "a"), transactional(cluster)
    cluster.kill("a")
    cluster.kill("billing-0")
    for call in (lambda: consumer.poll(0), producer.begin_transaction):
        with pytest.raises(RuntimeError, match="was killed: its process has ended and cannot call anything"):
            call()


def test_a_client_whose_settings_were_refused_cannot_be_named(cluster: SimulatedCluster) -> None:
    for make in (cluster.consumer, cluster.producer):
        with pytest.raises(KafkaException):
            make({"bootstrap.servers": "simulated", "group.id": GROUP, "no.such.setting": "1"})
    with pytest.raises(ValueError, match="there are none yet"):
        cluster.lose("a")


def test_an_unknown_client_topic_or_group_is_an_error(cluster: SimulatedCluster) -> None:
    member(cluster, Rebalances(), "a")
    transactional(cluster)
    with pytest.raises(ValueError, match=r"no client has the transactional\.id 'biling-0'; there are billing-0"):
        cluster.fence_producer("biling-0")
    with pytest.raises(ValueError, match=r"there is no topic 'ordres'; there are orders"):
        cluster.values("ordres")
    with pytest.raises(ValueError, match=r"no client has the group 'biling'; there are billing"):
        cluster.committed("biling")
    for wrong in (("ordres", 0), ("orders", 7)):
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PART"):
            cluster.revoke(wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"request_timeout_s": 0}, "request_timeout_s=0: .*give 0.01 s or more"),
        ({"request_timeout_s": float("nan")}, "nan s cannot pass"),
        ({"request_timeout_s": -1}, "-1 s cannot pass"),
        ({"latency_s": -1}, "-1 s cannot pass"),
        ({"latency_s": float("inf")}, "inf s cannot pass"),
        ({"latency_s": "0.1"}, "'0.1' is no number of seconds"),
        ({"settings": {"x": 1}}, "settings={'x': 1} is no BrokerSettings"),
        ({"clock": 1}, "clock=1 is no SimulatedClock"),
    ],
    ids=str,
)
def test_a_cluster_that_could_not_run_is_not_made(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        SimulatedCluster(**wrong)


def test_an_action_that_cannot_be_called_is_refused_before_it_is_due(cluster: SimulatedCluster) -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match="action=None cannot be called"):
        cluster.after(1, nothing)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_time_that_cannot_pass_is_an_error(cluster: SimulatedCluster, seconds: float) -> None:
    for call in (
        lambda: cluster.advance(seconds),
        lambda: cluster.after(seconds, list),
        lambda: cluster.delay("EndTxn", seconds),
    ):
        with pytest.raises(ValueError, match=f"{seconds:g} s cannot pass: give 0 or more"):
            call()


def test_a_topic_without_partitions_and_a_value_that_is_no_bytes_are_errors(cluster: SimulatedCluster) -> None:
    with pytest.raises(ValueError, match="topic 'empty' with 0 partitions: give it 1 or more"):
        cluster.create_topic("empty", 0)
    values: Any
    for values, named in (("ab", "'a'"), (b"ab", "97"), ([b"a", 1], "1")):
        with pytest.raises(TypeError, match=f"bytes or None, not {named}"):
            cluster.write("orders", values)
    assert cluster.values("orders") == []


def test_a_poll_without_a_limit_ends_in_an_error_where_nothing_comes(cluster: SimulatedCluster) -> None:
    consumer = member(cluster, Rebalances())
    with pytest.raises(RuntimeError, match="poll with a timeout"):
        consumer.poll()


def test_a_loop_of_polls_to_which_nothing_can_come_any_more_ends_in_an_error(cluster: SimulatedCluster) -> None:
    consumer = member(cluster, Rebalances())
    cluster.after(2 * 3600, lambda: cluster.write("orders", [b"late"]))
    assert poll(consumer, 3 * 3600) == [b"late"]
    with pytest.raises(RuntimeError, match=r"polled for an hour .*cluster\.after\(seconds, loop\.stop\)"):
        poll(consumer, 3600)
    assert poll(consumer, 60) == [], "what closes after the error may poll"


def test_hours_that_pass_between_polls_are_no_idle_loop(cluster: SimulatedCluster) -> None:
    consumer = member(cluster, Rebalances(), **{"max.poll.interval.ms": "86400000"})
    for _ in range(10):
        cluster.advance(3600)
        assert poll(consumer, 60) == []


def test_repr_shows_the_seed_and_an_unknown_commit_check_is_refused() -> None:
    assert "seed=42" in repr(SimulatedCluster(42))
    with pytest.raises(ValueError, match="nonsense"):
        SimulatedCluster(commit_validation="nonsense")


def test_two_clusters_with_one_seed_are_the_same_and_with_another_are_not() -> None:
    def told(seed: int) -> tuple[Any, ...]:
        cluster = SimulatedCluster(seed)
        cluster.create_topic("orders", 8)
        producer = cluster.producer({"bootstrap.servers": "simulated"})
        for number in range(50):
            producer.produce("orders", b"%d" % number)
        producer.flush(5)
        return tuple(cluster.values("orders")), tuple(cluster.history)

    assert told(1) == told(1)
    assert told(1)[0] != told(2)[0]


def test_writing_no_records_writes_nothing() -> None:
    cluster = SimulatedCluster()
    cluster.create_topic("in")
    cluster.write("in", [])
    assert cluster.values("in") == []
