"""The embedded PostgreSQL keeps what it has committed, and its synchronous standby has it, too."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from eos_client.errors import EmbeddedDatabaseError
from eos_client.testing import EmbeddedPostgres, unprivileged
from eos_client.testing.free_ports import is_free
from eos_client.testing.process_session import living
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

WRITERS = 3
STARTS_A_SERVER = """
import time
from eos_client.testing import EmbeddedPostgres
server = EmbeddedPostgres().start()
print(server.pid, server.log_path.parent, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server():
    with EmbeddedPostgres(settings={"work_mem": "5MB"}) as running:
        yield running


def shared_memory_of(server):
    """The segment by which PostgreSQL sees that a server still runs."""
    return (server.log_path.parent / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]


def segments():
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in lines}


def children_of(pid):
    return {each.pid for each in living() if each.parent == pid}


def test_killed_and_restarted_it_has_its_committed_rows_on_the_same_port(server, numbers):
    table = numbers(server).create()
    table.add(1)
    url, pid, children, segment = server.url, server.pid, children_of(server.pid), shared_memory_of(server)
    assert len(children) > 1
    with table.added_and_not_committed(2):
        server.kill()
    assert not server.running
    assert {pid, *children}.isdisjoint(each.pid for each in living())
    assert segment not in segments()
    server.restart()
    assert (server.url, server.pid != pid) == (url, True)
    assert table.all() == [1]
    server.restart()
    assert table.all() == [1]
    assert table.answer("SHOW work_mem") == "5MB"


def test_a_commit_waits_for_the_standby_and_a_promoted_one_has_every_acknowledged_row(server, numbers):
    on_primary = numbers(server).create()
    with server.standby() as standby:
        with pytest.raises(EmbeddedDatabaseError, match="has a standby already"):
            server.standby()
        with pytest.raises(EmbeddedDatabaseError, match="recovery is not in progress"):
            server.promote()
        standby.kill()
        waits = threading.Thread(target=on_primary.add, args=(100,))
        waits.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_for(lambda: on_primary.answer(waiting) == 1, "the commit waits")
        standby.restart()
        waits.join()
        acknowledged = written_until_killed(server, on_primary)
        standby.promote()
        on_standby = numbers(standby)
        assert {100, *acknowledged} <= set(on_standby.all())
        assert on_standby.answer("SHOW synchronous_standby_names") == ""
        on_standby.add(200)
    server.restart()


def written_until_killed(server, table):
    """The numbers whose commits were acknowledged to writers of which the server's death took each."""
    acknowledged: list[int] = []

    def write(first):
        with suppress(OperationalError):
            for number in range(first, first + 100_000):
                table.add(number)
                acknowledged.append(number)

    writers = [threading.Thread(target=write, args=(1_000_000 * (1 + n),)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    wait_for(lambda: len(acknowledged) > 10 * WRITERS, "some commits")
    server.kill()
    for writer in writers:
        writer.join()
    return acknowledged


def test_a_kept_directory_serves_the_next_server_and_a_refused_setting_is_in_the_error(tmp_path, numbers):
    directory = tmp_path / "kept"
    with EmbeddedPostgres(directory, keep_directory=True) as server:
        numbers(server).create().add(1)
        port = server.port
    assert is_free(port)
    assert "database system is shut down" in server.log_tail(1)
    server.stop()
    with pytest.raises(EmbeddedDatabaseError, match="holds an earlier database server's data"):
        EmbeddedPostgres(directory).start()
    with pytest.raises(EmbeddedDatabaseError, match=r"ended while starting[\s\S]*no_such_setting"):
        EmbeddedPostgres(directory, keep_directory=True, settings={"no_such_setting": "1"}).start()
    with EmbeddedPostgres(directory, keep_directory=True) as server:
        assert numbers(server).all() == [1]


def test_a_data_directory_that_cannot_be_made_is_told_in_postgres_words(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").touch()
    with pytest.raises(EmbeddedDatabaseError, match=r"could not make its data directory[\s\S]*exists but is not empty"):
        EmbeddedPostgres(tmp_path, keep_directory=True).start()


def test_ends_with_its_killed_starter_and_leaves_nothing(alive):
    with subprocess.Popen([sys.executable, "-c", STARTS_A_SERVER], stdout=subprocess.PIPE, text=True) as starter:
        pid, directory = next(iter(starter.stdout or ())).split()
        children = children_of(int(pid))
        starter.kill()
        wait_for(lambda: not any(map(alive, {int(pid), *children})), "the server has ended")
        wait_for(lambda: not Path(directory).exists(), "its directory is removed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_runs_it_as_another_user_where_user_namespaces_are_forbidden(monkeypatch, numbers):
    monkeypatch.setattr(unprivileged, "_runs", lambda _command: False)
    with EmbeddedPostgres() as server:
        numbers(server).create().add(1)
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        directory = server.log_path.parent
    assert not directory.exists()
