"""``eos-client run``: one exactly-once worker around a function of the user's file or module."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import structlog

from eos_client.cli.failures import TransformExitedError
from eos_client.cli.logs import ClientErrors
from eos_client.cli.metrics import served_metrics
from eos_client.cli.output_keys import LostKeys, keeping_keys
from eos_client.cli.progress import LoopProgress
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.signals import hang_up_as_termination
from eos_client.cli.transform_file import Transform, load_transform
from eos_client.config import EosConfig
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL
from eos_client.core.error_report import place_of
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import repr_of
from eos_client.integration.probes import ProbeServer
from eos_client.loop import ExactlyOnceLoop

if TYPE_CHECKING:
    from eos_client.integration.prometheus import PrometheusMetrics

_LOG: Any = structlog.get_logger("eos_client")
_STATISTICS = "statistics.interval.ms"
_LAG_INTERVAL_MS = 2000


@dataclass(frozen=True)
class LoopWork:
    """What a loop does: the function that ``reference``, FILE.py:FUNC or package.module:FUNC, names, between topics.

    ``keep_key``: an output that is bytes gets the key of its record. No such record exists where it ``takes_batches``.
    """

    reference: str
    input_topics: Sequence[str]
    output_topic: str
    _: KW_ONLY
    takes_batches: bool
    keep_key: bool

    def load(self) -> dict[str, Transform]:
        """Return the function as the argument of `ExactlyOnceLoop` that takes it.

        :raises TransformLoadError: ``reference`` cannot be used.
        """
        loaded = load_transform(self.reference, takes_batches=self.takes_batches)
        keyed = keeping_keys(loaded) if self.keep_key else LostKeys(loaded, takes_batches=self.takes_batches)
        return {"transform_batch" if self.takes_batches else "transform": keyed}


def run_loop(
    work: LoopWork,
    access: ClusterAccess,
    served_at: tuple[str, int | None, int | None],
    progress: LoopProgress,
    *,
    until_end: bool,
    **options: Any,
) -> bool:
    """Load the transform and run the loop, with these ``options`` of `EosConfig`, until a signal or an error ends it.

    Returns whether it has ended by itself, as it does with ``until_end``.

    :param progress: tells how the loop gets on. The lag of that comes from the client library's statistics, which the
        consumer makes every two seconds where its settings say nothing else.
    :param served_at: host, and ports of the health and of the Prometheus endpoint; port None: there is none.
    :raises TransformLoadError: as `LoopWork.load`.
    :raises TransformExitedError: the transform called ``sys.exit``, or raised something else that is no Exception.
    :raises EosError: as ``ExactlyOnceLoop.run``, `ProbeServer` and `served_metrics` do.
    """
    given: dict[str, Any] = work.load()
    host, health_port, metrics_port = served_at
    config = _config(access, options)
    if work.output_topic in work.input_topics:
        _LOG.warning(
            "reads_its_own_output", topic=work.output_topic, advice="each output is an input again; is this meant?"
        )
    with (
        _remaining_threads_named(),
        hang_up_as_termination(),
        _exits_named(),
        served_metrics(host, metrics_port) as metrics,
    ):
        hook = progress if metrics is None else metrics.hook(config.group_id, progress)
        loop = ExactlyOnceLoop(config, work.input_topics, **given, output_topic=work.output_topic, hook=hook)
        with loop, served_probes(loop.health, host, health_port), progress.watch(loop):
            return _run_watched(loop, metrics, until_end=until_end)


def _config(access: ClusterAccess, options: Mapping[str, Any]) -> EosConfig:
    settings = {**access.settings, "bootstrap.servers": access.bootstrap_servers}
    own = {"log_level": LOG_LEVEL_CRITICAL, "error_cb": ClientErrors()}
    statistics = {} if _STATISTICS in settings else {_STATISTICS: _LAG_INTERVAL_MS}
    return EosConfig({**own, **settings}, consumer=statistics, **options)


def _run_watched(loop: ExactlyOnceLoop[Any, Any], metrics: PrometheusMetrics | None, *, until_end: bool) -> bool:
    """Run ``loop`` under ``metrics``; returns whether it has ended by itself."""
    if metrics is not None:
        metrics.watch_gate(loop.config.group_id, loop.gate)
        metrics.watch_health(loop.config.group_id, loop.health)
    return loop.run(until_end=until_end)


@contextmanager
def _remaining_threads_named() -> Iterator[None]:
    """Say at the end which threads keep the process alive: Python waits for those that are no daemons."""
    try:
        yield
    finally:
        others = (each for each in threading.enumerate() if each is not threading.current_thread())
        if names := sorted(each.name for each in others if not each.daemon):
            _LOG.warning("waiting_for_threads", threads=names, advice="end them, or start them with daemon=True")


@contextmanager
def _exits_named() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or not (places := getattr(error, "__notes__", ())):
            raise  # a KeyboardInterrupt of Ctrl-C among them
        place = place_of(error)
        raised = repr_of(error) if place is None else f"{repr_of(error)} ({place})"
        raise TransformExitedError(
            f"{raised} was raised {places[-1]}; its transaction was aborted and nothing of it is visible. "
            "Let the transform raise an Exception for a record that fails; SIGTERM and Ctrl-C stop this program"
        ) from error


def served_probes(health: Callable[[], LoopHealth], host: str, port: int | None) -> AbstractContextManager[object]:
    """Serve ``health`` over HTTP while this is entered; without a ``port`` nothing is served.

    :raises ConfigurationError: nothing can listen on that host and port.
    """
    if port is None:
        return nullcontext()
    server = ProbeServer(health, port, host)
    host, port = server.address
    _LOG.info("health_endpoint", host=host, port=port)
    return server
