"""A query of the rig that writes into a table without any unique constraint, judged by its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.judging import Outcome
from tests.spark.rig.settings import Sink
from tests.verification.checker import History, Stored, check


class DatabaseQuery(ClusterQuery):
    """``url``: where the application writes to; ``direct_url``: where the test looks, without a proxy between."""

    def __init__(self, url: str, directory: Path, direct_url: str | None = None, **settings: Any) -> None:
        self._engine = create_engine(direct_url or url)
        super().__init__(url, directory, Sink.DATABASE, **settings)

    def _create_output(self, bootstrap: str, name: str) -> None:
        columns = "seq bigserial, key text, value text, number bigint"
        with self._engine.begin() as connection:
            connection.execute(text(f'CREATE TABLE "{name}" ({columns})'))

    def judge(self, broker_log: str = "") -> Outcome:
        """Judge the rows in the order in which they were inserted."""
        told = self.settings
        inputs = [Stored(number % told.keys, number, str(number).encode()) for number in range(told.total)]
        with self._engine.connect() as connection:
            rows = connection.execute(text(f'SELECT seq, value FROM "{told.topic}" ORDER BY seq')).all()
        self._engine.dispose()
        return Outcome(check(History(inputs, [Stored(0, seq, value.encode()) for seq, value in rows], {}, {})))
