"""A real PostgreSQL as a child process, for development and tests, and a synchronous standby of it.

PostgreSQL refuses root, which tests in containers often are: there it runs as an ordinary user (`unprivileged`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from eos_client.errors import EmbeddedDatabaseError
from eos_client.testing.broker_settings import HOST
from eos_client.testing.database_server import DatabaseServer
from eos_client.testing.postgres_programs import postgres_programs
from eos_client.testing.unprivileged import ServerUser, ordinary_user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from eos_client.testing.server_directory import ServerDirectory

_USER = _DATABASE = "postgres"
_STANDBY = "standby"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # Only a crash of the system loses what was not synced. The default full_page_writes stays: SIGKILL can end a write
    # in the middle of a page.
    "fsync": "off",
    # In files of the data directory, which are removed with it.
    "dynamic_shared_memory_type": "mmap",
    # A standby looks for the next record every 5 s by default, and a promotion waits for that.
    "wal_retrieve_retry_interval": "100ms",
    # For a standby that starts, or comes back: no replication slot keeps the log for it.
    "wal_keep_size": "256MB",
}
_READY = frozenset({"ready", "standby"})
_PID_FILE = "postmaster.pid"
_PID_LINE, _SHARED_MEMORY_LINE, _STATUS_LINE = 0, 6, 7
_REMOVE_SEGMENT = 0  # IPC_RMID
_STATEMENT_TIMEOUT_S = 120.0
_PROMOTION_TIMEOUT_S = 60
_POLL_S = 0.02
_STREAMS_SYNCHRONOUSLY = (
    "SELECT current_setting('synchronous_standby_names') <> '' "
    "AND EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming')"
)


class Primary(NamedTuple):
    """The server that a standby replicates."""

    port: int


class EmbeddedPostgres(DatabaseServer):
    """One PostgreSQL, started by `start` or by entering the context; every failure is an `EmbeddedDatabaseError`.

    ``directory`` holds its data and its log (None: a temporary one); `stop` removes the files that the server made in
    it unless ``keep_directory``, and then the next server on it uses the same data. ``port``: where it listens (None: a
    free one). ``settings``: further settings of PostgreSQL. ``primary``: set by `standby`.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        start_timeout_s: float = 60.0,
        keep_directory: bool = False,
        primary: Primary | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._programs: PostgresProgram | None = None
        self._primary = primary
        self._standby: EmbeddedPostgres | None = None
        super().__init__(
            self._find,
            directory=directory,
            keep_directory=keep_directory,
            port=port,
            start_timeout_s=start_timeout_s,
            on_progress=None,
        )

    def standby(
        self, directory: Path | None = None, *, port: int | None = None, keep_directory: bool = False
    ) -> EmbeddedPostgres:
        """Start a synchronous standby with the settings of this server and return it; stop it as any other server.

        From now on each commit here waits until the standby has it, also while the standby is down.
        """
        if self._standby is not None and self._standby.started:
            raise EmbeddedDatabaseError("this server has a standby already: stop() that one first")
        standby = self._standby = EmbeddedPostgres(
            directory,
            settings=self._settings,
            port=port,
            start_timeout_s=self._start_timeout_s,
            keep_directory=keep_directory,
            primary=Primary(self.port),
        ).start()
        try:
            self._await_standby()
        except BaseException:
            standby.stop()
            raise
        return standby

    def promote(self) -> None:
        """Make a standby a server of its own, with every row that its primary has reported as committed.

        Its commits wait for no standby until it gets one.
        """
        if self._execute(f"SELECT pg_promote(true, {_PROMOTION_TIMEOUT_S})") != "t":
            raise EmbeddedDatabaseError(
                f"the standby was not promoted in {_PROMOTION_TIMEOUT_S} s. The end of its log:\n{self.log_tail()}"
            )
        # A copy of a primary that had a standby before has that setting, too.
        self._execute("ALTER SYSTEM RESET synchronous_standby_names")
        self._execute("SELECT pg_reload_conf()")

    def _find(self, _on_progress: Callable[[str], None]) -> PostgresProgram:
        user = ordinary_user()
        if user is None:
            raise EmbeddedDatabaseError(
                f"PostgreSQL needs an account with a name, and user {os.geteuid()} has none: add it to /etc/passwd, or "
                "permit user namespaces"
            )
        self._programs = PostgresProgram(postgres_programs(), user, {**_SETTINGS, **self._settings}, self._primary)
        return self._programs

    def _await_standby(self) -> None:
        self._execute(f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 ({_STANDBY})'")
        self._execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + self._start_timeout_s
        while self._execute(_STREAMS_SYNCHRONOUSLY) != "t":
            if time.monotonic() > deadline:
                raise EmbeddedDatabaseError(
                    f"no synchronous standby after {self._start_timeout_s:g} s. The end of the primary's log:\n"
                    f"{self.log_tail()}"
                )
            time.sleep(_POLL_S)
        # The checkpointer tells the backends that they must wait, and reads the setting before it makes a checkpoint.
        self._execute("CHECKPOINT")

    def _execute(self, statement: str) -> str:
        """Execute one statement and return the value that it answers."""
        started = self._started()
        if self._programs is None:
            raise EmbeddedDatabaseError("the database server is not started: call start() first")
        try:
            ran = subprocess.run(  # noqa: S603  arguments are ours
                self._programs.statement(statement, started.port),
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                capture_output=True,
                text=True,
                timeout=_STATEMENT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedDatabaseError(
                f"PostgreSQL did not answer in {_STATEMENT_TIMEOUT_S:g} s: {statement}"
            ) from error
        if ran.returncode != 0:
            raise EmbeddedDatabaseError(f"PostgreSQL refused {statement}: {ran.stderr.strip()}")
        return ran.stdout.strip()


class PostgresProgram:
    """The commands of PostgreSQL's server, and its files."""

    title = "PostgreSQL"
    further_files = ()
    stop_signal = signal.SIGINT

    def __init__(self, programs: Path, user: ServerUser, settings: Mapping[str, str], primary: Primary | None) -> None:
        self._programs = programs
        self._user = user
        self._settings = settings
        self._primary = primary

    def url(self, port: int) -> str:
        """Return the SQLAlchemy URL; the driver is psycopg."""
        return f"postgresql+psycopg://{_USER}@{HOST}:{port}/{_DATABASE}"

    def statement(self, statement: str, port: int) -> Sequence[str]:
        """Return the command that executes a statement and prints what it answers."""
        connection = ("--host", HOST, "--port", str(port), "--username", _USER, "--no-password", "--dbname", _DATABASE)
        return [
            *(str(self._programs / "psql"), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", *connection),
            *("--command", statement),
        ]

    def is_initialised(self, files: ServerDirectory) -> bool:
        """Whether the directory holds a database."""
        return (files.data / "PG_VERSION").exists()

    def initialise(self, files: ServerDirectory) -> Sequence[str]:
        """Return the command that makes the database: an empty one, or a copy of the primary's."""
        files.data.mkdir(mode=0o700, exist_ok=True)
        if self._user.owner is not None:
            ours = {files.data, *(path for path in files.removable if path == files.base)}
            for path in ours:
                os.chown(path, self._user.owner, self._user.owner)
        if self._primary is not None:
            source = f"host={HOST} port={self._primary.port} user={_USER} application_name={_STANDBY}"
            return self._command(
                "pg_basebackup",
                *("--pgdata", str(files.data), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"),
                *("--dbname", source),
            )
        return self._command(
            "initdb",
            *("--pgdata", str(files.data), "--username", _USER, "--auth", "trust", "--encoding", "UTF8"),
            *("--locale", "C", "--no-sync"),
        )

    def serve(self, files: ServerDirectory, port: int) -> Sequence[str]:
        """Return the command of the server itself."""
        settings = {**self._settings, "port": str(port)}
        options = (word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
        return self._command("postgres", "-D", str(files.data), *options)

    def is_ready(self, files: ServerDirectory, port: int, pid: int) -> bool:  # noqa: ARG002  as of every program
        """Whether the server has written that it serves clients."""
        lines = _postmaster_pid(files)
        return len(lines) > _STATUS_LINE and lines[_PID_LINE] == str(pid) and lines[_STATUS_LINE].strip() in _READY

    def remove_traces(self, files: ServerDirectory) -> None:
        """Remove the shared memory of a killed server, by which PostgreSQL recognises one that still runs."""
        lines = _postmaster_pid(files)
        if len(lines) > _SHARED_MEMORY_LINE and len(found := lines[_SHARED_MEMORY_LINE].split()) > 1:
            ctypes.CDLL(None).shmctl(int(found[1]), _REMOVE_SEGMENT, None)
        (files.data / _PID_FILE).unlink(missing_ok=True)

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [*self._user.command, str(self._programs / program), *arguments]


def _postmaster_pid(files: ServerDirectory) -> list[str]:
    """Return the lines of the file that a running server keeps; none if there is no such file."""
    try:
        return (files.data / _PID_FILE).read_text().splitlines()
    except OSError:
        return []
