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
    try:
        fields = _invoiced(json.loads(line))
    except (ValueError, KeyError, TypeError, InvalidOperation):
        fields = {"bytes": len(line), "words": len(line.split())}
    return json.dumps({**fields, "sha256": hashlib.sha256(line).hexdigest()}, separators=(",", ":")).encode()


def _invoiced(order: Any) -> dict[str, Any]:
    amount, currency = Decimal(str(order["amount"])), str(order["currency"])
    if not amount.is_finite():
        raise ValueError(amount)
    net = amount.quantize(_CENT)
    tax = (net * _TAX_RATES.get(currency, Decimal(0))).quantize(_CENT)
    return {
        "order_id": order.get("order_id"),
        "customer_id": order.get("customer_id"),
        "net": str(net),
        "tax": str(tax),
        "gross": str(net + tax),
        "currency": currency,
    }
