"""Metrics and traces of a sink on local Spark: one hook chain, as the monitoring page shows."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from eos_client.integration.otel import TransactionTracing
from eos_client.integration.prometheus import PrometheusMetrics
from tests.spark.local_query import each_once, refusing_slot_1


def test_each_batch_is_counted_and_is_one_span(local):
    exporter, provider, registry = InMemorySpanExporter(), TracerProvider(), CollectorRegistry()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = TransactionTracing("receipts", tracer_provider=provider)
    hook = PrometheusMetrics(registry).hook("receipts", forward=tracing.hook(local.events.append))
    assert local.stream(tracing.sink(local.sink(slots=2, hook=hook)), 2) is None
    assert local.values() == each_once(0, 80)

    def sample(name, **labels):
        return registry.get_sample_value(f"eos_spark_{name}", {"client": "receipts", **labels})

    assert (sample("batches_total"), sample("rows_total"), sample("slots_written_total")) == (2, 80, 4)
    assert (sample("last_batch_id"), sample("leases_total", event="taken")) == (1, 1)
    assert sample("step_seconds_total", step="job") > 0
    spans = [span for span in exporter.get_finished_spans() if span.attributes is not None]
    batches = [span.attributes["eos.batch_id"] for span in spans if span.attributes is not None]
    rows = [span.attributes["messaging.batch.message_count"] for span in spans if span.attributes is not None]
    assert (batches, rows) == ([0, 1], [40, 40])
    assert [[event.name for event in span.events] for span in spans] == [["spark_run_started"], []]


def test_a_batch_that_fails_is_an_error_span(local):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = TransactionTracing("receipts", tracer_provider=provider)
    sink = local.sink(slots=2, hook=tracing.hook(local.events.append), on_step=refusing_slot_1(1))
    assert "slot 1 stays unwritten" in str(local.stream(tracing.sink(sink), 2))
    written, failed = exporter.get_finished_spans()
    assert (written.status.status_code, failed.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert failed.attributes is not None
    assert failed.attributes["eos.batch_id"] == 1
    assert "messaging.batch.message_count" not in failed.attributes
    assert "slot 1 stays unwritten" in (failed.status.description or "")
