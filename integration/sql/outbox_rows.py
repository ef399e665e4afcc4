"""Numbers, reads and clears the rows of an outbox table, by SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    Engine,
    RowMapping,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    inspect,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from eos_client.core.outbox_numbers import BucketState, NumberedRow, number
from eos_client.integration.sql.database_errors import store_error
from eos_client.integration.sql.database_transactions import in_transaction
from eos_client.integration.sql.outbox_table import buckets_table, milliseconds
from eos_client.outbox_store import OutboxRow, Span
from eos_client.position_store import StoreUnfitError

T = TypeVar("T")

_NUMBER_MAX = 4000
_PASS_ROWS_MIN, _PASS_BYTES = 100, 16_000_000
"""How many rows are numbered and read at once follows from their sizes."""
_CONTENT_COLUMNS = 6
_CLEAR_MAX = 4000
_POSTGRESQL = "postgresql"
_POSTGRESQL_SETTINGS = {
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    **dict.fromkeys(
        ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin"), "off"
    ),
}


class SqlOutboxStore:
    """The rows of ``table`` and of the table of buckets beside it. Fulfils ``OutboxStore``.

    ``group``: the only one that may relay it. ``bucket_count``: refused while it differs from that of rows which are
    not published yet. ``keep``: published rows stay in the table.
    """

    def __init__(self, engine: Engine, table: Table, group: str, bucket_count: int, *, keep: bool) -> None:
        self._engine = engine
        self._table = table
        self._buckets = buckets_table(table)
        self._group = group
        self._bucket_count = bucket_count
        self._keep = keep
        self._has_more = False  # the last pass ended at its limit
        self._pass_rows = _NUMBER_MAX // 4
        self._reader = engine
        if engine.dialect.name == _POSTGRESQL:  # BEGIN and ROLLBACK around one SELECT would be a round trip each
            self._reader = engine.execution_options(isolation_level="AUTOCOMMIT")

    # -- the start -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the table of buckets if it is missing, and set how many there are."""
        try:
            with self._engine.connect() as connection:
                self._require_tables(connection)
        except SQLAlchemyError as error:
            raise store_error(error, "the outbox cannot be used") from error
        self._in_transaction("the buckets of the outbox cannot be set", self._set_buckets)

    def _require_tables(self, connection: Connection) -> None:
        found = self._columns(connection, self._table)
        if found is None:
            raise StoreUnfitError(
                f"the database has no table {self._table.fullname!r}: correct its name, or create it by create_outbox()"
            )
        if missing := sorted(set(self._table.columns.keys()) - found):
            raise StoreUnfitError(
                f"the table {self._table.fullname!r} lacks the columns {', '.join(missing)} of an outbox: name another "
                "one, or add them"
            )
        if self._columns(connection, self._buckets) is None:
            with suppress(SQLAlchemyError):  # another relay may create it at the same moment
                self._buckets.create(connection, checkfirst=True)
                connection.commit()
            connection.rollback()

    @staticmethod
    def _columns(connection: Connection, table: Table) -> set[str] | None:
        inspector = inspect(connection)
        if not inspector.has_table(table.name, schema=table.schema):
            return None
        return {column["name"] for column in inspector.get_columns(table.name, schema=table.schema)}

    def _set_buckets(self, connection: Connection) -> None:
        found = {row["bucket"]: row for row in connection.execute(self._locked()).mappings()}
        for row in found.values():
            self._require_group(row)
        unpublished = [bucket for bucket, row in found.items() if row["published"] < row["next_seq"]]
        differing = [row["bucket_count"] for row in found.values() if row["bucket_count"] != self._bucket_count]
        if differing and unpublished:
            raise StoreUnfitError(
                f"the outbox has {differing[0]} buckets, and rows in {len(unpublished)} of them are not published yet: "
                f"with buckets={self._bucket_count}, rows of a key could overtake others. Stop all relays, run one "
                f"with buckets={differing[0]} and until_end=True, which ends once all are published, and then change it"
            )
        columns = self._buckets.c
        if differing:
            connection.execute(update(self._buckets).values(bucket_count=self._bucket_count))
        if missing := sorted(set(range(self._bucket_count)) - found.keys()):
            state = {"next_seq": 0, "published": 0, "bucket_count": self._bucket_count, "consumer_group": self._group}
            connection.execute(insert(self._buckets), [{columns.bucket.name: each, **state} for each in missing])

    def _require_group(self, row: RowMapping) -> None:
        if row["consumer_group"] != self._group:
            raise StoreUnfitError(
                f"the outbox {self._table.fullname!r} is relayed by the group {row['consumer_group']!r}, and not by "
                f"{self._group!r}: under two groups its rows would be published twice. Give the relay that group"
            )

    # -- numbers -------------------------------------------------------------------------------------------------------

    def states(self, buckets: Collection[int]) -> Mapping[int, BucketState]:
        """Return states; see ``OutboxStore``."""
        wanted = select(self._buckets).where(self._buckets.c.bucket.in_(sorted(buckets)))
        rows = self._reading("the buckets of the outbox cannot be read", wanted)
        found = {row.bucket: BucketState(row.next_seq, row.published) for row in rows}
        return {bucket: found.get(bucket, BucketState()) for bucket in buckets}

    def number(self) -> int:
        """Give numbers; see ``OutboxStore``."""
        columns = self._table.c
        return len(self._numbered([columns.id, columns.record_key], _NUMBER_MAX))

    def number_and_read(self) -> Sequence[OutboxRow]:
        """Give numbers; see ``OutboxStore``. The rows are read before they are numbered: once, with their content."""
        numbered = self._numbered(self._content(), self._pass_rows)
        rows = [_row(row, given.bucket, given.seq) for row, given in numbered]
        if size := sum(len(row.value or b"") for row in rows):
            self._pass_rows = max(_PASS_ROWS_MIN, min(_NUMBER_MAX, _PASS_BYTES * len(rows) // size))
        return rows

    def _numbered(self, wanted: Sequence[Any], limit: int) -> Sequence[tuple[Any, NumberedRow]]:
        """Give numbers and return the columns ``wanted``, which begin with the id and the key, with them.

        Looks first, because the counters of all buckets are locked meanwhile; not where the last pass has left rows.
        """
        columns = self._table.c
        new = select(*wanted).where(columns.seq.is_(None)).order_by(columns.id)
        any_new = new.with_only_columns(columns.id).order_by(None).limit(1)
        if not self._has_more and not self._reading("the outbox cannot be read", any_new):
            return []
        numbered = self._in_transaction(
            "the rows of the outbox cannot be numbered", lambda c: self._number(c, new.limit(limit))
        )
        self._has_more = len(numbered) == limit
        return numbered

    def _number(self, connection: Connection, new: Any) -> Sequence[tuple[Any, NumberedRow]]:
        _set_up(connection)
        buckets = connection.execute(self._locked()).mappings().all()
        for row in buckets:
            self._require_group(row)
            if row["bucket_count"] != self._bucket_count:
                raise StoreUnfitError(
                    f"the outbox has {row['bucket_count']} buckets by now, and this relay was started with "
                    f"{self._bucket_count}: start it again with buckets={row['bucket_count']}"
                )
        # Only now: what another relay has numbered meanwhile is seen.
        rows: Sequence[Any] = connection.execute(new).all()
        before = {row["bucket"]: row["next_seq"] for row in buckets}
        keys = ((row[0], _bytes(row[1])) for row in rows)
        numbered, following = number(keys, before, self._bucket_count)
        if numbered:
            self._write_numbers(connection, numbered)
            self._set(connection, "next_seq", {b: seq for b, seq in following.items() if seq != before[b]})
        return list(zip(rows, numbered, strict=True))

    def _write_numbers(self, connection: Connection, numbered: Sequence[NumberedRow]) -> None:
        columns = self._table.c
        if connection.dialect.name == _POSTGRESQL:  # where one statement takes a fifth of the time
            given = (
                func.unnest(
                    *(_array(name, [each[at] for each in numbered]) for at, name in enumerate(NumberedRow._fields))
                )
                .table_valued(*NumberedRow._fields, name="given")
                .render_derived()
            )
            change = update(self._table).where(columns.id == given.c.row_id)
            connection.execute(change.values(bucket=given.c.bucket, seq=given.c.seq))
            return
        by_id = update(self._table).where(columns.id == bindparam("row_id"))
        connection.execute(
            by_id.values(bucket=bindparam("in_bucket"), seq=bindparam("as_seq")),
            [{"row_id": each.row_id, "in_bucket": each.bucket, "as_seq": each.seq} for each in numbered],
        )

    def _locked(self) -> Any:
        return select(self._buckets).order_by(self._buckets.c.bucket).with_for_update()

    def _set(self, connection: Connection, column: str, values: Mapping[int, int]) -> None:
        bucket = self._buckets.c.bucket
        new = case(*((bucket == each, literal(value, BigInteger())) for each, value in sorted(values.items())))
        connection.execute(update(self._buckets).where(bucket.in_(sorted(values))).values({column: new}))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, spans: Mapping[int, Span]) -> Sequence[OutboxRow]:
        """Read rows; see ``OutboxStore``."""
        columns = self._table.c
        wanted = select(*self._content(), columns.bucket, columns.seq)
        ordered = wanted.where(self._lies_in(spans)).order_by(columns.bucket, columns.seq)
        rows = self._reading("the rows of the outbox cannot be read", ordered)
        return [_row(row, row.bucket, row.seq) for row in rows]

    def _content(self) -> Sequence[Any]:
        columns = self._table.c
        return (
            columns.id,
            columns.record_key,
            columns.topic,
            columns.record_value,
            columns.headers,
            columns.created_at,
        )

    def clear(self, published: Mapping[int, int]) -> Mapping[int, int]:
        """Clear rows; see ``OutboxStore``."""
        return self._in_transaction("published rows cannot be cleared", lambda c: self._clear(c, published))

    def _clear(self, connection: Connection, published: Mapping[int, int]) -> dict[int, int]:
        _set_up(connection)
        wanted = self._locked().where(self._buckets.c.bucket.in_(sorted(published)))
        before = {row["bucket"]: row["published"] for row in connection.execute(wanted).mappings()}
        step = max(published.values()) if self._keep else _CLEAR_MAX
        after = {bucket: max(begin, min(published[bucket], begin + step)) for bucket, begin in before.items()}
        moved = {bucket: end for bucket, end in after.items() if end > before[bucket]}
        if moved:
            if not self._keep:
                connection.execute(delete(self._table).where(self._lies_in({b: (before[b], moved[b]) for b in moved})))
            self._set(connection, "published", moved)
        return {**published, **after}

    def _lies_in(self, spans: Mapping[int, Span]) -> Any:
        columns = self._table.c
        return or_(
            *(
                and_(columns.bucket == bucket, columns.seq >= begin, columns.seq < end)
                for bucket, (begin, end) in sorted(spans.items())
            )
        )

    # -- transactions --------------------------------------------------------------------------------------------------

    def _reading(self, what: str, wanted: Any) -> Sequence[Any]:
        try:
            with self._reader.connect() as connection:
                return connection.execute(wanted).all()
        except SQLAlchemyError as error:
            raise store_error(error, what) from error

    def _in_transaction(self, what: str, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in a transaction of its own; one that a conflict breaks off is done again by the next call."""
        try:
            with in_transaction(self._engine) as connection:
                return work(connection)
        except SQLAlchemyError as error:
            raise store_error(error, what) from error


def _set_up(connection: Connection) -> None:
    """Let no relay that is stopped inside its transaction keep the others waiting for long, and rows be found by index.

    Without statistics, which a table that is filled and emptied rarely has, PostgreSQL sorts all new rows, and scans
    the whole table, for a few of them.
    """
    if connection.dialect.name == _POSTGRESQL:
        connection.execute(
            select(*(func.set_config(name, value, True) for name, value in _POSTGRESQL_SETTINGS.items()))
        )


def _array(name: str, numbers: Iterable[int]) -> Any:
    """Return ``numbers`` as PostgreSQL writes arrays: a text is made ten times as fast as the driver makes an array."""
    return cast(bindparam(name, f"{{{','.join(map(str, numbers))}}}", type_=Text), ARRAY(BigInteger))


def _row(row: Any, bucket: int, seq: int) -> OutboxRow:
    row_id, key, topic, value, headers, created_at = row[:_CONTENT_COLUMNS]
    return OutboxRow(row_id, bucket, seq, topic, _bytes(key), _bytes(value), headers, milliseconds(created_at))


def _bytes(content: Any) -> bytes | None:
    return content if content is None or type(content) is bytes else bytes(content)
