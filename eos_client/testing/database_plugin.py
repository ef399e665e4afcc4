"""pytest fixtures with real database servers: ``postgres_server`` and ``mysql_server``, each one for the session.

Where a server's programs cannot be had, that is an error which says how to get them. Every pytest session in an
environment with this package loads this plugin, so it imports nothing before a test uses a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eos_client.testing.embedded_mysql import EmbeddedMysql
    from eos_client.testing.embedded_postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """Run one real PostgreSQL for all tests of the session; each test needs its own tables."""
    from eos_client.testing.embedded_postgres import EmbeddedPostgres  # noqa: PLC0415  not in every test run

    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedMysql]:
    """Run one real MySQL for all tests of the session; each test needs its own tables."""
    from eos_client.testing.embedded_mysql import EmbeddedMysql  # noqa: PLC0415  not in every test run
    from eos_client.testing.terminal_lines import write_terminal_line  # noqa: PLC0415

    with EmbeddedMysql(on_progress=lambda line: write_terminal_line(pytestconfig, f"mysql: {line}")) as server:
        yield server
