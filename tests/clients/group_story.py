"""A story on the simulated cluster: members of one group that come, go, stall and fail, and an ending.

A story is a list of steps. Each is chosen from a seed (``storytellers.py``), or by hypothesis; the same steps give the
same run. At the end everything heals, the group reads what is left, and the oracle (``oracle.py``) judges the logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from eos_client import EosConsumer, EosProducer, Outcome, OutputRecord
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import AbortableError, EosError, RebuildProducerError
from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import BrokerError
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.impatient_library import impatient_library
from tests.clients.oracle import Oracle

GROUP, INPUT, OUTPUT = "billing", "orders", "invoices"
PARTITIONS = 4
MEMBERS_MAX = 3
LIMITS = ProducerLimits(commit_timeout_s=2.0, start_timeout_s=20.0, recovery_timeout_s=30.0)
GATE = GateSettings(hold_limit_s=3.0)
SESSION_S = 10
TRANSACTION_MS = 20_000  # longer than a session: new owners find pending offsets
CRASH_S, LATE_S = 0.3, 25.0
DRAIN_S_MAX = 600.0
STILL_S_MAX = 60.0  # longer than any time-out here: after that nothing will move by itself
QUIET = logging.getLogger("story")
QUIET.disabled = True

Build = Callable[["GroupStory", str], Any]


class Crash(Exception):  # noqa: N818  # nothing went wrong: the process is gone
    """The process dies here."""


@dataclass(frozen=True)
class Setting:
    """Under which rules a story is told."""

    protocol: str = "consumer"
    assignor: str = "range"
    commit_validation: str = "assignment_epoch"
    inputs: int = 40
    request_timeout_s: float = 5.0
    impatient: bool = False

    def __str__(self) -> str:
        kind = self.commit_validation if self.protocol == "consumer" else self.assignor
        resends = (
            f" resends after {self.request_timeout_s:g} s" if self.request_timeout_s < LIMITS.commit_timeout_s else ""
        )
        return f"{self.protocol} {kind}{resends}{' impatient' if self.impatient else ''}"


class BlockMember:
    """One instance of the application: a loop written with the wrappers."""

    def __init__(self, story: GroupStory, name: str) -> None:
        self.name = name
        self.story = story
        self._waiting: list[str] = []
        self._revocations = 0
        cluster, config = story.cluster, story.client_config(name)
        clients: dict[str, Any] = {"hook": story.heard.append, "clock": cluster.clock}
        self.consumer = EosConsumer(config, gate=GATE, factory=story.consumer, **clients)
        self.producer = EosProducer(
            {
                "bootstrap.servers": "simulated",
                "client.id": name,
                "transactional.id": f"billing-{name}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "logger": QUIET,
            },
            limits=LIMITS,
            factory=story.producer,
            **clients,
        )
        self.consumer.subscribe([INPUT], on_revoke=self._left, on_lost=self._left)
        self.producer.init_transactions()

    def _left(self, *_: object) -> None:
        self._revocations += 1

    def step(self, count: int, meanwhile: Callable[[], None]) -> None:
        """One turn of the loop; ``meanwhile`` happens while outputs are written and not committed.

        What the member is told of its attempts goes to the oracle.
        """
        revocations = self._revocations
        outcome = self._transaction(count, meanwhile)
        if revocations != self._revocations:  # a callback may have ended some of them otherwise
            self._waiting = []
        elif outcome is not Outcome.SKIPPED:
            self.story.oracle.told(outcome, self._waiting)
            self._waiting = []

    def _transaction(self, count: int, meanwhile: Callable[[], None]) -> Outcome | None:
        with self.producer.transaction(self.consumer) as txn:
            self._copy(txn, count)
            meanwhile()
            self._copy(txn, count)
        return txn.outcome

    def _copy(self, txn: Any, count: int) -> None:
        for message in self.consumer.consume(count, 0.05):
            if message.error() is None:
                self._write(txn, message)

    def _write(self, txn: Any, message: Any) -> None:
        attempt, headers = attempted(self.story, message)
        self._waiting.append(attempt)
        self._produce(txn, message, headers)

    def _produce(self, txn: Any, message: Any, headers: list[tuple[str, bytes]]) -> None:
        txn.produce(OUTPUT, message.value(), partition=message.partition() % 2, headers=headers)

    def close(self) -> None:
        """Leave as a careful application does."""
        self.consumer.close()
        self.producer.close()

    def bury(self) -> None:
        """End the thread of a process that is dead, and can say nothing more to a broker."""
        self.producer.adapter.close()


class LoopMember(BlockMember):
    """One that works as ExactlyOnceLoop does: a batch is processed before the next one is asked for."""

    def _transaction(self, count: int, meanwhile: Callable[[], None]) -> Outcome | None:
        session = self.producer.session(self.consumer)
        try:
            self._batch(session, count)
            meanwhile()
            self._batch(session, count)
            return session.end().outcome
        except (AbortableError, RebuildProducerError) as error:
            return session.recover(error).outcome

    def _batch(self, session: Any, count: int) -> None:
        self._copy(session, count)
        session.mark_processed()

    def _produce(self, txn: Any, message: Any, headers: list[tuple[str, bytes]]) -> None:
        output = OutputRecord(value=message.value(), partition=message.partition() % 2, headers=headers)
        txn.outputs.enqueue(OUTPUT, output)
        txn.outputs.count(1)


def attempted(story: GroupStory, message: Any) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the name of this processing of ``message``, and the headers by which the oracle knows it."""
    attempt, origin = story.oracle.attempt(), f"{message.partition()}:{message.offset()}"
    return attempt, [("origin", origin.encode()), ("attempt", attempt.encode())]


