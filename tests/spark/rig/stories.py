"""What happens to a query, step by step; the tests say who must survive it and who must not."""

from __future__ import annotations

import signal
import time
from typing import Any

from eos_client.testing.process_session import members_of, send_signal
from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.launching import Application
from tests.spark.rig.settings import Action, Fault

CLUSTER = "local-cluster[2,2,1024]"
SOON_LOST = {
    "spark.network.timeout": "5s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
}
ZOMBIE_TIMEOUT_S = 240.0
SIGNAL_TIMEOUT_S = 60.0


def kill_in_each_step(*steps: str) -> tuple[Fault, ...]:
    """One batch for each step in which an executor is killed, the first batch spared."""
    return tuple(Fault(step, batch_id, Action.KILL_EXECUTOR) for batch_id, step in enumerate(steps, 1))


def die_at(stage: ClusterQuery, fault: Fault, **changes: Any) -> None:
    """Start the query, and SIGKILL all of it when its driver reaches the fault's step."""
    application = stage.start(driver_faults=(fault,), **changes)
    stage.await_strike(application, fault)
    application.kill()
    application.wait(SIGNAL_TIMEOUT_S)


def restarts(stage: ClusterQuery) -> None:
    """Die after the tasks have committed, before Spark's commit log says so, and go on with another plan."""
    die_at(stage, Fault("job_done", 1, Action.FREEZE))
    stage.run_to_end(driver_faults=(), repartition=5, adaptive=False, shuffle_partitions=7)


def replay(stage: ClusterQuery) -> None:
    """A batch that was wholly written and whose commit-log entry is gone is run again."""
    stage.run_to_end(batches=2)
    stage.spark_log.forget_commit(1)
    stage.run_to_end(batches=4, repartition=5, adaptive=False)


def zombie_driver(
    stage: ClusterQuery, step: str, *, batches_before_it_wakes: int = 1, asleep_s: float = 0.0
) -> tuple[Application, Application]:
    """The application freezes in a task's step, a new one takes over, the old one wakes."""
    fault = Fault(step, 1, Action.FREEZE_APPLICATION)
    zombie = stage.start(faults=(fault,))
    stage.await_strike(zombie, fault)
    zombie.freeze()  # the one that struck, and whoever was started meanwhile
    frozen_s = time.monotonic()
    successor = stage.start()
    stage.await_batches(successor, batches_before_it_wakes)
    time.sleep(max(0.0, asleep_s - (time.monotonic() - frozen_s)))
    stage.release(fault)
    zombie.thaw()
    return zombie, successor


def orphaned_workers(stage: ClusterQuery, step: str) -> list[int]:
    """The application freezes, driver, JVM and daemon die; the workers wake beside the successor."""
    fault = Fault(step, 1, Action.FREEZE_APPLICATION)
    dead = stage.start(faults=(fault,))
    stage.await_strike(dead, fault)
    orphans = dead.kill_all_but_workers()
    successor = stage.start()
    stage.await_batches(successor, 1)
    stage.release(fault)
    send_signal(signal.SIGCONT, orphans)
    stage.await_end(successor)
    return orphans


def zombie_executor(stage: ClusterQuery, fault: Fault) -> None:
    """An executor freezes in the step, Spark gives it up and runs its tasks elsewhere, then it wakes."""
    application = stage.start()
    stage.await_strike(application, fault)
    application.until(
        lambda: any(each.stopped for each in members_of(application.session)), "the freeze", SIGNAL_TIMEOUT_S
    )
    stage.await_batches(application, fault.batch_id + 1, ZOMBIE_TIMEOUT_S)
    application.thaw()
    stage.await_end(application)
