"""How a worker process is started: the client under test through its command line, or the naive baseline."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.verification.protocols import TRANSACTION_TIMEOUT_MS

START_TIMEOUT_S = 60.0
NAIVE_MODULE = "tests.verification.naive_worker"
MUTANT_MODULE = "tests.verification.mutant_worker"
TRANSFORMS = Path(__file__).with_name("transforms.py")


class Contender(enum.Enum):
    """Who does the work."""

    OURS = "eos-client"
    MUTANT = "mutant"
    NAIVE = "naive"


class Transform(enum.Enum):
    """What our workers compute; the value is the function's name in `transforms.py`."""

    COPY = "copy"
    HALVES = "halves"


@dataclass(frozen=True, slots=True)
class Job:
    """One group's work: where from, where to, as whom. Calling it with a slot gives that worker's command."""

    contender: Contender
    bootstrap: str
    group: str
    source: str
    sink: str
    commit_interval_s: float = 0.1
    config: Mapping[str, str] = field(default_factory=dict)
    pinned_ids: bool = True
    transform: Transform = Transform.COPY

    def __call__(self, slot: int) -> list[str]:
        command = [sys.executable, "-m"]
        if self.contender is not Contender.NAIVE:
            program = "eos_client" if self.contender is Contender.OURS else MUTANT_MODULE
            command += [program, "run", f"{TRANSFORMS}:{self.transform.value}"]
            command += ["--start-timeout", str(START_TIMEOUT_S)]
        else:
            command += [NAIVE_MODULE]
        command += ["--bootstrap", self.bootstrap, "--group", self.group, "--from", self.source, "--to", self.sink]
        command += ["--commit-interval", str(self.commit_interval_s)]
        if self.pinned_ids or self.contender is Contender.NAIVE:
            command += ["--transactional-id", f"{self.group}-{slot}"]
        settings = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **self.config}
        return command + [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
