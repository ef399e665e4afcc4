"""Describes a cluster, its topics and groups, and creates, extends and deletes topics.

The admin API creates nothing by accident: topics are described, never fetched by name, so that a broker with
``auto.create.topics.enable`` does not answer "missing" by creating. One :class:`ClusterAdmin` may be used from several
threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)
from tenacity import Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from eos_client.config.client_settings import LOG_LEVEL_CRITICAL
from eos_client.confluent.callback_guard import built
from eos_client.confluent.failures.client_failures import (
    HOW_TO_AUTHENTICATE,
    HOW_TO_REACH_BROKERS,
    lacks_credentials,
    refusal_among,
)
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.confluent.first_contact import FirstContact
from eos_client.confluent.last_errors import LastErrors
from eos_client.confluent.listener_probe import how_to_speak
from eos_client.core.error_codes import (
    CLUSTER_FORBIDDEN,
    COORDINATOR_MOVING,
    END_UNKNOWN,
    FORBIDDEN,
    GROUP_FORBIDDEN,
    GROUP_UNKNOWN,
    TOPIC_FORBIDDEN,
    TOPIC_NAME_REFUSED,
    TOPIC_UNKNOWN,
    UNREACHABLE,
)
from eos_client.core.model import InputPartition, Partitions, TopicDescription
from eos_client.errors import AuthenticationError, ClusterUnavailableError, ClusterUnfitError, EosError

_T = TypeVar("_T")

_NO_TOPIC = frozenset({TOPIC_UNKNOWN, TOPIC_NAME_REFUSED})
_NOT_THERE = _NO_TOPIC | {GROUP_UNKNOWN}
_NO_SUCH_RECORD = -1
"""What brokers answer who asks for the first record of a time, where none is as young."""
_RETRY_INTERVAL_S = 0.05
_ANSWER_SLICE_S = 0.1
_ANSWER_GRACE_S = 5.0  # after the client library's own limit


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers that are up: their ids and addresses, ``host:port``.

    ``operations``: what this client may do with the cluster, by Kafka's names (``CREATE``).
    """

    cluster_id: str
    brokers: Mapping[int, str]
    operations: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group. ``instance_id``: its ``group.instance.id``, None for a dynamic member."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group as its coordinator sees it: ``protocol`` is ``classic`` or ``consumer`` (KIP-848)."""

    state: str
    protocol: str
    member_count: int
    members: tuple[GroupMember, ...] = ()


