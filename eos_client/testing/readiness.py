"""Asks a broker, in Kafka's own protocol, whether it serves clients yet.

An open port is not enough: a KRaft broker accepts connections before the controller has unfenced it, and
until then topics cannot be created on it. Only a metadata answer that lists the broker itself says so.
"""

from __future__ import annotations

import socket
import struct

_METADATA_KEY = 3
_METADATA_VERSION = 2  # oldest with the cluster id; without flexible fields, so it stays readable by hand
_CORRELATION_ID = 7
_RESPONSE_BYTES_MAX = 1 << 20


def serves_clients(host: str, port: int, cluster_id: str, *, node_id: int = 1, timeout_s: float = 1.0) -> bool:
    """Tell whether that broker of that cluster, live (unfenced) and with a controller, answers at ``host:port``.

    The cluster id is asked for because the port may have been taken by somebody else's broker.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_metadata_request())
            size = struct.unpack(">i", _receive(connection, 4))[0]
            if not 0 < size <= _RESPONSE_BYTES_MAX:
                return False
            return _is_live_member(_receive(connection, size), cluster_id, node_id)
    except (OSError, EOFError, struct.error):
        return False


def _metadata_request() -> bytes:
    client_id = b"eos-client-readiness"
    header = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, _CORRELATION_ID, len(client_id)) + client_id
    no_topics = struct.pack(">i", 0)
    return struct.pack(">i", len(header) + len(no_topics)) + header + no_topics


def _is_live_member(response: bytes, cluster_id: str, node_id: int) -> bool:
    """Read: correlation id, brokers (node id, host, port, rack), cluster id, controller id."""
    correlation_id, broker_count = struct.unpack_from(">ii", response)
    offset, live = 8, set[int]()
    for _ in range(broker_count):
        live.add(struct.unpack_from(">i", response, offset)[0])
        offset = _after_string(response, offset + 4)
        offset = _after_string(response, offset + 4)
    after_id = _after_string(response, offset)
    answering_id = response[offset + 2 : after_id].decode(errors="replace")
    controller_id = struct.unpack_from(">i", response, after_id)[0]
    return bool(
        correlation_id == _CORRELATION_ID and node_id in live and controller_id >= 0 and answering_id == cluster_id
    )


def _after_string(response: bytes, offset: int) -> int:
    """Return the offset behind a string with a two-byte length, of which -1 means null."""
    length = struct.unpack_from(">h", response, offset)[0]
    return offset + 2 + max(0, int(length))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return received
