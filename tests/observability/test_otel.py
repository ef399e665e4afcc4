"""Spans of transactions and Spark batches, as the SDK's own exporter gets them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from eos_client import AsyncExactlyOnceLoop, EosConfig, ExactlyOnceLoop, Outcome, OutputRecord, observe
from eos_client.core.commit_gate import RuleName
from eos_client.core.model import GroupGeneration
from eos_client.errors import RunFencedError, TransformError
from eos_client.integration.otel import TransactionTracing
from eos_client.testing import SimulatedCluster
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.core.test_observe import EXAMPLES
from tests.loop.bench import consumed
from tests.recovery.mock_cluster import mock_cluster

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UPSTREAM = ("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01".encode())
G5 = GroupGeneration(5, "m", "billing")


class Traced:
    """A tracing object, and the spans that have ended."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = TransactionTracing("billing", tracer_provider=self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def outcomes(self) -> list[Any]:
        return [attributes(span).get("eos.outcome") for span in self.spans]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traceparent_of(span: ReadableSpan) -> bytes:
    context = span.get_span_context()
    assert context is not None
    flags = f"{int(context.trace_flags):02x}"
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{flags}".encode()


def links_of(span: ReadableSpan) -> list[tuple[str, str]]:
    return [(format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) for link in span.links]


def output(value: Any, *headers: tuple[str, bytes]) -> OutputRecord:
    return OutputRecord(value=value, headers=list(headers) or None)


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster(seed=3)
    cluster.create_topic(SOURCE)
    cluster.create_topic(SINK)
    return cluster


def write_traced(cluster: SimulatedCluster, values: list[bytes], *headers: tuple[str, bytes]) -> None:
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    for value in values:
        producer.produce(SOURCE, value, headers=list(headers))
    producer.flush()


def run_loop(cluster: SimulatedCluster, traced: Traced, transform: Any, seconds: float = 10.0, **options: Any) -> None:
    kind = options.pop("kind", "transform")
    given: dict[str, Any] = {kind: traced.tracing.transform(transform)}
    loop = options.pop("loop_kind", ExactlyOnceLoop)(
        EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", **options),
        [SOURCE],
        **given,
        output_topic=SINK,
        hook=traced.tracing.hook(lambda _event: None),
        clients=cluster,
    )
    cluster.after(seconds, loop.stop)
    if isinstance(loop, AsyncExactlyOnceLoop):
        asyncio.run(loop.run())
    else:
        loop.run()


def test_a_transaction_is_one_span_linked_to_its_records_and_its_outputs_carry_its_context(cluster, traced):
    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    run_loop(cluster, traced, lambda record: [record.value(), OutputRecord(value=b"more", headers={"own": b"yes"})])
    (span,) = traced.spans
    assert (span.name, span.kind, span.status.status_code) == ("process orders", SpanKind.CONSUMER, StatusCode.UNSET)
    assert links_of(span) == [(TRACE_ID, SPAN_ID)]
    told = attributes(span)
    assert {name: told[name] for name in told if not name.startswith("eos.")} == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
    }
    assert (told["eos.outcome"], told["eos.records_in"], told["eos.records_out"]) == ("committed", 2, 4)
    passed_on = [("traceparent", traceparent_of(span))]
    assert [record.headers for record in cluster.read(SINK)] == [
        tuple(passed_on),
        (("own", b"yes"), *passed_on),
    ] * 2


def test_an_empty_poll_has_no_span(cluster, traced):
    run_loop(cluster, traced, lambda record: record.value(), seconds=30.0)
    assert traced.spans == []


def test_each_transaction_has_its_own_span(cluster, traced):
    for second in (5, 10, 15):
        cluster.after(second, lambda: write_traced(cluster, [b"1"]))
    run_loop(cluster, traced, lambda record: record.value(), seconds=25.0)
    assert traced.outcomes() == ["committed"] * 3
    assert len({traceparent_of(span) for span in traced.spans}) == 3


