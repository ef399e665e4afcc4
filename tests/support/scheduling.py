"""Which tests go to one worker: those of a file, and those of several files that share what no others use.

Such files share brokers that only one process can use, or a Spark session: one that has run for a while costs less for
each batch than two new ones. The brokers of `session_brokers` need none of this.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

# By what they share. A broker that asks who its clients are, and a cluster of three, cost as much as several others.
_TOGETHER = {
    "proxies": ("tests/faults/", "tests/cli/test_broker_and_doctor.py"),
    "proxied clients": (
        "tests/cli/test_redrive.py",
        "tests/kafka/test_polled_while_rebuilding.py",
        "tests/kafka/test_raising_callbacks.py",
    ),
    "credentials of commands": (
        "tests/cli/test_doctor_and_run.py",
        "tests/cli/test_operations.py",
        "tests/cli/test_secure_clusters.py",
    ),
    "credentials": (
        "tests/kafka/test_permissions.py",
        "tests/kafka/test_secure_clients.py",
        "tests/kafka/test_security_protocol.py",
    ),
    "deaths": (
        "tests/kafka/test_loop_recovery.py",
        "tests/kafka/test_truncated_log.py",
        "tests/recovery/test_forced_errors.py",
        "tests/recovery/test_outage.py",
    ),
    "streams": (
        "tests/spark/test_local_aggregates.py",
        "tests/spark/test_local_driver.py",
        "tests/spark/test_local_refusals.py",
        "tests/spark/test_local_secured_cluster.py",
        "tests/spark/test_local_stream.py",
        "tests/spark/test_pipeline_page.py",
    ),
    "session": ("tests/spark/test_local_",),
    "cluster": ("tests/kafka/test_embedded_cluster.py", "tests/recovery/test_coordinators.py"),
}
# Each takes half a minute or more: they start first, so that no worker is left with one when the others have ended.
_START_FIRST = (
    *_TOGETHER["streams"],
    *_TOGETHER["session"],
    *_TOGETHER["proxies"],
    *_TOGETHER["credentials of commands"],
    "tests/cli/test_demo_command.py",
    *_TOGETHER["deaths"],
    "tests/spark/test_cluster_",
    "tests/spark/test_example.py",
    "tests/kafka/test_embedded_kafka.py",
    *_TOGETHER["credentials"],
    *_TOGETHER["proxied clients"],
    "tests/kafka/test_loop_failed_records.py",
    *_TOGETHER["cluster"],
    "tests/kafka/test_rebalance_commit.py",
    "tests/kafka/test_exit.py",
    "tests/conformance/test_groups",
    "tests/conformance/test_offsets",
    "tests/conformance/test_transactions_network.py",
    "tests/recovery/test_two_instances.py",
    "tests/kafka/test_user_errors.py",
    "tests/packaging/test_environments.py",
)


def rank(nodeid: str) -> int:
    """The lower, the sooner the test starts."""
    if not nodeid.startswith(_START_FIRST):
        return len(_START_FIRST)
    return next(place for place, start in enumerate(_START_FIRST) if nodeid.startswith(start))


def sharing(nodeid: str) -> str | None:
    """Which of those the test is among."""
    return next((shared for shared, places in _TOGETHER.items() if nodeid.startswith(places)), None)


class BrokerScheduling(LoadFileScheduling):  # type: ignore[misc]
    """``--dist loadfile``, where such files count as one."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = sharing(nodeid) or super()._split_scope(nodeid)
        return scope
