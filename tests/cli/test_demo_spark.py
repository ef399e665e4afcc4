"""``eos-client demo-spark``: what it says before it begins, what it sees of processes, and the whole story."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from eos_client.cli.demo import spark_session
from eos_client.cli.demo.display import StalledError
from eos_client.cli.demo.spark_stream import PROGRAM, SparkStream
from eos_client.cli.demo.verdict import Findings
from eos_client.cli.failures import NotExactlyOnceError
from eos_client.errors import ConfigurationError, EmbeddedKafkaError
from eos_client.testing.process_session import (
    members_of,
    send_signal,
    session_of,
    spark_executors,
)
from eos_client.testing.spark_connector import connector_jars
from tests.spark.rig.launching import spark_python_workers
from tests.support.waiting import wait_for

ACTORS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]])
time.sleep(600)
"""


@pytest.fixture
def actors(request: Any) -> Any:
    """A process and its child in a session of their own; the child's arguments are the test's."""
    started = subprocess.Popen([sys.executable, "-c", ACTORS, *request.param], start_new_session=True)
    wait_for(lambda: len(members_of(started.pid)) >= 2, "the child to start")
    yield started
    send_signal(signal.SIGKILL, [each.pid for each in members_of(started.pid)])
    started.wait()


@pytest.mark.parametrize("actors", [["CoarseGrainedExecutorBackend"]], indirect=True)
def test_an_executor_is_told_from_its_driver_and_can_be_killed(actors: Any) -> None:
    (executor,) = set(spark_executors(actors.pid)) - {actors.pid}
    send_signal(signal.SIGKILL, [executor, executor])
    wait_for(lambda: executor not in {each.pid for each in members_of(actors.pid)}, "the executor to end")
    assert [each.pid for each in members_of(actors.pid)] == [actors.pid]


@pytest.mark.parametrize("actors", [["pyspark.daemon"]], indirect=True)
def test_a_worker_is_a_child_of_a_daemon_and_frozen_means_stopped(actors: Any) -> None:
    (child,) = (each for each in members_of(actors.pid) if each.parent == actors.pid)
    assert spark_python_workers(actors.pid) == [child.pid]
    assert session_of(child.pid) == actors.pid
    send_signal(signal.SIGSTOP, [child.pid])
    wait_for(lambda: any(each.stopped for each in members_of(actors.pid)), "the child to be stopped")


def test_processes_are_found_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eos_client.testing.process_session._PROC", Path("/there/is/no/proc"))
    assert os.getpid() in {each.pid for each in members_of(session_of(os.getpid()))}


def test_without_spark_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "missing_for_spark", lambda: ["pyspark", "pandas"])
    with pytest.raises(ConfigurationError, match=r"pyspark, pandas.*: pip install 'eos-client\[spark\]'"):
        spark_session.run_spark_demo(Console())


def test_the_loader_of_a_demo_that_is_given_up_drops_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, reader = mock.MagicMock(), mock.MagicMock()
    reader.audited.return_value = Findings()
    parts: dict[str, Any] = {
        "missing_for_spark": list,
        "connector_jars": lambda _say: [],
        "embedded_kafka": lambda *_: nullcontext("nowhere:1"),
        "ClusterAdmin": mock.MagicMock(),
        "ClusterReader": lambda *_: reader,
        "TopicLoader": lambda *_: loader,
    }
    for name, part in parts.items():
        monkeypatch.setattr(spark_session, name, part)
    monkeypatch.setattr(spark_session.SparkScenario, "play", mock.Mock(side_effect=StalledError("nothing moved")))
    with pytest.raises(NotExactlyOnceError):
        spark_session.run_spark_demo(Console(quiet=True))
    (ended,) = loader.__exit__.call_args_list
    assert ended.args[0] is StalledError


def test_what_spark_has_read_is_read_from_its_checkpoint() -> None:
    stream = SparkStream("nowhere:1", "in", "out", "demo", [])
    checkpoint = stream.folder / "checkpoint"
    assert (stream.read_so_far(), stream.batches()) == (0, 0)
    for log, entries in {"commits": (0, 1), "offsets": (0, 1, 2)}.items():
        (checkpoint / log).mkdir(parents=True)
        for number in entries:
            text = f'v1\n{{"batchWatermarkMs":0}}\n{{"in":{{"0":{number},"1":{10 * number}}}}}'
            (checkpoint / log / str(number)).write_text(text)
    assert (stream.read_so_far(), stream.batches()) == (11, 2)


@pytest.mark.kafka
def test_a_stream_that_cannot_run_ends_with_its_own_words() -> None:
    with SparkStream("127.0.0.1:9", "in", "out", "no/sink id", connector_jars()) as stream:
        stream.start(shuffle_partitions=2, adaptive=True)
        with pytest.raises(EmbeddedKafkaError, match=r"status 1[^$]*sink_id='no/sink id' must be") as ended:
            wait_for(lambda: stream.read_so_far() > 0, "its own words", timeout_s=240)
        assert "Traceback" not in str(ended.value)
    assert not stream.folder.exists()


def test_the_packaged_program_is_the_example() -> None:
    example = Path(__file__).parents[2] / "examples" / "spark_foreach_batch.py"
    assert PROGRAM.read_text() == example.read_text()


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_spark_demo_ends_with_the_verdict_exactly_once(eos_client: Any, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number // 2}\n" for number in range(20_000)))
    demo = eos_client("demo-spark", "--input", str(lines), "--seconds", "10")
    assert demo.wait(300) == 0, demo.out + demo.err
    assert "driver killed (SIGKILL)" in demo.out
    assert demo.out.splitlines()[-1].startswith("EXACTLY ONCE: 20,000 records")
