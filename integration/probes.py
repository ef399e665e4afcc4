"""Answers the probes of a supervisor such as Kubernetes over HTTP, from a thread of its own."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import attrgetter
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from eos_client.core.loop_health import LoopHealth
from eos_client.errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ProbeServer"]

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # a kubelet asks from outside
_CLIENT_LIMIT_S = 5.0
_VERDICTS = {"/livez": attrgetter("live"), "/readyz": attrgetter("ready")}


def cannot_listen(endpoint: str, host: str, port: int, error: Exception) -> ConfigurationError:
    """Return the error of an ``endpoint`` whose address nobody can listen on."""
    return ConfigurationError(
        f"the {endpoint} endpoint cannot listen on host {host!r}, port {port}: {error}. Choose another port, or a host "
        "that this machine has."
    )


def ignore_lost_clients(server: BaseServer) -> None:
    """Let ``server`` print nothing about a client that has gone before its answer, as a probe does that gives up."""
    print_error = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            print_error(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


class ProbeServer:
    """Serves ``/livez`` and ``/readyz`` while it is entered: status 200 or 503, and the whole health as JSON.

    ``health`` is the loop's method of that name; it is called in the server's threads. ``port`` 0 takes a free one;
    ``address`` has the one taken. Raises ConfigurationError when it cannot listen there, or is entered once more.
    """

    def __init__(self, health: Callable[[], LoopHealth], port: int, host: str = EVERY_ADDRESS) -> None:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            server_class = type("_Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
            self._server: ThreadingHTTPServer = server_class((host, port), _answering(health))
        except (OSError, OverflowError) as error:
            raise cannot_listen("health", host, port, error) from error
        ignore_lost_clients(self._server)
        self._thread = threading.Thread(target=self._server.serve_forever, name="eos-probes", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that it listens on."""
        host, port, *_ = self._server.server_address
        return str(host), int(port)

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise ConfigurationError("this ProbeServer was entered before and serves once: make another one.")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _answering(health: Callable[[], LoopHealth]) -> type[BaseHTTPRequestHandler]:
    class ProbeRequest(BaseHTTPRequestHandler):
        timeout = _CLIENT_LIMIT_S

        def do_GET(self) -> None:
            is_good = _VERDICTS.get(self.path.partition("?")[0])
            if is_good is None:
                self._answer(HTTPStatus.NOT_FOUND, {"paths": list(_VERDICTS)})
                return
            found = health()
            self._answer(HTTPStatus.OK if is_good(found) else HTTPStatus.SERVICE_UNAVAILABLE, asdict(found))

        def _answer(self, status: HTTPStatus, fields: dict[str, object]) -> None:
            body = json.dumps(fields).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in the class above
            """Log nothing: a probe comes every few seconds."""

    return ProbeRequest
