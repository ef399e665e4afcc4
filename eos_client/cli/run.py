"""``eos-client run``: one exactly-once worker around a function of the user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import structlog

from eos_client.cli.failures import TransformExitedError
from eos_client.cli.logs import LOG_LEVEL_CRITICAL, ClientErrors
from eos_client.cli.progress import LoopProgress
from eos_client.cli.transform_file import load_transform
from eos_client.config import EosConfig
from eos_client.integration.probes import EVERY_ADDRESS, ProbeServer
from eos_client.loop import ExactlyOnceLoop
from eos_client.observe import Event, LoopStarted, log_event


class OnError(Enum):
    """What becomes of a record that fails, as ``EosConfig.on_error`` has it."""

    STOP = "stop"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``eos-client run``."""

    reference: str
    bootstrap_servers: str
    group_id: str
    input_topics: Sequence[str]
    output_topic: str
    takes_batches: bool = False
    transactional_id: str | None = None
    commit_interval_s: float = 0.1
    start_timeout_s: float = 10.0
    on_error: OnError = OnError.STOP
    dead_letter_topic: str | None = None
    attempts: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    health_port: int | None = None
    health_host: str = EVERY_ADDRESS
    progress_interval_s: float = 1.0


def run_loop(options: RunOptions) -> None:
    """Load the transform and run the loop until a signal or an error ends it.

    :raises TransformLoadError: FILE.py:FUNC cannot be used.
    :raises TransformExitedError: the transform called ``sys.exit``.
    :raises EosError: as ``ExactlyOnceLoop.run`` and `ProbeServer` do.
    """
    transform = load_transform(options.reference, takes_batches=options.takes_batches)
    given: dict[str, Any] = {"transform_batch" if options.takes_batches else "transform": transform}
    client_errors = ClientErrors()
    client_errors.is_starting = True
    config = EosConfig(
        {
            "log_level": LOG_LEVEL_CRITICAL,
            "error_cb": client_errors,
            **options.settings,
            "bootstrap.servers": options.bootstrap_servers,
        },
        group_id=options.group_id,
        transactional_id=options.transactional_id,
        commit_interval_s=options.commit_interval_s,
        start_timeout_s=options.start_timeout_s,
        on_error=options.on_error.value,
        dead_letter_topic=options.dead_letter_topic,
        transform_attempts_max=options.attempts,
    )

    def forward(event: Event) -> None:
        client_errors.is_starting = client_errors.is_starting and not isinstance(event, LoopStarted)
        log_event(event)

    progress = LoopProgress(options.progress_interval_s, forward=forward)
    with (
        ExactlyOnceLoop(
            config,
            options.input_topics,
            **given,
            output_topic=options.output_topic,
            hook=progress,
        ) as loop,
        _probes(loop, options),
        progress.watch(loop.counters.as_dict),
    ):
        _run(loop)


def _run(loop: ExactlyOnceLoop[Any, Any]) -> None:
    try:
        loop.run()
    except SystemExit as error:
        raise TransformExitedError(
            f"the transform called sys.exit({error.code!r}); its transaction was aborted and nothing of it is visible. "
            "Let it raise an exception for a record that fails; SIGTERM and Ctrl-C stop this program"
        ) from error


def _probes(loop: ExactlyOnceLoop, options: RunOptions) -> AbstractContextManager[object]:
    if options.health_port is None:
        return nullcontext()
    server = ProbeServer(loop.health, options.health_port, options.health_host)
    host, port = server.address
    structlog.get_logger("eos_client").info("health_endpoint", host=host, port=port)
    return server
