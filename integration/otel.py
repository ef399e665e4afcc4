"""One span for each transaction and each Spark micro-batch, by OpenTelemetry's API; needs the extra ``[otel]``.

A span begins with the first record of a transaction and ends with the event that has the outcome, so an empty poll
has none. It is linked to the context in each record's headers, and passes its own on to the outputs. The span of a
micro-batch is open while the sink writes it, where the sink is traced; else the event of a whole batch makes it.
What the SDK raises is logged and changes no outcome: the records go on without that span, link or attribute.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

from eos_client import __version__, observe
from eos_client.confluent.record_headers import readable_headers
from eos_client.core.model import Outcome
from eos_client.errors import RunFencedError
from eos_client.loop.transform_results import SINGLE_OUTPUT_TYPES, as_given, collected
from eos_client.observe import Event, EventHook, FaultLog, log_event
from eos_client.ports import Header, Output, OutputRecord, Outputs, Record

_LINKS_MAX = 128
"""The SDK's default limit of links on one span."""
_BATCH_NAME = "write micro-batch"


def _operation(name: str) -> dict[str, Any]:
    return {"messaging.system": "kafka", "messaging.operation.name": name, "messaging.operation.type": name}


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
        self._attempt = FaultLog("tracing").attempt
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
                self._attempt(f"recording {type(event).__name__}", act, event)
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
            outputs = [as_given(output) async for output in made] if isinstance(made, AsyncIterable) else await made
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
            self._attempt("linking a record", self._link, opened, record)
        with self._current(opened.span):
            yield list(opened.headers)

    def sink(self, sink: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """Return ``sink`` traced, for ``foreachBatch``: an `EosKafkaSink` with this `hook`, or a function around one.

        The span of a batch is the current one while the batch is written, has the lease's events, and is an error with
        the exception where one is raised, also by the start of a run. Without this a batch that fails has no span.
        """

        def traced(frame: Any, batch_id: int) -> None:
            self._batch = span = self._start(
                _BATCH_NAME, SpanKind.PRODUCER, {**_operation("send"), "eos.batch_id": batch_id}
            )
            try:
                with self._current(span):
                    sink(frame, batch_id)
            except Exception as error:
                self._attempt("recording an exception", _record_exception, span, error)
                raise
            finally:
                self._batch = None
                self._attempt("ending a span", span.end)

        return traced

    def _start(self, name: str, kind: SpanKind, attributes: Mapping[str, Any], start_ns: int | None = None) -> Span:
        """Start a span. Where that fails, return one that records nothing and has the context of the current one."""
        options: dict[str, Any] = {"kind": kind, "attributes": attributes, "start_time": start_ns}
        started = self._attempt("starting a span", self._tracer.start_span, name, **options)
        return trace.NoOpTracer().start_span(name) if started is None else started

    @contextmanager
    def _current(self, span: Span) -> Iterator[None]:
        token = self._attempt("making a span current", attach, trace.set_span_in_context(span))
        try:
            yield
        finally:
            if token is not None:
                detach(token)

    # -- the span of a transaction ---------------------------------------------------------------------------------

    def _begin(self, topic: str, start_ns: int | None = None) -> _OpenSpan:
        attributes = {**_operation("process"), "messaging.consumer.group.name": self._group_id}
        span = self._start(f"process {topic}".rstrip(), SpanKind.CONSUMER, attributes, start_ns)
        headers = self._attempt("passing a context on", _headers_of, span) if self._pass_on else None
        self._open = _OpenSpan(span, headers or [])
        return self._open

    def _link(self, opened: _OpenSpan, record: Record) -> None:
        if not opened.span.is_recording() or len(opened.linked) >= _LINKS_MAX:
            return
        context = self._context_of(readable_headers(record) or ())
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
        if isinstance(made, SINGLE_OUTPUT_TYPES):
            return self._passing_on(made, headers)
        return [self._passing_on(output, headers) for output in collected(made)]

    def _passing_on(self, output: Output, headers: list[Header]) -> Output:
        if not headers:
            return output
        if isinstance(output, bytes):
            return OutputRecord(value=output, headers=headers)
        if not isinstance(output, OutputRecord) or isinstance(output.headers, Iterator):  # the loop refuses it by name
            return output
        try:
            given = output.headers or ()
            own: list[Header] = [*(given.items() if isinstance(given, Mapping) else given)]
            has_context = any(name in self._fields for name, _ in own)
        except (TypeError, ValueError):  # which the loop refuses by name
            return output
        return output if has_context else msgspec.structs.replace(output, headers=[*own, *headers])

    def _end(self, outcome: str, event: Event, error: str | None = None, took_s: float = 0.0) -> None:
        """End the open span; where no record was traced, one that began ``took_s`` ago."""
        opened = self._open or self._begin("", _ns_ago(took_s))
        self._open = None
        span = opened.span
        try:
            if len(opened.topics) == 1:
                span.set_attribute("messaging.destination.name", *opened.topics)
            elif opened.topics:
                span.update_name("process")
            if opened.places:
                span.set_attribute("messaging.batch.message_count", len(opened.places))
            span.set_attributes({"eos.outcome": outcome, **_attributes_of(event)})
            if error is not None:
                _set_error(span, error, getattr(event, "reason", outcome))
        finally:
            span.end()

    # -- data of the events ------------------------------------------------------------------------------------------

    def _committed(self, event: observe.TransactionCommitted) -> None:
        took_s = event.duration_s if event.poll_to_commit_s is None else event.poll_to_commit_s
        self._end(Outcome.COMMITTED.value, event, took_s=took_s)

    def _aborted(self, event: observe.TransactionAborted) -> None:
        refused = "refused_by_group" if event.refused_by_group else "aborted"
        self._end(Outcome.ABORTED.value, event, refused if event.rule is None else event.rule.value)

    def _resolved(self, event: observe.OutcomeResolved) -> None:
        if event.outcome in {Outcome.COMMITTED.value, Outcome.ABORTED.value}:
            self._add_span_event(event)  # the event of that outcome follows
        else:
            self._end(event.outcome, event, "unknown_outcome")

    def _stopped(self, event: observe.LoopStopped) -> None:
        if self._open is not None:
            self._end(Outcome.ABORTED.value, event, "stopped")

    def _add_span_event(self, event: Event) -> None:
        if self._open is not None:
            self._open.span.add_event(event.name, _attributes_of(event))

    def _lease_changed(self, event: Event) -> None:
        if self._batch is not None:
            self._batch.add_event(event.name, _attributes_of(event))
            return
        start_ns = _ns_ago(getattr(event, "duration_s", 0.0))
        attributes = {"messaging.system": "kafka", **_attributes_of(event)}
        span = self._start(event.name, SpanKind.INTERNAL, attributes, start_ns)
        if isinstance(event, observe.SparkRunFenced):
            _set_error(span, RunFencedError.__qualname__, event.reason)
        span.end()

    def _batch_written(self, event: observe.SparkBatchWritten) -> None:
        steps = {f"eos.seconds.{step}": spent_s for step, spent_s in event.seconds.items()}
        attributes = {"messaging.batch.message_count": event.rows, **_attributes_of(event), **steps}
        if self._batch is not None:
            self._batch.set_attributes(attributes)
            return
        attributes |= _operation("send")
        self._start(_BATCH_NAME, SpanKind.PRODUCER, attributes, _ns_ago(event.duration_s)).end()


def _headers_of(span: Span) -> list[Header]:
    """Return the headers that pass the context of ``span`` on."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    return [(name, value.encode()) for name, value in carrier.items()]


def _record_exception(span: Span, error: Exception) -> None:
    span.record_exception(error)
    _set_error(span, type(error).__qualname__, f"{type(error).__name__}: {error}")


def _set_error(span: Span, kind: str, reason: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, reason))


def _ns_ago(seconds: float) -> int:
    return time.time_ns() - int(seconds * 1_000_000_000)


def _attributes_of(event: Event) -> dict[str, Any]:
    fields = event.as_dict().items()
    return {f"eos.{name}": value for name, value in fields if value is not None and not isinstance(value, Mapping)}
