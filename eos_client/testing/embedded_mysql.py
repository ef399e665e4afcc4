"""A real MySQL 8 as a child process, for development and tests; it is downloaded once (`mysql_programs`)."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from eos_client.testing.broker_settings import HOST
from eos_client.testing.database_server import DatabaseServer
from eos_client.testing.mysql_programs import MYSQLD, mysql_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from eos_client.testing.server_directory import ServerDirectory

_DATABASE = "test"
_PID_FILE = "mysqld.pid"
_STATEMENTS = "init.sql"
_GREETING_TIMEOUT_S = 1.0
_PROTOCOL_VERSION = 10  # the first byte of the greeting, after four of the packet's header
_GREETING_BYTES = 5
_SETTINGS = {
    "bind-address": HOST,
    "socket": "mysqld.sock",  # of the data directory: a path has at most 107 characters
    "pid-file": _PID_FILE,
    "skip-mysqlx": "",
    "skip-log-bin": "",
    "performance-schema": "OFF",
    "innodb-buffer-pool-size": "32M",
    "innodb-redo-log-capacity": "32M",  # with less, the making of the data directory waits for it
    "innodb-use-native-aio": "OFF",  # of which a system has few, for all servers
    # Only a crash of the system loses what was not synced. The double write stays on: SIGKILL can end a write in the
    # middle of a page.
    "innodb-flush-method": "nosync",
}


class EmbeddedMysql(DatabaseServer):
    """One MySQL 8, started by `start` or by entering the context; every failure is an `EmbeddedDatabaseError`.

    ``directory`` holds its data and its log (None: a temporary one); `stop` removes the files that the server made in
    it unless ``keep_directory``, and then the next server on it uses the same data. ``port``: where it listens (None: a
    free one). ``settings``: further settings of ``mysqld``, "" for one without a value. ``on_progress`` is called with
    a line from time to time while MySQL is downloaded. The URL names an empty database and the user root, who has no
    password.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        start_timeout_s: float = 120.0,
        keep_directory: bool = False,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        chosen = {**_SETTINGS, **(settings or {})}
        super().__init__(
            lambda on_progress: MysqlProgram(mysql_home(on_progress), chosen),
            directory=directory,
            keep_directory=keep_directory,
            port=port,
            start_timeout_s=start_timeout_s,
            on_progress=on_progress,
        )


class MysqlProgram:
    """The commands of MySQL's server, and its files."""

    title = "MySQL"
    further_files = (_STATEMENTS,)
    stop_signal = signal.SIGTERM

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self._home = home
        self._settings = settings

    def url(self, port: int) -> str:
        """Return the SQLAlchemy URL; the driver is PyMySQL."""
        return f"mysql+pymysql://root@{HOST}:{port}/{_DATABASE}"

    def is_initialised(self, files: ServerDirectory) -> bool:
        """Whether the directory holds a database."""
        return (files.data / _DATABASE).is_dir()

    def initialise(self, files: ServerDirectory) -> Sequence[str]:
        """Return the command that makes the data directory, with an empty database in it."""
        statements = files.base / _STATEMENTS
        statements.write_text(f"CREATE DATABASE {_DATABASE};\n")
        return self._command(files, "--initialize-insecure", f"--init-file={statements}")

    def serve(self, files: ServerDirectory, port: int) -> Sequence[str]:
        """Return the command of the server itself."""
        return self._command(files, f"--port={port}")

    def is_ready(self, files: ServerDirectory, port: int, pid: int) -> bool:
        """Whether the server with this process id has written so, and greets a client."""
        try:
            return int((files.data / _PID_FILE).read_text()) == pid and _greets(port)
        except (OSError, ValueError):
            return False

    def remove_traces(self, files: ServerDirectory) -> None:
        """Leave everything: the next server takes no notice of a killed one's files."""

    def _command(self, files: ServerDirectory, *arguments: str) -> list[str]:
        settings = (f"--{name}={value}" if value else f"--{name}" for name, value in self._settings.items())
        as_root = ["--user=root"] if os.geteuid() == 0 else []  # which MySQL must be told
        return [
            *(str(self._home / MYSQLD), "--no-defaults", f"--basedir={self._home}", f"--datadir={files.data}"),
            *(*as_root, *settings, *arguments),
        ]


def _greets(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=_GREETING_TIMEOUT_S) as connection:
        greeting = connection.recv(_GREETING_BYTES, socket.MSG_WAITALL)
    return len(greeting) == _GREETING_BYTES and greeting[-1] == _PROTOCOL_VERSION