def test_a_transaction_that_is_done_again_is_two_spans_and_the_first_one_says_why(cluster, traced):
    write_traced(cluster, [b"1"], UPSTREAM)
    cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    run_loop(cluster, traced, lambda record: record.value())
    aborted, committed = traced.spans
    assert traced.outcomes() == ["aborted", "committed"]
    assert aborted.status.status_code is StatusCode.ERROR
    assert attributes(aborted)["error.type"] == "refused_by_group"
    assert "ILLEGAL_GENERATION" in (aborted.status.description or "")
    assert links_of(aborted) == links_of(committed) == [(TRACE_ID, SPAN_ID)]
    assert [record.headers for record in cluster.read(SINK)] == [(("traceparent", traceparent_of(committed)),)]


def test_a_transform_that_raises_ends_its_span_as_aborted(cluster, traced):
    write_traced(cluster, [b"1"])
    with pytest.raises(TransformError):
        run_loop(cluster, traced, lambda record: 1 / 0)
    assert traced.outcomes() == ["aborted"]
    assert attributes(traced.spans[0])["eos.reason"] == "TransformError"


def test_an_attempt_that_is_repeated_counts_its_record_once(cluster, traced):
    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    failures = [ValueError("not yet"), ValueError("not yet")]

    def at_last(record: Any) -> bytes:
        if failures:
            raise failures.pop()
        value: bytes = record.value()
        return value

    run_loop(cluster, traced, at_last, transform_attempts_max=3)
    assert sum(attributes(span)["messaging.batch.message_count"] for span in traced.spans) == 2
    assert cluster.values(SINK) == [b"1", b"2"]


def test_a_context_that_the_transform_has_set_is_not_doubled(cluster, traced):
    write_traced(cluster, [b"1"])
    own = ("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01")
    run_loop(cluster, traced, lambda record: OutputRecord(value=record.value(), headers=[own]))
    assert [record.headers for record in cluster.read(SINK)] == [(own,)]


def test_outputs_stay_as_they_are_where_nothing_is_to_be_passed_on(cluster):
    traced = Traced(pass_on=False)
    write_traced(cluster, [b"1"], UPSTREAM)
    run_loop(cluster, traced, lambda record: record.value())
    assert [record.headers for record in cluster.read(SINK)] in ([None], [()])
    assert links_of(traced.spans[0]) == [(TRACE_ID, SPAN_ID)]


def test_without_an_sdk_nothing_is_added(cluster):
    plain = Traced()
    plain.tracing = TransactionTracing("billing")
    write_traced(cluster, [b"1"], UPSTREAM)
    run_loop(cluster, plain, lambda record: record.value())
    assert cluster.values(SINK) == [b"1"]
    assert [record.headers for record in cluster.read(SINK)] in ([None], [()])


def test_spans_of_the_transform_are_inside_that_of_the_transaction_also_in_a_generator(cluster, traced):
    tracer = traced.provider.get_tracer("application")

    def price(record: Any) -> Any:
        with tracer.start_as_current_span("price"):
            yield record.value()

    write_traced(cluster, [b"1"])
    run_loop(cluster, traced, price)
    inner, outer = traced.spans
    assert (inner.name, outer.name) == ("price", "process orders")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("kind", ["transform", "transform_batch"])
@pytest.mark.parametrize("is_generator", [False, True], ids=["returns", "yields"])
def test_an_async_transform_has_its_spans_inside_and_its_outputs_carry_the_context(cluster, traced, is_generator, kind):
    tracer = traced.provider.get_tracer("application")

    async def price(given: Any) -> list[OutputRecord]:
        with tracer.start_as_current_span("price"):
            await asyncio.sleep(0)
            return [output(record.value()) for record in (given if isinstance(given, list) else [given])]

    async def each(given: Any) -> Any:
        for made in await price(given):
            yield made

    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    run_loop(cluster, traced, each if is_generator else price, kind=kind, loop_kind=AsyncExactlyOnceLoop)
    *inside, outer = traced.spans
    assert ([span.name for span in inside], outer.name) == (["price"] * len(inside), "process orders")
    assert {span.parent and span.parent.span_id for span in inside} == {outer.get_span_context().span_id}
    assert attributes(outer)["messaging.batch.message_count"] == 2
    assert [record.headers for record in cluster.read(SINK)] == [(("traceparent", traceparent_of(outer)),)] * 2


