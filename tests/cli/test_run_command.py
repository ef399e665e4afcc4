"""``eos-client run`` on a real broker, and on the simulated cluster where a transform ends the process."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eos_client import ExactlyOnceLoop
from eos_client.cli.app import app
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.signals import hang_up_as_termination
from eos_client.confluent.admin.topic_records import GroupOffsets
from eos_client.loop.until_end import READ_TO_THE_END
from eos_client.testing import SimulatedCluster
from tests.support.waiting import wait_for


def run_line(cluster: Any, reference: str, sources: str, target: str, *more: str) -> list[str]:
    group = f"{cluster.prefix}-group"
    ends = ["--bootstrap", cluster.bootstrap_servers, "--group", group, "--from", sources, "--to", target]
    return ["run", reference, *ends, "--start-timeout", "60", *more]


def committed(cluster: Any, topic: str, partitions: int = 1) -> dict[int, int]:
    with GroupOffsets(cluster.bootstrap_servers, f"{cluster.prefix}-group", {}, stable=True) as offsets:
        return offsets.read(topic, partitions)


def test_plain_bytes_go_to_the_target_topic_and_sigterm_ends_with_status_0(
    cluster: Any, upper_file: Path, eos_client: Any
) -> None:
    first, second, target = cluster.topic("first"), cluster.topic("second"), cluster.topic("target")
    cluster.load(first, [b"a", b"b"])
    cluster.load(second, [b"c"])
    line = run_line(cluster, "shout.py:upper", f"{first},{second}", target, "--log-format", "json")
    worker = eos_client(*line)
    worker.wait_for(lambda: committed(cluster, first) == {0: 2} and committed(cluster, second) == {0: 1}, "commit")
    assert worker.terminate() == 0
    assert sorted(cluster.values(target)) == [b"A", b"B", b"C"]
    assert worker.events[-1]["event"] == "loop_summary"
    # Long before a session ends.
    wait_for(lambda: cluster.admin.group(f"{cluster.prefix}-group").state == "empty", "an empty group", timeout_s=20.0)


def test_sighup_leaves_the_group_and_threads_that_keep_the_process_alive_are_named(
    cluster: Any, tmp_path: Path, eos_client: Any
) -> None:
    source = cluster.topic("source")
    (tmp_path / "price.py").write_text(
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, name='price-feed').start()\n"
        "def price(record):\n"
        "    return None\n"
    )
    cluster.load(source, [b"a"])
    worker = eos_client(*run_line(cluster, "price.py:price", source, source, "--log-format", "json"))
    assert worker.wait_for_event("reads_its_own_output")["topic"] == source
    worker.wait_for(lambda: committed(cluster, source) == {0: 1}, "commit")
    worker.process.send_signal(signal.SIGHUP)
    assert worker.wait_for_event("waiting_for_threads")["threads"] == ["price-feed"]
    assert worker.events[-1]["event"] == "waiting_for_threads"
    wait_for(lambda: cluster.admin.group(f"{cluster.prefix}-group").state == "empty", "an empty group", timeout_s=20.0)


def test_sighup_that_nohup_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hang_up_as_termination():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("upper_file")
def test_until_end_ends_by_itself_with_status_0_and_sums_up(cluster: Any, typed: Any) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    cluster.load(source, [b"a", b"b", b"c"])
    line = run_line(cluster, "shout.py:upper", source, target, "--until-end", "--log-format", "json")
    for records in (3, 0):
        worker = typed(*line)
        assert worker.wait() == 0, worker.err
        assert [entry["reason"] for entry in worker.events if entry["event"] == "loop_stopped"] == [READ_TO_THE_END]
        summary = worker.events[-1]
        counts = summary["records_in"], summary["records_out"], summary["records_failed"]
        assert (summary["event"], counts) == ("job_done", (records, records, 0))
    assert cluster.values(target) == [b"A", b"B", b"C"]
    assert committed(cluster, source) == {0: 3}


def test_until_end_stopped_by_a_signal_ends_with_status_130(cluster: Any, tmp_path: Path, eos_client: Any) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    (tmp_path / "slow.py").write_text(
        "import time\ndef copy(record):\n    time.sleep(0.2)\n    return record.value()\n"
    )
    cluster.load(source, [b"%d" % number for number in range(1000)])
    worker = eos_client(*run_line(cluster, "slow.py:copy", source, target, "--until-end", "--log-format", "json"))
    worker.wait_for(lambda: committed(cluster, source)[0] > 0, "commit")
    assert worker.terminate() == ExitCode.INTERRUPTED
    assert [entry["reason"] for entry in worker.events if entry["event"] == "loop_stopped"] == ["SIGTERM"]
    assert len(cluster.values(target)) == committed(cluster, source)[0] < 1000


def test_output_records_choose_their_topic_key_and_headers(cluster: Any, tmp_path: Path, typed: Any) -> None:
    source, target, other = cluster.topic("source"), cluster.topic("target"), cluster.topic("other")
    (tmp_path / "route.py").write_text(
        "from eos_client import OutputRecord\n"
        "from targets import OTHER\n"
        "def route(record):\n"
        "    yield OutputRecord(value=record.value(), headers={'seen': b'yes'})\n"
        "    yield OutputRecord(OTHER, value=record.value() * 2)\n"
    )
    (tmp_path / "targets.py").write_text(f"OTHER = {other!r}\n")
    cluster.load(source, [b"x"])
    assert typed(*run_line(cluster, "route.py:route", source, target, "--until-end")).wait() == 0
    assert [(record.value, dict(record.headers)) for record in cluster.read(target)] == [(b"x", {"seen": b"yes"})]
    assert cluster.values(other) == [b"xx"]


def test_a_function_of_batches_gets_what_has_arrived_as_one_list(cluster: Any, tmp_path: Path, typed: Any) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    (tmp_path / "price.py").write_text(
        "def price(records):\n    return [b'%s of %d' % (record.value(), len(records)) for record in records]\n"
    )
    cluster.load(source, [b"a", b"b", b"c"])
    assert typed(*run_line(cluster, "price.py:price", source, target, "--batch", "--until-end")).wait() == 0
    assert cluster.values(target) == [b"a of 3", b"b of 3", b"c of 3"]


def test_a_record_that_fails_each_attempt_is_dead_lettered_and_the_others_go_on(
    cluster: Any, tmp_path: Path, typed: Any
) -> None:
    source, target, dead = cluster.topic("source"), cluster.topic("target"), cluster.topic("dead")
    (tmp_path / "price.py").write_text("def price(record):\n    return b'%d' % (100 // int(record.value()))\n")
    cluster.load(source, [b"4", b"0", b"5"])
    failing = ["--on-error", "dead_letter", "--dead-letter-topic", dead, "--attempts", "2"]
    line = run_line(cluster, "price.py:price", source, target, *failing, "--until-end", "--log-format", "json")
    worker = typed(*line)
    assert worker.wait() == 0, worker.err
    assert cluster.values(target) == [b"25", b"20"]
    (letter,) = cluster.read(dead)
    headers = dict(letter.headers)
    assert (letter.value, headers["eos.attempts"], headers["eos.offset"]) == (b"0", b"2", b"1")
    assert headers["eos.error"].startswith(b"ZeroDivisionError")
    assert headers["eos.error.place"] == b"price.py:2 in price"
    assert b"return b'%d' % (100 // int(record.value()))" in headers["eos.error.traceback"]
    (told,) = [entry for entry in worker.events if entry["event"] == "record_dead_lettered"]
    assert told["place"] == "price.py:2 in price"


@pytest.mark.soak  # without a broker: test_logs_and_progress.py
def test_progress_is_one_json_line_each_second_with_totals(cluster: Any, upper_file: Path, eos_client: Any) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    cluster.load(source, [b"%d" % number for number in range(500)])
    worker = eos_client(*run_line(cluster, "shout.py:upper", source, target, "--log-format", "json"))

    def reports() -> list[dict[str, Any]]:
        return [entry for entry in worker.events if entry["event"] == "loop_progress"]

    worker.wait_for(lambda: any(r.get("lag_records") == 0 and r["records_in"] == 500 for r in reports()), "no lag")
    assert worker.terminate() == 0
    final = reports()[-1]
    assert (final["records_in"], final["records_out"], final["partitions"]) == (500, 500, 1)
    assert final["committed"] >= 1
    assert final["generation_id"] >= 1


def test_a_raising_transform_names_the_record_and_nothing_of_its_transaction_is_visible(
    cluster: Any, tmp_path: Path, typed: Any
) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    (tmp_path / "fragile.py").write_text(
        "def check(record):\n"
        "    yield record.value()\n"
        "    if record.value() == b'17':\n"
        "        raise ValueError('cannot price this')\n"
    )
    cluster.load(source, [b"%d" % number for number in range(30)])
    worker = typed(*run_line(cluster, "fragile.py:check", source, target))
    assert worker.wait() == 7
    # Clients of other tests in this process may log beside it.
    (message,) = (line for line in worker.err.splitlines() if line.startswith("eos-client: "))
    assert "eos-client: the transform raised ValueError: cannot price this (fragile.py:4 in check)" in message
    assert message.endswith("or give --on-error skip, or --on-error dead_letter --dead-letter-topic TOPIC")
    assert f"{source}[0]@17" in message
    assert "Traceback" not in worker.err
    assert cluster.values(target) == [b"%d" % number for number in range(committed(cluster, source)[0])]
    assert b"17" not in cluster.values(target)


@pytest.mark.soak  # on the simulated cluster: the next test
def test_a_transform_that_ends_the_process_is_a_failure_and_not_a_success(
    cluster: Any, tmp_path: Path, eos_client: Any
) -> None:
    source, target = cluster.topic("source"), cluster.topic("target")
    (tmp_path / "leaves.py").write_text("import sys\ndef leave(record):\n    sys.exit(0)\n")
    cluster.load(source, [b"1"])
    worker = eos_client(*run_line(cluster, "leaves.py:leave", source, target))
    assert worker.wait() == 7
    assert worker.err.splitlines()[-1].startswith(
        "eos-client: SystemExit(0) (leaves.py:3 in leave) was raised while the transform was at the record "
        f"{source}[0]@0; its transaction"
    )
    assert not committed(cluster, source).get(0)


LEAVING = """
class Own(BaseException): ...
def kept(record): raise KeyboardInterrupt
def left(record):
    yield record.value()
    raise KeyboardInterrupt
