"""Keys of outputs that a transform of `eos-client run` gives as plain bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eos_client import OutputRecord
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.output_keys import LostKeys, keeping_keys


class Record:
    def __init__(self, key: bytes | None, offset: int = 0) -> None:
        self._key, self._offset = key, offset

    def key(self) -> bytes | None:
        return self._key

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"v"


def one(_record: Any) -> bytes:
    return b"v"


def several(_record: Any) -> list[Any]:
    return [b"v", OutputRecord(value=b"w", key=b"own")]


def yielded(record: Any) -> Iterator[Any]:
    yield from several(record)


def nothing(_record: Any) -> None:
    """Make no output."""


def wrong(_record: Any) -> Any:
    return 42


SHAPES = pytest.mark.parametrize("transform", [one, several, yielded])


def outputs(made: Any) -> list[Any]:
    return [made] if isinstance(made, (bytes, OutputRecord)) else list(made)


@SHAPES
def test_a_kept_key_is_that_of_the_record_unless_the_output_has_its_own(transform: Any) -> None:
    made = outputs(keeping_keys(transform)(Record(b"k")))
    assert [(each.value, each.key) for each in made] == [(b"v", b"k"), (b"w", b"own")][: len(made)]


@SHAPES
def test_a_record_without_a_key_changes_nothing(transform: Any) -> None:
    with capture_logs() as logs:
        for wrapped in (keeping_keys(transform), LostKeys(transform, takes_batches=False)):
            assert outputs(wrapped(Record(None)))[0] == b"v"
    assert logs == []


@pytest.mark.parametrize(("transform", "made"), [(nothing, None), (wrong, 42)])
def test_what_is_no_output_is_left_to_the_loop(transform: Any, made: Any) -> None:
    assert keeping_keys(transform)(Record(b"k")) is made
    assert LostKeys(transform, takes_batches=False)(Record(b"k")) is made


@SHAPES
def test_the_first_lost_key_is_said_once_with_its_record(transform: Any) -> None:
    watched = LostKeys(transform, takes_batches=False)
    with capture_logs() as logs:
        for offset in (7, 8, 9):
            assert outputs(watched(Record(b"k", offset)))[0] == b"v"
    (warning,) = logs
    assert (warning["event"], warning["log_level"], warning["offset"]) == ("key_not_kept", "warning", 7)
    assert "--keep-key" in warning["advice"]


def test_outputs_that_choose_their_keys_are_no_loss() -> None:
    with capture_logs() as logs:
        LostKeys(lambda _record: [OutputRecord(value=b"w")], takes_batches=False)(Record(b"k"))
    assert logs == []


def test_a_batch_that_loses_keys_is_told_what_to_yield() -> None:
    with capture_logs() as logs:
        LostKeys(lambda records: [b"v" for _ in records], takes_batches=True)([Record(None), Record(b"k", 8)])
    (warning,) = logs
    assert warning["offset"] == 8
    assert "--keep-key" not in warning["advice"]


@pytest.mark.parametrize(("options", "key"), [((), None), (("--keep-key",), b"k")])
def test_the_option_decides_what_the_loop_runs(
    monkeypatch: pytest.MonkeyPatch, upper_file: Path, typed: Any, options: tuple[str, ...], key: bytes | None
) -> None:
    given: list[Any] = []

    def loop(_config: Any, _topics: Any, *, transform: Any, **_: Any) -> None:
        given.append(transform)
        raise KeyboardInterrupt

    monkeypatch.setattr("eos_client.cli.run.ExactlyOnceLoop", loop)
    ends = ["--bootstrap", "127.0.0.1:1", "--group", "g", "--from", "orders", "--to", "invoices"]
    assert typed("run", "shout.py:upper", *ends, *options).status == 0
    (output,) = given[0](Record(b"k"))
    assert getattr(output, "key", None) == key


def test_a_key_cannot_be_kept_for_outputs_of_a_whole_batch(typed: Any) -> None:
    ends = ["--bootstrap", "127.0.0.1:1", "--group", "g", "--from", "orders", "--to", "invoices"]
    ended = typed("run", "shout.py:upper", *ends, "--batch", "--keep-key")
    assert ended.status == ExitCode.USAGE
    assert "--keep-key: an output of a batch belongs to no single record" in ended.err
