"""RecordOutputs on the session of real clients of a simulated cluster, without a loop around it."""

from contextlib import suppress
from typing import Any

from eos_client import EosConsumer, EosProducer
from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import AbortableError
from eos_client.loop.record_failures import FailedRecords
from eos_client.loop.record_outputs import RecordOutputs
from eos_client.observe import Counters
from eos_client.testing.simulator import BrokerSettings, SimulatedCluster
from tests.loop.bench import config, consumed
from tests.support.interception import intercepting

CLIENTS_LIMIT, BROKERS_LIMIT = 40_000, 20_000
REFUSED = b" " * CLIENTS_LIMIT
"""What makes a value too large for the client library."""
UNDELIVERABLE = b" " * BROKERS_LIMIT
"""What makes a value too large for the brokers, which only its delivery report says."""
NO_VALUE = b""  # of the smallest dead letters


def enlarged(transform: Any, by: bytes, *offsets: int) -> Any:
    """``transform``, whose outputs for the records at ``offsets`` are larger."""
    return lambda record: transform(consumed(record.offset(), record.value() + by * (record.offset() in offsets)))


class Writing:
    """Writes the outputs of records in transactions, as a loop does; `calls` is what the transform was called with."""

    def __init__(
        self,
        transform: Any,
        default_topic: str | None = "invoices",
        *,
        takes_batches: bool = False,
        queue: int = 100_000,
        produce: Any = None,
        **options: Any,
    ) -> None:
        self.cluster = SimulatedCluster(seed=1, settings=BrokerSettings(message_max_bytes=BROKERS_LIMIT))
        for topic in ("orders", "invoices", "letters"):
            self.cluster.create_topic(topic)
        self.events: list[Any] = []
        self.calls: list[Any] = []
        clock, factory = self.cluster.clock, self.cluster.producer
        limits = {"message.max.bytes": CLIENTS_LIMIT, "queue.buffering.max.messages": queue}
        settings = config(**options, producer=limits)
        producer = EosProducer(
            settings.producer_config(),
            generate_id=True,
            factory=factory if produce is None else intercepting(factory, produce=produce),
            clock=clock,
            hook=lambda event: None,
        )
        producer.init_transactions()
        consumer = EosConsumer(settings.consumer_config(), factory=self.cluster.consumer, clock=clock)
        self.session = producer.session(consumer)
        self.counters = producer.counters

        def noting(given: Any) -> Any:
            self.calls.append([record.offset() for record in given] if takes_batches else given.offset())
            return transform(given)

        self._failed = FailedRecords(settings, self.events.append, Counters(), clock)
        self._outputs = RecordOutputs(noting, self._failed, self.session, default_topic, takes_batches=takes_batches)

    def write(self, count: int, *large: int, by: bytes = REFUSED, one_by_one: bool = False) -> list[Any]:
        """Write the outputs of ``count`` records, those at ``large`` with larger values, and return what is committed.

        Dead letters come with their topic, behind the outputs.
        """
        records = [consumed(n, b"%d" % n + by * (n in large)) for n in range(count)]
        try:
            (self._outputs.write_one_by_one if one_by_one else self._outputs.write)(records)
            self._commit()
        except AbortableError as error:
            self.session.recover(error)
            self._failed.aborted({InputPartition("orders", 2)})
            raise
        return self.written

    def _commit(self) -> None:
        ending = self.session.end()
        if ending.outcome is not Outcome.COMMITTED:
            raise AbortableError(ending.reason)

    def write_at_last(self, *records: int, **options: Any) -> list[Any]:
        """Like ``write``, but once more where the sequence numbers of what was refused before are missing."""
        with suppress(AbortableError):
            return self.write(*records, **options)
        return self.write(*records, **options)

    @property
    def written(self) -> list[Any]:
        letters = [("letters", value or NO_VALUE) for value in self.cluster.values("letters")]
        return self.cluster.values("invoices") + letters
