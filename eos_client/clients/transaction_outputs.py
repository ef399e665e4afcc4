"""Writes and counts the outputs of a session's open transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.producer.output_arguments import produce_options, raised_by_signal_handler, unfit_content
from eos_client.confluent.serialisation import Serializers
from eos_client.core.transaction_lifecycle import TransactionLifecycle
from eos_client.errors import AbortableError, EosError, OutputRefusedError, repr_of, text_of
from eos_client.ports import DeliveryCallback, OutputRecord


class TransactionOutputs:
    """The outputs of the open transaction, which begins with the first of them."""

    def __init__(
        self,
        producer: ConfluentProducer,
        serializers: Serializers | None,
        lifecycle: TransactionLifecycle,
        begin: Callable[[], None],
    ) -> None:
        """``begin``: begins a transaction where ``lifecycle`` shows none that takes outputs."""
        self._producer = producer
        self._serializers = serializers
        self._lifecycle = lifecycle
        self._begin = begin
        self.are_unfinished = False
        """Whether more outputs of the same records may follow."""
        self.records_out = 0
        """How many outputs the open transaction has."""

    def begin(self) -> None:
        """Begin a transaction unless one is open.

        Raises TransactionStateError inside a step of the session that needs the state as it is: a callback of the
        producer, a hook or a signal handler may write while that step begins, commits or undoes a transaction.
        """
        if not self._lifecycle.state.takes_outputs:
            self._begin()
        self.are_unfinished = True

    def begin_and_get_produce(self) -> Callable[..., None]:
        """Begin, and return the quickest way to write simple outputs; ``count`` counts them."""
        self.begin()
        return self._producer.raw_produce

    def produce(self, topic: str, *arguments: Any, **options: Any) -> None:
        """Write one output as ``Producer.produce`` does; raises BufferError when the local queue is full."""
        self.begin()
        self._producer.queue(topic, *arguments, **options)
        self.count(1)

    def enqueue(self, topic: str, record: OutputRecord, on_delivery: DeliveryCallback | None = None) -> None:
        """Write one output of any kind, serialised, as soon as the local queue has room for it.

        ``on_delivery`` gets its report, before the callback that the application may have set for all. Raises
        OutputRefusedError for an invalid output, AbortableError without room in time.
        """
        self.begin()
        if on_delivery is not None:
            on_delivery = self._producer.library.before_application_callback(on_delivery)
        write = self.produce if self._serializers is None else partial(self._produce_serialised, self._serializers)
        self._producer.await_room(self._producer.limits.commit_timeout_s, write_by, write, topic, record, on_delivery)

    def _produce_serialised(self, serializers: Serializers, topic: str, value: Any, key: Any, **options: Any) -> None:
        self.produce(topic, **serializers.arguments(topic, {"value": value, "key": key, **options}))

    def count(self, count: int) -> None:
        """Count ``count`` outputs that were written by ``raw_produce``, in a batch, or beside the block."""
        self.records_out += count

    def await_deliveries(self) -> None:
        """Wait until all outputs written so far are acknowledged or refused.

        Raises AbortableError after a time-out, ClusterUnfitError where one was refused because of this host's clock.
        """
        if self._lifecycle.state.has_begun:
            self._producer.flush_outputs(self._producer.limits.commit_timeout_s)
            self._producer.calls.record_acknowledged_outputs()

    def clear(self) -> None:
        """Record that no output is open any more."""
        self.records_out = 0
        self.are_unfinished = False


def write_by(
    produce: Callable[..., None], topic: str, record: OutputRecord, on_delivery: DeliveryCallback | None
) -> None:
    """Write ``record`` by ``produce``, which checks its headers; raises OutputRefusedError for an invalid output.

    Raises AbortableError where a signal handler has interrupted that: the output may be queued.
    """
    try:
        options = produce_options(topic, record, checks_headers=False)
        if on_delivery is not None:
            options["on_delivery"] = on_delivery
        produce(topic, record.value, record.key, **options)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, EosError):
            raise
        if raised_by_signal_handler(error):
            raise AbortableError(
                f"a signal handler has interrupted the write to topic {repr_of(topic)}. Let this error leave the block"
            ) from error
        unfit = unfit_content(record)
        raise OutputRefusedError(
            f"the output for topic {repr_of(topic)} cannot be written: {text_of(error)}{unfit}. Correct it."
        ) from error
