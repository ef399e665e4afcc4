"""A loop on a simulated cluster, with what its tests load, move and look at."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Message

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.loop.record_failures import FailedRecords
from eos_client.observe import Event
from eos_client.ports import ClientLibrary
from eos_client.testing.simulator import PartitionKey, SimulatedCluster

BROKERS = {"bootstrap.servers": "simulated"}
LETTERS: dict[str, Any] = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
ENDS_AFTER_S = 2_000.0


def config(**options: Any) -> EosConfig:
    return EosConfig(BROKERS, group_id="billing", **options)


def values(*numbers: int) -> list[bytes]:
    """The values of records or outputs that are called by ``numbers``."""
    return [b"%d" % number for number in numbers]


def numbers(count: int) -> list[bytes]:
    """The values from 0 on."""
    return values(*range(count))


def consumed(offset: int = 0, value: bytes = b"body", *headers: tuple[str, str | bytes | None]) -> Any:
    """A record of partition 2 of `orders` as a consumer hands it over."""
    place: dict[str, Any] = {"topic": "orders", "partition": 2, "offset": offset, "timestamp": (1, 0)}
    return Message(**place, key=b"key", value=value, headers=list(headers) or None)


def remembered(failed: FailedRecords) -> int:
    """How many records are remembered for a failure."""
    return len({*failed._known, *failed._letters_refused._refused, *failed._handled})


class Bench:
    """A loop from `orders` to `invoices`, with a topic `letters`, and every event that it told, beside its moment.

    ``hears`` gets each event.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        transform: Any = None,
        *,
        transform_batch: Any = None,
        partitions: int = 1,
        output_partitions: int = 1,
        topics: tuple[str, ...] = ("orders",),
        clients: ClientLibrary | None = None,
        **options: Any,
    ) -> None:
        self.cluster, self.clock = cluster, cluster.clock
        cluster.create_topic("orders", partitions)
        cluster.create_topic("invoices", output_partitions)
        cluster.create_topic("letters")
        self.told: list[tuple[float, Any]] = []
        self._stops_at = math.inf
        self.hears: Callable[[Any], object] = lambda event: None
        given: dict[str, Any] = {"transform": transform, "transform_batch": transform_batch}
        self.loop: ExactlyOnceLoop = ExactlyOnceLoop(
            config(**options),
            topics,
            **given,
            output_topic="invoices",
            hook=self._heard,
            clients=clients or cluster,
        )

    def _heard(self, event: Event) -> None:
        self.told.append((self.clock(), event))
        if self.committed >= self._stops_at:
            self.loop.stop()
        self.hears(event)

    def load(self, count: int, partition: int = 0) -> None:
        """Write the numbers from 0 on as records."""
        self.cluster.write("orders", numbers(count), partition=partition)

    def stop_after(self, count: int) -> None:
        """Let the loop stop when it has committed ``count`` records of partition 0."""
        self._stops_at = count

    def run(self) -> None:
        """Run the loop, which something in it stops."""
        self.cluster.after(ENDS_AFTER_S, partial(self.loop.stop, "the loop does not end"))
        self.loop.run()
        assert self.loop._shutdown.reason != "the loop does not end"

    def run_all(self, records: list[bytes]) -> list[Any]:
        """Write ``records``, run until they are committed, and return the outputs that a reader sees."""
        self.cluster.write("orders", records)
        self.stop_after(len(records))
        self.run()
        assert self.committed >= self._stops_at, self.told[-3:]
        return self.written

    def events(self, *kinds: type[Event]) -> list[Any]:
        return [event for _, event in self.told if isinstance(event, kinds)]

    def moments(self, *kinds: type[Event]) -> list[float]:
        """When events of these kinds were told."""
        return [moment for moment, event in self.told if isinstance(event, kinds)]

    @property
    def written(self) -> list[Any]:
        """The outputs that a read_committed reader sees."""
        return self.cluster.values("invoices")

    @property
    def committed(self) -> int:
        """The group's offset of partition 0, which is how many of its records are committed."""
        return self.cluster.committed("billing").get(PartitionKey("orders", 0), 0)

    @property
    def is_closed(self) -> bool:
        """Whether the loop's clients are closed."""
        clients: list[Any] = [*self.cluster._consumers, *self.cluster._producers]
        return all(client._closed for client in clients)