@pytest.mark.parametrize("made", [None, [], b"one", OutputRecord(value=b"one"), [b"one", b"two"], [17]])
def test_what_the_loop_takes_and_an_output_that_it_refuses_are_left_to_the_loop(made):
    passed = Traced(pass_on=False).tracing.transform(lambda _record: made)(consumed())
    assert passed == ([] if made is None else made)


@pytest.mark.parametrize("made", [17, "text", bytearray(b"b"), {b"no": "output"}])
def test_a_result_that_the_loop_refuses_is_refused_as_the_failure_of_its_record(made):
    with pytest.raises(TypeError, match="it must return an output or an iterable of them"):
        Traced().tracing.transform(lambda _record: made)(consumed())


@pytest.mark.parametrize(
    "headers",
    [5, "ab", [("a",)], [5], iter([("a", b"1")]), [(["a"], b"1")]],
    ids=["number", "text", "name alone", "list of a number", "iterator", "list for a name"],
)
def test_headers_that_the_loop_refuses_are_left_to_the_loop(headers: Any):
    traced = Traced()
    given = OutputRecord(value=b"", headers=headers)
    assert traced.tracing.transform(lambda _record: given)(consumed()) is given


def yielding(record: Any) -> Any:
    for letter in b"ab":
        CONTENT[:] = [record.value()[0], letter]
        yield OutputRecord(value=CONTENT)


async def yielding_later(record: Any) -> Any:
    for made in yielding(record):
        yield made


CONTENT = bytearray(2)


@pytest.mark.parametrize(
    ("transform", "loop_kind"), [(yielding, ExactlyOnceLoop), (yielding_later, AsyncExactlyOnceLoop)]
)
@pytest.mark.parametrize("pass_on", [True, False])
def test_a_buffer_that_is_filled_again_for_the_next_output_is_written_as_it_was(cluster, transform, loop_kind, pass_on):
    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    run_loop(cluster, Traced(pass_on=pass_on), transform, loop_kind=loop_kind)
    assert cluster.values(SINK) == [b"1a", b"1b", b"2a", b"2b"]


@pytest.mark.parametrize(
    "headers",
    [None, [("traceparent", None)], [("traceparent", b"\xff no trace")], [("other", b"x")], [("traceparent", b"")]],
)
def test_headers_that_hold_no_context_are_no_link(traced, headers):
    with traced.tracing.processing(consumed(0, b"body", *headers or ())):
        pass
    traced.tracing.hook(lambda _event: None)(observe.LoopStopped(reason="test"))
    assert links_of(traced.spans[0]) == []


def test_links_are_as_many_as_an_sdk_keeps_and_each_context_is_linked_once(traced):
    for number in range(300):
        header = ("traceparent", f"00-{TRACE_ID}-{1 + number // 2:016x}-01".encode())
        with traced.tracing.processing(consumed(number, b"body", header)):
            pass
    traced.tracing.hook(lambda _event: None)(observe.LoopStopped(reason="test"))
    (span,) = traced.spans
    assert len(set(links_of(span))) == len(span.links) == 128
    assert attributes(span)["messaging.batch.message_count"] == 300


