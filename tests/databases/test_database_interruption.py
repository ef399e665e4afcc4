"""Wherever a signal handler's exception strikes, no row is lost or doubled, and the application may go on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import eos_client
from eos_client.errors import EosError, UnknownOutcomeError
from tests.clients.struck_steps import StepStrike, StrikeError, strides, struck_runs
from tests.databases.stage import Stage
from tests.databases.test_database_blocks import Worker, has_all

EVERY_STEP = 3989
_SQL = str(Path(eos_client.__file__).parent / "integration" / "sql")


class StrikeWithSql(StepStrike):
    """Strikes the clients' code and that of integration/sql."""

    def _strikes(self, code):
        return code.co_filename.startswith(_SQL) or super()._strikes(code)


@strides(EVERY_STEP)
def test_wherever_an_exception_strikes_blocks_lose_and_double_nothing(tmp_path, first):
    numbers = iter(range(100_000))

    def told(strike, steps=None):
        stage = Stage(tmp_path, seed=next(numbers))
        worker = Worker(stage)
        worker.step()
        stage.write(4)
        with strike.armed(steps):
            for _ in range(4):
                with suppress(StrikeError, UnknownOutcomeError):
                    worker.step(timeout_s=0.2)
            stage.cluster.rebalance()
            stage.write(2, 1)
            for _ in range(3):
                with suppress(StrikeError, UnknownOutcomeError):
                    worker.step(timeout_s=0.2)
        return stage, worker

    for (stage, worker), _ in struck_runs(told, EVERY_STEP, first=first, kind=StrikeWithSql):
        stage.write(2)
        try:
            worker.steps_until(has_all(stage), limit=60)
        except EosError:  # it ends with a name, and the next one goes on
            worker.consumer.close()
            Worker(stage, "b").steps_until(has_all(stage), limit=100)
        stage.assert_exact()
        stage.engine.dispose()
        stage.path.unlink()
