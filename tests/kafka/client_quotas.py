"""Client quotas of a real broker, by requests for which confluent_kafka has no method."""

import socket
import struct

from tests.support.waiting import WAIT_S
from tests.verification import frames


def ask(bootstrap, request):
    """Send a request without a client library; returns what follows the answer's size."""
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), WAIT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(request)
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)


def limit_client(bootstrap, client_id, quota, limit):
    """Set a quota of a client by AlterClientQuotas v0; no `limit` takes it away."""
    entity = frames.string("client-id") + frames.string(client_id)
    value = frames.string(quota) + struct.pack(">d?", limit or 0.0, limit is None)
    one = struct.pack(">i", 1)
    answer = ask(bootstrap, frames.request(49, 0, 1, one + one + entity + one + value + b"\x00", flexible=False))
    (error,) = struct.unpack_from(">h", answer, 12)  # behind the correlation id, the throttling and a count
    assert error == 0
