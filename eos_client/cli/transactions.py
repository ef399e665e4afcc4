"""``eos-client txn list`` and ``eos-client txn abort``: open transactions, and the end of those that hang (KIP-664)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eos_client.cli.failures import CommandLineError, extra_needed
from eos_client.cli.printable import escaped, printable, shell_word
from eos_client.cli.settings import ClusterAccess
from eos_client.clients import EosProducer
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL, for_producer
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.core.hanging_transactions import KnownTransaction, OpenTransaction, TransactionStatus, status_of
from eos_client.core.internal_logs import whole_number
from eos_client.core.transaction_timeout import BROKERS_LIMIT, DEFAULT_LIMIT_MS
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError

if TYPE_CHECKING:
    from eos_client.kafka_python.transactions_admin import TransactionsAdmin

_SECONDS_OF_UNIT = (("days", 86_400), ("h", 3_600), ("min", 60))
_STATE_BY_STATUS = {"HANGING": "Hanging", "HIDDEN": "Hidden", "RECENT": "Unlisted"}


@dataclass(frozen=True, slots=True)
class Survey:
    """What coordinators know and what partitions hold; ``unread`` says of which topics that is not known, and why."""

    known: tuple[KnownTransaction, ...]
    found: tuple[tuple[OpenTransaction, TransactionStatus], ...]
    unread: Mapping[str, str]
    now_ms: int


def transactions_admin(access: ClusterAccess) -> TransactionsAdmin:
    """Connect for requests about transactions.

    :raises ExtraMissingError: kafka-python is not installed.
    """
    with extra_needed("ops", "kafka", "requests about transactions need kafka-python 3"):
        from eos_client.kafka_python.transactions_admin import (  # noqa: PLC0415  the extra may be missing
            TransactionsAdmin,
        )
    return TransactionsAdmin(access.bootstrap_servers, access.settings)


def survey(admin: ClusterAdmin, transactions: TransactionsAdmin, topics: Sequence[str]) -> Survey:
    """Look at the transactions that are open on ``topics``, or on every topic where none is named.

    :raises ClusterUnfitError: a named topic does not exist, or the cluster refuses to list transactions.
    """
    counts = _partition_counts(admin, topics)
    limit_ms = whole_number(admin.broker_settings(min(admin.cluster().brokers)), BROKERS_LIMIT) or DEFAULT_LIMIT_MS
    found, unread = transactions.open_on(counts)
    known = transactions.known()
    listed = {(each.producer_id, partition) for each in known for partition in each.partitions}
    unlisted = {each.topic for each in found if (each.producer_id, (each.topic, each.partition)) not in listed}
    # Look a second time: a transaction that ended between the two requests is neither open nor unlisted.
    still_open = set(map(_identity, transactions.open_on({t: counts[t] for t in unlisted})[0] if unlisted else ()))
    sees_all_ids = not unlisted or transactions.sees_all_ids()
    now_ms = round(time.time() * 1000)
    classified = (
        (each, status_of(each, known, now_ms=now_ms, limit_ms=limit_ms, sees_all_ids=sees_all_ids))
        for each in found
        if each.topic not in unlisted or _identity(each) in still_open
    )
    return Survey(tuple(known), tuple(classified), unread, now_ms)


def _identity(transaction: OpenTransaction) -> tuple[str, int, int, int]:
    return transaction.topic, transaction.partition, transaction.producer_id, transaction.start_offset


def _partition_counts(admin: ClusterAdmin, topics: Sequence[str]) -> dict[str, int]:
    if not topics:
        return admin.partition_counts()
    described = admin.topics(topics)
    missing = [name for name, topic in described.items() if topic is None]
    if missing:
        raise ClusterUnfitError(f"there is no topic {', '.join(map(repr, missing))}: correct the name")
    return {name: topic.partition_count for name, topic in described.items() if topic is not None}


def list_transactions(
    access: ClusterAccess, topics: Sequence[str] = (), *, every: bool = False, as_json: bool = False
) -> None:
    """Print the open transactions, or those on ``topics``; say on stderr which topics could not be looked at.

    :param every: print the transactional ids without an open transaction, too.
    :raises ClusterUnfitError: a named topic does not exist, or the cluster refuses to list transactions.
    """
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        admin.cluster()  # says why a cluster cannot be reached, or does not take the credentials
        with transactions_admin(access) as transactions:
            seen = survey(admin, transactions, topics)
    rows = transaction_rows(seen, topics, every=every)
    for row in rows:
        print(json.dumps(row) if as_json else transaction_text(row))
    if not rows and not as_json:
        print("no open transaction")
    for topic, reason in seen.unread.items():
        print(f"eos-client: {printable(f'{topic} was not looked at: {reason}')}", file=sys.stderr)


def transaction_rows(seen: Survey, topics: Sequence[str] = (), *, every: bool = False) -> list[dict[str, Any]]:
    """Return what is said of each open transaction, or of those on ``topics``, as fields.

    :param every: also of the transactional ids without an open transaction.
    """
    return [*_known_rows(seen, topics, every=every), *_unlisted_rows(seen)]


def _known_rows(seen: Survey, topics: Sequence[str], *, every: bool) -> Iterator[dict[str, Any]]:
    starts = {(each.producer_id, each.topic, each.partition): each.start_offset for each, _ in seen.found}
    for each in sorted(seen.known, key=lambda known: known.transactional_id):
        is_here = not topics or any(topic in topics for topic, _ in each.partitions)
        if is_here and (each.is_open or every):
            places = [(*place, starts.get((each.producer_id, *place))) for place in sorted(each.partitions)]
            age_s = None if each.started_ms is None else (seen.now_ms - each.started_ms) // 1000
            timeout_s = None if each.timeout_ms is None else each.timeout_ms // 1000
            yield _row(each, each, each.state, (age_s, timeout_s), places, hanging=False)


def _unlisted_rows(seen: Survey) -> Iterator[dict[str, Any]]:
    owners = {each.producer_id: each for each in seen.known}
    for each, status in seen.found:
        if status is not TransactionStatus.ONGOING:
            age_s = (seen.now_ms - each.last_timestamp_ms) // 1000
            places = [(each.topic, each.partition, each.start_offset)]
            hanging = None if status is TransactionStatus.HIDDEN else status is TransactionStatus.HANGING
            owner = owners.get(each.producer_id)
            yield _row(owner, each, _STATE_BY_STATUS[status.name], (age_s, None), places, hanging=hanging)


def _row(
    owner: KnownTransaction | None,
    seen: KnownTransaction | OpenTransaction,
    state: str,
    seconds: tuple[int | None, int | None],
    places: Sequence[tuple[str, int, int | None]],
    *,
    hanging: bool | None,
) -> dict[str, Any]:
    return {
        "transactional_id": owner and owner.transactional_id,
        "coordinator": owner and owner.coordinator_id,
        "producer_id": seen.producer_id,
        "producer_epoch": seen.producer_epoch,
        "state": state,
        "age_s": seconds[0],
        "timeout_s": seconds[1],
        "partitions": [dict(zip(("topic", "partition", "start_offset"), place, strict=True)) for place in places],
        "hanging": hanging,
    }


def transaction_text(row: Mapping[str, Any]) -> str:
    """Return a row of `transaction_rows` for a person, with a second line where something is to be done."""
    places = " ".join(map(_place, row["partitions"]))
    age = "" if row["age_s"] is None else f"  {_age(row)}"
    producer = f"producer {row['producer_id']}"
    epoch = "" if row["producer_epoch"] is None else f" epoch {row['producer_epoch']}"
    coordinator = "" if row["coordinator"] is None else f"  coordinator {row['coordinator']}"
    name = escaped(row["transactional_id"] or "(no transactional id)")
    line = f"{row['state']:<14} {name}{age}  {producer}{epoch}{coordinator}  {places}".rstrip()
    if row["hanging"]:
        return f"{line}\n      -> nobody will end it: {abort_command(**row['partitions'][0])}"
    if row["hanging"] is None:
        return (
            f"{line}\n      -> it may be of an id that this user may not see: list as one with Describe on all of them"
        )
    return line


def _age(row: Mapping[str, Any]) -> str:
    if row["state"] in _STATE_BY_STATUS.values():
        return f"last record {shown_age(row['age_s'])} old"
    within = "" if row["timeout_s"] is None else f" of at most {shown_age(row['timeout_s'])}"
    return f"open for {shown_age(row['age_s'])}{within}"


def _place(place: Mapping[str, Any]) -> str:
    start = "" if place["start_offset"] is None else f"@{place['start_offset']}"
    return f"{escaped(place['topic'])}[{place['partition']}]{start}"


def abort_command(topic: str, partition: int, start_offset: int) -> str:
    """Return the command that ends the transaction that begins there."""
    return f"eos-client txn abort --topic {shell_word(topic)} --partition {partition} --start-offset {start_offset}"


def shown_age(seconds: int) -> str:
    """Return a duration for people, in its largest unit of which it has two or more."""
    for unit, length_s in _SECONDS_OF_UNIT:
        if seconds >= 2 * length_s:
            return f"{seconds // length_s} {unit}"
    return f"{seconds} s"


def end_transaction(
    access: ClusterAccess,
    place: tuple[str | None, int | None, int | None],
    transactional_id: str | None,
    *,
    force: bool,
) -> None:
    """End one transaction: at a ``place`` (topic, partition, start offset), or of a transactional id.

    :raises CommandLineError: neither or both are given, or `abort_on_partition` or `abort_transactional_id` refuses.
    """
    match place, transactional_id:
        case (None, None, None), str(name):
            abort_transactional_id(access, name, force=force)
        case (str(topic), int(partition), int(start_offset)), None:
            abort_on_partition(access, topic, partition, start_offset, force=force)
        case _:
            raise CommandLineError("give --topic, --partition and --start-offset, or --transactional-id alone")


def abort_on_partition(access: ClusterAccess, topic: str, partition: int, start_offset: int, *, force: bool) -> None:
    """End the transaction that begins at ``start_offset`` of a partition, on that partition only.

    :param force: also where it does not hang.
    :raises CommandLineError: no open transaction begins there, or it does not hang.
    :raises ClusterUnfitError: the cluster refuses, or the transaction is still open afterwards.
    :raises ClusterUnavailableError: the order was not answered, and the transaction is still open or cannot be seen.
    """
    place = f"{topic}[{partition}]"
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin, transactions_admin(access) as transactions:
        seen = survey(admin, transactions, [topic])
        here = [(each, status) for each, status in seen.found if each.partition == partition]
        chosen = [(each, status) for each, status in here if each.start_offset == start_offset]
        if topic in seen.unread:
            raise ClusterUnfitError(f"{topic} could not be looked at: {seen.unread[topic]}")
        if not chosen:
            begins = ", ".join(str(each.start_offset) for each, _ in here) or "none"
            raise CommandLineError(
                f"no open transaction begins at {place}@{start_offset}; those that are open there begin at: {begins}"
            )
        ((transaction, status),) = chosen
        if status is not TransactionStatus.HANGING and not force:
            raise CommandLineError(_not_hanging(seen, transaction, status))
        try:
            transactions.abort_on_partition(transaction)
        except ClusterUnavailableError as error:
            raise ClusterUnavailableError(f"{error}; eos-client txn list shows whether it has ended") from error
        open_now, _ = transactions.open_on({topic: partition + 1})
        if any(_identity(each) == _identity(transaction) for each in open_now):
            raise ClusterUnfitError(
                f"the transaction at {place}@{start_offset} is still open although its leader has taken the marker: "
                "look again with eos-client txn list"
            )
    print(f"aborted {place}@{start_offset} of producer {transaction.producer_id} epoch {transaction.producer_epoch}")


def _not_hanging(seen: Survey, transaction: OpenTransaction, status: TransactionStatus) -> str:
    what = f"{transaction.topic}[{transaction.partition}]@{transaction.start_offset} is not known to hang"
    forced = "--force ends it on this partition all the same, whatever becomes of it on others"
    if status is not TransactionStatus.ONGOING:
        return f"{what}: {status.value}. {forced}"
    (name,) = [each.transactional_id for each in seen.known if each.producer_id == transaction.producer_id]
    return (
        f"{what}: it is of transactional id {name!r}, whose coordinator will end it. Ask that one to do so now with "
        f"eos-client txn abort --transactional-id {shell_word(name)}. {forced}"
    )


def abort_transactional_id(access: ClusterAccess, transactional_id: str, *, force: bool) -> None:
    """End the open transaction of a transactional id by fencing its producer (InitProducerId).

    :param force: also where its coordinator will end it by itself, because its time-out is not over.
    :raises CommandLineError: there is no open transaction of that id, or its time-out is not over.
    :raises EosError: the cluster refuses, or does not answer.
    """
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        admin.cluster()
    with transactions_admin(access) as transactions:
        known = transactions.describe(transactional_id)
        if known is None or not known.is_open:
            state = "no coordinator knows it" if known is None else f"its state is {known.state}"
            raise CommandLineError(f"transactional id {transactional_id!r} has no open transaction: {state}")
        left_s = _left_s(known)
        if left_s > 0 and not force:
            raise CommandLineError(
                f"the transaction of {transactional_id!r} does not hang: if its process is gone, its coordinator ends "
                f"it within {shown_age(left_s)}. --force ends it now; a process that is alive is fenced by that"
            )
        _fence(access, known)
        after = transactions.describe(transactional_id)
    fenced = known.producer_id, known.producer_epoch
    if after is not None and after.is_open and (after.producer_id, after.producer_epoch) == fenced:
        raise ClusterUnfitError(f"the transaction of {transactional_id!r} is still open: its state is {after.state}")
    places = " ".join(f"{escaped(topic)}[{partition}]" for topic, partition in sorted(known.partitions))
    producer = f"producer {known.producer_id} epoch {known.producer_epoch}"
    print(f"aborted {escaped(transactional_id)}, {producer}: {places}".rstrip(": "))


def _left_s(known: KnownTransaction) -> int:
    if known.started_ms is None or known.timeout_ms is None:
        return 0
    return round((known.started_ms + known.timeout_ms) / 1000 - time.time())


def _fence(access: ClusterAccess, known: KnownTransaction) -> None:
    names = {"bootstrap.servers": access.bootstrap_servers, "transactional.id": known.transactional_id}
    with EosProducer({"log_level": LOG_LEVEL_CRITICAL, **for_producer(access.settings), **names}) as producer:
        producer.init_transactions()
