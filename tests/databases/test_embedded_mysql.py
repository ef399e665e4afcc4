"""The embedded MySQL keeps what it has committed, as the server of the fixture."""

from pathlib import Path

import pytest

from eos_client.testing.embedded_mysql import MysqlProgram
from eos_client.testing.server_directory import ServerDirectory


def test_killed_and_restarted_it_has_its_committed_rows_on_the_same_port(mysql_server, numbers):
    table = numbers(mysql_server).create()
    table.add(1)
    url, pid = mysql_server.url, mysql_server.pid
    with table.added_and_not_committed(2):
        mysql_server.kill()
    assert not mysql_server.running
    mysql_server.restart()
    assert (mysql_server.url, mysql_server.pid != pid) == (url, True)
    assert table.all() == [1]
    assert table.answer("SELECT VERSION()").startswith("8.")


def test_a_restart_shuts_a_running_server_down(mysql_server, numbers):
    numbers(mysql_server).create()
    log = mysql_server.log_path
    before = log.read_text().count("Shutdown complete")
    mysql_server.restart()
    assert log.read_text().count("Shutdown complete") == before + 1


@pytest.mark.parametrize(
    ("setting", "option"), [({"max-connections": "77"}, "--max-connections=77"), ({"a": ""}, "--a")]
)
def test_further_settings_become_options(setting, option, tmp_path):
    files = ServerDirectory(tmp_path, keep=True, server="server", prefix="", log="server.log")
    assert option in MysqlProgram(Path("/mysql"), setting).serve(files, 3306)
