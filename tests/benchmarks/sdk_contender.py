"""Ours: ExactlyOnceLoop with a trivial transform, nothing configured but where the cluster is."""

from __future__ import annotations

import sys

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.observe import Event, TransactionCommitted
from tests.benchmarks.contender_arguments import BATCH_RECORDS, COMMIT_INTERVAL_S, KEYED, parse
from tests.benchmarks.measure import Window
from tests.benchmarks.transforms import copy_keyed, copy_value


def main(arguments: list[str]) -> int:
    """Copy until the window is complete and print the measurement."""
    options = parse(arguments)
    config = EosConfig(
        {"bootstrap.servers": options.bootstrap, **options.config},
        group_id=options.group,
        transactional_id=options.group,
        commit_interval_s=COMMIT_INTERVAL_S,
        batch_size=BATCH_RECORDS,
    )
    window = Window(options.seconds, options.records)

    def note(event: Event) -> None:
        if isinstance(event, TransactionCommitted) and window.committed(event.records_in):
            loop.stop()

    copy = copy_keyed if options.form == KEYED else copy_value
    with ExactlyOnceLoop(config, [options.source], copy, output_topic=options.sink, hook=note) as loop:
        loop.run()
    print(window.measurement().to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
