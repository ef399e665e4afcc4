"""``eos-client relay``: publishes the rows of an outbox table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from eos_client.cli.databases import database_engine
from eos_client.cli.logs import ClientErrors
from eos_client.cli.metrics import served_metrics
from eos_client.cli.progress import LoopProgress
from eos_client.cli.run import served_probes
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.signals import hang_up_as_termination
from eos_client.config import EosConfig
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL
from eos_client.observe import EventHook

if TYPE_CHECKING:
    from eos_client.integration.prometheus import PrometheusMetrics
    from eos_client.integration.sql import OutboxRelay


@dataclass(frozen=True)
class OutboxOptions:
    """The outbox: ``url`` of its database, as SQLAlchemy takes it, its ``table``, and how it is relayed."""

    url: str
    table: str
    default_topic: str | None
    buckets: int
    poll_interval_s: float
    _: KW_ONLY
    keep: bool
    create: bool


def relay_config(access: ClusterAccess, **options: Any) -> EosConfig:
    """Return the configuration of a relay to a cluster, whose clients' errors a command reports itself."""
    own = {"log_level": LOG_LEVEL_CRITICAL, "error_cb": ClientErrors()}
    return EosConfig({**own, **access.settings, "bootstrap.servers": access.bootstrap_servers}, **options)


def run_relay(
    options: OutboxOptions,
    config: EosConfig,
    served_at: tuple[str, int | None, int | None],
    progress: LoopProgress,
    *,
    until_end: bool,
) -> bool:
    """Run the relay until a signal or an error ends it.

    Returns whether it has ended by itself, as it does with ``until_end``.

    :param served_at: host, and ports of the health and of the Prometheus endpoint; port None: there is none.
    :raises EosError: as ``OutboxRelay.run``, `ProbeServer`, `served_metrics` and `database_engine` do.
    """
    host, health_port, metrics_port = served_at
    with hang_up_as_termination(), served_metrics(host, metrics_port) as metrics:
        hook = progress if metrics is None else metrics.hook(config.group_id, progress)
        with (
            _relay(options, config, hook) as relay,
            served_probes(relay.health, host, health_port),
            progress.watch(relay),
        ):
            return _run_watched(relay, config.group_id, metrics, until_end=until_end)


@contextmanager
def _relay(options: OutboxOptions, config: EosConfig, hook: EventHook) -> Iterator[OutboxRelay]:
    engine = database_engine(options.url, "the relay of an outbox needs SQLAlchemy 2")
    from eos_client.integration.sql import OutboxRelay  # noqa: PLC0415  the extra may be missing
    from eos_client.integration.sql.engines import outbox_at  # noqa: PLC0415

    table = outbox_at(engine, options.table, create=options.create)
    relay = OutboxRelay(
        engine,
        table,
        config,
        buckets=options.buckets,
        default_topic=options.default_topic,
        keep=options.keep,
        poll_interval_s=options.poll_interval_s,
        hook=hook,
    )
    with relay:
        yield relay


def _run_watched(relay: OutboxRelay, group_id: str, metrics: PrometheusMetrics | None, *, until_end: bool) -> bool:
    if metrics is not None:
        metrics.watch_gate(group_id, relay.gate)
        metrics.watch_health(group_id, relay.health)
    return relay.run(until_end=until_end)
