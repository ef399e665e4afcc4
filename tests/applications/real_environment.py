"""Runs a program on a real broker behind the recording proxy: the same members, the same oracle, in real time.

What only the simulation can do (evictions by a script, SIGKILL of one member, refusals by a broker) does not happen
here; a lost connection, a lost answer, a late request, a newer producer, another member and a signal do.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eos_client.confluent.client_library import CONFLUENT_KAFKA
from tests.applications.environment import Environment, Names, Verdict, letter_of
from tests.applications.exceptions import Hang, Interrupt
from tests.applications.members import ACCEPTED, ApplicationMember
from tests.applications.oracle import Place
from tests.applications.program import LARGE_LIMIT, SMALL_LIMIT, Event, Program
from tests.applications.simulated_environment import run
from tests.applications.transform import VERY_SLOW_S
from tests.support.reading import read_to_the_end, reader
from tests.verification.brokers import RunningBroker
from tests.verification.held_requests import HeldRequest
from tests.verification.leaving import leave
from tests.verification.proxy import KafkaProxy
from tests.verification.topics import await_stable_end, committed, ends
from tests.verification.wire import Api

DRAIN_S_MAX = 90.0
VERY_SLOW_DRAIN_S = 3 * VERY_SLOW_S
"""A transform that outlives its transaction runs again, and once more alone."""
REFUSED_DRAIN_S = 3.0
"""A refused record costs two or three aborts, and each seek waits for the fetch in flight (``fetch.wait.max.ms``)."""
STOP_S_MAX = 60.0
LOOK_EVERY_S = 0.3
SILENCE_S = 5.0
"""How long a connection whose answers are lost stays open: longer than the budget of a commit."""
WAIT_S = 20.0
ROUND_EVERY_S = 20.0
GUEST_STAYS_S = 5.0
APIS = {
    "AddOffsetsToTxn": Api.ADD_OFFSETS_TO_TXN,
    "ConsumerGroupHeartbeat": Api.CONSUMER_GROUP_HEARTBEAT,
    "EndTxn": Api.END_TXN,
    "Heartbeat": Api.HEARTBEAT,
    "JoinGroup": Api.JOIN_GROUP,
    "OffsetCommit": Api.OFFSET_COMMIT,
    "Produce": Api.PRODUCE,
    "SyncGroup": Api.SYNC_GROUP,
    "TxnOffsetCommit": Api.TXN_OFFSET_COMMIT,
}
NOT_HERE = frozenset({"kill", "restart", "expire", "lose", "outage", "strike_call", "strike_step", "throttle"})
_names = itertools.count(1)


class RealEnvironment(Environment):
    """One broker, topics and a group of its own, and members in threads; a single member runs in the main thread."""

    def __init__(self, program: Program, broker: RunningBroker) -> None:
        ordinal = f"{next(_names)}-{uuid.uuid4().hex[:8]}"
        super().__init__(
            program, Names(*(f"{each}-{ordinal}" for each in ("orders", "invoices", "letters", "billing")))
        )
        self.broker, self.bootstrap = broker, broker.bootstrap
        self.library = self
        self.members = [ApplicationMember(self, index) for index in range(program.members)]
        self._began_at = time.monotonic()
        odd_counts = Counter[str]()
        for odd in program.odds:
            odd_counts[odd.kind] += odd.count
        odd_s = odd_counts["very_slow"] * VERY_SLOW_DRAIN_S + odd_counts["broker_refuses"] * REFUSED_DRAIN_S
        self._drained_by_s = program.until_s + DRAIN_S_MAX + odd_s
        self._script: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._written = [0] * program.partitions
        self._firsts = [0] * program.partitions
        self._guest: Consumer | None = None
        self._inside: bool = False
        self._pending = False
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._seen_at: dict[int, int] = {}
        names = self.names
        limit = SMALL_LIMIT if program.brokers_refuse else LARGE_LIMIT
        topics = [
            NewTopic(names.source, program.partitions, 1),
            NewTopic(names.sink, 1, 1, config={"max.message.bytes": str(limit)}),
            NewTopic(names.letters, 1, 1),
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for created in admin.create_topics(topics).values():
            created.result(WAIT_S)

    # -- the client library that members use ---------------------------------------------------------------------

    @property
    def clock(self) -> Any:
        """Real time."""
        return CONFLUENT_KAFKA.clock

    def consumer(self, config: dict[str, Any]) -> Any:
        """Return a consumer; signals strike only while it is asked for records."""
        environment = self

        class Asked(Consumer):
            def consume(self, *args: Any, **kwargs: Any) -> Any:
                with environment._interruptible():
                    return super().consume(*args, **kwargs)

            def poll(self, *args: Any, **kwargs: Any) -> Any:
                with environment._interruptible():
                    return super().poll(*args, **kwargs)

        return Asked(config)

    @staticmethod
    def producer(config: dict[str, Any]) -> Any:
        """Return a producer."""
        return Producer(config)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        self._inside = is_main
        try:
            yield
        finally:
            self._inside = False

    # -- what members tell and ask -------------------------------------------------------------------------------

    def first(self, partition: int) -> int:
        """Return the first offset that is still in the log."""
        return self._firsts[partition]

    def set_offset(self, partition: int) -> None:
        """Let the group begin ``partition`` at the first record; brokers refuse it while the group has members."""
        place = TopicPartition(self.names.source, partition, self._firsts[partition])
        operator = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.names.group})
        with suppress(KafkaException):
            operator.commit(offsets=[place], asynchronous=False)
        operator.close()

    def took(self, member: ApplicationMember, place: Place) -> int:
        """Note that a record was handed over.

        Only within one process of a single member is it known which record is due, without asking the broker. One
        beyond that is right if the group has committed that far: after a seek back, and a rebalance.
        """
        partition, offset = place
        self._seen_at.setdefault(partition, offset)
        due = self.oracle.due.get((member.process, partition)) if len(self.members) == 1 else None
        floor = offset if due is None else self._firsts[partition]
        if due is not None and offset > due:
            floor = max(floor, self.committed().get(partition, 0))
        return self.oracle.took(member.process, place, committed=floor)

    def watch(self) -> None:
        """Do nothing: looking at the group's offsets takes a while here, and is done aside."""

    def point(self, member: ApplicationMember) -> None:
        """What is to strike this process strikes."""
        if self._failure is not None:
            raise Hang(str(self._failure))
        if self._pending and member.index == 0:
            self._pending = False
            raise Interrupt("a signal")

    def sleep(self, _member: ApplicationMember, seconds: float, *, switch: bool = True) -> None:
        """The application does something slow."""
        del switch
        time.sleep(seconds)

    def stall(self, member: ApplicationMember, seconds: float) -> None:
        """The application stands still; its clients' own threads do not."""
        self.sleep(member, seconds)

    def rest(self, seconds: float) -> None:
        """Wait for a process to be started again."""
        time.sleep(seconds)

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Run the program to its end and judge it."""
        for write in self.program.writes:
            self._at(write.at_s, partial(self._write, write.partition, write.count))
        for event in self.program.events:
            self._at(event.at_s, partial(self._happens, event))
        self._at(self.program.until_s, self._heal)
        before = signal.signal(signal.SIGUSR1, self._signalled)
        while self._script[0][0] <= 0.0:  # what is there before any process starts, an interruption perhaps
            heapq.heappop(self._script)[2]()
        self._began_at = time.monotonic()
        script = threading.Thread(target=self._play, daemon=True)
        try:
            script.start()
            self._live()
        except Hang as hang:
            self.oracle.note("STUCK", str(hang))
        finally:
            self._ended.set()
            script.join()
            signal.signal(signal.SIGUSR1, before)
        self._judge()
        took_s = time.monotonic() - self._began_at
        return Verdict(self.program, self.oracle.violations, self.counts, took_s, self.answers)

    def _live(self) -> None:
        if len(self.members) == 1:
            self.members[0].live()
            return
        threads = [threading.Thread(target=member.live, daemon=True) for member in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self._drained_by_s + STOP_S_MAX)
            if thread.is_alive():
                raise Hang("a member does not end")

    def _signalled(self, *_: object) -> None:
        if self._inside:
            raise Interrupt("a signal")
        self._pending = True

    def _at(self, at_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._script, (at_s, next(self._numbers), act))

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        self._at(time.monotonic() - self._began_at + seconds, act)

    def _play(self) -> None:
        """Do what the script says, each at its time, and look whether all is done."""
        try:
            while not self._ended.is_set():
                now_s = time.monotonic() - self._began_at
                while self._script and self._script[0][0] <= now_s:
                    heapq.heappop(self._script)[2]()
                if self.calm and not self._over and (now_s > self._drained_by_s or self._is_drained()):
                    self._end_all()
                next_s = self._script[0][0] - now_s if self._script else LOOK_EVERY_S
                self._ended.wait(min(LOOK_EVERY_S, max(0.0, next_s)))
        except BaseException as error:  # noqa: BLE001  # it would be lost with this thread
            self._failure = error
            self._over = True

    def _end_all(self) -> None:
        self._over = True
        for member in self.members:
            if member.loop is not None:
                member.loop.stop()

    def _heal(self) -> None:
        self.calm = True
        self._guest_leaves()
        if self.program.setting.may_strand_partitions:
            self._after(ROUND_EVERY_S, self._begin_round)
        for partition in range(self.program.partitions):
            self._write(partition, 1)

    def _begin_round(self) -> None:
        """Now and then: what a static member owed when it ended is nobody's until the next round."""
        if not self._over:
            self._guest_joins()
            self._after(GUEST_STAYS_S, self._guest_leaves)
            self._after(ROUND_EVERY_S, self._begin_round)

    def _write(self, partition: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for _ in range(count):
            is_large = self.kind_of((partition, self._written[partition])) == "large_and_raises"
            producer.produce(
                self.names.source, b"x" * (SMALL_LIMIT - 80) if is_large else b"order", partition=partition
            )
            self._written[partition] += 1
        producer.flush(WAIT_S)

    def committed(self) -> dict[int, int]:
        """Return the group's offsets."""
        found = committed(self.bootstrap, self.names.group, self.names.source, self.program.partitions)
        known = {partition: offset for partition, offset in found.items() if offset is not None}
        for partition, offset in known.items():
            self._seen_at.setdefault(partition, offset)
        self.oracle.watch(known)
        return known

    def _is_drained(self) -> bool:
        found = self.committed()
        return all(found.get(partition, 0) >= end for partition, end in enumerate(self._written))

    # -- events --------------------------------------------------------------------------------------------------

    def _happens(self, event: Event) -> None:
        proxy = self.broker.proxy
        if event.name in NOT_HERE or (event.what and event.what not in APIS) or proxy is None:
            return
        self.count(f"event {event.name}")
        member = self.members[min(event.member, len(self.members) - 1)]
        on_partition = {"delete_records": self._delete_records, "set_offset": self.set_offset}
        with suppress(KafkaException):
            if event.name == "interrupt":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            elif event.name == "stop" and member.loop is not None:
                member.loop.stop()
            elif event.name in ("error_cb", "producer_error_cb", "lose_request"):
                proxy.cut_off_clients()
            elif event.name == "lose_reply":
                self._end_silence(proxy, proxy.lose_next_answer(APIS[event.what]))
            elif event.name == "fence":
                self._fence(f"{self.names.group}-{member.index}")
            elif event.name in on_partition:
                on_partition[event.name](int(event.number))
            elif event.name in ("revoke", "rebalance"):
                self._guest_joins()
            elif event.name == "give_back":
                self._guest_leaves()

    def _end_silence(self, proxy: KafkaProxy, lost: HeldRequest) -> None:
        """Close the connection in the end, as networks do: librdkafka would wait five minutes for a JoinGroup."""
        if lost.is_caught:
            self._after(SILENCE_S, proxy.cut_off_clients)
        else:
            self._after(LOOK_EVERY_S, partial(self._end_silence, proxy, lost))

    def _fence(self, transactional_id: str) -> None:
        newer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        newer.init_transactions(WAIT_S)

    def _delete_records(self, partition: int) -> None:
        before = (self._firsts[partition] + self._written[partition]) // 2
        self._firsts[partition] = before  # first: a member may be handed what follows before the answer is here
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(self.names.source, partition, before)]).values():
            future.result(WAIT_S)

    def _guest_joins(self) -> None:
        if self._guest is not None:
            return
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "group.id": self.names.group}
        setting = self.program.setting
        config |= {"enable.auto.commit": False, "group.protocol": setting.protocol}
        if setting.protocol == "classic":
            config["partition.assignment.strategy"] = setting.assignor
        self._guest = Consumer(config)
        self._guest.subscribe([self.names.source])
        self._poll_guest()

    def _poll_guest(self) -> None:
        if self._guest is not None:
            self._guest.poll(0)
            self._after(0.1, self._poll_guest)

    def _guest_leaves(self) -> None:
        guest, self._guest = self._guest, None
        if guest is not None:
            leave(guest)

    # -- the verdict ---------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        if self._failure is not None:
            raise self._failure
        partitions = range(self.program.partitions)
        for topic in (self.names.sink, self.names.letters):
            await_stable_end(self.bootstrap, topic, 1, timeout_s=WAIT_S)
        found = ends(self.bootstrap, self.names.source, self.program.partitions)
        latest = self.program.setting.reset == "latest"
        starts = {p: self._seen_at.get(p, found[p]) if latest else 0 for p in partitions}
        self.judge(
            [message.value() for message in self._read(self.names.sink)],
            [letter_of(message.headers()) for message in self._read(self.names.letters)],
            self.committed(),
            found,
            {p: max(starts[p], self._firsts[p]) for p in partitions},
        )

    def _read(self, topic: str) -> Iterator[Any]:
        return read_to_the_end(reader(self.bootstrap), topic, 1, limit_s=WAIT_S)


def compared(program: Program, broker: RunningBroker) -> Verdict:
    """Run ``program`` on ``broker``, and in the simulation; what only one of them refuses is a violation."""
    verdict, simulated = RealEnvironment(program, broker).run(), run(program)
    if not simulated.violations:
        verdict.violations.extend(f"DIFFERS: only the real broker: {each}" for each in differences(verdict, simulated))
    if not verdict.violations:
        verdict.violations.extend(f"DIFFERS: only the simulation: {each}" for each in differences(simulated, verdict))
    return verdict


def differences(here: Verdict, there: Verdict) -> list[str]:
    """Return what was refused ``here`` and nowhere ``there``, of what the application tried in both.

    Which records it is handed depends on when it joins: with ``latest``, those that were there before are passed over.
    """
    known = {ACCEPTED}.union(*there.answers.values())
    tried = sorted(here.answers.keys() & there.answers.keys())
    return [f"{each}: {what}" for each in tried for what in sorted(here.answers[each] - known)]