@dataclass
class GroupStory:
    """A group at work and what happens to it. Every method but ``end`` is a step."""

    seed: int
    setting: Setting = field(default_factory=Setting)
    build: Build = BlockMember
    heard: list[Any] = field(default_factory=list)
    gated: bool = True
    revoked: Callable[[str], object] = lambda _: None

    def __post_init__(self) -> None:
        self.cluster = SimulatedCluster(
            self.seed,
            commit_validation=self.setting.commit_validation,
            settings=BrokerSettings(
                group_consumer_session_timeout_s=SESSION_S, group_consumer_heartbeat_interval_s=1.0
            ),
            request_timeout_s=self.setting.request_timeout_s,
        )
        self.cluster.create_topic(INPUT, PARTITIONS)
        self.cluster.create_topic(OUTPUT, 2)
        self.oracle = Oracle(self.cluster, GROUP, INPUT, OUTPUT)
        self.members: dict[str, Any] = {}
        self.frozen: dict[str, ExitStack] = {}
        self.busy: list[str] = []
        self.ended: list[str] = []
        self.steps_taken = 0
        self._names = 0
        self._written = 0
        self.write(self.setting.inputs)

    def client_config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": "simulated",
            "client.id": name,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "group.protocol": self.setting.protocol,
            "max.poll.interval.ms": 60_000,
        }
        if self.setting.protocol == "classic":
            config |= {"partition.assignment.strategy": self.setting.assignor, "session.timeout.ms": SESSION_S * 1000}
            config["heartbeat.interval.ms"] = 1_000
        return config

    def consumer(self, config: dict[str, Any]) -> Any:
        """Return a consumer that the oracle watches."""
        consumer = self.cluster.consumer(config)
        self.oracle.watch_revocations(consumer, self.revoked)
        return consumer

    def producer(self, config: dict[str, Any]) -> Any:
        """Return a producer that the oracle watches."""
        producer = self.cluster.producer(config)
        if self.gated:
            self.oracle.watch_offsets(producer)
        return producer

    # -- steps: the members --------------------------------------------------------------------------------------

    def join(self) -> None:
        if len(self.members) < MEMBERS_MAX:
            self._names += 1
            self._guarded(f"member-{self._names}", self._start)

    def _start(self, name: str) -> None:
        library: AbstractContextManager[None] = impatient_library() if self.setting.impatient else nullcontext()
        with library:
            self.members[name] = self.build(self, name)

    def work(self, which: int, count: int = 5, meanwhile: Callable[[], None] = lambda: None) -> None:
        name = self._awake(which)
        if name is None:
            return
        self.busy.append(name)
        try:
            self._guarded(name, lambda _: self.members[name].step(count, meanwhile))
        finally:
            self.busy.remove(name)

    def stall(self, which: int, count: int, seconds: float, others: Callable[[], None]) -> None:
        """A member stands still with open work, as under SIGSTOP, while the others go on."""
        name = self._awake(which)
        if name is None:
            return

        def stands_still() -> None:
            with self.cluster.zombie(name):
                others()
                self.advance(seconds)
                others()

        self.work(which, count, stands_still)

    def leave(self, which: int) -> None:
        name = self._awake(which)
        if name is not None:
            self._guarded(name, lambda _: self.members.pop(name).close())

    def kill(self, which: int) -> None:
        name = self._awake(which)
        if name is not None:
            self._bury(name)

    def crash(self, which: int, request: str) -> None:
        """A member dies in the midst of its commit: ``request`` is under way, and arrives long after."""
        name = self._awake(which)
        if name is None:
            return
        self.cluster.delay(request, LATE_S, name)
        armed = [True]

        def dies() -> None:
            if armed[0]:
                raise Crash

        try:
            self.work(which, meanwhile=lambda: self.cluster.after(CRASH_S, dies))
        except Crash:
            self._bury(name)
        armed[0] = False

    def freeze(self, which: int) -> None:
        name = self._awake(which)
        if name is not None:
            self.frozen[name] = ExitStack()
            self.frozen[name].enter_context(self.cluster.zombie(name))

    def thaw(self) -> None:
        for name in list(self.frozen):
            self.frozen.pop(name).close()

    # -- steps: the world ----------------------------------------------------------------------------------------

    def write(self, count: int) -> None:
        for _ in range(count):
            self.cluster.write(INPUT, [b"order-%d" % self._written], partition=self._written % PARTITIONS)
            self._written += 1

    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def rebalance(self) -> None:
        self._scripted(self.cluster.rebalance)

    def revoke(self, partition: int) -> None:
        self._scripted(lambda: self.cluster.revoke((INPUT, partition)))

    def give_back(self) -> None:
        self._scripted(self.cluster.give_back)

    def lose(self, which: int) -> None:
        name = self._awake(which)
        if name is not None:
            self._scripted(lambda: self.cluster.lose(name))

    def restart(self) -> None:
        self.cluster.restart_coordinator()

    def expire(self, which: int) -> None:
        name = self._awake(which)
        if name is not None:
            self._scripted(lambda: self.cluster.expire_transactional_id(f"billing-{name}"))

    def lose_reply(self, request: str, client: str | None = None) -> None:
        self.cluster.lose_reply(request, client)

    def lose_request(self, request: str, client: str | None = None) -> None:
        self.cluster.lose_request(request, client)

    def duplicate(self, request: str, client: str | None = None) -> None:
        self.cluster.duplicate(request, client)

    def delay(self, request: str, seconds: float, client: str | None = None) -> None:
        self.cluster.delay(request, seconds, client)

    def aim(self, which: int, fault: Callable[[str], None], meanwhile: Callable[[str], None]) -> None:
        """A fault hits a member's next transaction; ``meanwhile`` happens during the one after it."""
        name = self._awake(which)
        if name is not None:
            fault(name)
            self.work(which)
            self.work(which, meanwhile=lambda: meanwhile(name))

    @property
    def records_written(self) -> int:
        """How many input records there are."""
        return self._written

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Heal everything, let the group read to the end, and judge."""
        self.thaw()
        self.cluster.faults.withdraw()
        self._scripted(self.cluster.give_back)
        until_s = self.cluster.clock() + DRAIN_S_MAX
        still_until_s, committed = 0.0, None
        while not (self.oracle.violations or self.oracle.is_drained()):
            if committed != self.cluster.committed(GROUP):
                still_until_s, committed = self.cluster.clock() + STILL_S_MAX, self.cluster.committed(GROUP)
            if self.cluster.clock() > min(until_s, still_until_s):
                break
            if not self.members:
                self.join()
            for which in range(len(self.members)):
                self.work(which, 50)
            self.advance(0.2)
        self.close()
        self.oracle.judge(self.ended)

    def close(self) -> None:
        """End every client, so that no thread is left."""
        self.thaw()
        for name in list(self.members):
            self._bury(name)

    def _awake(self, which: int) -> str | None:
        names = [name for name in self.members if name not in self.frozen and name not in self.busy]
        return names[which % len(names)] if names else None

    def _bury(self, name: str) -> None:
        self.cluster.kill(name)
        member = self.members.pop(name, None)
        if member is not None:
            member.bury()

    def _guarded(self, name: str, act: Callable[[str], None]) -> None:
        """A process that ends with a named error is buried; a supervisor starts others."""
        try:
            act(name)
        except EosError as error:
            self.ended.append(f"{name}: {type(error).__name__}: {error}")
            self._bury(name)
        self.oracle.watch()

    def _scripted(self, act: Callable[[], object]) -> None:
        with suppress(ValueError, LookupError, BrokerError):  # nobody is there to whom it could happen
            act()
        self.oracle.watch()
