"""SimulatedCluster: an in-memory Kafka that fences as brokers do, for tests that take milliseconds.

Its consumers and producers have confluent_kafka's methods, so the loop, the wrappers and an application's own loop run
on it unchanged. It has one thread and no wall clock: time passes while a client waits, and a seed repeats a run.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from weakref import WeakValueDictionary

from eos_client.testing.simulator.brokers.brokers import Brokers
from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind, FaultPlan
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, NewRecord, PartitionKey, RecordBatch, StoredRecord
from eos_client.testing.simulator.brokers.network import Delivered, Network
from eos_client.testing.simulator.brokers.peer_member import PeerMember
from eos_client.testing.simulator.brokers.schedule import Schedule
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck
from eos_client.testing.simulator.clients.client_core import Background
from eos_client.testing.simulator.clients.consumer import SimulatedConsumer
from eos_client.testing.simulator.clients.kafka_errors import require_code
from eos_client.testing.simulator.clients.producer import SimulatedProducer
from eos_client.testing.simulator.clients.producer_background import ProducerBackground

_STEP_S = 0.01
_FENCE_TRIES_MAX = 100
_ALL_RECORDS = 1 << 31
_REQUEST_TIMEOUT_MIN_S = 0.01  # librdkafka's least socket.timeout.ms

clusters_alive: WeakValueDictionary[int, SimulatedCluster] = WeakValueDictionary()
"""Every cluster in use, by its ordinal: a failing test prints their seeds."""
_ordinals = itertools.count(1)


class SimulatedCluster:
    """Simulated brokers, their clients, and a script of faults.

    ``seed`` decides everything that is random. ``commit_validation``: which commits of KIP-848 members are accepted,
    see `CommitCheck`. ``latency_s``: one request's round trip. ``request_timeout_s``: after which a client sends an
    unanswered request again (librdkafka's ``socket.timeout.ms``). It is given in place of the client library:
    ``ExactlyOnceLoop(..., clients=cluster)``, ``EosConsumer(..., factory=cluster.consumer, clock=cluster.clock)``.

    Raises ValueError for negative or infinite seconds, TypeError for ``settings`` or a ``clock`` of another type.
    """

    def __init__(
        self,
        seed: int = 0,
        clock: SimulatedClock | None = None,
        *,
        commit_validation: CommitCheck | str = CommitCheck.ASSIGNMENT_EPOCH,
        settings: BrokerSettings | None = None,
        latency_s: float = 0.001,
        request_timeout_s: float = 60.0,
    ) -> None:
        _checked_seconds(latency_s)
        if _checked_seconds(request_timeout_s) < _REQUEST_TIMEOUT_MIN_S:
            raise ValueError(
                f"request_timeout_s={request_timeout_s!r}: a request would be sent again before it can be answered; "
                f"give {_REQUEST_TIMEOUT_MIN_S:g} s or more"
            )
        for name, given, kind in (("clock", clock, SimulatedClock), ("settings", settings, BrokerSettings)):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"{name}={given!r} is no {kind.__name__}")
        self.seed = seed
        self.clock = clock or SimulatedClock()
        self.random = Random(seed)  # noqa: S311  # a simulation's, not a secret's
        self.settings = replace(settings or BrokerSettings(), commit_validation=CommitCheck(commit_validation))
        self.faults = FaultPlan()
        self._schedule = Schedule(self.clock, threading.current_thread)
        self._network = Network(self.clock, self._schedule, self.faults, latency_s, request_timeout_s)
        self.brokers = Brokers(self.clock, self.settings, self.random)
        self._schedule.add(self.brokers)
        self._consumers: list[SimulatedConsumer] = []
        self._producers: list[SimulatedProducer] = []
        self._links: list[ClientLink] = []
        self._peers: dict[str, PeerMember] = {}
        self._configs: dict[str, Mapping[str, Any]] = {}
        clusters_alive[next(_ordinals)] = self

    def __repr__(self) -> str:
        return (
            f"SimulatedCluster(seed={self.seed}, commit_validation={self.settings.commit_validation.value!r}) "
            f"at {self.clock.now_s:.3f} s"
        )

    # -- clients -------------------------------------------------------------------------------------------------

    def consumer(self, config: Mapping[str, Any]) -> SimulatedConsumer:
        """Return a consumer with confluent_kafka's methods; faults name it by client.id, group.id or name."""
        link = self._link(f"consumer-{len(self._consumers) + 1}")
        consumer = SimulatedConsumer(config, link)
        self._links.append(link)
        self._consumers.append(consumer)
        if "group.id" in config:
            self._configs[str(config["group.id"])] = dict(config)
        return consumer

    def producer(self, config: Mapping[str, Any]) -> SimulatedProducer:
        """Return a producer with confluent_kafka's methods; faults name it by client.id, transactional.id or name."""
        link = self._link(f"producer-{len(self._producers) + 1}")
        producer = SimulatedProducer(config, link)
        self._links.append(link)
        self._producers.append(producer)
        return producer

    def _link(self, name: str) -> ClientLink:
        return ClientLink(name, self.brokers, self._network, self.random)

    # -- contents ------------------------------------------------------------------------------------------------

    @property
    def history(self) -> Sequence[Delivered]:
        """Every request that the brokers served, in order."""
        return self._network.history

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create ``topic``; raises BrokerError TOPIC_ALREADY_EXISTS, ValueError for fewer than one partition."""
        self._schedule.require_turn()
        if partitions < 1:
            raise ValueError(f"topic {topic!r} with {partitions} partitions: give it 1 or more")
        self.brokers.create_topic(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete ``topic``, its records, and all offsets that groups have committed for it.

        A topic may be created again under its name. Raises BrokerError UNKNOWN_TOPIC_OR_PART if there is none.
        """
        self._schedule.require_turn()
        self.brokers.delete_topic(topic)

    def write(self, topic: str, values: Iterable[bytes | None], *, partition: int = 0) -> None:
        """Write input records into ``partition``, without a transaction; a value is bytes or None.

        Raises TypeError for any other value, BrokerError UNKNOWN_TOPIC_OR_PART for a partition that does not exist.
        """
        self._schedule.require_turn()
        records = tuple(NewRecord(_value(value), timestamp_ms=int(self.clock() * 1000)) for value in values)
        if records:
            self.brokers.produce(PartitionKey(topic, partition), RecordBatch(records))
        else:
            self._require_topic(topic)

    def read(self, topic: str, *, read_committed: bool = True) -> list[StoredRecord]:
        """Return the records of ``topic`` that a reader sees now, by partition."""
        found: list[StoredRecord] = []
        self._require_topic(topic)
        for partition in range(self.brokers.partition_count(topic)):
            log = self.brokers.log(PartitionKey(topic, partition))
            found += log.fetch(log.log_start_offset, _ALL_RECORDS, read_committed=read_committed).records
        return found

    def values(self, topic: str, *, read_committed: bool = True) -> list[Any]:
        """Return the values of ``topic`` that a reader sees now: bytes, None for a tombstone."""
        return [record.value for record in self.read(topic, read_committed=read_committed)]

    def committed(self, group_id: str | None = None) -> dict[PartitionKey, int]:
        """Return the group's committed offsets, without pending ones."""
        group = group_id if group_id is not None and not self._configs else self._group(group_id)
        fetched = self.brokers.groups.fetch_offsets(group, require_stable=False)
        return {partition: found.offset for partition, found in fetched.items() if found.offset is not None}

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass: heartbeats, evictions and time-outs happen, no application polls."""
        self.clock.sleep(_checked_seconds(seconds))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Run ``action`` once, ``seconds`` from now, also in the middle of a client's call."""
        if not callable(action):
            raise TypeError(f"action={action!r} cannot be called")
        self._schedule.script(self.clock.now_s + _checked_seconds(seconds), action)

    @property
    def actions_waiting(self) -> Sequence[tuple[float, Callable[[], object]]]:
        """The actions of `after` that have not run yet, each with the simulated second at which it is due."""
        return self._schedule.scripted

    # -- one-shot faults; each raises ValueError for a request or an error that does not exist ----------------------

    def lose_reply(self, request: str, client: str | None = None) -> None:
        """Lose the brokers' answer to the next ``request`` (``"EndTxn"``), which they serve."""
        self.faults.add(Fault(FaultKind.LOSE_REPLY, request, client))

    def lose_request(self, request: str, client: str | None = None) -> None:
        """Lose the next ``request`` on the way to the brokers."""
        self.faults.add(Fault(FaultKind.LOSE_REQUEST, request, client))

    def delay(self, request: str, seconds: float, client: str | None = None) -> None:
        """Deliver the next ``request`` ``seconds`` late, even if it has timed out at its client by then."""
        self.faults.add(Fault(FaultKind.DELAY, request, client, delay_s=_checked_seconds(seconds)))

    def duplicate(self, request: str, client: str | None = None) -> None:
        """Deliver the next ``request`` twice."""
        self.faults.add(Fault(FaultKind.DUPLICATE, request, client))

    def refuse(self, request: str, code: str, client: str | None = None) -> None:
        """Answer the next ``request`` with the error named ``code`` (``"NOT_COORDINATOR"``), without serving it."""
        require_code(code)
        self.faults.add(Fault(FaultKind.ERROR, request, client, code=code))

    # -- scripted events -----------------------------------------------------------------------------------------

    def rebalance(self, group_id: str | None = None) -> None:
        """Raise the group's generation; all members keep their partitions. Under KIP-848 no callback is called."""
        self._schedule.require_turn()
        self.brokers.groups.force_rebalance(self._group(group_id))

    def revoke(self, *partitions: tuple[str, int], group_id: str | None = None) -> PeerMember:
        """Assign ``partitions`` to another instance, which is returned: their owners revoke them at a later poll.

        Raises BrokerError UNKNOWN_TOPIC_OR_PART for one that does not exist, ValueError or TypeError for none and for
        what is no pair of a topic and a number.
        """
        self._schedule.require_turn()
        group = self._group(group_id)
        keys = _partition_keys(partitions)
        for key in sorted(keys):
            self.brokers.log(key)  # raises for what does not exist
        peer = self._peer(group)
        for member in self.brokers.groups.describe(group).members.values():
            self.brokers.groups.pin(group, sorted(member.assigned - keys), member.member_id)
        self.brokers.groups.pin(group, sorted(keys), peer.member_id)
        return peer

    def give_back(self, group_id: str | None = None) -> None:
        """Let the other instance of ``revoke`` leave: its partitions are assigned to the other members again."""
        self._schedule.require_turn()
        group = self._group(group_id)
        peer = self._peers.pop(group, None)
        if peer is None:
            raise ValueError(f"nothing of group {group!r} was revoked: call revoke() first")
        self._schedule.remove(peer)
        self.brokers.groups.pin(group, self._all_partitions(group), None)
        peer.leave()

    def lose(self, client: str | None = None) -> None:
        """Evict ``client``'s members from their groups, as a session time-out does; a heartbeat reports it."""
        self._schedule.require_turn()
        evicted = 0
        names = {link.name for link in self._named(client)}
        for group in sorted(self._configs):
            for member in sorted(self.brokers.groups.describe(group).members.values(), key=lambda m: m.member_id):
                if member.client in names:
                    self.brokers.groups.evict(group, member.member_id)
                    evicted += 1
        if not evicted:
            raise ValueError(f"no member of any group belongs to {client or 'a client of this cluster'}")

    def fence_producer(self, transactional_id: str | None = None) -> None:
        """Start a newer instance of the producer, which aborts the open transaction and fences the producer."""
        name = self._transactional_id(transactional_id)
        for _ in range(_FENCE_TRIES_MAX):
            if self._initialised(name):
                return
            self.advance(_STEP_S)
        raise RuntimeError(f"the transaction of {name!r} does not end: are its markers held? {self!r}")

    def _initialised(self, transactional_id: str) -> bool:
        try:
            self.brokers.transactions.init_producer_id(transactional_id, self.settings.transaction_max_timeout_s)
        except BrokerError as error:
            if error.code != "CONCURRENT_TRANSACTIONS":
                raise
            return False
        return True

    def expire_transactional_id(self, transactional_id: str | None = None) -> None:
        """Expire the id at the coordinator, as after ``transactional.id.expiration.ms``."""
        self._schedule.require_turn()
        self.brokers.transactions.forget(self._transactional_id(transactional_id))

    @contextmanager
    def zombie(self, client: str | None = None) -> Iterator[None]:
        """Freeze every client named ``client`` (all of them by default) as SIGSTOP does, until the block ends."""
        frozen = self._named(client)
        for link in frozen:
            self._schedule.freeze(link.sender.worker)
        try:
            yield
        finally:
            for link in frozen:
                if not link.is_killed:
                    self._network.thaw(link.sender.worker)

    def kill(self, client: str) -> None:
        """End every client named ``client`` as SIGKILL does: nothing is closed or aborted, and no request is sent.

        Name a whole process by the ``client.id`` that its clients share. A ``group.id`` names the consumers of a group
        alone, and a ``transactional.id`` one producer.
        """
        for link in self._named(client):
            self._schedule.freeze(link.sender.worker)  # answers in flight to it never arrive either
            self._links.remove(link)
            link.is_killed = True

    def report_error(self, code: str, client: str | None = None) -> None:
        """Call ``error_cb`` of ``client`` with the error named ``code`` (``_TRANSPORT``), from which it recovers."""
        for worker in self._workers_of(client):
            worker.report_error(code)

    def report_throttle(self, seconds: float, client: str | None = None) -> None:
        """Call ``throttle_cb`` of ``client``: a broker has delayed an answer by ``seconds``."""
        for worker in self._workers_of(client):
            worker.report_throttle(seconds)

    def set_clock_ahead(self, seconds: float, client: str | None = None) -> None:
        """Set the clock that stamps ``client``'s outputs ``seconds`` ahead of the brokers' (behind if negative)."""
        for link in self._named(client):
            link.clock_ahead_s = seconds

    def restart_coordinator(self) -> None:
        """Restart both coordinators: state that is not in their logs is lost."""
        self._schedule.require_turn()
        self.brokers.groups.restart()
        self.brokers.transactions.restart()

    def _workers_of(self, client: str | None) -> list[Background | ProducerBackground]:
        workers = [link.sender.worker for link in self._named(client)]
        return [worker for worker in workers if isinstance(worker, (Background, ProducerBackground))]

    # -- names ---------------------------------------------------------------------------------------------------

    def _named(self, client: str | None) -> list[ClientLink]:
        found = [link for link in self._links if client is None or client in link.sender.names]
        if not found:
            known = sorted({name for link in self._links for name in link.sender.names})
            raise ValueError(f"no client is called {client!r}; there are {', '.join(known) or 'none yet'}")
        return found

    def _require_topic(self, topic: str) -> None:
        if topic not in self.brokers.topics:
            raise ValueError(f"there is no topic {topic!r}; there are {', '.join(self.brokers.topics) or 'none yet'}")

    def _group(self, group_id: str | None) -> str:
        return _the_one("group", group_id, sorted(self._configs))

    def _transactional_id(self, transactional_id: str | None) -> str:
        known = sorted({producer.transactional_id for producer in self._producers if producer.transactional_id})
        return _the_one("transactional.id", transactional_id, known)

    def _peer(self, group_id: str) -> PeerMember:
        peer = self._peers.get(group_id)
        if peer is None:
            config = self._configs[group_id]
            is_classic = str(config.get("group.protocol", "classic")) == "classic"
            assignor = str(config.get("partition.assignment.strategy", "range")).split(",")[0] if is_classic else None
            topics = {partition.topic for partition in self._all_partitions(group_id)}
            peer = PeerMember(f"peer-{group_id}", self.brokers.groups, self.clock, group_id, topics, assignor)
            self._peers[group_id] = peer
            self._schedule.add(peer)
        return peer

    def _all_partitions(self, group_id: str) -> list[PartitionKey]:
        members = self.brokers.groups.describe(group_id).members.values()
        return sorted({partition for member in members for partition in member.assigned})


def _checked_seconds(seconds: float) -> float:
    if not isinstance(seconds, (int, float)):
        raise TypeError(f"{seconds!r} is no number of seconds")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{seconds:g} s cannot pass: give 0 or more")
    return seconds


def _partition_keys(partitions: Sequence[object]) -> set[PartitionKey]:
    pairs = 'give pairs of a topic and a number: revoke(("orders", 0))'
    if not partitions:
        raise ValueError(f"nothing is revoked: {pairs}")
    keys = set()
    for partition in partitions:
        match partition:
            case (str() as topic, int() as number):
                keys.add(PartitionKey(topic, number))
            case _:
                raise TypeError(f"{partition!r} is no partition: {pairs}")
    return keys


def _value(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"a record's value is bytes or None, not {value!r}; give a list of them")


def _the_one(what: str, given: str | None, known: Sequence[str]) -> str:
    there_are = f"there are {', '.join(known) or 'none yet'}"
    if given is not None and given not in known:
        raise ValueError(f"no client has the {what} {given!r}; {there_are}")
    if given is None and len(known) != 1:
        raise ValueError(f"name the {what}: {there_are}")
    return given or known[0]
