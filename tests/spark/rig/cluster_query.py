"""One query on one broker: its topic, its starts, its faults, its judgement."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.rig.faults import struck_file, thawed_file
from tests.spark.rig.judging import Outcome, judge
from tests.spark.rig.launching import LIFETIME_S, Application
from tests.spark.rig.settings import Fault, Sink, StreamSettings
from tests.spark.spark_log import SparkLog
from tests.verification.topics import create_topics, open_partitions

if TYPE_CHECKING:
    from typing_extensions import Self

PARTITIONS = 4
RUN_TIMEOUT_S = 500.0
STRIKE_TIMEOUT_S = 240.0


class ClusterQuery:
    """A query that may be started several times, with whatever is told to happen to it; ends all its processes."""

    def __init__(self, bootstrap: str, directory: Path, sink: Sink = Sink.EOS, **settings: Any) -> None:
        name = f"spark-{sink.value}-{uuid.uuid4().hex[:8]}"
        self._create_output(bootstrap, name)
        self.settings = StreamSettings(bootstrap, name, name, directory / name, sink).changed(**settings)
        self.applications: list[Application] = []
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _create_output(self, bootstrap: str, name: str) -> None:
        create_topics(bootstrap, {name: PARTITIONS})

    def start(self, *, lifetime_s: float = LIFETIME_S, **changes: Any) -> Application:
        """Start the query, again if it was started before, with these settings changed from now on."""
        self.settings = self.settings.changed(**changes)
        application = Application(self.settings, str(len(self.applications) + 1), lifetime_s=lifetime_s)
        self.applications.append(application)
        return self._running.enter_context(application)

    def run_to_end(self, **changes: Any) -> Application:
        """Start it and wait until all batches are done."""
        application = self.start(**changes)
        self.await_end(application)
        return application

    def await_end(self, application: Application) -> None:
        code = application.wait(RUN_TIMEOUT_S)
        assert code == 0, application.failure() or application.tail()

    def await_strike(self, application: Application, fault: Fault, timeout_s: float = STRIKE_TIMEOUT_S) -> int:
        """Until the fault has struck; the id of the process that it struck."""
        place = struck_file(self.settings.directory, fault)
        ended = False

        def struck() -> bool:
            nonlocal ended
            ended = application.exit_code() is not None
            return ended or (place.exists() and bool(place.read_text()))

        application.until(struck, f"the fault {fault.name}", timeout_s)
        assert place.exists(), f"the application ended before {fault.name}: {application.failure()}"
        return int(place.read_text())

    def release(self, fault: Fault) -> None:
        """Let an application go on that the fault froze; it still has to be thawed."""
        thawed_file(self.settings.directory, fault).touch()

    def has_struck(self, fault: Fault) -> bool:
        return struck_file(self.settings.directory, fault).exists()

    def await_batches(self, application: Application, count: int, timeout_s: float = RUN_TIMEOUT_S) -> None:
        """Until this start of the query has finished so many batches."""
        application.until(
            lambda: len(application.progress()) >= count or application.exit_code() is not None,
            f"{count} batches",
            timeout_s,
        )
        assert len(application.progress()) >= count, application.failure() or application.tail()

    def open_partitions(self) -> list[int]:
        return open_partitions(self.settings.bootstrap, self.settings.topic, PARTITIONS)

    @property
    def spark_log(self) -> SparkLog:
        return SparkLog(self.settings.checkpoint)

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.settings.checkpoint)

    def end_after(self, batches: int) -> None:
        """Let the running query, and every later start of it, end after so many batches."""
        fresh = self.settings.wanted_file.with_suffix(".fresh")
        fresh.write_text(str(batches))
        fresh.rename(self.settings.wanted_file)
        self.settings = self.settings.changed(batches=batches)

    def judge(self, broker_log: str = "") -> Outcome:
        told = self.settings
        return judge(told.bootstrap, told.topic, PARTITIONS, told.total, told.keys, broker_log)
