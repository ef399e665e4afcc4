"""Our sink with the rig's seams, or a mutant of it."""

from __future__ import annotations

from eos_client.integration.spark import EosDatabaseSink, EosKafkaSink
from tests.spark.rig.faults import DriverStriker, Striker
from tests.spark.rig.mutants import Mutant, striker_of, take_out_of_driver
from tests.spark.rig.settings import StreamSettings


def our_sink(settings: StreamSettings, driver: DriverStriker) -> EosKafkaSink:
    """The sink under test; a mutant of it when the settings name one."""
    if settings.mutant:
        take_out_of_driver(Mutant[settings.mutant])
    return EosKafkaSink(
        settings.bootstrap,
        settings.topic,
        sink_id=settings.sink_id,
        slots=settings.slots,
        config=settings.config,
        order_by="number",
        on_step=striker_of(settings.faults, settings.directory, settings.mutant),
        on_driver_step=driver,
    )


def our_database_sink(settings: StreamSettings, driver: DriverStriker) -> EosDatabaseSink:
    """The sink under test that writes into a database."""
    return EosDatabaseSink(
        settings.bootstrap,
        settings.topic,
        sink_id=settings.sink_id,
        slots=settings.slots,
        key="key",
        order_by="number",
        on_step=Striker(settings.faults, settings.directory),
        on_driver_step=driver,
    )
