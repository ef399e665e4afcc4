"""Serves the Prometheus metrics of ``eos-client run`` over HTTP; needs the extra ``[prometheus]``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from eos_client.cli.failures import extra_needed
from eos_client.integration.probes import cannot_listen
from eos_client.observe import EventHook

if TYPE_CHECKING:
    from eos_client.loop import ExactlyOnceLoop


class WorkerMetrics:
    """The metrics of one worker, under the label ``client``."""

    def __init__(self, client: str, metrics: Any) -> None:
        self._client = client
        self._metrics = metrics

    def hook(self, forward: EventHook) -> EventHook:
        """Return a hook that counts each event and passes it on to ``forward``."""
        counting: EventHook = self._metrics.hook(self._client, forward)
        return counting

    def watch(self, loop: ExactlyOnceLoop) -> None:
        """Show the rulings of the loop's gate and its health at each scrape."""
        self._metrics.watch_gate(self._client, loop.gate)
        self._metrics.watch_health(self._client, loop.health)


@contextmanager
def served_metrics(client: str, host: str, port: int) -> Iterator[WorkerMetrics]:
    """Serve the registry of this process, which has the transform's own metrics, too, while this is entered.

    :raises ExtraMissingError: prometheus-client is not installed.
    :raises ConfigurationError: nothing can listen on that host and port.
    """
    with extra_needed("prometheus", "prometheus_client", "--metrics-port needs prometheus-client"):
        from prometheus_client import start_http_server  # noqa: PLC0415  the extra may be missing

        from eos_client.integration.prometheus import PrometheusMetrics  # noqa: PLC0415
    try:
        server, thread = start_http_server(port, host)
    except (OSError, OverflowError) as error:
        raise cannot_listen("metrics", host, port, error) from error
    address = server.server_address
    structlog.get_logger("eos_client").info("metrics_endpoint", host=str(address[0]), port=address[1])
    try:
        yield WorkerMetrics(client, PrometheusMetrics())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
