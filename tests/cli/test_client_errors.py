from types import SimpleNamespace
from typing import Any

import pytest

from eos_client.cli import logs
from eos_client.cli.logs import ClientErrors, LogFormat, configure_logs, log_throttling


def error(kind: str, text: str) -> Any:
    return SimpleNamespace(name=lambda: kind, str=lambda: text)


def test_a_flood_of_equal_errors_is_one_line_for_each_interval_with_a_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    now = [0.0]
    monkeypatch.setattr(logs, "REPEAT_INTERVAL_S", 10)
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    errors = ClientErrors()
    for step in range(25):
        now[0] = step * 0.5
        errors(error("_TRANSPORT", f"connection refused {step}"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "connection refused 0" in lines[0]
    assert "connection refused 20" in lines[1]
    assert "repeated=19" in lines[1]


def test_another_kind_of_error_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    errors = ClientErrors()
    errors(error("_TRANSPORT", "connection refused"))
    errors(error("_AUTHENTICATION", "bad password"))
    text = capsys.readouterr().err
    assert "connection refused" in text
    assert "bad password" in text


def test_only_a_wait_of_seconds_for_a_client_quota_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.CONSOLE, verbose=False)
    for wait_s in (0.0, 0.2, 4.0, 12.3):  # librdkafka reports the end of a wait as one of 0 s
        log_throttling(SimpleNamespace(broker_name="b:9092", throttle_time=wait_s))
    (line,) = capsys.readouterr().err.splitlines()
    assert "client_throttled" in line
    assert "wait_s=12" in line
