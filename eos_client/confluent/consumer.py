"""A group consumer that knows what the application has not committed yet, and can go back to it.

Same methods as confluent_kafka's; it decides nothing about commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config import safe_consumer_settings
from eos_client.confluent.failures import consumer_errors
from eos_client.confluent.fetching import FetchingConsumer
from eos_client.confluent.group_member import ConsumerFactory
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.confluent.leaving import serve_before_close
from eos_client.confluent.record_runs import last_good, runs
from eos_client.confluent.thread_ownership import owned
from eos_client.core.model import InputPartition
from eos_client.ports import Clock

if TYPE_CHECKING:
    from typing_extensions import Self


class ConfluentConsumer(FetchingConsumer):
    """The adapter: hands records over, keeps their positions, settles them."""

    def __init__(
        self, settings: Mapping[str, Any], *, factory: ConsumerFactory = Consumer, clock: Clock = MONOTONIC_CLOCK
    ) -> None:
        super().__init__(safe_consumer_settings(settings), factory, clock)

    @owned(claims=True)
    def poll(self, timeout: float = -1) -> Any:
        """Return one record, an error event, or None after ``timeout`` seconds; serves callbacks."""
        batch = self._next(1, timeout)
        return batch[0] if batch else None

    @owned(claims=True)
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` records within ``timeout`` seconds; serves callbacks.

        Every record returned counts as processed at the next commit.
        """
        return self._next(num_messages, timeout)

    def _next(self, count: int, timeout: float) -> list[Any]:
        if self._prove_soon:
            self.serve_callbacks(drain=True)
        if 0 < len(self._carried) < count:  # serving callbacks leaves single records here: no batch for who wants many
            self._fetch_for_later(count - len(self._carried), 0)
        if self._carried and count > 0:
            batch = self._carried[:count]
            del self._carried[:count]
        else:
            batch = self._fetch(count, timeout)
        self._hand_over(batch)
        return batch

    def _hand_over(self, batch: list[Any]) -> None:
        for run in runs(batch, one_topic=self._one_topic):
            if not run.is_error:
                self._work.handed_over(
                    run.partition, run.first_offset, run.next_offset, self._proven, last_good(batch, run).leader_epoch()
                )

    @owned()
    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next ``consume`` returns it first."""
        for run in runs(batch):
            if not run.is_error:
                self._work.taken_back(run.partition, run.first_offset)
        self._carried = [*batch, *self._carried]

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop the uncommitted positions of ``partitions``."""
        self._work.forget(partitions)

    def settle(self) -> None:
        """All uncommitted work was committed."""
        self._work.clear()

    @owned()
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Set the assignment by hand; offsets of such a consumer carry no group fence."""
        self._raw.assign(partitions)
        self._note_chosen(partitions)

    @owned()
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to the assignment, from an ``on_assign`` callback of a cooperative group."""
        self._raw.incremental_assign(partitions)
        self._note_chosen(partitions)

    @owned()
    def _raw_commit(
        self, *, message: Any = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[Any] | None:
        # The C method tells "not given" from None.
        given: dict[str, Any] = {"asynchronous": asynchronous}
        given.update({k: v for k, v in (("message", message), ("offsets", offsets)) if v is not None})
        with consumer_errors("commit()"):
            sent: list[Any] | None = self._raw.commit(**given)
        return sent

    @owned()
    def store_offsets(self, message: Any = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next ``commit()`` without arguments (``enable.auto.offset.store=false``)."""
        if message is not None:
            self._raw.store_offsets(message=message)
            self._stored[InputPartition(message.topic(), message.partition())] = self.offset_after(message)
        else:
            self._raw.store_offsets(offsets=offsets)
            self._stored.update({InputPartition(p.topic, p.partition): p for p in offsets or ()})

    @staticmethod
    def offset_after(message: Any) -> TopicPartition:
        """Return the offset that says ``message`` was processed."""
        epoch = message.leader_epoch()
        place = (message.topic(), message.partition(), message.offset() + 1)
        return TopicPartition(*place) if epoch is None else TopicPartition(*place, leader_epoch=epoch)

    def handed_over_offsets(self) -> dict[InputPartition, TopicPartition]:
        """Return the offsets that say everything handed over was processed, of partitions that are ours."""
        return {
            p: TopicPartition(p.topic, p.partition, position.next_offset) for p, position in self._work.ours.items()
        }

    def nothing_to_commit(self, *, asynchronous: bool) -> None:
        """Say so as confluent_kafka does: it raises for a synchronous call only."""
        if not asynchronous:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001  # a public local code

    # -- what the application does itself ------------------------------------------------------------------------

    @owned()
    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped."""
        self._raw.seek(partition)
        key = InputPartition(partition.topic, partition.partition)
        self._note_chosen([partition])
        self._carried = [m for m in self._carried if InputPartition(m.topic(), m.partition()) != key]
        self._rewound.pop(key, None)

    @owned()
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset that is handed over, also where records wait that the library has counted already."""
        positions: list[TopicPartition] = self._raw.position(partitions)
        waiting = {r.partition: r.first_offset for r in reversed(list(runs(self._carried))) if not r.is_error}
        for position in positions:
            first = waiting.get(InputPartition(position.topic, position.partition))
            if first is not None:
                position.offset = first
        return positions

    @owned()
    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later ``poll`` or in ``close``."""
        self._prove_before_leaving()
        self._raw.unsubscribe()

    @owned()
    def close(self) -> None:
        """Leave the group; runs the revoke callback."""
        if self._closed:
            return
        self._prove_before_leaving()
        self._leaving = True
        if self._listener is not None:
            stays_a_member = not self._is_member_epoch and "group.instance.id" in self._settings
            serve_before_close(self._raw, unsubscribe=not stays_a_member)
        self._closed = True
        self._raw.close()
        self._raise_callback_error()

    def _prove_before_leaving(self) -> None:
        # The revoke callback commits open work only under a proven epoch (row 8).
        if self._is_member_epoch and self._work.ours:
            self.serve_callbacks(drain=True)

    def close_within(self, limit_s: float) -> bool:
        """Close, waiting ``limit_s`` seconds at most; returns whether leaving the group was confirmed."""
        self._ownership.disown()
        closer = HandleThread("eos-consumer-close", self._clock)
        try:
            closer.call(self.close, limit_s)
        except OverdueError:
            return False
        finally:
            closer.end()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
