"""A TCP proxy in front of PostgreSQL that cuts connections at their COMMIT, before or after the server has got it."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_CHUNK_BYTES = 65_536
_COMMIT = b"COMMIT"


class CommitCutter:
    """Passes connections on to ``target_port``, which may change; `cut_next` lets so many commits lose their answer."""

    def __init__(self, target_port: int, seed: int) -> None:
        self.target_port = target_port
        self.cuts = 0
        self._to_cut = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, commits: int) -> None:
        """Cut the connections of the next ``commits`` commits."""
        with self._lock:
            self._to_cut += commits

    def cut_no_more(self) -> None:
        """Let every commit through from now on."""
        with self._lock:
            self._to_cut = 0

    def cut_all(self) -> None:
        """Cut every connection now, as a failover does."""
        with self._lock:
            doomed = list(self._open)
        for each in doomed:
            _close(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), 3)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                if is_request and _COMMIT in chunk and self._takes_cut():
                    if self._random.random() < 0.6:
                        sink.sendall(chunk)  # it takes effect, and nobody hears of it
                    break
                sink.sendall(chunk)
        with self._lock:
            self._open -= {source, sink}
        _close(source)
        _close(sink)

    def _takes_cut(self) -> bool:
        with self._lock:
            if not self._to_cut:
                return False
            self._to_cut -= 1
            self.cuts += 1
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut_all()


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
