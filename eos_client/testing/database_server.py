"""A real database server as a child process: its start, death and restart, whichever program it runs.

The process ends with its parent, even if that is killed, and its files are removed (`process_keeper`).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eos_client.errors import EmbeddedDatabaseError, EmbeddedKafkaError
from eos_client.testing.broker_settings import HOST
from eos_client.testing.free_ports import free_ports, is_free
from eos_client.testing.kept_process import KeptProcess
from eos_client.testing.process_session import living, send_signal
from eos_client.testing.server_directory import ServerDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Self

_INITIALISE_TIMEOUT_S = 180.0
_KILL_TIMEOUT_S = 30.0
_POLL_S = 0.02
_ERROR_LINES = 60
_PORT_TRIES_MAX = 3
_PORT_TAKEN = "Address already in use"


class DatabaseProgram(Protocol):
    """What differs from one kind of database server to another."""

    @property
    def title(self) -> str:
        """Name and version, for messages."""
        ...

    @property
    def further_files(self) -> tuple[str, ...]:
        """What it writes into its directory beside its log and its data."""
        ...

    @property
    def stop_signal(self) -> int:
        """The signal that shuts the server down cleanly, without waiting for its clients."""
        ...

    def url(self, port: int) -> str:
        """Return the SQLAlchemy URL of the server on this port."""
        ...

    def is_initialised(self, files: ServerDirectory) -> bool:
        """Whether the directory holds a database."""
        ...

    def initialise(self, files: ServerDirectory) -> Sequence[str]:
        """Return the command that makes the database in the directory."""
        ...

    def serve(self, files: ServerDirectory, port: int) -> Sequence[str]:
        """Return the command of the server itself."""
        ...

    def is_ready(self, files: ServerDirectory, port: int, pid: int) -> bool:
        """Whether the server with this process id serves clients on the port."""
        ...

    def remove_traces(self, files: ServerDirectory) -> None:
        """Remove what a killed server leaves outside of its directory, or what keeps the next from starting."""
        ...


class _Started(NamedTuple):
    program: DatabaseProgram
    files: ServerDirectory
    port: int
    process: KeptProcess


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise `EmbeddedDatabaseError` for an error of a part that databases and brokers share."""
    try:
        yield
    except EmbeddedKafkaError as error:
        raise EmbeddedDatabaseError(str(error)) from error


