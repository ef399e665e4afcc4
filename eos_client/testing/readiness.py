"""Checks, in Kafka's protocol, whether a broker serves clients and groups.

An open port is not enough: a KRaft broker accepts connections before the controller has unfenced it, and
until then topics cannot be created on it. Only a metadata answer that lists the broker itself shows that it is ready.

That is not enough for groups: a new cluster creates its offsets topic at the first request of a group, returns a
coordinator before that one has loaded its log, and until then answers NOT_COORDINATOR, with which a consumer's
``committed()`` raises.
"""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The oldest sufficient versions that all brokers from 4.0 on support, without flexible fields, so that they are easy
# to parse.
_METADATA, _OFFSET_FETCH, _FIND_COORDINATOR = (3, 2), (9, 2), (10, 0)
_CORRELATION_ID = 7
_RESPONSE_BYTES_MAX = 1 << 20
_NO_COORDINATOR_YET = frozenset({14, 15, 16})  # COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR
_NOTHING_READABLE = (OSError, EOFError, struct.error)
# A group's partition of the offsets topic is the hash of its name modulo the number of partitions, and the hash of a
# single character is its code: 50 consecutive characters cover every partition of an offsets topic of default size.
_GROUPS = tuple(map(chr, range(ord("!"), ord("!") + 50)))


def serves_clients(host: str, port: int, cluster_id: str, *, node_id: int = 1, timeout_s: float = 1.0) -> bool:
    """Return whether that broker of that cluster answers at ``host:port``, unfenced and with a controller.

    The cluster id is compared because another broker may have taken the port.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            no_topics = struct.pack(">i", 0)
            return _is_live_member(_answer(connection, _METADATA, no_topics), cluster_id, node_id)
    except _NOTHING_READABLE:
        return False


def serve_groups(brokers: Mapping[int, tuple[str, int]], *, timeout_s: float = 1.0) -> bool:
    """Return whether every group has a coordinator among ``brokers`` that answers OffsetFetch.

    ``brokers``: the addresses of all brokers of the cluster, by node id. The cluster creates its offsets topic.
    """
    try:
        with ExitStack() as open_connections:
            connections = {
                node_id: open_connections.enter_context(socket.create_connection(address, timeout=timeout_s))
                for node_id, address in brokers.items()
            }
            return all(_serves_group(connections, group) for group in _GROUPS)
    except _NOTHING_READABLE:
        return False


def _serves_group(connections: Mapping[int, socket.socket], group: str) -> bool:
    name, anybody = _string(group), next(iter(connections.values()))
    error, node_id = struct.unpack_from(">hi", _answer(anybody, _FIND_COORDINATOR, name))
    if not error:
        all_topics = struct.pack(">i", -1)
        answer = _answer(connections[node_id], _OFFSET_FETCH, name + all_topics)
        error = struct.unpack_from(">h", answer, len(answer) - 2)[0]
    return error not in _NO_COORDINATOR_YET


def _answer(connection: socket.socket, api: tuple[int, int], body: bytes) -> bytes:
    """Send one request and return the body of its answer, after the correlation id."""
    request = struct.pack(">hhi", *api, _CORRELATION_ID) + _string("eos-client-readiness") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    size = struct.unpack(">i", _receive(connection, 4))[0]
    if not 0 < size <= _RESPONSE_BYTES_MAX:
        raise EOFError
    answer = _receive(connection, size)
    if struct.unpack_from(">i", answer)[0] != _CORRELATION_ID:
        raise EOFError
    return answer[4:]


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _is_live_member(answer: bytes, cluster_id: str, node_id: int) -> bool:
    """Parse: brokers (node id, host, port, rack), cluster id, controller id."""
    broker_count = struct.unpack_from(">i", answer)[0]
    offset, live = 4, set[int]()
    for _ in range(broker_count):
        live.add(struct.unpack_from(">i", answer, offset)[0])
        offset = _after_string(answer, offset + 4)
        offset = _after_string(answer, offset + 4)
    after_id = _after_string(answer, offset)
    answering_id = answer[offset + 2 : after_id].decode(errors="replace")
    controller_id = struct.unpack_from(">i", answer, after_id)[0]
    return bool(node_id in live and controller_id >= 0 and answering_id == cluster_id)


def _after_string(answer: bytes, offset: int) -> int:
    """Return the offset after a string with a two-byte length, of which -1 means null."""
    length = struct.unpack_from(">h", answer, offset)[0]
    return offset + 2 + max(0, int(length))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return received
