"""Runs a program on the simulated cluster: members take turns, events happen in simulated time, and it ends in peace.

Members run in one thread each and hand on to each other only where the application itself acts or the client library
is asked for records, so one seed gives one run.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind
from eos_client.testing.simulator.brokers.model import BrokerError, Membership, OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.applications.environment import NO_STRIKE, Environment, Names, Verdict, letter_of
from tests.applications.exceptions import Hang, Interrupt, Killed
from tests.applications.generator import ENDING_CALLS
from tests.applications.members import ApplicationMember
from tests.applications.oracle import Place
from tests.applications.program import GROUP, INPUT, LARGE_LIMIT, LETTERS, OUTPUT, SMALL_LIMIT, Event, Program
from tests.clients.struck_steps import StepStrike

LOOK_EVERY_S = 0.2
DRAIN_S_MAX = 7_200.0
ROUND_EVERY_S = 30.0
"""How long after the last fault everything may take: longer than every time-out of a dozen processes together."""
CALLS_MAX = 100_000
WRITTEN_LATE = b"last"


class StepStrikeAtEnd:
    """Raises at the ``number``-th step of a block's ending."""

    def __init__(self, number: int) -> None:
        self._strike = StepStrike(number, Interrupt)
        self._tracing: AbstractContextManager[None] | None = None

    @property
    def struck(self) -> str:
        """Where it came, or an empty text."""
        return self._strike.struck

    def arm(self) -> None:
        """Begin: the next thing that the block does is to end."""
        self._tracing = self._strike.armed()
        self._tracing.__enter__()

    def disarm(self) -> None:
        """The block has ended."""
        if self._tracing is not None:
            self._tracing.__exit__(None, None, None)


