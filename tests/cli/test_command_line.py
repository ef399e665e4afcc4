"""The program as a person types it, where no cluster is needed."""

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from eos_client.cli import main
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.metrics import served_metrics
from tests.recovery.mock_cluster import mock_cluster
from tests.support.waiting import wait_for

NO_AUTHORITY = ["--config", "security.protocol=SSL", "--config", "ssl.ca.location=/nowhere/ca.pem"]
RUN = ["--bootstrap", "127.0.0.1:1", "--group", "g", "--from", "orders", "--to", "invoices"]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_how_to_install_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from eos_client.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 13
    (line,) = ended.stderr.splitlines()
    assert "pip install 'eos-client[cli]'" in line
    assert missing in line


def test_a_bug_of_ours_at_import_is_not_taken_for_a_missing_extra() -> None:
    code = "import sys; sys.modules['eos_client.cli.run'] = None; from eos_client.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr


def test_help_names_the_commands_and_the_exit_status(eos_client: Any) -> None:
    command = eos_client("--help")
    assert command.wait() == 0
    assert all(name in command.out for name in ("run", "demo", "broker", "doctor", "Exit status"))


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", {"COMP_WORDS": "eos-client to", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "eos-client to"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "eos-client to", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_a_shell_completes_the_commands(
    monkeypatch: pytest.MonkeyPatch, typed: Any, shell: str, words: dict[str, str]
) -> None:
    for name, value in {"_EOS_CLIENT_COMPLETE": f"complete_{shell}", **words}.items():
        monkeypatch.setenv(name, value)
    completed = typed()
    assert "topic" in completed.out
    assert "tail" not in completed.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(monkeypatch: pytest.MonkeyPatch, typed: Any, shell: str) -> None:
    monkeypatch.setenv("_EOS_CLIENT_COMPLETE", f"source_{shell}")
    script = typed()
    assert script.status == 0
    assert f"_EOS_CLIENT_COMPLETE=complete_{shell}" in script.out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["shout.py:upper", *RUN, "--config", "linger.ms"], 2, "--config 'linger.ms' is not KEY=VALUE"),
        (["shout.py:upper", *RUN, "--config", "=abc"], 4, "--config: a setting has no name"),
        (["shout.py:upper", *RUN, "--config", "group.id=x"], 2, "give it as --group x"),
        (["shout.py:upper", *RUN, "--from", "a,,b"], 2, "--from 'orders,a,,b' holds an empty name"),
        (["shout.py:upper", *RUN[:-2]], 2, "--to"),
        (["shout.py:upper", *RUN, "--on-error", "dead_letter"], 2, "give --dead-letter-topic TOPIC with it"),
        (["shout.py:upper", *RUN, "--dead-letter-topic", "dead"], 2, "give --on-error dead_letter with it"),
        (["shout.py:loud", *RUN], 3, "has no 'loud'. Its functions: upper"),
        (["whisper.py:upper", *RUN], 3, "there is no file"),
        (["shout:loud", *RUN], 3, "has no 'loud'. Its functions: upper"),
        (["whisper:upper", *RUN], 3, "there is no module 'whisper'"),
        (["shout:upper", *RUN, "--config", "acks=1"], 4, "acks='1' breaks exactly-once"),
        (["shout.py:upper", *RUN, "--config", "enable.auto.commit=true"], 4, "enable.auto.commit='true' breaks"),
        (["shout.py:upper", *RUN, "--config", "acks=1"], 4, "acks='1' breaks exactly-once"),
        (["shout.py:upper", *RUN, "--config", "no.such.key=1"], 4, 'No such configuration property: "no.such.key"'),
        (["shout.py:upper", *RUN, "--config", "session.timeout.ms=soon"], 4, '"session.timeout.ms"'),
        (["shout.py:upper", *RUN, "--config", f"session.timeout.ms={'9' * 23}"], 4, f"given as '{'9' * 23}'"),
        (["shout.py:upper", *RUN, "--bootstrap", "kafka-user:hunter2@broker:9092"], 4, '"@" in it, and is not shown'),
        (["shout.py:upper", *RUN, "--health-port", "70000"], 2, "--health-port"),
        (
            ["shout.py:upper", *RUN, "--health-port", "0", "--health-host", "no.such.invalid"],
            4,
            "the health endpoint cannot listen on host",
        ),
        (
            ["shout.py:upper", *RUN, "--metrics-port", "0", "--health-host", "no.such.invalid"],
            4,
            "the metrics endpoint cannot listen on host",
        ),
        (["shout.py:upper", *RUN, *NO_AUTHORITY], 4, "ssl.ca.location failed"),
    ],
)
@pytest.mark.usefixtures("upper_file")
def test_a_mistake_is_one_clear_message_and_its_own_status(
    tmp_path: Path, monkeypatch: Any, capfd: Any, arguments: list[str], status: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["eos-client", "run", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    told = capfd.readouterr()
    assert message in told.err
    assert "Traceback" not in told.err
    assert "hunter2" not in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tail", ""], "TOPIC"),
        (["tail", "orders", "--config", "group.id=x"], "this command takes no group.id"),
        (["redrive", "orders", "--config", "transactional.id=x"], "this command takes no transactional.id"),
        (["txn", "list", "--config", "transactional.id=x"], "this command takes no transactional.id"),
        (["topic", "create", "orders", "--config", "transactional.id=x"], "this command takes no transactional.id"),
        (["doctor", "--config", "group.id=x"], "give it as --group x"),
        (["redrive", ""], "TOPIC"),
        (["topic", "create", "orders", ""], "TOPIC"),
        (["topic", "create", "orders", "--partitions", "100000000"], "100000"),
        (["txn", "abort", "--topic", "", "--partition", "0", "--start-offset", "0"], "--topic"),
        (["txn", "abort", "--transactional-id", ""], "--transactional-id"),
        (["redrive", "orders", "--to", ""], "--to"),
        (["redrive", "orders", "--group", " "], "--group"),
        (["doctor", "--group", ""], "--group"),
        (["doctor", "--transactional-id", ""], "--transactional-id"),
        (["doctor", "--longest-pause", "inf"], "--longest-pause"),
        (["doctor", "--longest-pause", "nan"], "--longest-pause"),
        (["run", "shout.py:upper", *RUN, "--group", " "], "--group"),
        (["run", "shout.py:upper", *RUN, "--dead-letter-topic", ""], "--dead-letter-topic"),
    ],
)
def test_what_no_cluster_could_take_is_a_wrong_command_line(
    monkeypatch: Any, capfd: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["eos-client", *arguments, "--bootstrap", "127.0.0.1:1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--config", "linger.ms"], 2, "--config 'linger.ms' is not KEY=VALUE"),
        (["--bootstrap", "127.0.0.1:1", "--config", "acks=1"], 4, "acks='1' breaks exactly-once"),
        (["--bootstrap", "127.0.0.1:1", "--config", "lingre.ms=1"], 4, 'did you mean "linger.ms"?'),
        ([], 2, "no cluster is named"),
    ],
)
def test_the_doctor_prints_json_for_errors_too(typed: Any, arguments: list[str], status: int, message: str) -> None:
    ended = typed("doctor", "--json", *arguments)
    assert ended.status == status
    (line,) = ended.out.splitlines()
    finding = json.loads(line)
    assert (finding["level"], finding["subject"]) == ("fail", "doctor")
    assert message in finding["text"]
    # A client of an earlier test may still write, in librdkafka's own way, that it reaches no broker.
    (logged,) = [line for line in ended.err.splitlines() if not line.startswith("%")]
    assert json.loads(logged)["exit_code"] == status


