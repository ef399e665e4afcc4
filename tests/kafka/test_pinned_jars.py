"""Jars that are listed with their checksums are downloaded without Maven and without Ivy."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import jar_resolvers, kafka_jars, pinned_jars
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.maven_settings import REPOSITORY_VARIABLE
from eos_client.testing.spark_connector import CONNECTOR_VERSION
from tests.support.maven_repository import artifact_path, jar_of, maven_repository

VERSION = "4.9.2"
SERVER, LOG = ("org.apache.kafka", "kafka_2.13", VERSION), ("org.slf4j", "slf4j-simple", "1.7.36")
LISTED = sorted(pinned_jars.LISTS.glob("*.sha256"))


def listing(artifacts):
    """The lines of a list with these artifacts, as the repository of the tests serves them."""
    lines = [f"{hashlib.sha256(jar_of(a[1])).hexdigest()}  {artifact_path(*a)[1:]}.jar\n" for a in artifacts]
    return "".join(lines)


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """A list of one set of jars, and no tool that resolves others."""
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / f"kafka-{VERSION}.sha256").write_text(listing([SERVER, LOG]))
    monkeypatch.setattr(pinned_jars, "LISTS", folder)
    monkeypatch.setattr(jar_resolvers, "_pyspark_ivy", lambda: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def repository(lists, monkeypatch):
    with maven_repository([SERVER, LOG]) as repository:
        monkeypatch.setenv(REPOSITORY_VARIABLE, repository.url)
        yield repository


def download(progress=None):
    without_java: Any = None
    return kafka_jars.kafka_jars(VERSION, without_java, (progress if progress is not None else []).append)


def test_they_are_downloaded_once_and_nothing_but_the_jars_is_asked_for(repository):
    progress: list[str] = []
    folder = download(progress)
    assert {jar.name for jar in folder.glob("*.jar")} == {f"kafka_2.13-{VERSION}.jar", "slf4j-simple-1.7.36.jar"}
    assert sorted(repository.requested) == sorted(f"{artifact_path(*artifact)}.jar" for artifact in (SERVER, LOG))
    assert f"downloading Kafka {VERSION}: slf4j-simple-1.7.36.jar (2 of 2)" in progress
    download()
    assert len(repository.requested) == 2


def test_another_file_under_a_listed_name_is_refused_and_nothing_is_kept(repository, tmp_path):
    repository.files[f"{artifact_path(*SERVER)}.jar"] = jar_of("another")
    with pytest.raises(EmbeddedKafkaError, match=rf"kafka_2\.13-{VERSION}\.jar from .* has the SHA-256 .* expected"):
        download()
    assert not (tmp_path / "cache" / "eos-client" / f"kafka-{VERSION}").exists()


def test_a_connection_that_breaks_off_is_tried_again(repository):
    jar = f"{artifact_path(*SERVER)}.jar"
    whole = repository.files[jar]

    class Mended(dict[str, bytes]):
        def get(self, path, default=None):
            if path == jar and repository.requested.count(jar) > 1:
                repository.cut_off.clear()
            return super().get(path, default)

    repository.files = Mended(repository.files)
    repository.cut_off = {jar}
    folder = download()
    assert (folder / jar.rsplit("/", 1)[-1]).read_bytes() == whole


def test_a_repository_without_the_jar_is_named_with_the_ways_out(repository):
    del repository.files[f"{artifact_path(*LOG)}.jar"]
    with pytest.raises(
        EmbeddedKafkaError, match=r"slf4j-simple-1\.7\.36\.jar could not.*404.*EOS_CLIENT_MAVEN_REPOSITORY.*settings"
    ):
        download()


def test_a_mirror_in_the_users_settings_is_asked_with_its_credentials(repository, tmp_path, monkeypatch):
    monkeypatch.delenv(REPOSITORY_VARIABLE)
    monkeypatch.setenv("MIRROR_PASSWORD", "s3cret")
    home = tmp_path / "home"
    (home / ".m2").mkdir(parents=True)
    (home / ".m2" / "settings.xml").write_text(
        f"<settings><mirrors><mirror><id>ours</id><mirrorOf>*</mirrorOf><url>{repository.url}</url></mirror></mirrors>"
        "<servers><server><id>ours</id><username>ci</username><password>${env.MIRROR_PASSWORD}</password></server>"
        "</servers></settings>"
    )
    monkeypatch.setattr(Path, "home", lambda: home)
    repository.credentials = ("ci", "s3cret")
    download()
    assert len(repository.requested) == 2


def test_without_the_library_that_downloads_the_cheapest_way_out_is_named(lists, monkeypatch):
    monkeypatch.setattr(jar_resolvers, "can_download", lambda: False)
    with pytest.raises(EmbeddedKafkaError, match=r"pip install 'eos-client\[test\]', which brings maven-artifact"):
        download()


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.stem)
def test_each_list_names_jars_by_path_with_a_checksum(listed):
    jars = pinned_jars.pinned_jars(listed.stem)
    assert jars
    for jar in jars:
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        _group, artifact, version = jar.coordinates
        assert jar.file_name == f"{artifact}-{version}.jar"


def test_what_the_fixtures_start_by_default_is_listed():
    assert {f"kafka-{DEFAULT_VERSION}", f"spark-{CONNECTOR_VERSION}"} <= {listed.stem for listed in LISTED}