def test_a_held_transaction_is_one_span_that_tells_when_it_was_held(traced):
    hook = traced.tracing.hook(lambda _event: None)
    with traced.tracing.processing(consumed()):
        pass
    hook(observe.CommitSkipped(generation=G5, revocation_generation=G5, held_for_s=0.0, reason="closed"))
    hook(observe.TransactionAborted(reason="held too long", rule=RuleName.HELD_TOO_LONG, records_in=1))
    (span,) = traced.spans
    assert [event.name for event in span.events] == ["commit_skipped"]
    assert attributes(span)["error.type"] == attributes(span)["eos.rule"] == "held_too_long"


@pytest.mark.parametrize(("outcome", "ended"), [("committed", []), ("aborted", []), ("unknown", ["unknown"])])
def test_a_span_ends_when_its_outcome_is_known_or_nobody_can_know_it(traced, outcome, ended):
    with traced.tracing.processing(consumed()):
        pass
    traced.tracing.hook(lambda _event: None)(observe.OutcomeResolved(outcome=outcome, reason="no answer"))
    assert traced.outcomes() == ended


def test_a_transaction_across_topics_names_none(traced):
    other = consumed()
    other.set_topic("refunds")
    for record in (consumed(), other):
        with traced.tracing.processing(record):
            pass
    traced.tracing.hook(lambda _event: None)(observe.LoopStopped(reason="test"))
    assert traced.spans[0].name == "process"
    assert "messaging.destination.name" not in attributes(traced.spans[0])


def test_every_event_is_passed_on():
    passed: list[observe.Event] = []
    hook = Traced().tracing.hook(passed.append)
    for event, _, _ in EXAMPLES:
        hook(event)
    assert passed == [event for event, _, _ in EXAMPLES]


# -- blocks, Spark, another instrumentation --------------------------------------------------------------------------


@pytest.mark.parametrize("names_records", [True, False])
def test_a_block_is_one_span_with_links_where_its_records_are_named(traced, names_records):
    stage = SimulatedStage(records=2, partitions=1)
    hook = traced.tracing.hook(stage.events.append)
    producer, consumer = stage.producer(hook=hook), stage.subscribed(hook=hook)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2):
            if names_records:
                with traced.tracing.processing(record) as headers:
                    txn.produce(SINK, record.value(), headers=headers)
            else:
                txn.produce(SINK, record.value())
    with producer.transaction(consumer):
        consumer.poll(0)
    assert txn.outcome is Outcome.COMMITTED
    (span,) = traced.spans
    assert attributes(span)["eos.records_in"] == 2
    expected = (("traceparent", traceparent_of(span)),) if names_records else None
    assert {record.headers or None for record in stage.cluster.read(SINK)} == {expected}


def span_of_length(traced: Traced, event: observe.Event, seconds: float) -> Any:
    """The only span, which ``event`` makes: it ends now, and began ``seconds`` ago."""
    before_ns = time.time_ns()
    traced.tracing.hook(lambda _event: None)(event)
    after_ns = time.time_ns()
    (span,) = traced.spans
    began_ns, ended_ns = span.start_time or 0, span.end_time or 0
    assert before_ns <= began_ns + int(seconds * 1e9) <= after_ns
    assert before_ns <= ended_ns <= after_ns
    return span


def test_a_transaction_that_only_the_events_tell_of_has_the_length_that_they_tell(traced):
    committed = observe.TransactionCommitted(
        records_in=1, records_out=1, duration_s=0.5, generation=G5, inside_revoke=False, poll_to_commit_s=3.0
    )
    span_of_length(traced, committed, 3.0)


def test_a_spark_batch_is_one_span_of_its_length(traced):
    (written,) = [event for event, _, _ in EXAMPLES if isinstance(event, observe.SparkBatchWritten)]
    span = span_of_length(traced, written, written.duration_s)
    assert (span.name, span.kind) == ("write micro-batch", SpanKind.PRODUCER)
    told = attributes(span)
    assert (told["eos.batch_id"], told["eos.slots_skipped"], told["messaging.batch.message_count"]) == (7, 1, 9)
    assert told["eos.seconds.job"] == 0.1
    assert "eos.seconds" not in told, "a mapping is no attribute in every version of the SDK"


