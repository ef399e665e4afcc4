"""Counts events and the gate's rulings as Prometheus metrics; needs the extra ``[prometheus]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from eos_client import observe
from eos_client.core.commit_gate import CommitGate, GateCounters, RuleName
from eos_client.core.loop_health import LoopHealth
from eos_client.core.model import InputPartition
from eos_client.errors import ConfigurationError
from eos_client.observe import Event, EventHook, FaultLog, log_event

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_RECORDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)

_COUNTS_OF_BATCH = {
    "rows": ("spark_rows", "Rows of written micro-batches."),
    "slots_written": ("spark_slots_written", "Slots that were written and committed."),
    "slots_skipped": ("spark_slots_replayed", "Slots that an earlier attempt had committed."),
    "handles_started": ("spark_producers_started", "Slots whose producer was not kept from an earlier batch."),
    "commits_resolved": ("spark_commits_resolved", "Unanswered commits that the ledger has decided."),
    "tasks_repeated": ("spark_tasks_repeated", "Slots whose task was not Spark's first attempt."),
}
"""The counters that go by a field of ``SparkBatchWritten``."""
_ONE_PER_REGISTRY = (
    "this registry has a PrometheusMetrics already: {}. Pass that object to both loops, under a name for each, or give "
    "this one a registry of its own: PrometheusMetrics(CollectorRegistry())."
)


class PrometheusMetrics:
    """The metrics of all loops, clients and sinks of a process, distinguished by the label ``client``.

    Give ``hook("billing")`` to a loop, a client or a sink as its ``hook``, its ``gate`` to `watch_gate`, and the loop's
    ``health`` to `watch_health`. The names of the metrics and what each means are on the page "Monitoring". One object
    for each registry: a second one raises ConfigurationError.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"eos_{name}", help_text, ("client", *labels), registry=registry)

        def histogram(name: str, help_text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"eos_{name}", help_text, ("client", *labels), registry=registry, buckets=buckets)

        def seconds(name: str, help_text: str) -> Histogram:
            return histogram(f"{name}_seconds", help_text, _SECONDS)

        try:
            self._transactions = counter("transactions", "Transactions by outcome.", "outcome")
        except ValueError as error:
            raise ConfigurationError(_ONE_PER_REGISTRY.format(error)) from error
        self._commit_seconds = seconds("transaction_commit", "From the first flush to the broker's confirmation.")
        self._records = counter("records", "Records of committed transactions.", "direction")
        records_help = "Records of a committed transaction."
        self._transaction_records = histogram("transaction_records", records_help, _RECORDS, "direction")
        self._failed = counter("records_failed", "Records that were skipped or dead-lettered.", "handling")
        self._poll_seconds = seconds("poll_to_commit", "From a transaction's first record to its confirmed commit.")
        self._refused = counter("commits_refused", "Refused commits by the gate's rule, or 'other'.", "rule")
        self._resolved = counter("outcomes_resolved", "Unanswered commits that the log has decided.", "outcome")
        self._rebuilds = counter("producer_rebuilds", "Handles of producers that were replaced, by cause.", "cause")
        self._recoveries = counter("producer_recoveries", "Recoveries by action of the recovery table.", "action")
        self._recovery_seconds = seconds("producer_recovery", "From a failure to the next confirmed commit.")
        self._rebalances = counter("rebalances", "Rebalance callbacks by kind.", "kind")
        self._client_errors = counter("client_errors", "Conditions that the client library reported.")
        self._partitions = Gauge("eos_assigned_partitions", "Partitions that are ours.", ("client",), registry=registry)
        self._batches = counter("spark_batches", "Micro-batches that were written.")
        self._of_batch = {field: counter(name, help_text) for field, (name, help_text) in _COUNTS_OF_BATCH.items()}
        self._batch_seconds = seconds("spark_batch", "To write a micro-batch, on the driver.")
        self._run_seconds = seconds("spark_run_start", "To take the lease, fence all slots and read the ledger.")
        self._step_seconds = counter("spark_step_seconds", "Time of written micro-batches by step.", "step")
        self._leases = counter("spark_leases", "Leases that were taken, renewed or lost.", "event")
        newest_help = "The newest micro-batch that is whole."
        self._last_batch = Gauge("eos_spark_last_batch_id", newest_help, ("client",), registry=registry)
        self._scraped = _Scraped()
        self._counts = self._counts_by_event()
        registry.register(self._scraped)

    def hook(self, client: str, forward: EventHook = log_event) -> EventHook:
        """Return a hook that counts every event under the label ``client`` and passes it on to ``forward``."""
        self._begin_at_zero(client)

        def count(event: Event, /) -> None:
            if (counts := self._counts.get(type(event))) is not None:
                self._scraped.attempt(f"counting {type(event).__name__}", counts, client, event)
            forward(event)

        return count

    def watch_gate(self, client: str, gate: CommitGate) -> None:
        """Show the gate's counters at each scrape: rulings by rule, needed and false skips, held time.

        Gates of one ``client`` are counted together, those of loops that have ended included: a counter never falls.
        """
        watched = self._scraped.gates.setdefault(client, [])
        if not any(counters is gate.counters for counters in watched):
            watched.append(gate.counters)

    def watch_health(self, client: str, health: Callable[[], LoopHealth]) -> None:
        """Ask ``health`` at each scrape whether the loop is live and ready; also while its thread hangs."""
        self._scraped.healths[client] = health

    def _begin_at_zero(self, client: str) -> None:
        """Show what is counted before it first happens: Prometheus sees no increase where a series begins."""
        for counter, values in (
            (self._transactions, ("committed", "aborted")),
            (self._failed, ("skipped", "dead_lettered")),
            (self._resolved, ("committed", "aborted", "unknown")),
            (self._rebalances, ("assigned", "revoked", "lost")),
            (self._leases, ("taken", "renewed", "lost")),
        ):
            for value in values:
                counter.labels(client, value)

    def _counts_by_event(self) -> dict[type[Event], Callable[[str, Any], None]]:
        def each(counter: Counter, *labels: str) -> Callable[[str, Any], None]:
            return lambda client, _event: counter.labels(client, *labels).inc()

        return {
            observe.TransactionCommitted: self._committed,
            observe.TransactionAborted: self._aborted,
            observe.CommitRefused: self._commit_refused,
            observe.OutcomeResolved: lambda client, event: self._resolved.labels(client, event.outcome).inc(),
            observe.ProducerRebuilt: lambda client, event: self._rebuilds.labels(client, event.cause).inc(),
            observe.LagMeasured: lambda client, event: self._scraped.lags.update({client: dict(event.records)}),
            observe.ProducerRecovered: self._recovered,
            observe.PartitionsAssigned: self._assigned,
            observe.PartitionsRevoked: self._departed,
            observe.PartitionsLost: self._departed,
            observe.ClientReported: each(self._client_errors),
            observe.RecordSkipped: each(self._failed, "skipped"),
            observe.RecordDeadLettered: each(self._failed, "dead_lettered"),
            observe.SparkBatchWritten: self._batch_written,
            observe.SparkRunStarted: self._run_started,
            observe.SparkLeaseRenewed: each(self._leases, "renewed"),
            observe.SparkRunFenced: each(self._leases, "lost"),
        }

    def _aborted(self, client: str, event: observe.TransactionAborted) -> None:
        self._transactions.labels(client, "aborted").inc()
        if event.refused_by_group or event.rule is not None:
            self._commit_refused(client, event)

    def _commit_refused(self, client: str, event: observe.CommitRefused | observe.TransactionAborted) -> None:
        self._refused.labels(client, "other" if event.rule is None else event.rule.value).inc()

    def _committed(self, client: str, event: observe.TransactionCommitted) -> None:
        self._transactions.labels(client, "committed").inc()
        self._commit_seconds.labels(client).observe(event.duration_s)
        if event.poll_to_commit_s is not None:
            self._poll_seconds.labels(client).observe(event.poll_to_commit_s)
        for direction, records in (("in", event.records_in), ("out", event.records_out)):
            self._records.labels(client, direction).inc(records)
            self._transaction_records.labels(client, direction).observe(records)

    def _assigned(self, client: str, event: observe.PartitionsAssigned) -> None:
        self._rebalances.labels(client, "assigned").inc()
        self._partitions.labels(client).inc(len(event.partitions))

    def _departed(self, client: str, event: observe.PartitionsRevoked | observe.PartitionsLost) -> None:
        self._rebalances.labels(client, "lost" if isinstance(event, observe.PartitionsLost) else "revoked").inc()
        self._partitions.labels(client).dec(len(event.partitions))
        lags = self._scraped.lags.get(client, {})
        self._scraped.lags[client] = {p: lag for p, lag in lags.items() if p not in event.partitions}

    def _recovered(self, client: str, event: observe.ProducerRecovered) -> None:
        self._recoveries.labels(client, event.action).inc()
        self._recovery_seconds.labels(client).observe(event.to_commit_s)

    def _run_started(self, client: str, event: observe.SparkRunStarted) -> None:
        self._leases.labels(client, "taken").inc()
        self._run_seconds.labels(client).observe(event.duration_s)

    def _batch_written(self, client: str, event: observe.SparkBatchWritten) -> None:
        self._batches.labels(client).inc()
        for field, counter in self._of_batch.items():
            counter.labels(client).inc(getattr(event, field))
        self._batch_seconds.labels(client).observe(event.duration_s)
        for step, spent_s in event.seconds.items():
            self._step_seconds.labels(client, step).inc(spent_s)
        self._last_batch.labels(client).set(event.batch_id)


