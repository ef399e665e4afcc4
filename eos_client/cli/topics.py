"""``eos-client topic`` and ``eos-client tail``: topics for a first program, and what came out of it."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from eos_client.cli.failures import registry_extra_needed
from eos_client.cli.logs import log_throttling
from eos_client.cli.printable import did_you_mean, escaped, printable, shell_word
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.tail_start import TailStart, start_of_last, within
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import read_topic, tail_topic
from eos_client.confluent.record_headers import readable_headers
from eos_client.core.internal_logs import INTERNAL_LOGS
from eos_client.core.model import TopicDescription
from eos_client.errors import ClusterUnfitError

_REGISTRY_LOGIN = "EOS_CLIENT_SCHEMA_REGISTRY_USER_INFO"


def create_topics(access: ClusterAccess, names: Sequence[str], partitions: int) -> None:
    """Create topics with the cluster's replication, and name on stdout each that was created.

    :raises ClusterUnfitError: some exist already, or the cluster refuses them; the others were created.
    """
    refusals: list[ClusterUnfitError] = []
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        for name in names:
            try:
                admin.create_topics({name: partitions})
                print(name, flush=True)
            except ClusterUnfitError as error:  # noqa: PERF203  each is a request to the cluster
                refusals.append(error)
    if refusals:
        raise ClusterUnfitError(". ".join(map(str, refusals))) from refusals[0]


def list_topics(access: ClusterAccess, *, internal: bool, as_json: bool) -> None:
    """Print each topic with the number of its partitions; ``internal``: Kafka's own, too."""
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        counts = admin.partition_counts()
    for name, count in sorted(counts.items()):
        if internal or name not in INTERNAL_LOGS:
            print(json.dumps({"topic": name, "partitions": count}) if as_json else f"{printable(name)}\t{count}")


@dataclass(frozen=True, kw_only=True)
class TailOptions:
    """What ``eos-client tail`` reads. ``partition``: that one alone; ``count``: it stops after so many records."""

    topic: str
    start: TailStart
    partition: int | None = None
    count: int | None = None
    follow: bool = True
    committed_only: bool = True
    registry_url: str | None = None


def tail(access: ClusterAccess, options: TailOptions, *, as_json: bool) -> None:
    """Print a line for each record until ``count`` records, the end of the topic, or Ctrl-C.

    :raises ClusterUnfitError: there is no such topic or partition, or it may not be read.
    """
    topic = options.topic
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        described = admin.topics([topic])[topic]
        if described is None:
            raise ClusterUnfitError(f"there is no topic {topic!r}{_way_out(admin, topic, access)}")
        partitions = _partitions(described, options.partition)
        starts = _starts(admin, access, options, partitions, described.partition_count)
    decode = _decoder(options.registry_url, topic)
    line_of = _json_line if as_json else _text_line
    config = {**access.settings, "throttle_cb": log_throttling}
    records = tail_topic(
        access.bootstrap_servers,
        topic,
        partitions,
        config,
        committed_only=options.committed_only,
        from_start=not options.start.only_new,
        start_offsets=starts,
        follow=options.follow,
    )
    with closing(records):
        try:
            for record in islice(records, options.count):
                print(line_of(record, decode), flush=True)
        except BrokenPipeError:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at exit


def _way_out(admin: ClusterAdmin, topic: str, access: ClusterAccess) -> str:
    create = f"eos-client topic create {shell_word(topic)} --bootstrap {shell_word(access.bootstrap_servers)}"
    meant = did_you_mean(topic, admin.partition_counts())
    return f"{meant} If not: {create}" if meant else f": {create}"


def _partitions(described: TopicDescription, partition: int | None) -> list[int]:
    if partition is None:
        return list(range(described.partition_count))
    if partition >= described.partition_count:
        raise ClusterUnfitError(
            f"topic {described.name!r} has no partition {partition}: the last of its {described.partition_count} is "
            f"{described.partition_count - 1}"
        )
    return [partition]


def _starts(
    admin: ClusterAdmin, access: ClusterAccess, options: TailOptions, partitions: Sequence[int], partition_count: int
) -> dict[int, int]:
    """Return the offset at which each partition begins, where it is neither the oldest record nor the next one."""
    start, topic = options.start, options.topic
    if start.offset is None and start.since_ms is None and start.last is None:
        return {}
    begins = admin.start_offsets(topic, partition_count)
    ends = admin.end_offsets(topic, partition_count, committed_only=options.committed_only)
    if start.offset is not None:
        return within(dict.fromkeys(partitions, start.offset), begins, ends)
    if start.since_ms is not None:
        since = admin.offsets_since(topic, partition_count, start.since_ms)
        return within({each: ends[each] if (at := since[each]) is None else at for each in partitions}, begins, ends)

    def offsets_of(partition: int) -> Callable[[int, int], Iterable[int]]:
        return lambda begin, end: (
            record.offset
            for record in read_topic(
                access.bootstrap_servers,
                topic,
                {partition: end},
                access.settings,
                committed_only=options.committed_only,
                start_offsets={partition: begin},
            )
        )

    count = start.last or 0
    return {each: start_of_last(count, begins[each], ends[each], offsets_of(each)) for each in partitions}


def _decoder(registry_url: str | None, topic: str) -> Callable[[bytes], Any]:
    """Return what makes a key or value out of bytes: as they are, or by the schema that they name."""
    if registry_url is None:
        return lambda content: content
    with registry_extra_needed():
        from eos_client.confluent.admin.registry_decoder import RegistryDecoder  # noqa: PLC0415  it may be missing
    login = os.environ.get(_REGISTRY_LOGIN)
    settings = {"url": registry_url, **({"basic.auth.user.info": login} if login else {})}
    decoder = RegistryDecoder(settings)
    return lambda content: decoder.decoded(content, topic)


def _text_line(record: Any, decode: Callable[[bytes], Any]) -> str:
    headers = " ".join(f"{escaped(name)}={_text(value)}" for name, value in readable_headers(record) or ())
    fields = [
        f"{record.partition()}@{record.offset()}",
        _decoded_text(record.key(), decode),
        _decoded_text(record.value(), decode),
    ]
    return "\t".join([*fields, headers] if headers else fields)


def _json_line(record: Any, decode: Callable[[bytes], Any]) -> str:
    return json.dumps(
        {
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp_ms": record.timestamp()[1],
            "key": _decoded_json(record.key(), decode),
            "value": _decoded_json(record.value(), decode),
            "headers": [[name, _json_text(value)] for name, value in readable_headers(record) or ()],
        },
        default=_json_value,
    )


def _decoded_text(content: bytes | None, decode: Callable[[bytes], Any]) -> str:
    made = None if content is None else decode(content)
    return _text(made) if made is None or isinstance(made, bytes) else printable(json.dumps(made, default=_json_value))


def _decoded_json(content: bytes | None, decode: Callable[[bytes], Any]) -> Any:
    made = None if content is None else decode(content)
    return _json_text(made) if isinstance(made, bytes) else made


def _json_value(value: object) -> Any:
    """Return what JSON has for a value of Avro that it does not know: bytes, a time, a decimal."""
    return _json_text(value) if isinstance(value, bytes) else str(value)


def _text(content: bytes | None) -> str:
    return "\\N" if content is None else escaped(content)


def _json_text(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
