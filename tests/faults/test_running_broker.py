"""The log of a broker on which one run follows the other: each is judged by what was written since it began."""

from __future__ import annotations

from pathlib import Path

from tests.verification.brokers import RunningBroker


def test_a_run_is_judged_by_what_its_broker_has_logged_since_it_began(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_bytes(b"of an earlier run\n")
    broker = RunningBroker("4.3.1", "127.0.0.1:9092", tmp_path, log)
    later = broker.from_now_on()
    assert later.log_lines() == []
    with log.open("ab") as end:
        end.write(b"of this run, \xff\n")
    assert later.log_lines() == ["of this run, \ufffd"]
    assert broker.log_lines() == ["of an earlier run", "of this run, \ufffd"]
