"""Exactly-once in one file: read orders, write invoices, each exactly once, whatever crashes or rebalances.

    python examples/consume_transform_produce.py --bootstrap localhost:9092 --from orders --to invoices

Both topics must exist (``eos-client broker`` starts a Kafka to try it on). Start it two or three times, kill one, and
start it again. SIGTERM or Ctrl-C stops it cleanly.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.errors import EosError
from eos_client.ports import Record

TAX_PERCENT = 19


def invoice(record: Record) -> Iterator[OutputRecord]:
    """Make one invoice of one order; it becomes visible together with the order's offset, or not at all."""
    order = json.loads(record.value())
    cents = int(order["cents"])
    tax = round(cents * TAX_PERCENT / 100)
    body = {"order_id": order["order_id"], "cents": cents, "tax": tax, "total": cents + tax}
    yield OutputRecord(value=json.dumps(body), key=record.key())  # to the loop's output_topic


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    options.add_argument("--group", default="billing")
    options.add_argument("--from", dest="source", default="orders", metavar="TOPIC")
    options.add_argument("--to", dest="target", default="invoices", metavar="TOPIC")
    given = options.parse_args()

    try:
        config = EosConfig({"bootstrap.servers": given.bootstrap}, group_id=given.group)
        with ExactlyOnceLoop(config, [given.source], invoice, output_topic=given.target) as loop:
            loop.run()  # until SIGTERM, loop.stop(), or a fatal error named for what to do
            print(f"stopped after {loop.counters.records_in} records", file=sys.stderr)
    except EosError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
