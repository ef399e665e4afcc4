import gc
import json
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from eos_client import EosConsumer, EosProducer
from eos_client.cli import main
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import StoredRecord, TopicLoader, read_topic
from tests.support.waiting import TICK_S, wait_for

START_LIMIT_S = 180.0
_SENTENCE_WORDS = 4


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Commands configure logging for their whole process; a test gives it back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)


def said_twice(printed: str) -> list[str]:
    """The sentences of the error that ended a program which were printed before; a traceback may repeat it.

    What librdkafka itself has logged, at a level that it calls fatal, may stand in the error, too.
    """
    ours = [line for line in printed.splitlines() if "library_log" not in line]
    before, last = "\n".join(ours[:-1]), "".join(ours[-1:])
    if "Traceback" in printed or not (last.startswith("eos-client: ") or '"event": "command_failed"' in last):
        return []
    message = json.loads(last)["message"] if last.startswith("{") else last.removeprefix("eos-client: ")
    sentences = [each for each in re.split(r"[.;:] ", message) if len(each.split()) >= _SENTENCE_WORDS]
    return [each for each in sentences if each in before or json.dumps(each)[1:-1] in before]


def clients_in_use() -> list[Any]:
    """The library's clients that nobody has closed, also those that wait for the garbage collector."""
    in_use = []
    for client in gc.get_objects():
        is_wrapper = isinstance(client, EosConsumer | EosProducer)  # whose own clients are found as well
        if isinstance(client, AdminClient | Producer | Consumer) and not is_wrapper:
            with suppress(RuntimeError):  # it was closed
                client.assignment() if isinstance(client, Consumer) else client.poll(0)
                in_use.append(client)
    return in_use


def _signals_as_at_a_terminal() -> None:
    """Neither ignored, also where the tests run in the background or below ``nohup``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Command:
    """One ``eos-client`` process with what it printed, kept in ``folder``; ended with the test."""

    def __init__(self, arguments: list[str], folder: Path, *, cwd: Path | None = None) -> None:
        self.out_path, self.err_path = folder / f"{uuid4().hex}.out", folder / f"{uuid4().hex}.err"
        with self.out_path.open("w") as out, self.err_path.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", *arguments],
                stdout=out,
                stderr=err,
                cwd=cwd or folder,
                preexec_fn=_signals_as_at_a_terminal,  # noqa: PLW1509
            )

    @property
    def out(self) -> str:
        return self.out_path.read_text()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]

    def wait_for(self, reached: Any, what: str) -> None:
        def still_runs() -> None:
            assert self.process.poll() is None, f"ended before {what}: {self.err}"
            time.sleep(TICK_S)

        wait_for(reached, lambda: f"{what}: {self.err}", still_runs, timeout_s=START_LIMIT_S)

    def wait_for_event(self, name: str) -> dict[str, Any]:
        self.wait_for(lambda: any(entry.get("event") == name for entry in self.events), name)
        return next(entry for entry in self.events if entry.get("event") == name)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = START_LIMIT_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes where its threads are
            self.process.wait()
            raise AssertionError(f"did not end: {self.err}") from None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start ``python ARGUMENTS``; killed at the end of the test if it still runs."""
    commands: list[Command] = []

    def start(*arguments: str) -> Command:
        commands.append(Command(list(arguments), tmp_path))
        return commands[-1]

    yield start
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
    assert [sentence for command in commands for sentence in said_twice(command.err)] == []


@pytest.fixture
def eos_client(start: Any) -> Any:
    """Start ``eos-client ARGUMENTS``."""
    return lambda *arguments: start("-m", "eos_client", *arguments)


class Ended:
    """A command that has run in this process: its exit status and what it printed, asked for as of a `Command`."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]

    def wait(self) -> int:
        return self.status


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Run ``eos-client ARGUMENTS`` in this process, where the process itself is not what is tested.

    A process of its own costs more than what most commands do.
    """
    commands: list[Ended] = []
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def typed(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["eos-client", *arguments])
        capfd.readouterr()
        gc.collect()
        others = clients_in_use()
        with pytest.raises(SystemExit) as ended:
            main()
        # What a signal handler raises while the garbage collector destroys a client is lost. A handle of a producer
        # may be destroyed a little later, by its own thread.
        gc.disable()
        try:
            wait_for(lambda: all(client in others for client in clients_in_use()), "every client is ended")
        finally:
            gc.enable()
        commands.append(Ended(int(ended.value.code or 0), *capfd.readouterr()))
        return commands[-1]

    yield typed
    for name in sys.modules.keys() - modules:  # the test's own files
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    assert [sentence for command in commands for sentence in said_twice(command.err)] == []


class Cluster:
    """The session's broker, with topics of this test alone."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = ClusterAdmin(bootstrap_servers, timeout_s=60.0)
        self.prefix = f"cli-{uuid4().hex[:8]}"

    def topic(self, name: str, partitions: int = 1) -> str:
        full_name = f"{self.prefix}-{name}"
        self.admin.create_topics({full_name: partitions})
        return full_name

    def load(self, topic: str, values: list[bytes], *, partition: int = 0) -> None:
        with TopicLoader(self.bootstrap_servers, topic, {}) as loader:
            for value in values:
                loader.load(value, key=None, partition=partition)

    def read(self, topic: str, partitions: int = 1, *, committed_only: bool = True) -> list[StoredRecord]:
        ends: Mapping[int, int] = self.admin.end_offsets(topic, partitions)
        return list(read_topic(self.bootstrap_servers, topic, ends, committed_only=committed_only))

    def values(self, topic: str, partitions: int = 1) -> list[bytes]:
        return [record.value for record in self.read(topic, partitions)]


@pytest.fixture
def cluster(kafka_broker: Any) -> Iterator[Cluster]:
    cluster = Cluster(kafka_broker.bootstrap_servers)
    with cluster.admin:
        yield cluster


@pytest.fixture
def upper_file(tmp_path: Path) -> Path:
    path = tmp_path / "shout.py"
    path.write_text("def upper(record):\n    yield record.value().upper()\n")
    return path
