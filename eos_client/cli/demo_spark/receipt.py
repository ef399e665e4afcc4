"""Computes the receipt that the example's stream promises for each record, without Spark."""

from __future__ import annotations

import hashlib
import json


def receipt_of(value: bytes) -> bytes:
    """Return the checksum that the receipt of a record must have."""
    return hashlib.sha256(value).hexdigest().encode()


def checksum_in(receipt: bytes) -> bytes:
    """Return the checksum in a receipt; empty if the value is no receipt."""
    try:
        return str(json.loads(receipt)["sha256"]).encode()
    except (ValueError, KeyError, TypeError):
        return b""