class _Scraped:
    """Collected when Prometheus scrapes: last lags of partitions that are ours, and the state of loops and gates.

    The counters of a gate change in the thread that owns it. All three are by client.
    """

    def __init__(self) -> None:
        self.lags: dict[str, dict[InputPartition, int]] = {}
        self.healths: dict[str, Callable[[], LoopHealth]] = {}
        self.gates: dict[str, list[GateCounters]] = {}
        self.attempt = FaultLog("metrics").attempt

    def collect(self) -> Iterator[Metric]:
        yield from (*self._of_lags(), *self._of_healths(), *self._of_gates())

    def _of_lags(self) -> Iterator[Metric]:
        lags = GaugeMetricFamily(
            "eos_input_lag_records",
            "Offsets up to the last stable offset that are not committed, as of the last fetch.",
            labels=("client", "topic", "partition"),
        )
        for client, records in list(self.lags.items()):
            for (topic, partition), lag in records.items():
                lags.add_metric((client, topic, str(partition)), lag)
        yield lags

    def _of_healths(self) -> Iterator[Metric]:
        live = GaugeMetricFamily("eos_live", "1 while the loop polls in time, else 0.", labels=("client",))
        ready = GaugeMetricFamily("eos_ready", "1 while the loop may commit what it processes.", labels=("client",))
        for client, health in list(self.healths.items()):
            if (found := self.attempt(f"asking for the health of {client}", health)) is not None:
                live.add_metric((client,), found.live)
                ready.add_metric((client,), found.ready)
        yield from (live, ready)

    def _of_gates(self) -> Iterator[Metric]:
        rulings = CounterMetricFamily("eos_gate_rulings", "The gate's rulings by rule.", labels=("client", "rule"))
        skips = CounterMetricFamily(
            "eos_gate_skips",
            "Skipped commits: a broker would have refused (needed) or accepted (false) them.",
            labels=("client", "kind"),
        )
        held = CounterMetricFamily("eos_gate_held_seconds", "Time that commits were held.", labels=("client",))
        for client, watched in list(self.gates.items()):
            by_rule: dict[RuleName, int] = {}
            for rule, count in chain.from_iterable(list(counters.by_rule.items()) for counters in watched):
                by_rule[rule] = by_rule.get(rule, 0) + count
            for rule, count in by_rule.items():
                rulings.add_metric((client, rule.value), count)
            skips.add_metric((client, "needed"), sum(counters.skips_needed for counters in watched))
            skips.add_metric((client, "false"), sum(counters.skips_false for counters in watched))
            skips.add_metric((client, "unjudged"), sum(counters.skips_unjudged for counters in watched))
            held.add_metric((client,), sum(counters.held_s for counters in watched))
        yield from (rulings, skips, held)
