"""Which tests go to one worker: those of a file, and those of several files that share what no others use.

Such files share brokers, or a Spark session: one that has run for a while costs less for each batch than two new ones.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

_TOGETHER = ("tests/conformance/", "tests/faults/", "tests/spark/test_local_")
# Each takes a minute or more. They start first, so that no worker is left with one of them when the others have ended.
_START_FIRST = (
    *_TOGETHER,
    "tests/kafka/test_embedded_kafka.py",
    "tests/recovery/test_forced_errors.py",
    "tests/kafka/test_loop_recovery.py",
    "tests/cli/test_demo_command.py",
    "tests/recovery/test_coordinators.py",
    "tests/kafka/test_rebalance_commit.py",
)


def rank(nodeid: str) -> int:
    """The lower, the sooner the test starts."""
    places = [place for place, start in enumerate(_START_FIRST) if nodeid.startswith(start)]
    return min(places, default=len(_START_FIRST))


class BrokerScheduling(LoadFileScheduling):  # type: ignore[misc]
    """``--dist loadfile``, where such files count as one."""

    def _split_scope(self, nodeid: str) -> str:
        for files in _TOGETHER:
            if nodeid.startswith(files):
                return files
        scope: str = super()._split_scope(nodeid)
        return scope
