"""The settings of a sink that writes into a database, checked once and carried to the executors as a plain value."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from pyspark import cloudpickle
from sqlalchemy import URL, Engine, Table, create_engine

from eos_client.core.output_topics import is_topic_name
from eos_client.errors import ConfigurationError
from eos_client.integration.spark.settings import SLOTS_MAX, PickledFunction
from eos_client.integration.sql.sql_batch_ledger import SqlBatchLedger
from eos_client.integration.sql.table_checks import check_engine, name_and_schema
from eos_client.integration.sql.target_table import target_table

Database = str | URL | Callable[[], Engine]
"""Where the sink writes to: a URL, or a function that makes an engine."""

_SINK_ID_LENGTH_MAX = 200
_TABLES_MAX = 16


@dataclass(frozen=True)
class DatabaseSettings:
    """Everything that a driver and its tasks need to know. ``database``: a URL, or a pickled function."""

    database: str | PickledFunction = field(repr=False)
    table: str
    sink_id: str
    slots: int
    ledger_table: str
    _: KW_ONLY
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    use_copy: bool = True
    stable_input: str | None = None
    stage_dir: str | None = None
    adopt_ledger: str | None = None
    accept_batch: str | None = None
    query_id: str | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("table", "ledger_table"):
            name_and_schema(name, getattr(self, name))
        if self.table == self.ledger_table:
            raise ConfigurationError(f"ledger_table={self.ledger_table!r} is the table of the rows: name another one.")
        if not isinstance(self.sink_id, str) or not is_topic_name(self.sink_id):
            raise ConfigurationError(
                f"sink_id={self.sink_id!r} must be 1 to {_SINK_ID_LENGTH_MAX} letters, digits, dots, dashes or "
                "underscores."
            )
        if len(self.sink_id) > _SINK_ID_LENGTH_MAX:
            raise ConfigurationError(f"sink_id={self.sink_id!r} is longer than {_SINK_ID_LENGTH_MAX} characters.")
        if not isinstance(self.slots, int) or isinstance(self.slots, bool) or not 1 <= self.slots <= SLOTS_MAX:
            raise ConfigurationError(f"slots={self.slots!r} must be a whole number from 1 to {SLOTS_MAX}.")
        if self.stable_input not in {None, "stage"}:
            raise ConfigurationError(f'stable_input={self.stable_input!r} must be None or "stage".')
        if not self.timeout_s > 0:
            raise ConfigurationError(f"timeout_s={self.timeout_s!r} must be a number of seconds greater than 0.")

    def ledger(self) -> SqlBatchLedger:
        """Return the sink's ledger, by this process's engine."""
        return SqlBatchLedger(engine_of(self.database), self.sink_id, self.ledger_table, timeout_s=self.timeout_s)


def portable(database: Database) -> str | PickledFunction:
    """Return ``database`` as a value that Spark can send to executors; raises ConfigurationError for what is none."""
    if isinstance(database, Engine):
        raise ConfigurationError(
            "an Engine cannot go to executors: give the URL of the database, or a function that makes the engine."
        )
    if isinstance(database, URL):
        return database.render_as_string(hide_password=False)
    if isinstance(database, str):
        return database
    if not callable(database):
        raise ConfigurationError(
            f"database={database!r} must be the URL of a database, or a function that makes an engine."
        )
    try:
        return PickledFunction(cloudpickle.dumps(database))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigurationError(
            f"the function that makes the engine cannot go to executors: {error}. Create what it needs inside the "
            "function, or in a module that executors can import."
        ) from error


def engine_of(database: str | PickledFunction) -> Engine:
    """Return this process's engine of ``database``, whose connections are kept between batches."""
    return _engine(database, os.getpid())


@functools.cache
def _engine(database: str | PickledFunction, _process: int) -> Engine:
    made = create_engine(database, pool_pre_ping=True) if isinstance(database, str) else database.function()()
    check_engine(made)
    engine: Engine = made
    return engine


@functools.lru_cache(maxsize=_TABLES_MAX)
def table_of(settings: DatabaseSettings, run: int) -> Table:
    """Return the table that the sink writes to, as ``run`` has found it; raises StoreError."""
    del run  # the table may have other columns in another run
    return target_table(engine_of(settings.database), settings.table)


def owner_name() -> str:
    """Return what people read in the ledger's table: which process has claimed a row."""
    return f"{socket.gethostname()}:{os.getpid()}"