@dataclass
class _Baton:
    """Says which member runs. All others wait for their own signal."""

    turns: list[threading.Semaphore] = field(default_factory=list)
    done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class SimulatedEnvironment(Environment):
    """The cluster, the members, and what they have in common."""

    bootstrap = "simulated"

    def __init__(self, program: Program) -> None:
        super().__init__(program, Names())
        setting = program.setting
        self.random = Random(f"world {program.seed}")
        self.cluster = SimulatedCluster(
            program.seed,
            commit_validation=setting.validation,
            settings=BrokerSettings(
                group_consumer_session_timeout_s=10.0,
                group_consumer_heartbeat_interval_s=1.0,
                message_max_bytes=SMALL_LIMIT if program.brokers_refuse else LARGE_LIMIT,
                log_message_timestamp_after_max_s=3_600.0,
            ),
            request_timeout_s=setting.request_timeout_s,
        )
        self.cluster.create_topic(INPUT, program.partitions)
        self.cluster.create_topic(OUTPUT, 1)
        self.cluster.create_topic(LETTERS, 1)
        self.library = self
        self.members = [ApplicationMember(self, index) for index in range(program.members)]
        self._assigned_at: dict[int, int] = {}
        self._seen_at: dict[int, int] = {}
        self._deleted: dict[int, int] = {}
        self._calls = 0
        self._pending: dict[int, BaseException] = {}
        self._handles: dict[int, list[Any]] = {}
        self._producers: dict[int, Any] = {}
        self._running = 0
        self._consuming: int | None = None
        self._asleep_until: dict[int, float] = {}
        self._due_calls: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self._due_steps: dict[int, int] = {}
        self._clock_ahead_s: dict[int, float] = {}
        self._outage_ends_at_s = 0.0
        self._ended: set[int] = set()
        self._baton = _Baton([threading.Semaphore(0) for _ in self.members])
        self._failure: BaseException | None = None

    # -- the client library that members use ---------------------------------------------------------------------

    @property
    def clock(self) -> Any:
        """Simulated time."""
        return self.cluster.clock

    def consumer(self, config: dict[str, Any]) -> Any:
        """Return a consumer; members hand on to each other before it is asked for records."""
        raw: Any = self.cluster.consumer(config)
        member, collect, rebalance = self.members[self._running], raw._collect, raw._rebalance

        def collecting(*arguments: Any) -> Any:
            self.point(member)
            self._consuming, before = member.index, self._consuming
            try:
                return collect(*arguments)
            finally:
                self._consuming = before

        def rebalancing(item: Any) -> None:
            self._consuming, before = None, self._consuming
            try:
                rebalance(item)
            finally:
                self._consuming = before
            if item.kind.value == "assign":  # the end was asked for meanwhile: what was written since need not be seen
                for partition in item.partitions:
                    self._assigned_at.setdefault(partition.partition, self._end(partition.partition))

        raw._collect, raw._rebalance = collecting, rebalancing
        member.background = raw._background
        self._handles.setdefault(member.index, []).append(raw)
        return raw

    def producer(self, config: dict[str, Any]) -> Any:
        """Return a producer; signals may strike before or after one of its calls at the end of a block."""
        raw: Any = self.cluster.producer(config)
        member = self.members[self._running]
        self._producers[member.index] = raw
        raw._link.clock_ahead_s = self._clock_ahead_s.get(member.index, 0.0)
        for name in ENDING_CALLS:
            setattr(raw, name, partial(self._ending_call, member, name, getattr(raw, name)))
        return raw

    def _ending_call(self, member: ApplicationMember, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        self._strike_call(member, "before", name)
        result = call(*arguments)
        self._strike_call(member, "after", name)
        return result

    def _strike_call(self, member: ApplicationMember, when: str, name: str) -> None:
        due = self._due_calls[member.index]
        if due and due[0] == (when, name):
            del due[0]
            raise Interrupt(f"a signal {when} {name}")
        if due and due[0] == (f"refused {when}", name):
            del due[0]
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{INPUT}[0]", txn_requires_abort=True))

    def strike_at_end(self, member: ApplicationMember) -> Any:
        """Return what strikes between two steps at the end of the member's next block, once."""
        number = self._due_steps.pop(member.index, None)
        return NO_STRIKE if number is None else StepStrikeAtEnd(number)

    # -- what members tell and ask -------------------------------------------------------------------------------

    def first(self, partition: int) -> int:
        """Return the first offset that is still in the log."""
        return self.cluster.brokers.log(PartitionKey(INPUT, partition)).log_start_offset

    def exits(self, member: ApplicationMember) -> None:
        """Let the handles that were not closed fall silent: the process is gone."""
        for raw in self._handles.pop(member.index, []):
            if not raw._closed:
                raw._link.detach()

    def took(self, member: ApplicationMember, place: Place) -> int:
        partition = place[0]
        self._seen_at.setdefault(partition, place[1])
        committed = self.committed().get(partition)
        if self.program.setting.reset == "error":
            if committed is None:
                self.oracle.note("START", f"process {member.process} got {place[0]}:{place[1]}, and there is no offset")
            return self.oracle.took(member.process, place, committed=committed or 0)
        known = self._start(partition) if committed is None else committed
        return self.oracle.took(member.process, place, committed=max(known, self._deleted.get(partition, 0)))

    def set_offset(self, partition: int) -> None:
        offsets = {PartitionKey(INPUT, partition): OffsetAndMetadata(self.first(partition))}
        with suppress(BrokerError):  # somebody is a member still: the next process is told the same
            self.cluster.brokers.groups.commit_offsets(GROUP, Membership(), offsets)

    def nothing_to_commit(self, handed_over: Mapping[int, int]) -> None:
        committed = self.committed()
        for partition, offset in handed_over.items():
            if committed.get(partition, 0) < offset:
                reached = f"partition {partition} is committed up to {committed.get(partition)} of {offset} handed over"
                self.oracle.note("TOLD", f"commit() said that there is nothing to commit, and {reached}")

    def watch(self) -> None:
        committed = self.committed()
        for partition, offset in committed.items():
            self._seen_at.setdefault(partition, offset)
        self.oracle.watch(committed)

    def _start(self, partition: int) -> int:
        """From where on every record has to be processed.

        With ``latest`` that is the end at the first assignment; if anything fails, it is where the first record, or the
        first committed offset, was seen: before that, nobody can know of the assignment.
        """
        if self.program.setting.reset != "latest":
            return 0
        known = self._seen_at if self.program.events or self.program.callbacks else self._assigned_at
        return known.get(partition, self._end(partition))

    def committed(self) -> dict[int, int]:
        """Return the group's offsets."""
        fetched = self.cluster.brokers.groups.fetch_offsets(GROUP, require_stable=False)
        return {p.partition: found.offset for p, found in fetched.items() if found.offset is not None}

    def _end(self, partition: int) -> int:
        return self.cluster.brokers.log(PartitionKey(INPUT, partition)).log_end_offset

    # -- time and turns ------------------------------------------------------------------------------------------

    def sleep(self, member: ApplicationMember, seconds: float, *, switch: bool = True) -> None:
        """The application does something slow; the others go on meanwhile."""
        until_s = self.clock() + seconds
        if switch and len(self.members) > 1:
            self._asleep_until[member.index] = until_s
            self._switch(member)
        if self.clock() < until_s:
            self.clock.sleep(until_s - self.clock())

    def stall(self, member: ApplicationMember, seconds: float) -> None:
        """The process stands still, as under SIGSTOP."""
        with self.cluster.zombie(member.name):
            self.sleep(member, seconds)

    def rest(self, seconds: float) -> None:
        """Wait for a process to be started again."""
        self.sleep(self.members[self._running], seconds)

    def point(self, member: ApplicationMember) -> None:
        """Others may run here, and what is to strike this process strikes."""
        self._calls += 1
        if self._calls > CALLS_MAX:
            self._hang("calls without end")
        if len(self.members) > 1:
            self._switch(member)
        error = self._pending.pop(member.index, None)
        if error is not None:
            raise error

    def _hang(self, why: str) -> None:
        self._over = True
        raise Hang(why)

    def _switch(self, member: ApplicationMember) -> None:
        now_s = self.clock()
        ready = [
            index
            for index in range(len(self.members))
            if index not in self._ended and self._asleep_until.get(index, 0.0) <= now_s
        ]
        chosen = self.random.choice(ready) if ready else member.index
        if chosen != member.index:
            consuming, self._consuming = self._consuming, None
            self._running = chosen
            self._baton.turns[chosen].release()
            self._baton.turns[member.index].acquire()
            self._consuming = consuming
        self._asleep_until.pop(member.index, None)
        if self._failure is not None:
            raise self._failure

    def _thread(self, member: ApplicationMember) -> None:
        self._baton.turns[member.index].acquire()
        try:
            member.live()
        except BaseException as error:  # noqa: BLE001
            self._failure = self._failure or error
            self._over = True
        finally:
            self._ended.add(member.index)
            left = [index for index in range(len(self.members)) if index not in self._ended]
            if left:
                self._running = min(left, key=lambda index: self._asleep_until.get(index, 0.0))
                self._baton.turns[self._running].release()
            else:
                self._baton.done.release()

    # -- the run -------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        partitions = range(self.program.partitions)
        self.judge(
            self.cluster.values(OUTPUT),
            [letter_of(record.headers) for record in self.cluster.read(LETTERS)],
            self.committed(),
            {p: self._end(p) for p in partitions},
            {p: max(self._start(p), self._deleted.get(p, 0)) for p in partitions},
        )

    def run(self) -> Verdict:
        """Run the program to its end and judge it."""
        program = self.program
        for write in program.writes:
            self._at(write.at_s, partial(self._write, write.partition, write.count))
        for event in program.events:
            self._at(event.at_s, partial(self._happens, event))
        self._at(program.until_s, self._heal)
        self._at(LOOK_EVERY_S, self._look)
        try:
            if len(self.members) == 1:
                self.members[0].live()
            else:
                self._live_together()
        except Hang as hang:
            self.oracle.note("STUCK", str(hang))
        self._judge()
        return Verdict(program, self.oracle.violations, self.counts, self.clock(), self.answers)

    def _live_together(self) -> None:
        threads = [threading.Thread(target=self._thread, args=(member,), daemon=True) for member in self.members]
        for thread in threads:
            thread.start()
        self._baton.turns[0].release()
        self._baton.done.acquire()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _at(self, at_s: float, act: Callable[[], object]) -> None:
        if at_s <= 0.0:
            act()
        else:
            self.cluster.after(at_s, act)

    def _write(self, partition: int, count: int) -> None:
        first = self._end(partition)
        for each in range(count):
            is_large = self.kind_of((partition, first + each)) == "large_and_raises"
            self.cluster.write(INPUT, [b"x" * (SMALL_LIMIT - 80) if is_large else b"order"], partition=partition)

    def _heal(self) -> None:
        self.calm = True
        self.cluster.faults.withdraw()
        self._due_calls.clear()
        self._due_steps.clear()
        self._outage_ends_at_s = 0.0
        for member in self.members:
            self._set_clock(member, 0.0)
        self._pending = {index: error for index, error in self._pending.items() if isinstance(error, Killed)}
        with suppress(ValueError, LookupError, BrokerError):
            self.cluster.give_back()
        if self.program.setting.may_strand_partitions:
            self._begin_round()
        # The last records prove that whoever is left still reads.
        for partition in range(self.program.partitions):
            self.cluster.write(INPUT, [WRITTEN_LATE], partition=partition)

    def _begin_round(self) -> None:
        """Now and then: what a static member owed when it died is nobody's until the next round, as in Kafka."""
        if not self._over:
            with suppress(BrokerError):
                self.cluster.rebalance()
            self.cluster.after(ROUND_EVERY_S, self._begin_round)

    def _look(self) -> None:
        """Whether everything is done; the clock's own end of all."""
        self.watch()
        if self._over:
            return
        if self.calm and self._is_drained():
            self._end_all()
            return
        if self.clock() > self.program.until_s + DRAIN_S_MAX:
            self._end_all()
            self._at(30.0, lambda: self._hang("it does not end"))
            return
        self.cluster.after(LOOK_EVERY_S, self._look)

    def _end_all(self) -> None:
        self._over = True
        for member in self.members:
            if member.loop is not None:
                member.loop.stop()
        self._at(120.0, lambda: self._hang("the members do not stop"))

    def _is_drained(self) -> bool:
        committed = self.committed()
        logs = [self.cluster.brokers.log(PartitionKey(topic, 0)) for topic in (OUTPUT, LETTERS)]
        return all(log.last_stable_offset == log.high_watermark for log in logs) and all(
            committed.get(partition, 0) >= self._end(partition) for partition in range(self.program.partitions)
        )

    # -- events --------------------------------------------------------------------------------------------------

    def _happens(self, event: Event) -> None:
        self.count(f"event {event.name}")
        member = self.members[min(event.member, len(self.members) - 1)]
        if event.name in ("interrupt", "kill"):
            self._strikes(member, Interrupt("a signal") if event.name == "interrupt" else Killed())
            return
        with suppress(ValueError, LookupError, BrokerError):  # nobody is there to whom it could happen
            self._scripted(event, member)

    def _strikes(self, member: ApplicationMember, error: BaseException) -> None:
        """It strikes inside the client library if the member waits there for records, else at its next act."""
        if isinstance(error, Killed):
            member.killed = True
            with suppress(ValueError):
                self.cluster.kill(member.name)
        if self._consuming == member.index == self._running:
            raise error
        if not isinstance(self._pending.get(member.index), Killed):  # no signal reaches what is dead
            self._pending[member.index] = error

    def _scripted(self, event: Event, member: ApplicationMember) -> None:
        """Do what the event says."""
        cluster, partition, id_ = self.cluster, int(event.number), f"{GROUP}-{member.index}"
        if event.name == "strike_call":
            self._due_calls[member.index].append((event.what, event.detail))
            return
        if event.what:
            arguments: list[Any] = [event.what, event.detail] if event.name == "refuse" else [event.what]
            arguments += [event.number] if event.name == "delay" else []
            getattr(cluster, event.name)(*arguments, member.name)
            return
        acts: dict[str, Callable[[], object]] = {
            "error_cb": partial(self._tell_error, member),
            "producer_error_cb": partial(self._tell_producer_error, member),
            "throttle": lambda: cluster.report_throttle(event.number, member.name),
            "delete_records": lambda: self._delete_records(partition),
            "rebalance": cluster.rebalance,
            "revoke": lambda: cluster.revoke((INPUT, partition)),
            "give_back": cluster.give_back,
            "lose": lambda: cluster.lose(member.name),
            "expire": lambda: cluster.expire_transactional_id(self._id_of(member)),
            "fence": lambda: cluster.fence_producer(id_),
            "restart": cluster.restart_coordinator,
            "set_offset": lambda: self.set_offset(partition),
            "outage": lambda: self._begin_outage(event.number),
            "wrong_clock": lambda: self._set_clock(member, event.number),
            "unknown_topic": lambda: self._due_calls[member.index].append(
                ("refused before", "send_offsets_to_transaction")
            ),
            "strike_step": lambda: self._due_steps.update({member.index: int(event.number)}),
            "stop": lambda: member.loop.stop() if member.loop is not None else None,
        }
        acts[event.name]()

    def _set_clock(self, member: ApplicationMember, ahead_s: float) -> None:
        self._clock_ahead_s[member.index] = ahead_s
        with suppress(ValueError):  # no process of it has a client at the moment
            self.cluster.set_clock_ahead(ahead_s, member.name)

    def _begin_outage(self, seconds: float) -> None:
        """No broker hears anything for so long."""
        faults, now_s = self.cluster.faults, self.clock()
        if self._outage_ends_at_s == 0.0:
            take = faults.take

            def lose_all(request: str, names: frozenset[str]) -> Fault | None:
                if self.clock() < self._outage_ends_at_s:
                    return Fault(FaultKind.LOSE_REQUEST, request)
                return take(request, names)

            faults.take = lose_all  # type: ignore[method-assign]
        self._outage_ends_at_s = max(self._outage_ends_at_s, now_s + seconds)

    @staticmethod
    def _tell_error(member: ApplicationMember) -> None:
        if member.background is not None:
            member.background.report_error("_ALL_BROKERS_DOWN")

    def _id_of(self, member: ApplicationMember) -> str:
        raw = self._producers.get(member.index)
        return f"{GROUP}-{member.index}" if raw is None else raw.transactional_id or ""

    def _tell_producer_error(self, member: ApplicationMember) -> None:
        if member.index in self._producers:
            self.cluster.report_error("_ALL_BROKERS_DOWN", self._producers[member.index]._link.name)

    def _delete_records(self, partition: int) -> None:
        log = self.cluster.brokers.log(PartitionKey(INPUT, partition))
        before = (log.log_start_offset + log.high_watermark) // 2
        self._deleted[partition] = max(before, self._deleted.get(partition, 0))
        log.delete_records(before)


def run(program: Program) -> Verdict:
    """Run ``program`` on a simulated cluster of its own."""
    return SimulatedEnvironment(program).run()
