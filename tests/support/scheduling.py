"""Which tests go to one worker, and in which order: so that none is left with a long file when the others have ended.

A worker gets the tests of a file, or those of several files that share what no others use: brokers, or a Spark session,
which after a while costs less for each batch than two new ones. What waits for brokers starts first; what keeps a
processor busy, and comes in small files, fills the rest.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

# By what they share. A broker that asks who its clients are, and a cluster of three, cost as much as several others.
_TOGETHER = {
    "proxies": (
        "tests/faults/",
        "tests/cli/test_broker_and_doctor.py",
        "tests/kafka/test_dropped_producer.py",
        "tests/kafka/test_raising_callbacks.py",
    ),
    "credentials": (
        "tests/cli/test_operations.py",
        "tests/cli/test_secure_clusters.py",
        "tests/kafka/test_permissions.py",
        "tests/kafka/test_secure_clients.py",
    ),
    "deaths": (
        "tests/kafka/test_loop_recovery.py",
        "tests/recovery/test_forced_errors.py",
        "tests/recovery/test_outage.py",
    ),
    "streams": ("tests/spark/test_local_aggregates.py", "tests/spark/test_local_stream.py"),
    "session": ("tests/spark/test_local_",),
    "cluster": ("tests/kafka/test_embedded_cluster.py", "tests/recovery/test_coordinators.py"),
}
_CONFORMANCE = "tests/conformance/"
_ON_A_BROKER = "[kafka-"
# Each takes a minute or more, the longest first.
_START_FIRST = (
    "session",
    "versions",
    "proxies",
    "credentials",
    "tests/cli/test_demo_command.py",
    "deaths",
    "streams",
    "tests/applications/test_applications.py",
    "tests/cli/test_command_line.py",
    "tests/kafka/test_embedded_kafka.py",
    "tests/kafka/test_rebalance_commit.py",
    "cluster",
)
_WAITS = ("tests/spark/", "tests/kafka/", "tests/recovery/", "tests/cli/", "tests/packaging/", "tests/applications/")


def rank(nodeid: str) -> int:
    """The lower, the sooner the test starts."""
    scope = scope_of(nodeid)
    if scope in _START_FIRST:
        return _START_FIRST.index(scope)
    return len(_START_FIRST) + (not nodeid.startswith(_WAITS))


def sharing(nodeid: str) -> str | None:
    """Which of those the test is among."""
    if nodeid.startswith(_CONFORMANCE) and _ON_A_BROKER in nodeid:
        return "versions"
    return next((shared for shared, places in _TOGETHER.items() if nodeid.startswith(places)), None)


def scope_of(nodeid: str) -> str:
    """What goes to one worker with the test: what it shares, or its file."""
    return sharing(nodeid) or nodeid.partition("::")[0]


class BrokerScheduling(LoadFileScheduling):  # type: ignore[misc]
    """``--dist loadfile``, where such files count as one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _reschedule(self, node):
        """Leave two tests to a worker before it gets the next file: while the first runs, another may be free."""
        if self._pending_of(self.assigned_work[node]) != 2:
            super()._reschedule(node)
