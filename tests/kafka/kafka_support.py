"""A stage for one test of the wrappers: topics, a group and clients of its own; around them raw confluent-kafka."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from tests.support.block_stage import BlockStage
from tests.support.client_settings import dotted
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.answers import settled
from tests.verification.leaving import leave
from tests.verification.protocols import GroupProtocol
from tests.verification.topics import await_stable_end, committed, create_topics, ends, loader_settings, read_all

if TYPE_CHECKING:
    from typing_extensions import Self

_ROOT = Path(__file__).parents[2]
SESSION_S = 45.0
SHORT_SESSION_S = 2.0  # for tests in which a member is to be taken for dead
HEARTBEAT_S = 0.2
LIMITS = ProducerLimits(commit_timeout_s=20.0, start_timeout_s=60.0, recovery_timeout_s=60.0)
"""Limits that nothing reaches on a busy machine; what is about a limit has its own."""
PATIENT_TRANSACTION_MS = round((WAIT_S + LIMITS.commit_timeout_s) * 1000)
PROTOCOLS = tuple(GroupProtocol)
ON_A_BROKER = [
    *(GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE),
    pytest.param(GroupProtocol.EAGER, marks=pytest.mark.soak),
]
"""For what the simulated cluster tells under each protocol: the eager one is left to it, and to the conformance tests.

`test_rebalance_commit.py` has rebalances under all three.
"""
ONE_ON_A_BROKER = [
    GroupProtocol.KIP_848,
    *(pytest.param(each, marks=pytest.mark.soak) for each in (GroupProtocol.COOPERATIVE, GroupProtocol.EAGER)),
]
"""For what is no matter of the protocol: the simulated cluster and the tests of rebalances have the others."""


def values(messages: Iterable[Any]) -> list[str]:
    """The values of the messages, end-of-partition events left out."""
    return [m.value().decode() for m in messages if m.error() is None]


class Stage(BlockStage):
    """Source and sink with one group on a broker; closes every client that it made."""

    def __init__(
        self,
        bootstrap: str,
        protocol: GroupProtocol = GroupProtocol.KIP_848,
        *,
        partitions: int = 2,
        session_s: float = SESSION_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        name = uuid.uuid4().hex[:10]
        self.bootstrap = bootstrap
        self.protocol = protocol
        self.partitions = partitions
        self.session_s = session_s
        self.heartbeat_s = heartbeat_s
        self.source, self.sink, self.group = f"source-{name}", f"sink-{name}", f"group-{name}"
        super().__init__()
        self._closing = contextlib.ExitStack()
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._loader = Producer(loader_settings(bootstrap) | {"linger.ms": 0})

    def __enter__(self) -> Self:
        create_topics(self.bootstrap, {self.source: self.partitions, self.sink: 1})
        if self.protocol is GroupProtocol.KIP_848:
            self._set_session()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
        # Whoever keeps the stage would keep their threads, which try to connect for ever once the broker is gone.
        del self.admin, self._loader

    def _set_session(self) -> None:
        settings = {"consumer.session.timeout.ms": self.session_s, "consumer.heartbeat.interval.ms": self.heartbeat_s}
        entries = [
            ConfigEntry(key, str(round(seconds * 1000)), incremental_operation=AlterConfigOpType.SET)
            for key, seconds in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=entries)
        settled(lambda: self.admin.incremental_alter_configs([resource])[resource].result(WAIT_S))

    # -- clients -------------------------------------------------------------------------------------------------

    def consumer_settings(self, **more: Any) -> dict[str, Any]:
        """Dotted names are written with underscores in `more`."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            **self.protocol.consumer_config,
        }
        if self.protocol is not GroupProtocol.KIP_848:
            settings |= {"session.timeout.ms": round(self.session_s * 1000), "heartbeat.interval.ms": 200}
        return settings | dotted(more)

    def consumer(self, *, gate: Any = None, factory: Any = None, hook: Any = None, **more: Any) -> EosConsumer:
        made = EosConsumer(self.consumer_settings(**more), gate=gate, factory=factory, hook=hook or self.events.append)
        self._closing.callback(self._close_consumer, made)
        return made

    def raw_consumer(self, topic: str | None = None, **more: Any) -> Consumer:
        """Another member of the group, subscribed to the source or to `topic`."""
        made = Consumer(self.consumer_settings(enable_auto_commit=False, isolation_level="read_committed", **more))
        made.subscribe([topic or self.source])
        self._closing.callback(leave, made)
        return made

    def producer(self, *, factory: Any = None, limits: ProducerLimits = LIMITS, **more: Any) -> EosProducer:
        """A producer, initialised."""
        settings = {"bootstrap.servers": self.bootstrap} | dotted(more)
        made = EosProducer(settings, factory=factory, limits=limits, hook=self.events.append)
        self._closing.callback(made.close)
        made.list_topics(self.sink, WAIT_S)  # once connected, librdkafka's first try is not half a second late
        made.init_transactions()
        return made

    def patient_producer(self, *, factory: Any = None) -> EosProducer:
        """A producer whose transactions may stay open for as long as the gate `PATIENT` holds them."""
        return self.producer(factory=factory, transaction_timeout_ms=PATIENT_TRANSACTION_MS)

    @staticmethod
    def _close_consumer(consumer: EosConsumer) -> None:
        with contextlib.suppress(Exception):  # a test of a fatal consumer has asserted that already
            consumer.close_within(WAIT_S)

    def move_generation(self, consumer: EosConsumer, *beside: Callable[[], Any]) -> None:
        """Let a member join that wants nothing of the source, until `consumer` sees another generation."""
        before = consumer.adapter.snapshot().generation
        bystander = self.raw_consumer(self.sink)
        wait_for(
            lambda: not consumer.adapter.snapshot().generation.same_membership(before) and consumer.assignment(),
            "the generation to move",
            lambda: consumer.adapter.fetching.wait_while_paused(0.05),
            lambda: bystander.poll(0.02),
            *beside,
        )

    # -- records and what became of them --------------------------------------------------------------------------

    def load(self, counts: int | Sequence[int], *, start: int = 0) -> list[str]:
        """Write `p-n` with n = start, start + 1, ... to each partition p; returns the values."""
        per_partition = [counts] * self.partitions if isinstance(counts, int) else counts
        written = []
        for partition, count in enumerate(per_partition):
            for number in range(start, start + count):
                written.append(f"{partition}-{number}")
                self._loader.produce(self.source, written[-1].encode(), partition=partition)
        assert self._loader.flush(WAIT_S) == 0
        return written

    def outputs(self) -> list[str]:
        """What is committed of the sink, once no transaction is open on it."""
        await_stable_end(self.bootstrap, self.sink, 1, timeout_s=WAIT_S)
        return self.visible()

    def visible(self) -> list[str]:
        """What read_committed sees of the sink now: all that lies before the first open transaction."""
        return [stored.record_id.decode() for stored in read_all(self.bootstrap, self.sink, 1)]

    def committed(self) -> dict[int, int | None]:
        """The group's offsets, once no open transaction holds others."""
        return committed(self.bootstrap, self.group, self.source, self.partitions, isolation="read_committed")

    def ends(self) -> dict[int, int]:
        return ends(self.bootstrap, self.source, self.partitions)

    def members(self) -> list[Any]:
        """The members of the group as its coordinator knows them."""
        described = settled(lambda: self.admin.describe_consumer_groups([self.group])[self.group].result(WAIT_S))
        return list(described.members)

    def assigned(self, consumer: Any) -> set[int]:
        return {p.partition for p in consumer.assignment()}