def test_the_doctor_prints_an_error_of_its_own_as_json(monkeypatch: pytest.MonkeyPatch, typed: Any) -> None:
    def broken(_options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("eos_client.cli.commands.doctor.diagnose", broken)
    ended = typed("doctor", "--json", "--bootstrap", "127.0.0.1:1")
    assert ended.status == ExitCode.UNEXPECTED
    assert json.loads(ended.out)["text"] == "unexpected ZeroDivisionError: a bug"


@pytest.mark.parametrize("line", [["demo"], ["tail", "orders"], ["doctor"]], ids=" ".join)
def test_an_empty_address_is_a_wrong_command_line(monkeypatch: Any, capfd: Any, line: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["eos-client", *line, "--bootstrap", ""])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--bootstrap" in capfd.readouterr().err


def test_the_program_ends_with_the_status_of_the_mistake(upper_file: Path, eos_client: Any) -> None:
    command = eos_client("run", "shout.py:loud", *RUN)
    assert command.wait() == 3
    assert "has no 'loud'" in command.err
    assert "Traceback" not in command.err
    assert command.out == ""


def test_an_error_at_import_keeps_its_traceback_for_verbose(tmp_path: Path, eos_client: Any) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    plain, verbose = eos_client("run", "broken.py:f", *RUN), eos_client("run", "broken.py:f", *RUN, "--verbose")
    assert (plain.wait(), verbose.wait()) == (3, 3)
    assert "broken.py raised ModuleNotFoundError while imported, line 1" in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in verbose.err


def test_the_probes_of_a_worker_say_whether_it_is_live_and_ready(upper_file: Path, eos_client: Any) -> None:
    def probe(path: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(address["host"], address["port"], timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    with mock_cluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("invoices")
        probes = ["--health-port", "0", "--health-host", "127.0.0.1", "--log-format", "json"]
        worker = eos_client("run", "shout.py:upper", *RUN, "--bootstrap", cluster.bootstrap, *probes)
        address = worker.wait_for_event("health_endpoint")
        worker.wait_for(lambda: probe("/readyz")[0] == 200, "readiness")
        assert probe("/livez") == (200, {"live": True, "ready": True, "reasons": []})
        assert worker.terminate() == 0


def test_the_metrics_of_a_worker_are_served_with_the_group_as_client(upper_file: Path, eos_client: Any) -> None:
    with mock_cluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("invoices")
        endpoint = ["--metrics-port", "0", "--health-host", "127.0.0.1", "--log-format", "json"]
        worker = eos_client("run", "shout.py:upper", *RUN, "--bootstrap", cluster.bootstrap, *endpoint)
        address = worker.wait_for_event("metrics_endpoint")
        worker.wait_for(lambda: 'eos_ready{client="g"} 1.0' in scrape(address), "readiness")
        text = scrape(address)
        assert 'eos_assigned_partitions{client="g"} 1.0' in text
        assert 'eos_transactions_total{client="g",outcome="committed"}' in text
        assert 'eos_gate_held_seconds_total{client="g"}' in text
        assert "process_cpu_seconds_total" in text
        assert worker.terminate() == 0


def test_a_scrape_that_gives_up_leaves_no_trace_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # They would stay in the registry of this process, which takes no second ones.
    monkeypatch.setattr("eos_client.integration.prometheus.PrometheusMetrics", object)
    with structlog.testing.capture_logs() as logged, served_metrics("127.0.0.1", 0):
        connection = socket.create_connection((logged[0]["host"], logged[0]["port"]))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST in place of FIN
        connection.close()
        wait_for(lambda: scrape(logged[0]), "an answer to the next one")
    wait_for(lambda: not any("process_request" in each.name for each in threading.enumerate()), "the end of the answer")
    assert capsys.readouterr().err == ""


def test_of_an_option_that_comes_twice_the_last_one_counts_and_input_topics_add_up(
    upper_file: Path, eos_client: Any
) -> None:
    with mock_cluster(1) as cluster:
        for topic in ("orders", "more", "invoices"):
            cluster.create_topic(topic)
        given = ["--bootstrap", cluster.bootstrap, "--group", "green", "--from", "more", "--log-format", "json"]
        worker = eos_client("run", "shout.py:upper", *RUN, *given)
        started = worker.wait_for_event("loop_started")
        assert (started["group_id"], started["topics"]) == ("green", ["orders", "more"])
        assert worker.terminate() == 0


def scrape(address: Mapping[str, Any]) -> str:
    connection = http.client.HTTPConnection(address["host"], address["port"], timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def test_metrics_without_their_extra_name_what_to_install(monkeypatch: Any, upper_file: Path, typed: Any) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "eos_client.integration.prometheus", raising=False)
    ended = typed("run", "shout.py:upper", *RUN, "--bootstrap", "127.0.0.1:1", "--metrics-port", "0")
    assert ended.status == ExitCode.EXTRA_MISSING
    assert "pip install 'eos-client[prometheus]'" in ended.err


def seconds_until_ended(commands: list[Any], status: int) -> float:
    began_at = time.monotonic()
    assert [command.wait() for command in commands] == [status] * len(commands)
    return time.monotonic() - began_at


def test_an_unreachable_cluster_is_told_within_seconds_without_a_flood(upper_file: Path, eos_client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, closed)]
        lines = (["run", "shout.py:upper", "--group", "g", "--from", "a", "--to", "b"], ["doctor"], ["demo"])
        to_start_one_s = seconds_until_ended([eos_client("--help")], 0)
        places = zip((addresses[0], addresses[1], addresses[0]), lines, strict=True)
        commands = [(address, eos_client(*line, "--bootstrap", address)) for address, line in places]
        # left to itself, the client library would go on for 60 s
        assert seconds_until_ended([command for _address, command in commands], 5) < 50 + 9 * to_start_one_s
    for address, command in commands:
        assert address in command.err
        assert len(command.err.splitlines()) < 10
        assert "%3|" not in command.err


def test_the_cluster_may_take_as_long_to_answer_as_it_was_given(upper_file: Path, eos_client: Any) -> None:
    command = eos_client("run", "shout.py:upper", *RUN, "--start-timeout", "0.5")
    assert command.wait() == 5
    assert "within 0.5 s" in command.err


def test_sigterm_ends_the_wait_for_a_cluster(upper_file: Path, eos_client: Any) -> None:
    command = eos_client("run", "shout.py:upper", *RUN, "--start-timeout", "600")
    command.wait_for(lambda: "Connection refused" in command.err, "the first attempt")
    assert command.terminate() == 0


def test_sigterm_before_the_loop_runs_ends_it_quietly(tmp_path: Path, eos_client: Any) -> None:
    (tmp_path / "slow.py").write_text("import time, pathlib\npathlib.Path('here').touch()\ntime.sleep(30)\n")
    command = eos_client("run", "slow.py:f", *RUN)
    command.wait_for((tmp_path / "here").exists, "import")
    assert command.terminate() == 0
    assert command.err == ""


@pytest.mark.parametrize(  # each command with each signal and in each module, and each signal in each module
    ("command", "status", "number", "module"),
    [
        ("redrive", 0, signal.SIGTERM, "cli.app"),
        ("redrive", 0, signal.SIGINT, "config"),
        ("tail", 0, signal.SIGTERM, "config"),
        ("tail", 0, signal.SIGINT, "cli.app"),
        ("run", 0, signal.SIGTERM, "cli.app"),
        ("run", 0, signal.SIGINT, "config"),
        ("doctor", 130, signal.SIGTERM, "config"),
        ("doctor", 130, signal.SIGINT, "cli.app"),
        ("demo", 130, signal.SIGTERM, "cli.app"),
        ("demo", 130, signal.SIGINT, "config"),
        ("run --until-end", 130, signal.SIGTERM, "cli.app"),
        ("run --until-end", 130, signal.SIGHUP, "config"),
        ("run", 0, signal.SIGHUP, "config"),
        ("relay", 0, signal.SIGTERM, "config"),
        ("relay --until-end", 130, signal.SIGINT, "cli.app"),
    ],
)
def test_a_signal_while_the_program_is_loaded_ends_it_without_a_word(
    command: str, status: int, number: int, module: str
) -> None:
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'eos_client.{module}': os.kill(os.getpid(), {number})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.meta_path.insert(0, Finder()); sys.argv = 'eos-client {command}'.split()\n"
        "from eos_client.cli import main; main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "")


@pytest.fixture
def buffered_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """As most programs have it: what could not be written is tried again when the interpreter ends."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@pytest.mark.usefixtures("buffered_stderr")
def test_a_worker_whose_log_reader_has_gone_stops_with_a_status_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ticks.py").write_text(
        "import structlog, time\nfor _ in range(2000):\n    structlog.get_logger().info('tick'); time.sleep(0.05)\n"
    )
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "eos_client", "run", "ticks.py:f", *RUN]
    process = subprocess.Popen(command, stderr=writer, cwd=tmp_path)
    os.close(writer)
    assert b"tick" in os.read(reader, 1000)
    os.close(reader)
    assert process.wait(60) == 16


@pytest.mark.usefixtures("buffered_stderr")
@pytest.mark.parametrize(
    ("stdout", "prints"),
    [
        (">/dev/full", "print('result')"),
        ("| true", "result_console().print('result')"),
        (">/dev/full", "print('result'); 1 / 0"),
    ],
)
def test_a_result_that_cannot_be_written_is_named_with_a_status_of_its_own(stdout: str, prints: str) -> None:
    code = (
        "import sys, time\n"
        "from eos_client.cli import main\n"
        "from eos_client.cli.commands import topic\n"
        "from eos_client.cli.reporting import result_console\n"
        f"def tell(*_): time.sleep(0.3); {prints}\n"
        "topic.create_topics = tell\n"
        "sys.argv = ['eos-client', 'topic', 'create', 'orders', '--bootstrap', '127.0.0.1:1']; main()\n"
    )
    line = f'"$0" -c "$1" {stdout}; exit ${{PIPESTATUS[0]}}'
    ended = subprocess.run(["bash", "-c", line, sys.executable, code], capture_output=True, text=True, check=False)
    fails = "1 / 0" in prints
    assert ended.returncode == (1 if fails else 16)
    (told,) = ended.stderr.splitlines()
    assert ("ZeroDivisionError" if fails else "eos-client: stdout cannot be written: ") in told


@pytest.mark.usefixtures("buffered_stderr")
@pytest.mark.parametrize(
    ("stderr", "arguments", "status"),
    [
        ("<&- >&- 2>&-", ["run", "logs.py:absent", *RUN, "--verbose"], 3),
        ("2>/dev/full", ["run", "logs.py:absent", *RUN, "--log-format", "json"], 3),
        ("2>&-", ["topic", "create", "orders", "--bootstrap", "127.0.0.1:1", "--config", "linger.ms"], 2),
    ],
)
def test_a_command_that_cannot_write_to_stderr_works_and_ends_with_its_status(
    tmp_path: Path, stderr: str, arguments: list[str], status: int
) -> None:
    (tmp_path / "logs.py").write_text(
        "import pathlib, structlog\n"
        "for _ in range(1000):\n"
        "    structlog.get_logger().info('tick')\n"
        "pathlib.Path('worked').touch()\n"
    )
    command = ["bash", "-c", f'exec "$0" "$@" {stderr}', sys.executable, "-m", "eos_client", *arguments]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == status
    assert (tmp_path / "worked").exists() == (arguments[0] == "run")