SPARK_STARTED, SPARK_WRITTEN, SPARK_RENEWED, SPARK_FENCED = (
    event for event, _, _ in EXAMPLES if event.name.startswith("spark_")
)
LEASE_EVENTS = [SPARK_STARTED, SPARK_RENEWED, SPARK_FENCED]


def written_by(traced: Traced, *events: observe.Event, error: BaseException | None = None) -> None:
    """Write batch 7 by a traced sink that emits ``events``, then raises ``error``."""
    hook = traced.tracing.hook(lambda _event: None)

    def sink(_frame: Any, batch_id: int) -> None:
        assert batch_id == 7
        for event in events:
            hook(event)
        if error is not None:
            raise error

    traced.tracing.sink(sink)(None, 7)


def test_a_batch_of_a_traced_sink_is_one_span_with_the_lease_as_events_and_others_inside(traced):
    tracer = traced.provider.get_tracer("application")
    written_by(traced, SPARK_STARTED, SPARK_RENEWED, SPARK_WRITTEN)
    (span,) = traced.spans
    assert (span.name, span.kind, span.status.status_code) == ("write micro-batch", SpanKind.PRODUCER, StatusCode.UNSET)
    assert [event.name for event in span.events] == ["spark_run_started", "spark_lease_renewed"]
    started, renewed = (dict(event.attributes or {}) for event in span.events)
    assert (started["eos.sink_id"], started["eos.generation"]) == ("i", 5)
    assert (renewed["eos.run"], renewed["eos.reason"]) == (2, "lost")
    told = attributes(span)
    assert (told["eos.batch_id"], told["messaging.batch.message_count"], told["eos.seconds.job"]) == (7, 9, 0.1)
    assert "error.type" not in told
    traced.tracing.sink(lambda _frame, _batch_id: tracer.start_span("inside").end())(None, 8)
    _, inside, outer = traced.spans
    assert inside.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("events", [(), (SPARK_STARTED, SPARK_FENCED)], ids=["before its run", "fenced"])
def test_a_batch_that_fails_is_one_error_span_with_the_exception(traced, events):
    with pytest.raises(RunFencedError):
        written_by(traced, *events, error=RunFencedError("newer"))
    (span,) = traced.spans
    assert (span.name, span.status.status_code) == ("write micro-batch", StatusCode.ERROR)
    assert span.status.description == "RunFencedError: newer"
    assert (attributes(span)["eos.batch_id"], attributes(span)["error.type"]) == (7, "RunFencedError")
    assert "messaging.batch.message_count" not in attributes(span)
    *noted, exception = span.events
    assert [event.name for event in noted] == [event.name for event in events]
    assert (exception.attributes or {})["exception.type"] == "eos_client.errors.RunFencedError"


