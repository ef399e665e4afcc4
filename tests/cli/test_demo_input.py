import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from eos_client.cli.demo.input_file import SAMPLE_EVENT_COUNT, key_of, open_input, sample_orders
from eos_client.cli.demo.job.invoice import invoice, invoice_of
from eos_client.cli.failures import CommandLineError


def test_every_line_is_a_record_also_empty_and_equal_ones(tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_bytes(b"one\r\n\nsame\nsame\nno line end")
    lines = open_input(str(path))
    assert lines.count == 5
    assert list(lines) == [b"one", b"", b"same", b"same", b"no line end"]
    assert list(lines) == list(lines)


def test_standard_input_is_read_to_its_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    lines = open_input("-")
    assert (lines.count, list(lines)) == (2, [b"a", b"b"])


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00\n\x80")
    assert list(open_input(str(path))) == [b"\xff\xfe\x00", b"\x80"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_bytes(b""), lambda path: path.mkdir()])
def test_an_input_that_cannot_be_used_is_named(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "orders.ndjson"
    make(path)
    with pytest.raises(CommandLineError, match=r"--input.*orders.ndjson"):
        open_input(str(path))


def test_the_sample_is_some_fifty_thousand_realistic_orders() -> None:
    lines = open_input(None)
    events = [json.loads(line) for line in lines]
    assert lines.count == len(events) == SAMPLE_EVENT_COUNT
    assert len({event["event_id"] for event in events}) == SAMPLE_EVENT_COUNT
    assert [event["placed_at"] for event in events] == sorted(event["placed_at"] for event in events)
    assert {event["currency"] for event in events} == {"EUR", "GBP", "USD", "CHF"}
    assert len({event["customer_id"] for event in events}) > 1000
    for event in events[:100]:
        items = sum(item["quantity"] * item["unit_cents"] for item in event["items"])
        assert Decimal(event["amount"]) * 100 == items


def test_the_sample_is_always_the_same() -> None:
    assert list(sample_orders(20)) == list(sample_orders(20))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"customer_id": "C-1", "id": 5}', b"C-1"),
        (b'{"id": 5}', b"5"),
        (b'{"customer": null, "user_id": "u"}', b"u"),
        (b'{"other": 1}', None),
        (b'{"broken', None),
        (b"[1, 2]", None),
        (b"plain text", None),
    ],
)
def test_an_ndjson_line_brings_its_key(line: Any, key: Any) -> None:
    assert key_of(line) == key


def test_an_order_becomes_an_invoice_with_exact_cents() -> None:
    line = b'{"order_id": "O-1", "customer_id": "C-1", "amount": "10.05", "currency": "EUR"}'
    made = json.loads(invoice_of(line))
    assert (made["net"], made["tax"], made["gross"]) == ("10.05", "1.91", "11.96")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"plain",
        b"\xff\xfe",
        b"{",
        b"{}",
        b'{"amount": "much", "currency": "EUR"}',
        b'{"amount": "NaN", "currency": "EUR"}',
        b'{"amount": "Infinity", "currency": "EUR"}',
        b'{"amount": 1}',
    ],
)
def test_any_other_line_becomes_a_digest_that_names_its_bytes(line: Any) -> None:
    made = json.loads(invoice_of(line))
    assert made["bytes"] == len(line)
    assert invoice_of(line) == invoice_of(line)


def test_the_transform_names_the_origin_of_its_output_and_keeps_the_partition() -> None:
    record = Mock(**{"partition.return_value": 3, "offset.return_value": 17, "key.return_value": b"C-1"})
    record.value.return_value = b"line"
    (output,) = invoice(record)
    assert (output.partition, output.key, output.value) == (3, b"C-1", invoice_of(b"line"))
    assert output.headers == [("input.partition", b"3"), ("input.offset", b"17")]
