"""One span for each transaction and each Spark micro-batch, by OpenTelemetry's API; needs the extra ``[otel]``.

A span begins with the first record of a transaction and ends with the event that has the outcome, so an empty poll
has none. It is linked to the context in each record's headers, and passes its own on to the outputs. The span of a
micro-batch is open while the sink writes it, where the sink is traced; else the event of a whole batch makes it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from eos_client import __version__, observe
from eos_client.core.model import Outcome
from eos_client.errors import RunFencedError
from eos_client.observe import Event, EventHook, log_event
from eos_client.ports import Header, Output, OutputRecord, Outputs, Record

_LINKS_MAX = 128
"""The SDK's default limit of links on one span."""
_NS_PER_S = 1_000_000_000
_BATCH_NAME = "write micro-batch"
_BATCH: dict[str, Any] = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}


@dataclass(slots=True)
class _OpenSpan:
    """The span of the open transaction, and what of its records is known. ``headers`` carry its context.

    ``places``: its records, each of which counts once, however often its transform is called.
    """

    span: Span
    headers: list[Header]
    topics: set[str] = field(default_factory=set)
    linked: set[tuple[int, int]] = field(default_factory=set)
    places: set[tuple[str, int, int]] = field(default_factory=set)


class TransactionTracing:
    """Traces the transactions of one loop, or of one consumer and producer, or the batches and lease of a Spark sink.

    ``group_id`` names the consumer group on the spans. ``pass_on``: whether outputs get the context of their
    transaction as headers; an output that has such a header already keeps its own. Headers are written and read by
    the process's global propagator: W3C ``traceparent``, unless ``OTEL_PROPAGATORS`` says otherwise.
    """

    def __init__(self, group_id: str, *, pass_on: bool = True, tracer_provider: TracerProvider | None = None) -> None:
        self._group_id = group_id
        self._pass_on = pass_on
        self._tracer = trace.get_tracer("eos_client", __version__, tracer_provider)
        self._fields = frozenset(propagate.get_global_textmap().fields)
        self._open: _OpenSpan | None = None
        self._batch: Span | None = None
        self._acts: dict[type[Event], Callable[[Any], None]] = {
            observe.TransactionCommitted: self._committed,
            observe.TransactionAborted: self._aborted,
            observe.OutcomeResolved: self._resolved,
            observe.CommitSkipped: self._add_span_event,
            observe.ProducerRebuilt: self._add_span_event,
            observe.LoopStopped: self._stopped,
            observe.SparkRunStarted: self._lease_changed,
            observe.SparkLeaseRenewed: self._lease_changed,
            observe.SparkRunFenced: self._lease_changed,
            observe.SparkBatchWritten: self._batch_written,
        }

    def hook(self, forward: EventHook = log_event) -> EventHook:
        """Return a hook that ends the spans by the events, and passes every event on to ``forward``."""

        def trace_event(event: Event, /) -> None:
            if (act := self._acts.get(type(event))) is not None:
                act(event)
            forward(event)

        return trace_event

    def transform(
        self, transform: Callable[[Any], Outputs | Awaitable[Outputs] | AsyncIterable[Output]]
    ) -> Callable[[Any], Any]:
        """Return ``transform`` traced: records are linked, outputs carry the context, its own spans are children.

        It may be a transform of one record or of a batch, and an ``async def`` of either. Outputs with headers leave
        the loop's fastest path; ``pass_on=False`` keeps them on it.
        """

        def traced(given: Any) -> Any:
            records = given if isinstance(given, list) else [given]
            with self.processing(*records) as headers:
                made: Any = transform(given)
                if isinstance(made, (Awaitable, AsyncIterable)):
                    return self._later(made, records)
                return self._all_passing_on(made, headers)

        return traced

    async def _later(self, made: Any, records: Sequence[Record]) -> Any:
        with self.processing(*records) as headers:
            outputs = [output async for output in made] if isinstance(made, AsyncIterable) else await made
            return self._all_passing_on(outputs, headers)

    @contextmanager
    def processing(self, *records: Record) -> Iterator[list[Header]]:
        """Count ``records`` into the span of the open transaction, which is the current span meanwhile.

        A record that is processed again in the same transaction counts once. Yields the headers that pass the span's
        context on, for ``txn.produce(..., headers=headers)``; empty where nothing is passed on.
        """
        opened = self._open or self._begin(records[0].topic() if records else "")
        for record in records:
            opened.places.add((record.topic(), record.partition(), record.offset()))
            opened.topics.add(record.topic())
            if opened.span.is_recording() and len(opened.linked) < _LINKS_MAX:
                self._link(opened, record)
        with trace.use_span(opened.span, record_exception=False, set_status_on_exception=False):
            yield list(opened.headers)

    def sink(self, sink: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """Return ``sink`` traced, for ``foreachBatch``: an `EosKafkaSink` with this `hook`, or a function around one.

        The span of a batch is the current one while the batch is written, has the lease's events, and is an error with
        the exception where one is raised, also by the start of a run. Without this a batch that fails has no span.
        """

        def traced(frame: Any, batch_id: int) -> None:
            attributes = {**_BATCH, "eos.batch_id": batch_id}
            with self._tracer.start_as_current_span(_BATCH_NAME, kind=SpanKind.PRODUCER, attributes=attributes) as span:
                self._batch = span
                try:
                    sink(frame, batch_id)
                except Exception as error:
                    span.set_attribute("error.type", type(error).__qualname__)
                    raise
                finally:
                    self._batch = None

        return traced

    # -- the span of a transaction ---------------------------------------------------------------------------------

    def _begin(self, topic: str, start_ns: int | None = None) -> _OpenSpan:
        span = self._tracer.start_span(
            f"process {topic}".rstrip(),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.consumer.group.name": self._group_id,
            },
            start_time=start_ns,
        )
        carrier: dict[str, str] = {}
        if self._pass_on:
            propagate.inject(carrier, trace.set_span_in_context(span))
        self._open = _OpenSpan(span, [(name, value.encode()) for name, value in carrier.items()])
        return self._open

    def _link(self, opened: _OpenSpan, record: Record) -> None:
        context = self._context_of(record.headers() or ())
        if context is None or (key := (context.trace_id, context.span_id)) in opened.linked:
            return
        opened.linked.add(key)
        place: dict[str, str | int] = {
            "messaging.destination.partition.id": str(record.partition()),
            "messaging.kafka.offset": record.offset(),
        }
        opened.span.add_link(context, place)

    def _context_of(self, headers: Sequence[Header]) -> SpanContext | None:
        carrier = {
            name: value.decode("ascii", "replace") if isinstance(value, bytes) else value
            for name, value in headers
            if name in self._fields and value is not None
        }
        if not carrier:
            return None
        found = trace.get_current_span(propagate.extract(carrier, Context())).get_span_context()
        return found if found.is_valid else None

    def _all_passing_on(self, made: Any, headers: list[Header]) -> Any:
        outputs = [made] if isinstance(made, (bytes, OutputRecord)) else made
        if not hasattr(outputs, "__iter__"):  # nothing, or what the loop refuses
            return made
        return [self._passing_on(output, headers) for output in outputs]

    def _passing_on(self, output: Output, headers: list[Header]) -> Output:
        if not headers:
            return output
        if isinstance(output, bytes):
            return OutputRecord(value=output, headers=headers)
        if not isinstance(output, OutputRecord):  # which the loop refuses by name
            return output
        given = output.headers or ()
        own: list[Header] = list(given.items() if isinstance(given, Mapping) else given)
        if any(name in self._fields for name, _ in own):
            return output
        return replace(output, headers=[*own, *headers])

    def _end(self, outcome: str, attributes: Mapping[str, Any], error: str | None = None, took_s: float = 0.0) -> None:
        """End the open span; where no record was traced, one that began ``took_s`` ago."""
        opened = self._open or self._begin("", time.time_ns() - int(took_s * _NS_PER_S))
        self._open = None
        span = opened.span
        if len(opened.topics) == 1:
            span.set_attribute("messaging.destination.name", *opened.topics)
        elif opened.topics:
            span.update_name("process")
        if opened.places:
            span.set_attribute("messaging.batch.message_count", len(opened.places))
        span.set_attribute("eos.outcome", outcome)
        span.set_attributes({f"eos.{name}": value for name, value in attributes.items() if value is not None})
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, str(attributes.get("reason", outcome))))
        span.end()

    # -- data of the events ------------------------------------------------------------------------------------------

    def _committed(self, event: observe.TransactionCommitted) -> None:
        took_s = event.duration_s if event.poll_to_commit_s is None else event.poll_to_commit_s
        self._end(Outcome.COMMITTED.value, event.as_dict(), took_s=took_s)

    def _aborted(self, event: observe.TransactionAborted) -> None:
        refused = "refused_by_group" if event.refused_by_group else "aborted"
        self._end(Outcome.ABORTED.value, event.as_dict(), refused if event.rule is None else event.rule.value)

    def _resolved(self, event: observe.OutcomeResolved) -> None:
        if event.outcome in {Outcome.COMMITTED.value, Outcome.ABORTED.value}:
            self._add_span_event(event)  # the event of that outcome follows
        else:
            self._end(event.outcome, {"reason": event.reason}, "unknown_outcome")

    def _stopped(self, event: observe.LoopStopped) -> None:
        if self._open is not None:
            self._end(Outcome.ABORTED.value, event.as_dict(), "stopped")

    def _add_span_event(self, event: Event) -> None:
        if self._open is not None:
            self._open.span.add_event(event.name, _attributes_of(event))

    def _lease_changed(self, event: Event) -> None:
        if self._batch is not None:
            self._batch.add_event(event.name, _attributes_of(event))
            return
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            event.name,
            attributes={"messaging.system": "kafka", **_attributes_of(event)},
            start_time=end_ns - int(getattr(event, "duration_s", 0.0) * _NS_PER_S),
        )
        if isinstance(event, observe.SparkRunFenced):
            span.set_attribute("error.type", RunFencedError.__qualname__)
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end(end_ns)

    def _batch_written(self, event: observe.SparkBatchWritten) -> None:
        end_ns = time.time_ns()
        span = self._batch or self._tracer.start_span(
            _BATCH_NAME,
            kind=SpanKind.PRODUCER,
            attributes=_BATCH,
            start_time=end_ns - int(event.duration_s * _NS_PER_S),
        )
        steps = {f"eos.seconds.{step}": spent_s for step, spent_s in event.seconds.items()}
        span.set_attributes({"messaging.batch.message_count": event.rows, **_attributes_of(event), **steps})
        if self._batch is None:
            span.end(end_ns)


def _attributes_of(event: Event) -> dict[str, Any]:
    fields = event.as_dict().items()
    return {f"eos.{name}": value for name, value in fields if value is not None and not isinstance(value, Mapping)}
