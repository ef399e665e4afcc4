"""One process of ``eos-client demo --database``: a DatabaseLoop that writes an invoice's row for each order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from eos_client.cli.databases import database_engine
from eos_client.cli.demo.job.invoice import invoice_of
from eos_client.cli.failures import failures_reported
from eos_client.cli.logs import ClientErrors, LogFormat, configure_logs
from eos_client.cli.progress import LoopProgress
from eos_client.config import EosConfig
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL

_PROGRESS_INTERVAL_S = 0.5
_COMMIT_INTERVAL_S = 0.2


def offsets_table_of(rows_table: str) -> str:
    """Return the name of the table of offsets beside ``rows_table``."""
    return f"{rows_table}_offsets"


def run(url: str, bootstrap: str, group_id: str, topic: str, rows_table: str) -> None:
    """Write rows until SIGTERM."""
    engine = database_engine(url, "the demo's workers need SQLAlchemy")
    from eos_client.integration.sql import DatabaseLoop  # noqa: PLC0415  the extra may be missing
    from eos_client.integration.sql.rows_by_origin import RowsByOrigin  # noqa: PLC0415

    rows = RowsByOrigin(engine, rows_table)

    def write(connection: Any, records: list[Any]) -> None:
        made = [(r.partition(), r.offset(), invoice_of(r.value() or b"")) for r in records]
        rows.insert(connection, made)

    config = EosConfig(
        {
            "bootstrap.servers": bootstrap,
            "group.protocol": "consumer",
            "log_level": LOG_LEVEL_CRITICAL,
            "error_cb": ClientErrors(),
        },
        group_id=group_id,
        commit_interval_s=_COMMIT_INTERVAL_S,
    )
    progress = LoopProgress(_PROGRESS_INTERVAL_S)
    loop = DatabaseLoop(
        config, [topic], write, engine=engine, offsets_table=offsets_table_of(rows_table), hook=progress
    )
    with loop, progress.watch(loop):
        loop.run()


def main(arguments: Sequence[str]) -> None:
    """Run with the arguments of the command line."""
    configure_logs(LogFormat.JSON, verbose=True)
    with failures_reported(verbose=True, as_json=True):
        run(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
