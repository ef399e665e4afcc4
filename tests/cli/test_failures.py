import json
import re
from typing import Any

import pytest

from eos_client import errors
from eos_client.cli import failures
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import EXIT_CODES, exit_code_of, exit_code_table, failures_reported
from eos_client.cli.logs import LogFormat, configure_logs

EXPECTED = {
    errors.ConfigurationError("x"): 4,
    errors.ClusterUnavailableError("x"): 5,
    errors.AuthenticationError("x"): 14,
    errors.ClusterUnfitError("x"): 6,
    errors.TransformError("orders", 3, 17, ValueError("x")): 7,
    errors.ProducerFencedError("x"): 8,
    errors.OutputRefusedError("x"): 7,
    errors.FatalClientError("x"): 9,
    errors.UnknownOutcomeError("x"): 10,
    errors.EmbeddedKafkaError("x"): 11,
    errors.EmbeddedDatabaseError("x"): 11,
    failures.CommandLineError("x"): 2,
    failures.TransformLoadError("x"): 3,
    failures.NotExactlyOnceError("x"): 12,
    errors.RetriableError("x"): 9,
    errors.WrongThreadError("x"): 9,
    RuntimeError("x"): 1,
}


@pytest.mark.parametrize(("error", "code"), EXPECTED.items(), ids=lambda value: type(value).__name__)
def test_each_kind_of_error_has_its_documented_exit_status(error: Any, code: Any) -> None:
    assert exit_code_of(error) == code


def test_exit_codes_are_distinct_and_only_success_is_zero() -> None:
    codes = [code.value for code in ExitCode]
    assert len(set(codes)) == len(codes)
    assert [code for code in ExitCode if code == 0] == [ExitCode.OK]


def test_no_row_is_hidden_by_an_earlier_one() -> None:
    for number, (kind, _code) in enumerate(EXIT_CODES):
        assert not any(issubclass(kind, earlier) for earlier, _ in EXIT_CODES[:number]), kind


def test_the_table_in_the_help_lists_every_code() -> None:
    listed = {int(match) for match in re.findall(r"^ *(\d+)  \S", exit_code_table(), re.MULTILINE)}
    assert listed == set(ExitCode)


def test_an_error_is_one_line_on_stderr_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.TransformError("orders", 3, 17, ValueError("no price"))
    with pytest.raises(SystemExit) as ended, failures_reported(verbose=False):
        raise error
    captured = capsys.readouterr()
    assert ended.value.code == 7
    assert captured.out == ""
    assert captured.err.startswith("eos-client: the transform raised ValueError: no price on the record at orders[3]@")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_the_way_out_of_a_failed_record_names_options_of_the_command(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(LogFormat.JSON, verbose=False)
    with pytest.raises(SystemExit), failures_reported(verbose=False, as_json=as_json):
        raise errors.TransformError("orders", 3, 17, ValueError("no price"), place="price.py:12 in price")
    said = capsys.readouterr().err
    assert "ValueError: no price (price.py:12 in price) on the record" in said
    assert "or give --on-error skip, or --on-error dead_letter --dead-letter-topic TOPIC" in said
    assert "on_error" not in said


def test_verbose_adds_the_traceback_with_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), failures_reported(verbose=True):
        raise errors.FatalClientError("stopped") from OSError("disk on fire")
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "disk on fire" in text
    assert text.endswith("eos-client: stopped\n")


def test_what_an_application_puts_into_its_error_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), failures_reported(verbose=False):
        raise errors.TransformError("orders", 3, 17, ValueError("bad\n02:03:07 all is well\x1b[2J\0"))
    (line,) = capsys.readouterr().err.splitlines()
    assert r"bad\n02:03:07 all is well\x1b[2J\x00" in line


def test_an_unexpected_error_says_its_type_and_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, failures_reported(verbose=False):
        raise KeyError("oops")
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("eos-client: unexpected KeyError: 'oops'. Run again with --verbose")


def test_json_logs_report_the_error_as_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.JSON, verbose=False)
    with pytest.raises(SystemExit), failures_reported(verbose=False, as_json=True):
        raise errors.ClusterUnfitError("no topic 'orders'")
    entry = json.loads(capsys.readouterr().err)
    assert (entry["event"], entry["error"], entry["exit_code"]) == ("command_failed", "ClusterUnfitError", 6)
    assert entry["message"] == "no topic 'orders'"
    assert "exception" not in entry
