"""The source of the demo's records: the user's file, standard input, or generated orders."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

from eos_client.cli.failures import CommandLineError

SAMPLE_EVENT_COUNT = 50_000
_KEY_FIELDS = ("customer_id", "customer", "user_id", "key", "id")
_CATALOGUE = (
    ("ESP-1", "espresso beans 1 kg", 2190),
    ("FLT-100", "paper filters, 100", 450),
    ("GRD-7", "hand grinder", 8900),
    ("KTL-2", "gooseneck kettle", 6450),
    ("SCL-1", "pocket scale", 3299),
    ("CUP-6", "cups, set of 6", 2750),
)
_MARKETS = (("DE", "EUR"), ("FR", "EUR"), ("GB", "GBP"), ("US", "USD"), ("CH", "CHF"))
_MARKET_WEIGHTS = (40, 22, 16, 14, 8)
_CHANNELS = ("web", "app", "shop")


@dataclass(frozen=True)
class InputLines:
    """The records to load: how many there are, where they come from, and a fresh pass over them.

    :param stream: seekable and binary; one record a line.
    """

    source: str
    count: int
    stream: IO[bytes]

    def __iter__(self) -> Iterator[bytes]:
        """Yield every line from the start, without its line end. An empty line is a record too."""
        self.stream.seek(0)
        for line in self.stream:
            yield line.rstrip(b"\r\n")

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_input(name: str | None) -> InputLines:
    """Open what ``--input`` names: a path, ``-`` for standard input, ``None`` for generated orders.

    :raises CommandLineError: the file cannot be read or holds no line.
    """
    if name is None:
        orders = sample_orders(SAMPLE_EVENT_COUNT)
        lines = (json.dumps(order, separators=(",", ":")).encode() + b"\n" for order in orders)
        return InputLines(f"{SAMPLE_EVENT_COUNT:,} generated orders", SAMPLE_EVENT_COUNT, _spooled(lines))
    try:
        stream = _spooled(sys.stdin.buffer) if name == "-" else Path(name).open("rb")  # noqa: SIM115  close() does
        count = sum(1 for _ in stream)
    except OSError as error:
        raise CommandLineError(
            f"--input {name}: {error.strerror}. Give a text or NDJSON file, or - for stdin"
        ) from error
    source = "standard input" if name == "-" else name
    if count == 0:
        stream.close()
        raise CommandLineError(f"--input: {source} holds no line, so there is nothing to process")
    return InputLines(source, count, stream)


def _spooled(lines: Iterable[bytes]) -> IO[bytes]:
    spool: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  InputLines.close() does
    spool.writelines(lines)
    spool.seek(0)
    return spool


def sample_orders(count: int) -> Iterator[dict[str, Any]]:
    """Yield ``count`` order events, always the same ones.

    Some customers order far more often than others, and time runs at the pace of a busy shop.
    """
    rng = random.Random(1)  # noqa: S311  sample data, not a secret
    placed_at = datetime(2026, 3, 2, 8, 0, tzinfo=timezone.utc)
    for number in range(1, count + 1):
        placed_at += timedelta(milliseconds=rng.randint(5, 1800))
        country, currency = rng.choices(_MARKETS, _MARKET_WEIGHTS)[0]
        items: list[dict[str, Any]] = [
            {"sku": sku, "name": name, "quantity": rng.choice((1, 1, 1, 2, 3)), "unit_cents": cents}
            for sku, name, cents in rng.sample(_CATALOGUE, rng.choice((1, 1, 1, 2, 2, 3)))
        ]
        cents = sum(item["quantity"] * item["unit_cents"] for item in items)
        yield {
            "event_id": f"{rng.getrandbits(64):016x}",
            "order_id": f"O-{number:08d}",
            "placed_at": placed_at.isoformat(timespec="milliseconds"),
            "customer_id": f"C-{int(4000 * rng.random() ** 2):04d}",
            "country": country,
            "channel": rng.choice(_CHANNELS),
            "items": items,
            "amount": f"{cents // 100}.{cents % 100:02d}",
            "currency": currency,
        }


def key_of(line: bytes) -> bytes | None:
    """Return the record key that an NDJSON line carries (its customer, user or id), or ``None``."""
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    value = next((event[name] for name in _KEY_FIELDS if event.get(name) is not None), None)
    return None if value is None else str(value).encode()
