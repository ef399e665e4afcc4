"""A long stream under kills of all sorts, our sink and Spark's own in one run: a soak test.

    python -m tests.verification.spark_soak [--batches 200] [--kills 50] [--seed N] [--only eos|plain] [--logs DIR]

Each sink writes the same numbers from executors that are processes (local-cluster[2,2,1024]). Between micro-batches
of its own choice the nemesis strikes, mostly while a transaction is open: it kills an executor, a Python worker or
the whole application, freezes the application and thaws it beside its successor, or leaves its workers as orphans
that wake there. Every new start has another plan. Exit status: 0 ours is exactly once and Spark's own is not, 1 one
of them is otherwise, 2 the broker itself broke atomicity.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.judging import Outcome
from tests.spark.rig.settings import Sink
from tests.verification.spark_nemesis import KINDS, SparkNemesis
from tests.verification.tables import table

CLUSTER = "local-cluster[2,2,1024]"
PATIENCE = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}
RUN_TIMEOUT_S = 1800.0
BATCHES_MAX = 100_000
HEADS = (
    "sink", "seed", "batches", *(kind.value for kind in KINDS), "starts", "own exits", "in", "out", "lost", "doubled",
    "key order", "minutes", "verdict",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SoakRun:
    """One sink's stream from start to judgement."""

    sink: Sink
    seed: int
    outcome: Outcome
    kills: Counter[str]
    starts: int
    own_exits: list[str]
    batches: int
    seconds: float

    def row(self) -> list[object]:
        verdict = self.outcome.verdict
        word = "INCONCLUSIVE" if self.outcome.inconclusive else "holds" if self.outcome.exactly_once else "FAILS"
        return [
            self.sink.value, self.seed, self.batches, *(self.kills[kind.value] for kind in KINDS), self.starts,
            len(self.own_exits), verdict.inputs, verdict.outputs, self.outcome.lost, self.outcome.doubled,
            self.outcome.reordered, f"{self.seconds / 60:.1f}", word,
        ]  # fmt: skip


def soak(bootstrap: str, broker_log: Path, directory: Path, sink: Sink, options: argparse.Namespace) -> SoakRun:
    """Run one sink's stream under its kills."""
    began_s = time.monotonic()
    with ClusterQuery(
        bootstrap, directory, sink, master=CLUSTER, batches=BATCHES_MAX, rows_per_batch=options.rows,
        pace_s=options.pace, source_partitions=4,
        spark=PATIENCE,
    ) as stage:  # fmt: skip
        nemesis = SparkNemesis(stage, random.Random(options.seed), options.kills, options.batches)
        nemesis.run(timeout_s=RUN_TIMEOUT_S)
        outcome = stage.judge(broker_log.read_text(errors="replace"))
        return SoakRun(
            sink, options.seed, outcome, nemesis.kills, len(stage.applications), nemesis.own_exits,
            len(nemesis.finished_batches()), time.monotonic() - began_s,
        )  # fmt: skip


def parse(arguments: list[str]) -> argparse.Namespace:
    """Command line of the soak run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200, help="at least so many micro-batches")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=500, help="rows of a micro-batch")
    parser.add_argument("--pace", type=float, default=0.3, help="seconds between micro-batches")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=[sink.value for sink in Sink], default=None)
    parser.add_argument("--logs", type=Path, default=None, help="keep the logs of all starts there")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def main(arguments: list[str]) -> int:
    """Run both sinks with the same seed and print the table."""
    options = parse(arguments)
    sinks = [sink for sink in Sink if options.only in {None, sink.value}]
    runs = []
    directory = Path(tempfile.mkdtemp(prefix="spark-soak-"))
    print(f"seed {options.seed}: {options.batches} micro-batches, {options.kills} kills, {CLUSTER}", flush=True)
    try:
        with EmbeddedKafka() as broker:
            for sink in sinks:
                runs.append(soak(broker.bootstrap_servers, broker.log_path, directory, sink, options))
                print(f"{sink.value}: {runs[-1].outcome}", *runs[-1].own_exits, sep="\n  ", flush=True)
    finally:
        if options.logs is not None:
            shutil.copytree(
                directory, options.logs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("spark*", "*.jar")
            )
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\npython -m tests.verification.spark_soak {' '.join(arguments)}   (seed {options.seed})")
    print(table(HEADS, [run.row() for run in runs]))
    return status(runs)


def status(runs: list[SoakRun]) -> int:
    """Ours must hold, and the same faults must show in Spark's own sink."""
    if any(run.outcome.inconclusive for run in runs):
        return 2
    return 0 if all(run.outcome.exactly_once is (run.sink is Sink.EOS) for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
