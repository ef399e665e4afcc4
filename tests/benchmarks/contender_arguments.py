"""The command line that all throughput contenders share."""

from __future__ import annotations

import argparse

COMMIT_INTERVAL_S = 0.1
BATCH_RECORDS = 500
TRANSFORM, INLINE, KEYED = FORMS = ("transform", "inline", "keyed")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Where from, where to, how much, and librdkafka settings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", dest="sink", required=True)
    parser.add_argument("--records", type=int, required=True, help="how many the input holds")
    parser.add_argument("--seconds", type=float, required=True, help="how long to measure")
    parser.add_argument("--form", choices=FORMS, default=TRANSFORM, help="how a record becomes an output")
    parser.add_argument("--config", action="append", default=[])
    options = parser.parse_args(arguments)
    options.config = dict(pair.split("=", 1) for pair in options.config)
    return options
