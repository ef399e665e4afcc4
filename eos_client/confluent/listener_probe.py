"""Asks a port which security protocol it speaks, where a client could not connect.

librdkafka reports a plaintext client on a port of SASL or TLS as "brokers are down", and SASL on a plaintext port as
refused credentials.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import closing, suppress
from typing import NamedTuple

_PROBE_S = 2.0
_ILLEGAL_SASL_STATE, _UNSUPPORTED_SASL_MECHANISM = 34, 33
_PROTOCOL = "security.protocol"
# SaslHandshake (17) version 1, for a mechanism that no broker has: one with SASL lists its own, one without says so.
_REQUEST = struct.pack(">hhihh", 17, 1, 1, -1, 4) + b"NONE"
_ANSWER = struct.Struct(">iih")
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")


class _Listener(NamedTuple):
    """``asks_sasl``: None where the port hung up before it said so, as TLS does without a client's certificate."""

    has_tls: bool
    asks_sasl: bool | None


def how_to_speak(bootstrap_servers: object, protocol: object) -> str:
    """Return which setting to change so that a client of ``protocol`` speaks what its first bootstrap server does.

    Empty where both speak the same, and where the port does not say what it speaks. Takes a few seconds at most.
    """
    address = str(bootstrap_servers).split(",")[0].strip().rpartition("://")[2]
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return ""
    found = _ask(host.strip("[]"), int(port))
    ours = str(protocol).upper()
    theirs = ("SASL_" if found.asks_sasl else "") + ("SSL" if found.has_tls else "PLAINTEXT")
    is_certain = found.asks_sasl is not None or (found.has_tls and not ours.endswith("SSL"))
    if theirs == ours or not is_certain:
        return ""
    return f"{address} speaks {theirs}, and this client {ours}: set {_PROTOCOL}={theirs}, or correct the port"


def _ask(host: str, port: int) -> _Listener:
    has_tls, asks_sasl = False, None
    with suppress(OSError):
        has_tls = _has_tls(host, port)
        asks_sasl = _asks_sasl(host, port, has_tls=has_tls)
    return _Listener(has_tls, asks_sasl)


def _has_tls(host: str, port: int) -> bool:
    try:
        _connected(host, port, has_tls=True).close()
    except ssl.SSLError as error:
        return error.reason not in _NO_TLS and not isinstance(error, ssl.SSLEOFError)
    except ConnectionError:  # a port without TLS hangs up; the next question shows whether anybody is there
        return False
    return True


def _asks_sasl(host: str, port: int, *, has_tls: bool) -> bool | None:
    with closing(_connected(host, port, has_tls=has_tls)) as connection:
        connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        answer = b""
        while len(answer) < _ANSWER.size:
            if not (part := connection.recv(_ANSWER.size - len(answer))):
                return None
            answer += part
    code = _ANSWER.unpack(answer)[2]
    return {_UNSUPPORTED_SASL_MECHANISM: True, _ILLEGAL_SASL_STATE: False}.get(code)


def _connected(host: str, port: int, *, has_tls: bool) -> socket.socket:
    connection = socket.create_connection((host, port), _PROBE_S)
    if not has_tls:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no secret is sent, so nobody needs to prove who they are
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
