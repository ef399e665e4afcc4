"""The demo's transform: an invoice for each order, and a digest for a line that is not an order.

``eos-client run invoice.py:invoice`` runs it; the verdict calls :func:`invoice_of` again on what was loaded and
compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from eos_client.ports import OutputRecord, Record

PARTITION_HEADER = "input.partition"
OFFSET_HEADER = "input.offset"

_CENT = Decimal("0.01")
_TAX_RATES = {"EUR": Decimal("0.19"), "GBP": Decimal("0.20"), "CHF": Decimal("0.081"), "USD": Decimal("0.07")}


def invoice(record: Record) -> Iterator[OutputRecord]:
    """Yield one output for one input, to the partition it came from, naming its origin in headers."""
    yield OutputRecord(
        value=invoice_of(record.value() or b""),
        key=record.key(),
        partition=record.partition(),
        headers=[
            (PARTITION_HEADER, str(record.partition()).encode()),
            (OFFSET_HEADER, str(record.offset()).encode()),
        ],
    )


def invoice_of(line: bytes) -> bytes:
    """Return the output for one input line: the same bytes for the same line, whoever computes it."""
    order = order_in(line)
    if order is None:
        return _to_json({"bytes": len(line), "words": len(line.split()), "sha256": hashlib.sha256(line).hexdigest()})
    net, currency = order
    tax = (net * _TAX_RATES.get(currency, Decimal(0))).quantize(_CENT)
    event = json.loads(line)
    return _to_json(
        {
            "order_id": event.get("order_id"),
            "customer_id": event.get("customer_id"),
            "net": str(net),
            "tax": str(tax),
            "gross": str(net + tax),
            "currency": currency,
            "sha256": hashlib.sha256(line).hexdigest(),
        }
    )


def order_in(line: bytes) -> tuple[Decimal, str] | None:
    """Return amount and currency of an order event, or ``None`` for any other line."""
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
        amount, currency = Decimal(str(event["amount"])), str(event["currency"])
        return (amount.quantize(_CENT), currency) if amount.is_finite() else None
    except (ValueError, KeyError, TypeError, InvalidOperation):
        return None


def _to_json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
