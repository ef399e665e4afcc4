"""What one Spark application of the rig is told: plain values that travel as one JSON text."""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from pathlib import Path

NOTICES_OTHER_ROWS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""What makes Spark notice that a row is another one when it is made again; false by default in PySpark 4.1."""

CHEAP_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A test's JVM ends before code that was compiled to the last has been worth it."""


class Sink(enum.Enum):
    """Who writes: ours, into Kafka or a database, or Spark's own Kafka sink as the positive control."""

    EOS = "eos"
    DATABASE = "database"
    PLAIN = "plain"


class Action(enum.Enum):
    """What happens to whom at a step; each happens once."""

    KILL_EXECUTOR = "kill_executor"
    """SIGKILL for the executor's JVM, its Python daemon and this worker: a machine that dies."""
    KILL_WORKER = "kill_worker"
    """SIGKILL for this Python worker alone."""
    FREEZE_EXECUTOR = "freeze_executor"
    """SIGSTOP for the executor's JVM, its daemon and this worker."""
    FREEZE = "freeze"
    """SIGSTOP for this Python process alone: a worker, or the driver; the test does the rest."""
    FREEZE_APPLICATION = "freeze_application"
    """SIGSTOP for every process of the application, this one last."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do when a named step is reached; `slot` None means whichever comes first."""

    step: str
    batch_id: int
    action: Action
    slot: int | None = None

    @property
    def name(self) -> str:
        """Also the name of the file that says that it has happened."""
        return f"{self.step}-{self.batch_id}-{'any' if self.slot is None else self.slot}-{self.action.value}"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One query: `rows_per_batch` contiguous numbers a micro-batch until `batches` are done; key = number % keys.

    `bootstrap`, `topic`: the brokers and the topic, or the URL of a database and its table.

    `random_keys`: a number has another key each time that Spark makes its row.
    """

    bootstrap: str
    topic: str
    sink_id: str
    directory: Path
    sink: Sink = Sink.EOS
    batches: int = 4
    rows_per_batch: int = 400
    source_partitions: int = 3
    keys: int = 20
    slots: int = 4
    master: str = "local[2,4]"
    repartition: int | None = None
    random_keys: bool = False
    shuffle_partitions: int = 4
    adaptive: bool = True
    pace_s: float = 0.0
    spark: dict[str, str] = dataclasses.field(default_factory=dict)
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    driver_faults: tuple[Fault, ...] = ()
    mutant: str = ""

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint: the same for every start of the query."""
        return self.directory / "checkpoint"

    @property
    def total(self) -> int:
        """How many numbers a whole run writes."""
        return self.batches * self.rows_per_batch

    @property
    def wanted_file(self) -> Path:
        """Says, once it is there, how many batches a running query shall write instead of `batches`."""
        return self.directory / "batches-wanted"

    def batches_wanted(self) -> int:
        return int(self.wanted_file.read_text()) if self.wanted_file.exists() else self.batches

    def changed(self, **changes: object) -> StreamSettings:
        """The same query, started with other settings."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=_as_text)

    @classmethod
    def from_json(cls, text: str) -> StreamSettings:
        fields = json.loads(text)
        for name in ("faults", "driver_faults"):
            fields[name] = tuple(Fault(**{**each, "action": Action(each["action"])}) for each in fields[name])
        return cls(**{**fields, "directory": Path(fields["directory"]), "sink": Sink(fields["sink"])})


def _as_text(value: object) -> str:
    return value.value if isinstance(value, enum.Enum) else str(value)
