"""The outbox: the table that an application writes messages into, and the relay's table of buckets beside it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    func,
    insert,
)

from eos_client.errors import ConfigurationError
from eos_client.integration.sql.header_texts import encode_headers
from eos_client.integration.sql.offsets_table import BYTES, NAME, NAME_LENGTH_MAX, TEXT
from eos_client.integration.sql.table_checks import name_and_schema
from eos_client.ports import OutputRecord

_PARTIAL: Any = ("postgresql", "sqlite")
"""Databases that can index the rows without a number alone."""
_WHOLE: Any = ("mysql", "mariadb")


def outbox_table(name: str, metadata: MetaData) -> Table:
    """Describe an outbox table. The application inserts rows and does nothing else; `write_outbox` does that for it.

    ``topic`` None means the relay's default topic. ``headers`` is JSON: a list of [name, value], or an object; a value
    is a text, null, or ``{"base64": ...}``. ``bucket`` and ``seq`` are the relay's: it numbers a row with them once the
    row is committed. The ids must rise from one transaction to the next: a sequence must not be cached by sessions.
    """
    seq = Column("seq", BigInteger, nullable=True)
    row_id = Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    return Table(
        name,
        metadata,
        row_id,
        Column("topic", NAME, nullable=True),
        Column("record_key", BYTES, nullable=True),
        Column("record_value", BYTES, nullable=True),
        Column("headers", TEXT, nullable=True),
        Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        Column("bucket", Integer, nullable=True),
        seq,
        UniqueConstraint("bucket", "seq", name=f"{name}_numbers"),
        # Rows without a number, in the order of their ids.
        Index(f"{name}_new", row_id, postgresql_where=seq.is_(None), sqlite_where=seq.is_(None)).ddl_if(
            dialect=_PARTIAL
        ),
        Index(f"{name}_new_by_seq", seq, row_id).ddl_if(dialect=_WHOLE),
    )


def named_outbox(option: str, name: object) -> Table:
    """Describe the outbox table ``name``, which may have a schema; raises ConfigurationError, naming ``option``."""
    table_name, schema = name_and_schema(option, name)
    return outbox_table(table_name, MetaData(schema=schema))


def buckets_table(outbox: Table) -> Table:
    """Describe the relay's table beside ``outbox``: the next number of each bucket, and what is published of it."""
    return Table(
        f"{outbox.name}_buckets",
        MetaData(),  # its own: it is no table of the application, and several relays may describe it
        Column("bucket", Integer, primary_key=True, autoincrement=False),
        Column("next_seq", BigInteger, nullable=False),
        Column("published", BigInteger, nullable=False),
        Column("bucket_count", Integer, nullable=False),
        Column("consumer_group", String(NAME_LENGTH_MAX), nullable=False),
        schema=outbox.schema,
    )


def create_outbox(engine: Engine, table: Table) -> None:
    """Create ``table``, an outbox table, if it is missing."""
    table.create(engine, checkfirst=True)


def write_outbox(connection: Connection, table: Table, records: Iterable[OutputRecord]) -> None:
    """Insert ``records`` into the outbox ``table``, in the transaction of ``connection``.

    Keys and values are ``str``, ``bytes``, buffers or None: objects are serialised before. Raises TypeError for others,
    and ConfigurationError for a record with a partition or a timestamp, for which an outbox has no column.
    """
    if rows := [_values(record) for record in records]:
        connection.execute(insert(table), rows)


def _values(record: OutputRecord) -> dict[str, Any]:
    if record.partition is not None or record.timestamp_ms is not None:
        raise ConfigurationError(
            f"an outbox keeps neither the partition nor the timestamp of an output: leave them out of {record!r}."
        )
    return {
        "topic": record.topic,
        "record_key": _bytes(record.key),
        "record_value": _bytes(record.value),
        "headers": encode_headers(record.headers),
    }


def _bytes(content: Any) -> bytes | None:
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode()
    try:
        return bytes(memoryview(content))
    except TypeError as error:
        raise TypeError(f"{content!r} is neither text nor bytes: serialise it before it is written") from error


def milliseconds(moment: datetime) -> int:
    """Return ``moment`` in milliseconds since the epoch; databases without time zones keep UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return int(aware.timestamp() * 1000)