def exited(record): raise SystemExit("bye")
def closed(record): raise GeneratorExit
def own(record): raise Own("it")
def all_of(records): raise KeyboardInterrupt
"""
RAISED = {"exited": "SystemExit('bye')", "closed": "GeneratorExit()", "own": "Own('it')"}


@pytest.mark.parametrize("more", [[], ["--log-format", "json"], ["--on-error", "skip", "--attempts", "2"]], ids=str)
@pytest.mark.parametrize("name", ["kept", "left", "exited", "closed", "own", "all_of"])
def test_whatever_a_transform_raises_without_a_signal_is_its_failure_and_names_the_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    more: list[str],
) -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2"])
    monkeypatch.setattr("eos_client.cli.run.ExactlyOnceLoop", partial(ExactlyOnceLoop, clients=cluster))
    (tmp_path / "leaves.py").write_text(LEAVING)
    line = ["--bootstrap", "simulated:1", "--group", "g", "--from", "orders", "--to", "invoices", *more]
    with pytest.raises(SystemExit) as ended:
        app(["run", f"{tmp_path}/leaves.py:{name}", *line, *(["--batch"] if name == "all_of" else [])])
    assert ended.value.code == ExitCode.TRANSFORM_RAISED
    last = capsys.readouterr().err.splitlines()[-1]
    said = json.loads(last)["message"] if last.startswith("{") else last
    others = " or one of 1 more" if name == "all_of" else ""
    raised = RAISED.get(name, "KeyboardInterrupt()")
    assert f"{raised} (leaves.py:" in said
    assert f" in {name}) was raised while the transform was at the record orders[0]@0{others}; " in said
    assert (cluster.values("invoices"), cluster.committed()) == ([], {})


def test_a_missing_input_topic_is_named(cluster: Any, upper_file: Path, typed: Any) -> None:
    source = cluster.topic("orders")
    worker = typed(*run_line(cluster, "shout.py:upper", f"{source}x", source))
    assert worker.wait() == 6
    message = worker.err.splitlines()[-1]
    assert f"{source}x" in message
    assert "does not exist" in message


def test_two_processes_with_one_pinned_id_do_not_take_turns(cluster: Any, upper_file: Path, eos_client: Any) -> None:
    source, target = cluster.topic("source", partitions=2), cluster.topic("target")
    pinned = run_line(
        cluster, "shout.py:upper", source, target, "--transactional-id", cluster.prefix, "--log-format", "json"
    )
    older = eos_client(*pinned)
    older.wait_for_event("partitions_assigned")
    newer = eos_client(*pinned)
    newer.wait_for_event("partitions_assigned")
    expected = []
    for number in range(200):  # until the older one has had work again, and was refused
        values = [b"%d-%d" % (number, partition) for partition in (0, 1)]
        for partition in (0, 1):
            cluster.load(source, [values[partition]], partition=partition)
        expected += values
        if older.process.poll() is not None:
            break
    assert older.wait() == 8
    assert "a newer instance has this transactional.id" in older.err
    assert "give each running instance a transactional.id of its own" in older.err
    newer.wait_for(
        lambda: committed(cluster, source, 2) == cluster.admin.end_offsets(source, 2), "takeover by the newer one"
    )
    assert newer.terminate() == 0
    assert sorted(cluster.values(target)) == sorted(expected)


@pytest.mark.soak  # tests/kafka/test_readme.py runs a program and a command like this
def test_the_readmes_first_program_runs(cluster: Any, start: Any) -> None:
    source, target = cluster.topic("orders"), cluster.topic("invoices")
    cluster.load(source, [b'{"order_id": "O-1", "cents": 1000}', b'{"order_id": "O-2", "cents": 250}'])
    example = Path(__file__).parents[2] / "examples" / "consume_transform_produce.py"
    group = f"{cluster.prefix}-group"
    program = start(
        *(str(example), "--bootstrap", cluster.bootstrap_servers),
        *("--group", group, "--from", source, "--to", target),
    )
    program.wait_for(lambda: committed(cluster, source) == {0: 2}, "commit")
    assert program.terminate() == 0
    assert cluster.values(target) == [
        b'{"order_id": "O-1", "cents": 1000, "tax": 190, "total": 1190}',
        b'{"order_id": "O-2", "cents": 250, "tax": 48, "total": 298}',
    ]
    assert "stopped after 2 records" in program.err
