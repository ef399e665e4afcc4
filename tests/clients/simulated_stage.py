"""An application of `with producer.transaction(consumer)` blocks on the simulated cluster."""

from __future__ import annotations

import logging
from typing import Any

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.support.block_stage import BlockStage
from tests.support.protocols import CONSUMER, settings_of

SOURCE, SINK, GROUP = "orders", "invoices", "billing"
WAIT_S = 60.0
QUIET = logging.getLogger("blocks")
QUIET.disabled = True


class SimulatedStage(BlockStage):
    """A cluster with two input partitions, one consumer, one producer, and every event that they told."""

    source, sink = SOURCE, SINK
    wait_s = WAIT_S
    fetch_s = 0.2

    def __init__(
        self,
        protocol: str = CONSUMER,
        *,
        records: int = 2,
        partitions: int = 2,
        request_timeout_s: float = WAIT_S,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.cluster = SimulatedCluster(seed=11, request_timeout_s=request_timeout_s, settings=settings)
        super().__init__(self.cluster.clock)
        self.cluster.create_topic(SOURCE, partitions)
        self.cluster.create_topic(SINK)
        self.protocol = protocol
        self.partitions = partitions
        self.written = 0
        self.load(records)

    def load(self, count: int) -> None:
        """Write ``count`` more records to each partition of the source."""
        for partition in range(self.partitions):
            values = [f"{partition}-{n}".encode() for n in range(self.written, self.written + count)]
            self.cluster.write(SOURCE, values, partition=partition)
        self.written += count

    @property
    def group_settings(self) -> dict[str, Any]:
        """What makes a consumer speak the stage's protocol."""
        return dict(settings_of(self.protocol))

    def consumer(
        self, *, hook: Any = None, gate: GateSettings | None = None, factory: Any = None, **settings: Any
    ) -> EosConsumer:
        config = {"bootstrap.servers": "simulated", "group.id": GROUP, "auto.offset.reset": "earliest"}
        return EosConsumer(
            config | self.group_settings | {k.replace("_", "."): v for k, v in settings.items()},
            gate=gate,
            factory=factory or self.cluster.consumer,
            clock=self.cluster.clock,
            hook=hook or self.events.append,
        )

    def loop(self, transform: Any = lambda message: [message.value()], **settings: Any) -> ExactlyOnceLoop:
        """A loop from the source to the sink, with settings of EosConfig."""
        consumer = self.group_settings | settings.pop("consumer", {})
        config = EosConfig({"bootstrap.servers": "simulated"}, group_id=GROUP, consumer=consumer, **settings)
        return ExactlyOnceLoop(
            config, [SOURCE], transform, output_topic=SINK, hook=self.events.append, clients=self.cluster
        )

    def producer(
        self,
        *,
        hook: Any = None,
        recovery_timeout_s: float = WAIT_S,
        generate_id: bool = False,
        callbacks: dict[str, Any] | None = None,
        **settings: Any,
    ) -> EosProducer:
        made = EosProducer(
            {"bootstrap.servers": "simulated", "logger": QUIET}
            | ({} if generate_id else {"transactional.id": "billing-0"})
            | {k.replace("_", "."): v for k, v in settings.items()}
            | (callbacks or {}),
            limits=ProducerLimits(commit_timeout_s=2.0, recovery_timeout_s=recovery_timeout_s),
            generate_id=generate_id,
            factory=self.cluster.producer,
            clock=self.cluster.clock,
            hook=hook or self.events.append,
        )
        made.init_transactions()
        return made

    def read_in_blocks(self, producer: EosProducer, consumer: EosConsumer) -> None:
        """Enter block after block and read in each, until one raises; fails after a minute of simulated time."""

        def one_block() -> None:
            with producer.transaction(consumer):
                consumer.consume(10, 0.2)

        self.wait_for(lambda: False, one_block)

    def until_revoked(self, consumer: EosConsumer) -> None:
        """Give partition 1 to another instance, and poll until the consumer was told."""
        self.cluster.revoke((SOURCE, 1))
        self.wait_for(lambda: self.named("partitions_revoked"), lambda: consumer.consume(10, 0.1))

    def lost(self, consumer: EosConsumer) -> None:
        """Evict the consumer, and poll until it was told."""
        self.cluster.lose()
        self.wait_for(lambda: self.named("partitions_lost"), lambda: consumer.consume(10, 0.1))

    def copy_the_rest(self, producer: EosProducer, consumer: EosConsumer) -> None:
        """Copy block by block until every record's offset is committed."""
        everything = self.partitions * self.written
        self.copy_until(producer, consumer, lambda: sum(self.cluster.committed(GROUP).values()) == everything)

    def committed(self, partition: int = 0) -> int | None:
        """The group's offset of a partition, None without one."""
        return self.cluster.committed(GROUP).get(PartitionKey(SOURCE, partition))

    @property
    def inputs(self) -> list[bytes]:
        """The value of every record of the source."""
        return [f"{p}-{n}".encode() for p in range(self.partitions) for n in range(self.written)]

    @property
    def outputs(self) -> list[Any]:
        """What a read_committed reader sees of the sink, sorted."""
        return sorted(self.cluster.values(SINK))