class DatabaseServer:
    """One server of the program that ``find_program`` finds when the server starts.

    The other arguments are those of `EmbeddedKafka`.
    """

    def __init__(
        self,
        find_program: Callable[[Callable[[str], None]], DatabaseProgram],
        *,
        directory: Path | None,
        keep_directory: bool,
        port: int | None,
        start_timeout_s: float,
        on_progress: Callable[[str], None] | None,
    ) -> None:
        self._find_program = find_program
        self._directory = directory
        self._keep_directory = keep_directory
        self._chosen_port = port
        self._start_timeout_s = start_timeout_s
        self._on_progress = on_progress or (lambda _line: None)
        self._owner_pid = os.getpid()
        self._program: DatabaseProgram | None = None
        self._files: ServerDirectory | None = None
        self._port: int | None = None
        self._process: KeptProcess | None = None
        self._last_tail = ""

    @property
    def url(self) -> str:
        """The SQLAlchemy URL for clients."""
        started = self._started()
        return started.program.url(started.port)

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 on which the server listens."""
        return self._started().port

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._started().process.pid

    @property
    def log_path(self) -> Path:
        """The server's log, in its directory."""
        return self._started().files.log

    @property
    def started(self) -> bool:
        """Whether it has been started and not stopped; a killed server is started, too."""
        return self._files is not None

    @property
    def running(self) -> bool:
        """Whether the server's process is alive (it may be stopped by SIGSTOP)."""
        return self._process is not None and self._process.exit_code() is None

    @database_errors()
    def start(self) -> Self:
        """Start the server; returns when it serves clients."""
        if self._files is not None:
            raise EmbeddedDatabaseError("the database server is started already: use restart(), or another instance")
        if os.name != "posix":
            raise EmbeddedDatabaseError(
                "an embedded database server needs the processes of POSIX, and is tested on Linux only"
            )
        if self._chosen_port is not None and not is_free(self._chosen_port):
            raise EmbeddedDatabaseError(
                f"port {self._chosen_port} is in use: stop what listens there, choose another, or leave it out for a "
                "free one"
            )
        program = self._program = self._find_program(self._on_progress)
        files = self._files = ServerDirectory(
            self._directory,
            keep=self._keep_directory,
            server="database server",
            prefix="eos-client-database-",
            log="server.log",
            further=program.further_files,
        )
        self._owner_pid = os.getpid()
        try:
            if not program.is_initialised(files):
                self._initialise(program, files)
            self._start_on_free_port(program, files)
        except BaseException:
            self._release()
            raise
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """Shut the server down, by force after ``timeout_s``, and remove its files. Does nothing if stopped."""
        if self._files is None or os.getpid() != self._owner_pid:
            return  # a forked child has a copy of this object, but no server
        try:
            self.shut_down(timeout_s)
        finally:
            self._release()

    def kill(self) -> None:
        """SIGKILL the server with all its processes and wait for their end; its data stay, for `restart`."""
        started = self._started()
        _kill(started.process)
        started.program.remove_traces(started.files)

    def shut_down(self, timeout_s: float = 10.0) -> None:
        """Shut the server down, by force after ``timeout_s``; its data stay, for `restart`."""
        if self._program is not None and self._process is not None and self.running:
            self._process.send_signal(self._program.stop_signal)
            if self._process.exit_code(wait_s=timeout_s) is None:
                _kill(self._process)

    @database_errors()
    def restart(self, timeout_s: float = 10.0) -> None:
        """Start the server again on the same port and data, after a clean shutdown if it still runs."""
        started = self._started()
        self.shut_down(timeout_s)
        self._launch(started.program.serve(started.files, started.port), started.files)
        self._await_ready(started.program, started.files, started.port)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log, also after `stop`."""
        if self._files is None:
            return "\n".join(self._last_tail.splitlines()[-lines:])
        return self._files.log_tail(lines)

    def __enter__(self) -> Self:
        return self if self._files is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> _Started:
        if self._program is None or self._files is None or self._port is None or self._process is None:
            raise EmbeddedDatabaseError("the database server is not started: call start() first")
        return _Started(self._program, self._files, self._port, self._process)

    def _initialise(self, program: DatabaseProgram, files: ServerDirectory) -> None:
        exit_code = self._launch(program.initialise(files), files).exit_code(wait_s=_INITIALISE_TIMEOUT_S)
        if exit_code != 0:
            ended = f"did not end in {_INITIALISE_TIMEOUT_S:g} s" if exit_code is None else f"exit code {exit_code}"
            raise EmbeddedDatabaseError(
                f"{program.title} could not make its data directory {files.data} ({ended}). "
                f"Its output:\n{files.log_tail(_ERROR_LINES)}"
            )

    def _start_on_free_port(self, program: DatabaseProgram, files: ServerDirectory) -> None:
        """Start the server, on another port if the first is taken before the server binds it."""
        for tries_left in reversed(range(_PORT_TRIES_MAX)):
            port = self._chosen_port or free_ports(1)[0]
            log_start = files.log_size_bytes()
            self._launch(program.serve(files, port), files)
            try:
                self._await_ready(program, files, port)
            except EmbeddedDatabaseError:
                if not (tries_left and files.log_has(_PORT_TAKEN, since=log_start)):
                    raise
            else:
                self._port = port
                return

    def _launch(self, command: Sequence[str], files: ServerDirectory) -> KeptProcess:
        predecessor, self._process = self._process, KeptProcess(command, log_path=files.log, paths=files.removable)
        if predecessor is not None:
            predecessor.dismiss()  # only now: the directory must always have a keeper
        return self._process

    def _await_ready(self, program: DatabaseProgram, files: ServerDirectory, port: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while self._process is not None:
            exit_code = self._process.exit_code(wait_s=_POLL_S)
            if exit_code is not None:
                problem = f"ended while starting (exit code {exit_code})"
            elif program.is_ready(files, port, self._process.pid):
                return
            elif time.monotonic() > deadline:
                problem = f"was not ready after {self._start_timeout_s:g} s"
            else:
                continue
            raise EmbeddedDatabaseError(
                f"{program.title} on {HOST}:{port} {problem}. The end of its log:\n{files.log_tail(_ERROR_LINES)}"
            )

    def _release(self) -> None:
        """End the server's processes and remove its files."""
        program, files, process = self._program, self._files, self._process
        self._program = self._files = self._port = self._process = None
        if process is not None:
            _kill(process)
            process.dismiss()
        if files is not None:
            if program is not None:
                program.remove_traces(files)
            self._last_tail = files.log_tail(_ERROR_LINES)
            files.remove()


def _kill(process: KeptProcess) -> None:
    """SIGKILL the process and its children, none of which can start another meanwhile."""
    if process.exit_code() is not None:
        return
    process.send_signal(signal.SIGSTOP)
    family = {process.pid, *(each.pid for each in living() if each.parent == process.pid)}
    send_signal(signal.SIGKILL, family)
    process.exit_code(wait_s=_KILL_TIMEOUT_S)
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while not family.isdisjoint(each.pid for each in living()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
