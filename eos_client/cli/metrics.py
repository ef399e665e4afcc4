"""Serves the Prometheus metrics of ``eos-client run`` over HTTP; needs the extra ``[prometheus]``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from eos_client.cli.failures import extra_needed
from eos_client.integration.probes import cannot_listen, ignore_lost_clients

if TYPE_CHECKING:
    from eos_client.integration.prometheus import PrometheusMetrics


@contextmanager
def served_metrics(host: str, port: int | None) -> Iterator[PrometheusMetrics | None]:
    """Serve the registry of this process, which has the transform's own metrics, too, while this is entered.

    Without a ``port`` nothing is served, and there are no metrics.

    :raises ExtraMissingError: prometheus-client is not installed.
    :raises ConfigurationError: nothing can listen on that host and port.
    """
    if port is None:
        yield None
        return
    with extra_needed("prometheus", "prometheus_client", "--metrics-port needs prometheus-client"):
        from prometheus_client import start_http_server  # noqa: PLC0415  the extra may be missing

        from eos_client.integration.prometheus import PrometheusMetrics  # noqa: PLC0415
    try:
        server, thread = start_http_server(port, host)
    except (OSError, OverflowError) as error:
        raise cannot_listen("metrics", host, port, error) from error
    ignore_lost_clients(server)
    address = server.server_address
    structlog.get_logger("eos_client").info("metrics_endpoint", host=str(address[0]), port=address[1])
    try:
        yield PrometheusMetrics()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
