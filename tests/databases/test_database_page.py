"""What database.md and migrate-offsets-table.md show runs: on the simulated cluster, with SQLite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from eos_client import EosConfig
from eos_client.integration import sql
from eos_client.testing import SimulatedCluster
from tests.support.code_blocks import REPOSITORY, code_blocks

PAGE = REPOSITORY / "docs" / "how-to" / "database.md"
MIGRATE = REPOSITORY / "docs" / "how-to" / "migrate-offsets-table.md"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sqlalchemy.Engine:
    made = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'billing.db'}")
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE bookings (customer TEXT, amount INT)"))
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _url: made)
    return made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    made = SimulatedCluster(seed=4)
    made.create_topic("orders")
    producer = made.producer({"bootstrap.servers": "simulated"})
    for customer, amount in (("Ada", "7"), ("Bob", "5")):
        producer.produce("orders", amount, customer)
    producer.flush()
    for name in ("DatabaseLoop", "DatabaseConsumer"):
        monkeypatch.setattr(sql, name, partial(getattr(sql, name), clients=made))
    return made


def bookings(engine: sqlalchemy.Engine) -> list[tuple[str, int]]:
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("SELECT customer, amount FROM bookings")).all()
    return [(customer, amount) for customer, amount in found]


def run(number: int, **names: Any) -> dict[str, Any]:
    exec(compile(code_blocks(PAGE, "python")[number].code, "database.md", "exec"), names)
    return names


def test_both_loops_of_the_page_write_each_row_once(engine: sqlalchemy.Engine, cluster: SimulatedCluster) -> None:
    loops: list[Any] = []
    monitored = sql.DatabaseLoop

    def remembered(*arguments: Any, **options: Any) -> Any:
        loops.append(monitored(*arguments, **options))
        return loops[0]

    sql.DatabaseLoop = remembered  # type: ignore[assignment,misc]
    try:
        cluster.after(20, lambda: [loop.stop() for loop in loops])
        book = run(0)["book"]
    finally:
        sql.DatabaseLoop = monitored  # type: ignore[misc]
    assert bookings(engine) == [("Ada", 7), ("Bob", 5)]
    turns = iter([True] * 20)
    run(1, engine=engine, book=book, running=lambda: next(turns, False))
    assert bookings(engine) == [("Ada", 7), ("Bob", 5)] * 2  # of another group


def printed_by_commands(page: Path, engine: sqlalchemy.Engine, cluster: SimulatedCluster) -> str:
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = sql.DatabaseLoop(config, ["orders"], lambda *_: None, engine=engine)
    cluster.after(5, loop.stop)
    loop.run()
    (script,) = (block.code for block in code_blocks(page, "sh") if "offsets set" in block.code)
    script = re.sub(r"postgresql\S+", str(engine.url), script)
    script = "\n".join(line for line in script.splitlines() if "export billing" not in line)  # needs a broker
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["sh", "-ec", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    return ended.stdout


def test_the_commands_of_the_page_move_positions(engine: sqlalchemy.Engine, cluster: SimulatedCluster) -> None:
    assert "billing  orders[0]  1200" in printed_by_commands(PAGE, engine, cluster)


def test_the_commands_of_a_migration_move_positions(engine: sqlalchemy.Engine, cluster: SimulatedCluster) -> None:
    assert "billing  orders[0]  1200" in printed_by_commands(MIGRATE, engine, cluster)
