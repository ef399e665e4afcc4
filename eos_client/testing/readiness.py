"""Asks a broker, in Kafka's own protocol, whether it serves clients yet.

An open port is not enough: a KRaft broker accepts connections before the controller has unfenced it, and
until then topics cannot be created on it. Only a metadata answer that lists the broker itself says so.
"""

from __future__ import annotations

import socket
import struct

_METADATA_KEY = 3
_METADATA_VERSION = 1  # oldest with the controller id; without flexible fields, so it stays readable by hand
_CORRELATION_ID = 7
_RESPONSE_BYTES_MAX = 1 << 20


def serves_clients(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Tell whether the broker at ``host:port`` answers with a controller and a live (unfenced) broker."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_metadata_request())
            size = struct.unpack(">i", _receive(connection, 4))[0]
            if not 0 < size <= _RESPONSE_BYTES_MAX:
                return False
            return _lists_a_broker(_receive(connection, size))
    except (OSError, EOFError, struct.error):
        return False


def _metadata_request() -> bytes:
    client_id = b"eos-client-readiness"
    header = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, _CORRELATION_ID, len(client_id)) + client_id
    no_topics = struct.pack(">i", 0)
    return struct.pack(">i", len(header) + len(no_topics)) + header + no_topics


def _lists_a_broker(response: bytes) -> bool:
    """Read correlation id, brokers (node id, host, port, rack), controller id."""
    correlation_id, broker_count = struct.unpack_from(">ii", response)
    offset = 8
    for _ in range(broker_count):
        offset += 4
        offset += 2 + struct.unpack_from(">h", response, offset)[0]
        offset += 4
        offset += 2 + max(0, struct.unpack_from(">h", response, offset)[0])
    controller_id = struct.unpack_from(">i", response, offset)[0]
    return bool(correlation_id == _CORRELATION_ID and broker_count > 0 and controller_id >= 0)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return received