def test_what_comes_after_a_batch_that_failed_has_a_span_of_its_own(traced):
    with pytest.raises(OSError, match="no"):
        written_by(traced, error=OSError("no"))
    written_by(traced, SPARK_RENEWED, SPARK_WRITTEN)
    traced.tracing.hook(lambda _event: None)(SPARK_STARTED)
    failed, written, started = traced.spans
    assert (failed.status.status_code, written.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert [event.name for event in written.events] == ["spark_lease_renewed"]
    assert started.name == "spark_run_started"


def test_an_error_after_the_batch_is_whole_is_told_with_its_rows(traced):
    with pytest.raises(OSError, match="no"):
        written_by(traced, SPARK_WRITTEN, error=OSError("no"))
    (span,) = traced.spans
    assert (span.status.status_code, attributes(span)["messaging.batch.message_count"]) == (StatusCode.ERROR, 9)


@pytest.mark.parametrize("event", LEASE_EVENTS, ids=lambda event: event.name)
def test_without_a_traced_sink_each_event_of_the_lease_is_a_span(traced, event):
    span = span_of_length(traced, event, getattr(event, "duration_s", 0.0))
    assert (span.name, attributes(span)["eos.run"]) == (event.name, event.run)
    is_fenced = event is SPARK_FENCED
    assert (span.status.status_code is StatusCode.ERROR) is is_fenced
    assert attributes(span).get("error.type") == ("RunFencedError" if is_fenced else None)
    assert span.status.description == ("newer" if is_fenced else None)


BESIDE = textwrap.dedent("""
    import json, sys
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)
    import confluent_kafka
    producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1]})
    assert type(producer).__module__.startswith("opentelemetry"), type(producer)
    producer.produce("orders", b"1")
    producer.flush()
    from eos_client import EosConfig, ExactlyOnceLoop
    from eos_client.integration.otel import TransactionTracing
    tracing = TransactionTracing("billing", tracer_provider=provider)
    outcomes = []
    def hook(event):
        outcomes.append(event.name)
        if event.name == "transaction_committed":
            loop.stop()
    loop = ExactlyOnceLoop(EosConfig({"bootstrap.servers": sys.argv[1]}, group_id="billing"), ["orders"],
                           tracing.transform(lambda record: record.value()), output_topic="invoices",
                           hook=tracing.hook(hook))
    loop.run()
    print(json.dumps([[span.name, span.attributes.get("eos.outcome"),
                       ["%032x" % link.context.trace_id for link in span.links],
                       "%032x" % span.context.trace_id] for span in exporter.get_finished_spans()]))
""")


def test_it_works_beside_the_instrumentation_of_confluent_kafka():
    with mock_cluster(1) as brokers:
        brokers.create_topic("orders")
        brokers.create_topic("invoices")
        ran = subprocess.run(
            [sys.executable, "-c", BESIDE, brokers.bootstrap], capture_output=True, text=True, timeout=240, check=False
        )
    assert ran.returncode == 0, ran.stderr
    spans = json.loads(ran.stdout.splitlines()[-1])
    (transaction,) = [span for span in spans if span[1] is not None]
    assert transaction[:2] == ["process orders", "committed"]
    (sent,) = [span for span in spans if span[0] == "orders send"]
    assert transaction[2] == [sent[3]], "linked to the span that sent the record"


def test_a_batch_is_linked_to_all_of_its_records_and_a_record_of_a_batch_that_failed_counts_once(cluster, traced):
    write_traced(cluster, [b"1", b"2", b"bad", b"4"], UPSTREAM)

    def doubled(records):
        return [OutputRecord(value=b"%d" % (2 * int(record.value()))) for record in records]

    run_loop(cluster, traced, doubled, kind="transform_batch", on_error="skip")
    assert cluster.values(SINK) == [b"2", b"4", b"8"]
    [span] = traced.spans
    assert links_of(span) == [(TRACE_ID, SPAN_ID)]
    assert attributes(span)["messaging.batch.message_count"] == 4


# -- a tracing SDK that fails ----------------------------------------------------------------------------------------


class FailingProcessor(SpanProcessor):
    """An application's own processor with a defect: ``fails_at`` on_start or on_end."""

    def __init__(self, fails_at: str) -> None:
        self._fails_at = fails_at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._fails_at == "on_start":
            raise KeyError("pod_name")

    def on_end(self, span: Any) -> None:
        if self._fails_at == "on_end":
            raise KeyError("pod_name")


class FailingSampler(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        raise KeyError("pod_name")

    def get_description(self) -> str:
        return "fails"


class FailingPropagator(TextMapPropagator):
    """A propagator of an application, which reads and writes no context."""

    fields: Any = frozenset({"traceparent"})

    def extract(self, *_: Any, **__: Any) -> Any:
        raise KeyError("pod_name")

    inject = extract


FAULTS = ["on_start", "on_end", "sampler", "propagator", "attributes", "add_link", "is_recording"]


@pytest.fixture(params=FAULTS)
def failing(request: Any, monkeypatch: pytest.MonkeyPatch) -> Traced:
    """A tracing object whose SDK raises ``KeyError("pod_name")`` at one kind of call."""

    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("pod_name")

    traced, fault = Traced(), request.param
    if fault.startswith("on_"):
        traced.provider.add_span_processor(FailingProcessor(fault))
    elif fault == "sampler":
        traced.tracing = TransactionTracing("billing", tracer_provider=TracerProvider(sampler=FailingSampler()))
    elif fault == "propagator":
        monkeypatch.setattr("opentelemetry.propagate.get_global_textmap", FailingPropagator)
    else:
        for name in ("set_attribute", "set_attributes") if fault == "attributes" else (fault,):
            monkeypatch.setattr(f"opentelemetry.sdk.trace.Span.{name}", fail)
    return traced


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("kind", ["transform", "transform_batch"])
def test_a_fault_of_the_tracing_sdk_changes_no_outcome_and_is_logged_once(cluster, failing, caplog, kind, on_error):
    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    cluster.after(5.0, lambda: write_traced(cluster, [b"3"], UPSTREAM))
    called: list[Any] = []

    def price(given: Any) -> list[bytes]:
        records = given if isinstance(given, list) else [given]
        called.extend(record.value() for record in records)
        return [record.value() for record in records]

    run_loop(cluster, failing, price, kind=kind, on_error=on_error)
    assert cluster.values(SINK) == called == [b"1", b"2", b"3"]
    told = [record for record in caplog.records if "pod_name" in (record.exc_text or "")]
    assert {record.name for record in told} == {"eos_client"}
    messages = [record.getMessage() for record in told]
    assert len(set(messages)) == len(messages) > 0


def test_a_transform_that_raises_beside_a_failing_sdk_is_blamed_for_its_own_exception(cluster, failing):
    write_traced(cluster, [b"1"], UPSTREAM)
    with pytest.raises(TransformError) as caught:
        run_loop(cluster, failing, lambda record: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_async_transform_is_called_once_beside_a_failing_sdk(cluster, failing):
    called: list[Any] = []

    async def price(record: Any) -> Any:
        called.append(record.value())
        return record.value()

    write_traced(cluster, [b"1", b"2"], UPSTREAM)
    run_loop(cluster, failing, price, loop_kind=AsyncExactlyOnceLoop)
    assert sorted(cluster.values(SINK)) == sorted(called) == [b"1", b"2"]


@pytest.mark.parametrize("error", [None, RunFencedError("newer")], ids=["written", "fenced"])
def test_a_batch_of_a_traced_sink_is_written_once_beside_a_failing_sdk(failing, error):
    written: list[int] = []

    def sink(_frame: Any, batch_id: int) -> None:
        for event in (*LEASE_EVENTS, SPARK_WRITTEN):
            failing.tracing.hook(forwarded.append)(event)
        written.append(batch_id)
        if error is not None:
            raise error

    forwarded: list[observe.Event] = []
    with pytest.raises(RunFencedError) if error else contextlib.nullcontext() as caught:
        failing.tracing.sink(sink)(None, 7)
    assert (written, forwarded) == ([7], [*LEASE_EVENTS, SPARK_WRITTEN])
    assert caught is None or caught.value is error


def test_every_event_is_passed_on_beside_a_failing_sdk(failing):
    passed: list[observe.Event] = []
    hook = failing.tracing.hook(passed.append)
    for event, _, _ in EXAMPLES:
        hook(event)
    assert passed == [event for event, _, _ in EXAMPLES]


def test_a_span_ends_although_its_attributes_cannot_be_set(cluster, monkeypatch):
    traced = Traced()
    monkeypatch.setattr("opentelemetry.sdk.trace.Span.set_attributes", lambda *_: 1 / 0)
    write_traced(cluster, [b"1"])
    run_loop(cluster, traced, lambda record: record.value())
    assert [span.name for span in traced.spans] == ["process orders"]
