"""Our sink without one of the things that exactly-once needs. Each must be found out by the tests that it is for.

Patched in the process where the missing thing lives: in an executor's worker at a task's first step, or in the driver
when the sink is made.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame

from eos_client.core.batch_ledger import SlotDecision, SlotQuestion, SlotRule, decide_slot
from eos_client.integration.spark import driver_run, task
from eos_client.integration.spark.lease import Lease
from eos_client.ports import MembershipSnapshot
from tests.spark.rig.faults import Striker
from tests.spark.rig.settings import Fault


class Mutant(enum.Enum):
    """What is missing."""

    NO_LEDGER = "no ledger: every task writes, whatever was committed"
    NO_GATE = "no gate: a driver writes and commits under whatever membership it has"
    SPARK_PARTITION = "a row's slot is the partition that Spark happened to give it"


@dataclass(frozen=True)
class MutantStriker(Striker):
    """The sink's `on_step`, which first takes the missing thing out of this worker."""

    mutant: str = ""

    def __call__(self, step: str, slot: int, batch_id: int) -> None:
        if step == "start":
            take_out_of_worker(Mutant[self.mutant])
        super().__call__(step, slot, batch_id)


def striker_of(faults: tuple[Fault, ...], directory: Path, mutant: str) -> Striker:
    """The `on_step` of the sink under test, or of a mutant of it."""
    return MutantStriker(faults, directory, mutant) if mutant else Striker(faults, directory)


def take_out_of_driver(mutant: Mutant) -> None:
    """What has to be missing before the job is made."""
    if mutant is Mutant.SPARK_PARTITION:
        _put(driver_run, "repartition_by_slot", _by_sparks_partition)
    if mutant is Mutant.NO_GATE:
        _put(Lease, "_decide", _membership_unasked)


def take_out_of_worker(mutant: Mutant) -> None:
    """What has to be missing where the tasks run."""
    if mutant is Mutant.SPARK_PARTITION:
        _without_check_of_slots()
        return
    if mutant is Mutant.NO_LEDGER:
        _put(task, "decide_slot", _always_write)


def _put(place: object, name: str, substitute: object) -> None:
    """Replace what is there by that name; an AttributeError when nothing is, so that no mutant is without effect."""
    getattr(place, name)
    setattr(place, name, substitute)


def _by_sparks_partition(frame: DataFrame, slots: int, **_: object) -> DataFrame:
    slotted = frame.selectExpr("*", f"cast(pmod(spark_partition_id(), {slots}) as int) as slot")
    return slotted.repartitionById(slots, "slot").drop("slot")


def _membership_unasked(lease: Lease) -> MembershipSnapshot:
    return lease._member.snapshot()


def _always_write(question: SlotQuestion, *_: object) -> SlotRule:
    return replace(decide_slot(question), decision=SlotDecision.WRITE)


def _without_check_of_slots() -> None:
    from eos_client.integration.spark import arrow_rows  # noqa: PLC0415  in workers only

    _put(arrow_rows, "check_slot", lambda *_: None)
