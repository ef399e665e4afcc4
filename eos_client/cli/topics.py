"""``eos-client topic create`` and ``eos-client tail``: topics for a first program, and what came out of it."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from eos_client.cli.logs import log_throttling
from eos_client.cli.printable import escaped, shell_word
from eos_client.cli.settings import ClusterAccess
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import tail_topic
from eos_client.errors import ClusterUnfitError


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


def tail(
    access: ClusterAccess,
    topic: str,
    *,
    count: int | None,
    as_json: bool,
    **reading: bool,
) -> None:
    """Print a line for each record until ``count`` records, the end of the topic, or Ctrl-C.

    :param reading: ``committed_only``, ``from_start`` and ``follow``, as `tail_topic` takes them.
    :raises ClusterUnfitError: there is no such topic, or it may not be read.
    """
    with ClusterAdmin(access.bootstrap_servers, access.settings) as admin:
        described = admin.topics([topic])[topic]
    if described is None:
        raise ClusterUnfitError(
            f"there is no topic {topic!r}: eos-client topic create {shell_word(topic)} "
            f"--bootstrap {shell_word(access.bootstrap_servers)}"
        )
    line_of = _json_line if as_json else _text_line
    config = {**access.settings, "throttle_cb": log_throttling}
    with closing(tail_topic(access.bootstrap_servers, topic, described.partition_count, config, **reading)) as records:
        try:
            for record in islice(records, count):
                print(line_of(record), flush=True)
        except BrokenPipeError:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at exit


def _text_line(record: Any) -> str:
    headers = " ".join(f"{escaped(name)}={_text(value)}" for name, value in record.headers() or ())
    fields = [f"{record.partition()}@{record.offset()}", _text(record.key()), _text(record.value())]
    return "\t".join([*fields, headers] if headers else fields)


def _json_line(record: Any) -> str:
    return json.dumps(
        {
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp_ms": record.timestamp()[1],
            "key": _json_text(record.key()),
            "value": _json_text(record.value()),
            "headers": [[name, _json_text(value)] for name, value in record.headers() or ()],
        }
    )


def _text(content: bytes | None) -> str:
    return "\\N" if content is None else escaped(content)


def _json_text(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