class ClusterAdmin(AbstractContextManager["ClusterAdmin"]):
    """An admin client. Each request is answered within ``timeout_s``, or raises an error that says why not.

    Use it as a context manager. What a signal handler raises while the garbage collector destroys an admin client is
    lost (confluent-kafka looks for signals there and cannot raise), so that a command would not end on Ctrl-C.

    :param config: librdkafka settings, such as security ones; consumer and producer settings do no harm.
    :raises ConfigurationError: librdkafka does not know a setting or its value.
    """

    def __init__(
        self, bootstrap_servers: str, config: Mapping[str, Any] | None = None, *, timeout_s: float = 10.0
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._timeout_s = timeout_s
        self._errors = LastErrors(None)
        self._was_answered = False
        settings = {"log_level": LOG_LEVEL_CRITICAL, **(config or {}), "bootstrap.servers": bootstrap_servers}
        settings["error_cb"] = self._errors
        self._protocol = settings.get("security.protocol", "plaintext")
        self._client = built("admin client", AdminClient, settings)

    def __exit__(self, *raised: object) -> None:
        self._client.__exit__(*raised)

    def cluster(self) -> ClusterDescription:
        """Describe the brokers.

        :raises ClusterUnavailableError: none of them answered within the time limit.
        :raises AuthenticationError: because of the credentials.
        """
        asked = self._client.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout_s)
        described = self._answer(asked, "describe the cluster")
        return ClusterDescription(
            described.cluster_id or "",
            {node.id: f"{node.host}:{node.port}" for node in described.nodes},
            frozenset(operation.name for operation in described.authorized_operations or ()),
        )

    def topics(self, names: Sequence[str]) -> dict[str, TopicDescription | None]:
        """Describe topics by name; ``None`` stands for a topic that does not exist."""
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
        return {name: self._topic(name, future) for name, future in futures.items()}

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each topic has, internal ones too, of those that this client may see."""
        try:
            found = self._client.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._refusal(error, "list its topics") from error
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def _topic(self, name: str, future: Future[Any]) -> TopicDescription | None:
        described = self._answer(future, f"describe topic {name!r}", tolerated=_NO_TOPIC)
        if described is None:
            return None
        partitions = described.partitions
        return TopicDescription(
            name,
            len(partitions),
            min(len(partition.replicas) for partition in partitions),
            min(len(partition.isr) for partition in partitions),
            tuple(partition.id for partition in partitions if partition.leader is None or partition.leader.id < 0),
        )

    def topic_operations(self, name: str) -> frozenset[str] | None:
        """Return what this client may do with a topic, by Kafka's names (``READ``); None where no broker says."""
        return self._operations("topic", TOPIC_FORBIDDEN, name, self._client.describe_topics, TopicCollection([name]))

    def group_operations(self, group_id: str) -> frozenset[str] | None:
        """Return what this client may do with a consumer group, by Kafka's names; None where no broker says."""
        return self._operations("group", GROUP_FORBIDDEN, group_id, self._client.describe_consumer_groups, [group_id])

    def _operations(
        self, kind: str, forbidden: str, name: str, describe: Callable[..., Any], request: Any
    ) -> frozenset[str] | None:
        def answer() -> Any:
            futures = describe(request, include_authorized_operations=True, request_timeout=self._timeout_s)
            return self._answer(futures[name], f"say what is permitted on {kind} {name!r}")

        try:
            described = self._with_retries(answer)
        except ClusterUnfitError as error:
            code = _code_behind(error)
            if code == forbidden:  # without Describe there is no other permission either
                return frozenset()
            if code in _NOT_THERE:
                return None
            raise
        return frozenset(operation.name for operation in described.authorized_operations or ()) or None

    def topic_settings(self, name: str) -> dict[str, str]:
        """Return the effective settings of a topic, defaults included; empty where this client may not read them."""
        return self._settings(ResourceType.TOPIC, name, TOPIC_FORBIDDEN)

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the effective settings of a broker, defaults included; secret ones read as ``""``.

        Empty where this client may not read them (DescribeConfigs), as on many managed clusters.
        """
        return self._settings(ResourceType.BROKER, str(broker_id), CLUSTER_FORBIDDEN)

    def _settings(self, kind: ResourceType, name: str, forbidden: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        futures = self._client.describe_configs([resource], request_timeout=self._timeout_s)
        intent = f"read the settings of {kind.name.lower()} {name}"
        entries = self._answer(futures[resource], intent, tolerated={forbidden})
        return {key: entry.value or "" for key, entry in (entries or {}).items()}

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics with the cluster's default replication and wait until each has its leaders.

        :raises ClusterUnfitError: a topic exists already, or the cluster does not let us create it.
        """
        topics = [NewTopic(name, num_partitions=count, replication_factor=-1) for name, count in partitions.items()]
        for name, future in self._client.create_topics(topics, request_timeout=self._timeout_s).items():
            self._answer(future, f"create topic {name!r}")
        self.wait_for_leaders(partitions)

    def extend_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions, ``partitions`` in all.

        :raises ClusterUnfitError: the cluster does not let us alter it, or it has as many.
        """
        topics = [NewPartitions(name, partitions)]
        future = self._client.create_partitions(topics, request_timeout=self._timeout_s)[name]
        self._answer(future, f"give topic {name!r} {partitions} partitions")

    def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until each topic has as many ``partitions`` and all of their leaders.

        :raises ClusterUnfitError: that takes longer than the time limit.
        """
        deadline = time.monotonic() + self._timeout_s
        while any(
            found is None or found.partition_count < partitions[name] or found.leaderless
            for name, found in self.topics(list(partitions)).items()
        ):
            if time.monotonic() > deadline:
                raise ClusterUnfitError(
                    f"topics {', '.join(partitions)} were created or extended but have no leader after "
                    f"{self._timeout_s:g} s: look at the brokers' logs"
                )
            time.sleep(_RETRY_INTERVAL_S)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; one that is gone already is no error."""
        for name, future in self._client.delete_topics(list(names), request_timeout=self._timeout_s).items():
            self._answer(future, f"delete topic {name!r}", tolerated={TOPIC_UNKNOWN})

    def end_offsets(self, topic: str, partition_count: int, *, committed_only: bool = False) -> dict[int, int]:
        """Return the next offset of each partition; the request is retried while a leader does not know it.

        :param committed_only: the last stable offset instead of the high watermark.
        :raises ClusterUnavailableError: not every leader answered within the time limit.
        """
        latest = cast("OffsetSpec", OffsetSpec.latest())  # type: ignore[no-untyped-call]
        found = self._offsets(topic, partition_count, latest, "end", committed_only=committed_only)
        return {partition: cast("int", offset) for partition, offset in found.items()}

    def start_offsets(self, topic: str, partition_count: int) -> dict[int, int]:
        """Return the offset of the oldest record of each partition; raises as `end_offsets` does."""
        earliest = cast("OffsetSpec", OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        found = self._offsets(topic, partition_count, earliest, "beginning")
        return {partition: cast("int", offset) for partition, offset in found.items()}

    def offsets_since(self, topic: str, partition_count: int, timestamp_ms: int) -> dict[int, int | None]:
        """Return the first offset of each partition whose record is no older, None where there is none.

        Raises as `end_offsets` does.
        """
        since = cast("OffsetSpec", OffsetSpec.for_timestamp(timestamp_ms))
        return self._offsets(topic, partition_count, since, "first record of that time")

    def _offsets(
        self, topic: str, partition_count: int, spec: OffsetSpec, what: str, *, committed_only: bool = False
    ) -> dict[int, int | None]:
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, partition): spec for partition in range(partition_count)}
        intent = f"read the {what} of {topic}"

        def ends() -> dict[int, int]:
            futures = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout_s)
            found = {p.partition: self._answer(future, intent, tolerated=END_UNKNOWN) for p, future in futures.items()}
            return {partition: OFFSET_INVALID if end is None else end.offset for partition, end in found.items()}

        offsets = self._with_retries(ends, is_unanswered=_unknown)
        if unknown := _unknown(offsets):
            verb = "end" if what == "end" else "begin"
            what = f"no leader answered where partitions {unknown} of {topic} {verb}"
            raise self._unavailable(what, "a broker is silent or down", self._timeout_s)
        return {partition: None if offset == _NO_SUCH_RECORD else offset for partition, offset in offsets.items()}

    def group(self, group_id: str) -> GroupDescription | None:
        """Describe a consumer group; ``None`` when the cluster has never seen it.

        A new cluster makes its offsets topic for the first one who asks; the request is retried until it is there.
        """

        def describe() -> GroupDescription | None:
            future = self._client.describe_consumer_groups([group_id], request_timeout=self._timeout_s)[group_id]
            group = self._answer(future, f"describe group {group_id!r}", tolerated={GROUP_UNKNOWN})
            if group is None or group.state.name == "DEAD":  # before KIP-1043 an unknown group was described as dead
                return None
            members = tuple(map(_member, group.members))
            return GroupDescription(group.state.name.lower(), group.type.name.lower(), len(members), members)

        return self._with_retries(describe)

    def group_ids(self) -> list[str]:
        """Return the groups that this client may see."""
        future = self._client.list_consumer_groups(request_timeout=self._timeout_s)
        return sorted(group.group_id for group in self._answer(future, "list its groups").valid)

    def commit_offsets(self, group_id: str, offsets: Mapping[InputPartition, int]) -> None:
        """Set the committed offsets of a group without members."""
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(*p, offset) for p, offset in offsets.items()])
        future = self._client.alter_consumer_group_offsets([wanted], request_timeout=self._timeout_s)[group_id]
        for each in self._answer(future, f"set the offsets of group {group_id!r}").topic_partitions:
            if each.error is not None:
                raise ClusterUnfitError(
                    f"the cluster would not set the offset of {each.topic}[{each.partition}]: {each.error.str()}"
                )

    def _with_retries(self, ask: Callable[[], _T], *, is_unanswered: Callable[[_T], object] = lambda _: False) -> _T:
        """Ask until there is an answer or the time limit is over; then the last answer or error counts."""
        is_moving = retry_if_exception(lambda error: _code_behind(error) in COORDINATOR_MOVING)
        retrying = Retrying(
            retry=is_moving | retry_if_result(lambda answer: bool(is_unanswered(answer))),
            stop=stop_after_delay(self._timeout_s),
            wait=wait_fixed(_RETRY_INTERVAL_S),
            retry_error_callback=lambda state: cast("Future[_T]", state.outcome).result(),
        )
        return retrying(ask)

    def _answer(self, future: Future[Any], intent: str, *, tolerated: Collection[str] = ()) -> Any:
        contact = FirstContact(
            self._errors, self._timeout_s + _ANSWER_GRACE_S, time.monotonic, was_answered=self._was_answered
        )
        while not wait([future], _ANSWER_SLICE_S).done:
            self._client.poll(0)
            if contact.is_over():
                raise self._silence(contact.waited_s)
        try:
            answer = future.result()
        except KafkaException as error:
            if kafka_error(error).name() in tolerated:
                return None
            raise self._refusal(error, intent) from error
        self._was_answered = True
        return answer

    def _refusal(self, error: KafkaException, intent: str) -> EosError:
        if kafka_error(error).name() not in UNREACHABLE:
            way_out = ". Allow it to this client" if kafka_error(error).name() in FORBIDDEN else ""
            return ClusterUnfitError(f"the cluster would not {intent}: {kafka_error(error).str()}{way_out}")
        return self._silence(self._timeout_s)

    @property
    def _reason(self) -> KafkaError | None:
        """The last error; that of another address does not hide refused credentials where none has answered."""
        refusal = None if self._was_answered else refusal_among(self._errors.by_code)
        return refusal or self._errors.last

    def _silence(self, waited_s: float) -> EosError:
        self._client.poll(0)
        what = f"no broker answered at {self._bootstrap}"
        if lacks_credentials(self._reason):
            what = f"the brokers at {self._bootstrap} refuse this client, or it them"
        return self._unavailable(what, "no connection could be made", waited_s)

    def _unavailable(self, what: str, unexplained: str, waited_s: float) -> EosError:
        self._client.poll(0)  # serves the error callback: the reason behind "timed out"
        reason = self._reason
        cause = unexplained if reason is None else reason.str()
        what = f"{what} within {waited_s:g} s ({cause})"
        way_out = "" if reason is None else how_to_speak(self._bootstrap, self._protocol)
        if lacks_credentials(reason):
            return AuthenticationError(f"{what}. {way_out or HOW_TO_AUTHENTICATE}")
        return ClusterUnavailableError(f"{what}. {way_out or HOW_TO_REACH_BROKERS}")


def _member(member: Any) -> GroupMember:
    partitions = frozenset(InputPartition(each.topic, each.partition) for each in member.assignment.topic_partitions)
    host = member.host.removeprefix("/")
    return GroupMember(member.member_id, member.client_id, host, member.group_instance_id, partitions)


def _unknown(ends: Mapping[int, int]) -> list[int]:
    """Return the partitions whose end is not known.

    librdkafka answers OFFSET_INVALID, without an error, for a leader whose connection was lost or that was silent.
    """
    return sorted(partition for partition, end in ends.items() if end < 0 and end != _NO_SUCH_RECORD)


def _code_behind(error: BaseException) -> str | None:
    cause = error.__cause__ if isinstance(error, ClusterUnfitError) else None
    return kafka_error(cause).name() if isinstance(cause, KafkaException) else None
