"""What every contender is told, as plain arguments, and the line that it prints after each commit.

    MODULE BOOTSTRAP GROUP SOURCE SINK MEMBER COMMIT_INTERVAL_S WORK STATE_FOLDER [KEY=VALUE ...]

It copies until it is killed. Imports nothing, because the peers' environment has none of this project's dependencies.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

BATCH_RECORDS = 500
POLL_TIMEOUT_S = 0.1
CALL_TIMEOUT_S = 30.0
VALUE, KEYED, HEADERS, BATCH, INLINE = "value", "keyed", "headers", "batch", "keyed, inline"
OBJECTS, BATCH_OBJECTS = "keyed, OutputRecord", "batch, OutputRecord"
"""As KEYED and BATCH, but with the objects that eos-client's transforms return, in the hand-written loop."""
JSON, FIVE, LARGE = "JSON of 300 bytes", "five outputs", "10 kB"
"""KEYED, of a JSON document that is read, changed and written; with five outputs for a record; of large records."""
CONSUMER_PREFIXES = ("fetch.", "group.", "session.")


class Assignment(NamedTuple):
    """From which topic to which, as which member of which group. ``settings`` go by librdkafka's names."""

    bootstrap: str
    group: str
    source: str
    sink: str
    member: str
    commit_interval_s: float
    work: str
    state_folder: str
    settings: dict[str, str]

    @property
    def transactional_id(self) -> str:
        """The member's, so that whoever takes its place after a crash ends its transaction."""
        return f"{self.group}-{self.member}"

    @property
    def consumer_settings(self) -> dict[str, str]:
        """Those settings that only a consumer has."""
        return {name: value for name, value in self.settings.items() if name.startswith(CONSUMER_PREFIXES)}

    @property
    def producer_settings(self) -> dict[str, str]:
        """The others."""
        return {name: value for name, value in self.settings.items() if not name.startswith(CONSUMER_PREFIXES)}


def assignment() -> Assignment:
    """Read the arguments of this process."""
    bootstrap, group, source, sink, member, interval_s, work, state_folder, *settings = sys.argv[1:]
    pairs = dict(pair.split("=", 1) for pair in settings)
    return Assignment(bootstrap, group, source, sink, member, float(interval_s), work, state_folder, pairs)


def report_commit(records: int, commit_s: float) -> None:
    """Print the line that ``tests.benchmarks.measure`` reads: clock, CPU used, records, and what the commit took."""
    print("commit", time.monotonic(), time.process_time(), records, commit_s, flush=True)
