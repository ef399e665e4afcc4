"""eos_client.confluent.admin.cluster_admin and topic_records against a real broker."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from eos_client.confluent.admin import topic_records
from eos_client.confluent.admin.cluster_admin import ClusterAdmin, GroupDescription
from eos_client.confluent.admin.topic_records import GroupOffsets, TopicLoader, read_topic
from eos_client.core.model import TopicDescription
from eos_client.errors import AuthenticationError, ClusterUnavailableError, ClusterUnfitError, ConfigurationError
from tests.interruption import BrokenOffError
from tests.support.waiting import wait_for


def transactional_producer(cluster: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{cluster.prefix}-writer"}
    )
    producer.init_transactions(20)
    return producer


def commit_offsets(cluster: Any, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 1, offset)], asynchronous=False)
    consumer.close()


def test_a_cluster_tells_its_brokers_and_their_settings(cluster: Any) -> None:
    described = cluster.admin.cluster()
    assert list(described.brokers.values()) == [cluster.bootstrap_servers]
    settings = cluster.admin.broker_settings(min(described.brokers))
    assert settings["transaction.state.log.replication.factor"] == "1"


def test_a_missing_topic_is_none_and_is_not_created_by_asking(cluster: Any) -> None:
    name = f"{cluster.prefix}-nowhere"
    assert cluster.admin.topics([name]) == {name: None}
    assert cluster.admin.topics([name]) == {name: None}


def test_topics_are_made_with_leaders_and_can_be_removed(cluster: Any) -> None:
    name = cluster.topic("made", partitions=3)
    assert cluster.admin.topics([name]) == {name: TopicDescription(name, 3, 1, 1, ())}
    assert cluster.admin.topic_settings(name)["unclean.leader.election.enable"] == "false"
    with pytest.raises(ClusterUnfitError, match="already exists"):
        cluster.admin.create_topics({name: 3})
    cluster.admin.delete_topics([name, f"{cluster.prefix}-never-there"])
    # The controller has removed it; a broker's metadata follows.
    wait_for(lambda: cluster.admin.topics([name]) == {name: None}, "the topic to be gone")


class _SlowLeaders(ClusterAdmin):
    """A cluster whose new topic has its leader only when asked for the third time, or never."""

    def __init__(self, *, after: int, timeout_s: float) -> None:
        super().__init__("127.0.0.1:1", timeout_s=timeout_s)
        self.asked, self.after = 0, after

    def topics(self, names: Any) -> Any:
        self.asked += 1
        leaderless = () if self.asked >= self.after else (0,)
        return {name: TopicDescription(name, 1, 1, 1, leaderless) for name in names}


def test_new_topics_are_waited_for_until_they_have_leaders(cluster: Any) -> None:
    slow = _SlowLeaders(after=3, timeout_s=10)
    slow._client = cluster.admin._client
    slow.create_topics({f"{cluster.prefix}-slow": 1})
    assert slow.asked == 3
    never = _SlowLeaders(after=10**9, timeout_s=5)  # it is also what the broker has for creating the topic
    never._client = cluster.admin._client
    with pytest.raises(ClusterUnfitError, match=r"have no leader after 5 s"):
        never.create_topics({f"{cluster.prefix}-never": 1})


def test_what_was_loaded_is_read_back_in_order_with_its_headers(cluster: Any) -> None:
    topic = cluster.topic("records", partitions=2)
    with TopicLoader(cluster.bootstrap_servers, topic, {}) as loader:
        for number in range(2500):
            loader.load(b"" if number == 7 else b"%d" % number, key=None, partition=number % 2)
    assert loader.loaded == 2500
    records = cluster.read(topic, 2)
    for partition in (0, 1):
        own = [(record.offset, record.value) for record in records if record.partition == partition]
        assert own == [(n // 2, b"" if n == 7 else b"%d" % n) for n in range(partition, 2500, 2)]


def load_and_flush(loader: TopicLoader, partition: int) -> None:
    loader.load(b"x", key=None, partition=partition)
    loader.flush()


def test_a_record_that_the_topic_cannot_take_is_an_error_not_a_silence(cluster: Any) -> None:
    topic = cluster.topic("small")
    loader = TopicLoader(cluster.bootstrap_servers, topic, {})
    with pytest.raises(ClusterUnfitError, match="2000000 bytes cannot be written"):
        loader.load(b"x" * 2_000_000, key=None, partition=0)
    # The client library refuses it at once where it knows the topic already, and in a report where it does not.
    with pytest.raises(ClusterUnfitError, match=r"refused a record|Unknown partition"):
        load_and_flush(loader, partition=99)


def load_and_interrupt(loader: TopicLoader) -> None:
    with loader:
        loader.load(b"dropped", key=None, partition=0)
        raise KeyboardInterrupt


def test_a_loader_that_an_exception_leaves_asks_for_its_topic_no_more() -> None:
    loader = TopicLoader("127.0.0.1:9", "deleted", {})
    with pytest.raises(KeyboardInterrupt):
        load_and_interrupt(loader)
    with pytest.raises(RuntimeError, match="closed"):
        loader.load(b"x", key=None, partition=0)


def test_only_an_uncommitted_reader_sees_aborted_records(cluster: Any) -> None:
    topic = cluster.topic("txn")
    producer = transactional_producer(cluster)
    for value, ends_well in ((b"kept", True), (b"dropped", False), (b"also kept", True)):
        producer.begin_transaction()
        producer.produce(topic, value, headers={"origin": b"here"})
        if ends_well:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    assert [(r.value, r.headers) for r in cluster.read(topic)] == [
        (b"kept", {"origin": b"here"}),
        (b"also kept", {"origin": b"here"}),
    ]
    assert len(cluster.read(topic, committed_only=False)) == 3
    assert cluster.admin.end_offsets(topic, 1) == {0: 6}


def test_a_reader_says_when_an_open_transaction_holds_it_back(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Well beyond fetch.wait.max.ms: by then the broker has reported the end of what is stable, which is not the end.
    monkeypatch.setattr(topic_records, "_IDLE_LIMIT_S", 4.0)
    topic = cluster.topic("open")
    producer = transactional_producer(cluster)
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(20)
    assert cluster.admin.end_offsets(topic, 1) == {0: 1}
    assert cluster.admin.end_offsets(topic, 1, committed_only=True) == {0: 0}
    reader = read_topic(cluster.bootstrap_servers, topic, {0: 1})
    with pytest.raises(ClusterUnavailableError, match=r"partitions \[0\] are unread: an open transaction"):
        list(reader)
    producer.abort_transaction(20)


@pytest.mark.parametrize("stable", [True, False])
def test_group_offsets_are_read_without_joining_the_group(cluster: Any, stable: bool) -> None:
    topic = cluster.topic("read", partitions=3)
    group = f"{cluster.prefix}-group"
    with GroupOffsets(cluster.bootstrap_servers, group, {}, stable=stable) as offsets:
        assert offsets.read(topic, 3) == {0: 0, 1: 0, 2: 0}
        commit_offsets(cluster, group, topic, 42)
        assert offsets.read(topic, 3) == {0: 0, 1: 42, 2: 0}
        described = cluster.admin.group(group)
    assert described == GroupDescription("empty", "classic", 0)


def test_only_a_stable_read_waits_for_offsets_of_an_open_transaction(cluster: Any) -> None:
    topic, group = cluster.topic("pending", partitions=3), f"{cluster.prefix}-group"
    member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    producer = transactional_producer(cluster)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 5)], member.consumer_group_metadata(), 20)
    with GroupOffsets(cluster.bootstrap_servers, group, {}, stable=False) as offsets:
        assert offsets.read(topic, 3) == {0: 0, 1: 0, 2: 0}
    with GroupOffsets(cluster.bootstrap_servers, group, {}, stable=True) as offsets:
        with pytest.raises(ClusterUnavailableError, match=f"offsets of {topic} could not be read within 1 s"):
            offsets.read(topic, 3, timeout_s=1.0)
        producer.commit_transaction(20)
        assert offsets.read(topic, 3) == {0: 0, 1: 5, 2: 0}
    member.close()


def test_an_unseen_group_is_none(cluster: Any) -> None:
    assert cluster.admin.group(f"{cluster.prefix}-never-seen") is None


class _NewCluster:
    """The client of a cluster whose coordinators and leaders answer with an error code until asked thrice."""

    def __init__(self, code: int) -> None:
        self.code, self.asked = code, 0
        self.admin = ClusterAdmin("127.0.0.1:1", timeout_s=5.0)
        self.admin._client = cast("AdminClient", self)

    def describe_consumer_groups(self, group_ids: list[str], **_: Any) -> dict[str, Any]:
        return dict.fromkeys(group_ids, self._answer(SimpleNamespace(state=ConsumerGroupState.DEAD)))

    def list_offsets(self, places: Any, **_: Any) -> dict[Any, Any]:
        return dict.fromkeys(places, self._answer(SimpleNamespace(offset=7)))

    def _answer(self, found: Any) -> Future[Any]:
        self.asked += 1
        future = Future[Any]()
        if self.asked < 3:
            future.set_exception(KafkaException(KafkaError(self.code)))
        else:
            future.set_result(found)
        return future


@pytest.mark.parametrize("name", ["NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"])
def test_a_leader_that_moves_is_waited_for(name: str) -> None:
    new = _NewCluster(getattr(KafkaError, name))
    assert new.admin.end_offsets("orders", 2) == {0: 7, 1: 7}
    assert new.asked == 3


class _SilentLeader:
    """The client of a cluster where partition 1 answers as the admin client does whose leader is gone, a few times."""

    def __init__(self, answer: int | KafkaError, *, times: int = 10**9, reason: KafkaError | None = None) -> None:
        self.answer, self.times, self.reason, self.asked = answer, times, reason, 0
        self.admin = ClusterAdmin("127.0.0.1:1", timeout_s=0.3)
        self.admin._client = cast("AdminClient", self)

    def poll(self, _timeout_s: float) -> None:
        if self.reason is not None:
            self.admin._errors(self.reason)

    def list_offsets(self, places: Any, **_: Any) -> dict[Any, Any]:
        self.asked += 1
        return {place: self._future(place.partition) for place in places}

    def _future(self, partition: int) -> Future[Any]:
        future = Future[Any]()
        answer = self.answer if partition == 1 and self.asked <= self.times else 7
        if isinstance(answer, KafkaError):
            future.set_exception(KafkaException(answer))
        else:
            future.set_result(SimpleNamespace(offset=answer))
        return future


# confluent_kafka gives OFFSET_INVALID without an error for a leader whose connection was lost, and then _NOENT, "No
# leaders found", until it is connected again.
_UNKNOWN_ENDS = [
    pytest.param(OFFSET_INVALID, id="no error"),
    pytest.param(KafkaError(KafkaError._NOENT), id="no leaders found"),
    pytest.param(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), id="no leader"),
    pytest.param(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE), id="new leader"),
]


@pytest.mark.parametrize("answer", _UNKNOWN_ENDS)
def test_an_end_that_is_not_known_is_asked_for_again(answer: int | KafkaError) -> None:
    passing = _SilentLeader(answer, times=2)
    assert passing.admin.end_offsets("orders", 3) == {0: 7, 1: 7, 2: 7}
    assert passing.asked == 3


@pytest.mark.parametrize("answer", _UNKNOWN_ENDS)
def test_an_end_that_stays_unknown_is_never_taken_for_an_offset(answer: int | KafkaError) -> None:
    lasting = _SilentLeader(answer)
    with pytest.raises(
        ClusterUnavailableError,
        match=r"no leader answered where partitions \[1\] of orders end within 0\.3 s \(a broker is silent",
    ):
        lasting.admin.end_offsets("orders", 3)
    assert lasting.asked > 2


def test_an_end_that_is_unknown_because_of_the_credentials_says_so() -> None:
    refused = _SilentLeader(OFFSET_INVALID, reason=KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(AuthenticationError, match=r"partitions \[1\] of orders end .*wrong password"):
        refused.admin.end_offsets("orders", 3)


def test_a_topic_whose_end_may_not_be_read_is_refused_at_once() -> None:
    forbidden = _SilentLeader(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ClusterUnfitError, match="would not read the end of orders"):
        forbidden.admin.end_offsets("orders", 3)
    assert forbidden.asked == 1


@pytest.mark.parametrize("name", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_coordinator_that_is_still_coming_is_waited_for(name: str) -> None:
    new = _NewCluster(getattr(KafkaError, name))
    assert new.admin.group("anyone") is None
    assert new.asked == 3


def test_any_other_answer_about_a_group_is_given_at_once() -> None:
    forbidden = _NewCluster(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(ClusterUnfitError, match="would not describe group 'anyone'"):
        forbidden.admin.group("anyone")
    assert forbidden.asked == 1


@pytest.fixture
def _nothing_collected() -> Iterator[None]:
    """What is raised in a callback of the garbage collector, such as hypothesis has, is lost, too."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_nothing_collected")
def test_what_a_signal_handler_raises_while_the_client_ends_is_not_lost(interrupt: Callable[[], None]) -> None:
    strikes = [threading.Timer(half_ms / 2000, interrupt) for half_ms in range(20)]
    for strike in strikes:
        with pytest.raises(BrokenOffError):  # noqa: PT012  it may come in either
            with ClusterAdmin("127.0.0.1:1") as admin:
                strike.start()
            strike.join()
        with pytest.raises(RuntimeError, match="closed"):
            admin._client.poll(0)


def test_an_unknown_setting_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r'No such configuration property: "no\.such\.key"'):
        ClusterAdmin("127.0.0.1:1", {"no.such.key": "1"})


def test_an_unreachable_cluster_says_the_reason_behind_the_time_out() -> None:
    with pytest.raises(ClusterUnavailableError, match=r"127\.0\.0\.1:1 within 1 s \(.*Connection refused"):
        ClusterAdmin("127.0.0.1:1", timeout_s=1.0).cluster()