class FreezableProgram:
    """A program in a process of its own, which can be frozen; it says JSON lines and goes on when told to.

    The program finds the stage's settings in `SETTINGS` and may call `say(value)` and `await_go()`.
    """

    _PROLOGUE = """
import json, sys
SETTINGS = json.loads(sys.argv[1])
def say(value):
    print(json.dumps(value), flush=True)
def await_go():
    sys.stdin.readline()
"""

    def __init__(self, stage: Stage, program: str) -> None:
        settings = {
            "consumer": stage.consumer_settings(),
            "producer": {"bootstrap.servers": stage.bootstrap},
            "source": stage.source,
            "sink": stage.sink,
        }
        command = [sys.executable, "-c", self._PROLOGUE + program, json.dumps(settings)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env={**os.environ}
        )

    def said(self, timeout_s: float = WAIT_S) -> Any:
        """The next thing that the program says; fails when it says nothing in time or has ended."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        assert ready, f"the member said nothing within {timeout_s} s"
        line = self.process.stdout.readline()
        assert line, f"the member ended with {self.process.wait(WAIT_S)}"
        return json.loads(line)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def settle(stage: Stage, producer: EosProducer, consumer: EosConsumer) -> None:
    """End the open transaction: go on with it until the gate lets it through."""

    def has_ended() -> bool:
        with producer.transaction(consumer) as txn:
            pass
        assert txn.outcome is not None
        return txn.outcome is not Outcome.SKIPPED

    wait_for(has_ended, "the gate to open", lambda: consumer.adapter.fetching.wait_while_paused(0.05))


PATIENT = GateSettings(hold_limit_s=WAIT_S)
"""A gate that holds a transaction for as long as a rebalance may take on a busy machine."""
