"""Writes docs/monitoring/eos-client-dashboard.json, by Grafana's own builders: `python scripts/dashboard.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

TARGET = Path(__file__).parents[1] / "docs" / "monitoring" / "eos-client-dashboard.json"
SOURCE = DataSourceRef("prometheus", "${datasource}")
CHOSEN = 'job=~"$job", client=~"$client"'
RATE = "$__rate_interval"
WIDTH, HEIGHT = 8, 7


class Graph(NamedTuple):
    """One panel: ``queries`` are expressions with their legends; ``unit`` is Grafana's name of it."""

    title: str
    unit: str
    description: str
    queries: tuple[tuple[str, str], ...]


def rate(metric: str, *labels: str) -> str:
    """Return the rate per second of a counter, summed by the client and ``labels``."""
    return f"sum by ({', '.join(('client', *labels))}) (rate({metric}{{{CHOSEN}}}[{RATE}]))"


def quantiles(histogram: str, *labels: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of a histogram's median and 99th percentile, by the client and ``labels``."""
    buckets = rate(f"{histogram}_bucket", *labels, "le")
    legend = " ".join(f"{{{{{label}}}}}" for label in ("client", *labels))
    return tuple(
        (f"histogram_quantile({q}, {buckets})", f"{legend} {name}") for q, name in ((0.5, "p50"), (0.99, "p99"))
    )


def by(label: str) -> str:
    """Return the legend of a series that is told apart by ``label``."""
    return f"{{{{client}}}} {{{{{label}}}}}"


ROWS: dict[str, tuple[Graph, ...]] = {
    "Work": (
        Graph(
            "Records",
            "short",
            "Records of committed transactions, per second.",
            ((rate("eos_records_total", "direction"), by("direction")),),
        ),
        Graph(
            "Transactions",
            "ops",
            "Transactions that ended, by outcome.",
            ((rate("eos_transactions_total", "outcome"), by("outcome")),),
        ),
        Graph(
            "Lag",
            "short",
            "Offsets up to the last stable offset that are not committed.",
            ((f"sum by (client, topic) (eos_input_lag_records{{{CHOSEN}}})", by("topic")),),
        ),
        Graph(
            "From poll to commit",
            "s",
            "From a transaction's first record to its confirmed commit.",
            quantiles("eos_poll_to_commit_seconds"),
        ),
        Graph(
            "Commit",
            "s",
            "From the first flush to the broker's confirmation.",
            quantiles("eos_transaction_commit_seconds"),
        ),
        Graph(
            "Records of a transaction",
            "short",
            "Consumed and written by each committed transaction.",
            quantiles("eos_transaction_records", "direction"),
        ),
        Graph(
            "Records that failed",
            "short",
            "Skipped or dead-lettered, per second.",
            ((rate("eos_records_failed_total", "handling"), by("handling")),),
        ),
    ),
    "Group and gate": (
        Graph(
            "Live and ready",
            "short",
            "1 while it is so, for each worker.",
            tuple((f"{m}{{{CHOSEN}}}", f"{{{{client}}}} {{{{instance}}}} {m[4:]}") for m in ("eos_live", "eos_ready")),
        ),
        Graph(
            "Assigned partitions",
            "short",
            "For each worker.",
            ((f"eos_assigned_partitions{{{CHOSEN}}}", by("instance")),),
        ),
        Graph(
            "Rebalances", "ops", "Rebalance callbacks by kind.", ((rate("eos_rebalances_total", "kind"), by("kind")),)
        ),
        Graph(
            "Gate rulings",
            "ops",
            "What the gate decided, by rule.",
            ((rate("eos_gate_rulings_total", "rule"), by("rule")),),
        ),
        Graph(
            "Skipped commits",
            "ops",
            "Needed, false, or not known.",
            ((rate("eos_gate_skips_total", "kind"), by("kind")),),
        ),
        Graph(
            "Held",
            "percentunit",
            "Share of the time in which a transaction was held.",
            ((rate("eos_gate_held_seconds_total"), "{{client}}"),),
        ),
    ),
    "Failures": (
        Graph(
            "Refused commits",
            "ops",
            "By the gate's rule, or other: the group coordinator.",
            ((rate("eos_commits_refused_total", "rule"), by("rule")),),
        ),
        Graph(
            "Producer rebuilds",
            "ops",
            "Replaced handles by cause.",
            ((rate("eos_producer_rebuilds_total", "cause"), by("cause")),),
        ),
        Graph(
            "Recoveries",
            "ops",
            "By action of the recovery table.",
            ((rate("eos_producer_recoveries_total", "action"), by("action")),),
        ),
        Graph(
            "From a failure to the next commit",
            "s",
            "How long recoveries take.",
            quantiles("eos_producer_recovery_seconds"),
        ),
        Graph(
            "Unanswered commits",
            "ops",
            "What became of them.",
            ((rate("eos_outcomes_resolved_total", "outcome"), by("outcome")),),
        ),
        Graph(
            "Client errors",
            "ops",
            "Conditions that librdkafka handles itself.",
            ((rate("eos_client_errors_total"), "{{client}}"),),
        ),
    ),
    "Spark sink": (
        Graph(
            "Micro-batches and rows",
            "short",
            "Written per second.",
            (
                (rate("eos_spark_batches_total"), "{{client}} batches"),
                (rate("eos_spark_rows_total"), "{{client}} rows"),
            ),
        ),
        Graph(
            "Last micro-batch",
            "short",
            "The newest one that is whole.",
            ((f"eos_spark_last_batch_id{{{CHOSEN}}}", "{{client}}"),),
        ),
        Graph("Time of a micro-batch", "s", "On the driver.", quantiles("eos_spark_batch_seconds")),
        Graph(
            "Time by step",
            "percentunit",
            "Seconds of each step per second.",
            ((rate("eos_spark_step_seconds_total", "step"), by("step")),),
        ),
        Graph(
            "Slots",
            "ops",
            "Written, replayed, repeated, and with a producer that had to be started.",
            tuple(
                (rate(f"eos_spark_{name}_total"), f"{{{{client}}}} {name.replace('_', ' ')}")
                for name in (
                    "slots_written",
                    "slots_replayed",
                    "tasks_repeated",
                    "producers_started",
                    "commits_resolved",
                )
            ),
        ),
        Graph("Leases", "ops", "Taken, renewed, lost.", ((rate("eos_spark_leases_total", "event"), by("event")),)),
        Graph(
            "Start of a run",
            "s",
            "To take the lease, fence all slots and read the ledger.",
            quantiles("eos_spark_run_start_seconds"),
        ),
    ),
}


def panel(graph: Graph) -> timeseries.Panel:
    """Build one panel."""
    built = timeseries.Panel().title(graph.title).description(graph.description).unit(graph.unit).min(0)
    built = built.datasource(SOURCE).span(WIDTH).height(HEIGHT)
    built = built.legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True))
    built = built.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    for number, (expression, legend) in enumerate(graph.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        built = built.with_target(query)
    return built


def variables() -> Iterator[dashboard.DatasourceVariable | dashboard.QueryVariable]:
    """Choose the data source, the jobs and the clients."""
    yield dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source")
    for name, query in (
        ("job", "label_values(eos_transactions_total, job)"),
        ("client", 'label_values(eos_transactions_total{job=~"$job"}, client)'),
    ):
        choice = dashboard.QueryVariable(name).datasource(SOURCE).query(query).label(name.capitalize())
        yield choice.multi(True).include_all(True).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)


def rendered() -> str:
    """Return the dashboard as Grafana imports it."""
    built = (
        dashboard.Dashboard("eos-client")
        .uid("eos-client")
        .tags(["kafka", "eos-client"])
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    for variable in variables():
        built = built.with_variable(variable)
    for title, graphs in ROWS.items():
        built = built.with_row(dashboard.Row(title))
        for graph in graphs:
            built = built.with_panel(panel(graph))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered(), encoding="utf-8")
