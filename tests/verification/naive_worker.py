"""The baseline: a plain confluent-kafka loop as one finds it, no revoke callback and no rewind. It must fail.

Run as a process: python -m tests.verification.naive_worker --bootstrap H:P --group G --from IN --to OUT
--transactional-id ID --commit-interval S [--config key=value ...]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from confluent_kafka import Consumer, KafkaException, Producer

TRANSACTION_CALL_TIMEOUT_S = 30.0
PRODUCER_KEYS = ("transaction.", "linger.", "retry.")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The same options as `eos-client run`, so that one harness starts either."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", dest="sink", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--commit-interval", type=float, default=0.1)
    parser.add_argument("--config", action="append", default=[])
    return parser.parse_args(arguments)


class NaiveLoop:
    """Consume, produce, and at every interval send position() of whatever is assigned, then commit."""

    def __init__(self, options: argparse.Namespace) -> None:
        settings: dict[str, str] = dict(pair.split("=", 1) for pair in options.config)
        of_producer = {key: value for key, value in settings.items() if key.startswith(PRODUCER_KEYS)}
        of_consumer = {key: value for key, value in settings.items() if key not in of_producer}
        self._options = options
        self._stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **of_consumer,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                **of_producer,
            }
        )

    def stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopping = True

    def run(self) -> None:
        self._producer.init_transactions(TRANSACTION_CALL_TIMEOUT_S)
        self._consumer.subscribe([self._options.source])
        while not self._stopping:
            self._commit_or_abort()
        self._consumer.close()

    def _commit_or_abort(self) -> None:
        try:
            self._one_transaction()
        except KafkaException as failure:
            error = failure.args[0]
            print(f"commit failed: {error}", flush=True)
            if error.fatal():
                raise
            if error.txn_requires_abort():
                self._producer.abort_transaction(TRANSACTION_CALL_TIMEOUT_S)

    def _one_transaction(self) -> None:
        self._producer.begin_transaction()
        until_s = time.monotonic() + self._options.commit_interval
        consumed = 0
        while not self._stopping and (time.monotonic() < until_s or not consumed):
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    self._producer.produce(self._options.sink, value=message.value(), key=message.key())
                    consumed += 1
        positions = self._consumer.position(self._consumer.assignment())
        self._producer.send_offsets_to_transaction(
            [position for position in positions if position.offset >= 0],
            self._consumer.consumer_group_metadata(),
            TRANSACTION_CALL_TIMEOUT_S,
        )
        self._producer.commit_transaction(TRANSACTION_CALL_TIMEOUT_S)


def main() -> int:
    loop = NaiveLoop(parse(sys.argv[1:]))
    signal.signal(signal.SIGTERM, loop.stop)
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
