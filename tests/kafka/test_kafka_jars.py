"""Jars are downloaded once, whole or not at all, whoever else downloads; tried on a repository of our own."""

import shutil
import subprocess
import sys

import pytest
from filelock import FileLock

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import cached_folder, jar_resolvers
from eos_client.testing.cached_folder import cache_root, is_whole
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
from eos_client.testing.maven_settings import REPOSITORY_VARIABLE
from tests.support.maven_repository import artifact_path, jar_of, maven_repository
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka  # it takes Java, as the brokers do

VERSION = "4.9.1"
ARTIFACTS = [("org.apache.kafka", "kafka_2.13", VERSION), ("org.slf4j", "slf4j-simple", "1.7.36")]
KAFKA_JAR = artifact_path(*ARTIFACTS[0]) + ".jar"
JAR_NAMES = {f"{name}-{revision}.jar" for _, name, revision in ARTIFACTS}

DOWNLOADS = """
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
print(kafka_jars("4.9.1", find_java(), print))
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "eos-client"


@pytest.fixture
def repository(cache, monkeypatch):
    with maven_repository(ARTIFACTS) as repository:
        monkeypatch.setenv(REPOSITORY_VARIABLE, repository.url)
        yield repository


class Download:
    """Gets the jars and keeps the lines of progress."""

    def __call__(self, version=VERSION):
        self.progress: list[str] = []
        return kafka_jars(version, find_java(), self.progress.append)


@pytest.fixture
def download():
    return Download()


@pytest.fixture(scope="module")
def first_copy(tmp_path_factory):
    """A folder of jars as they have been downloaded once, for tests of what becomes of such a folder."""
    with pytest.MonkeyPatch.context() as environment, maven_repository(ARTIFACTS) as repository:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("first")))
        environment.setenv(REPOSITORY_VARIABLE, repository.url)
        yield Download()()


def left_in(cache):
    """What is in the cache besides locks."""
    return {path.name for path in cache.iterdir() if path.suffix != ".lock"}


def test_a_version_is_downloaded_once_and_shows_its_progress(repository, cache, download):
    folder = download()
    assert folder == cache / f"kafka-{VERSION}" == cache_root() / f"kafka-{VERSION}"
    assert {jar.name for jar in folder.glob("*.jar")} == JAR_NAMES
    assert f"resolving Kafka {VERSION}: org.apache.kafka#kafka_2.13;{VERSION} (1)" in download.progress
    assert f"downloading Kafka {VERSION}: kafka_2.13-{VERSION}.jar (1)" in download.progress
    repository.requested.clear()
    assert download() == folder
    assert repository.requested == []
    assert download.progress == []
    assert left_in(cache) == {f"kafka-{VERSION}"}


def test_two_processes_at_once_download_one_copy(repository, cache):
    def downloader():
        return subprocess.Popen([sys.executable, "-u", "-c", DOWNLOADS], stdout=subprocess.PIPE, text=True)

    repository.may_answer.clear()
    with downloader() as first:
        wait_for(lambda: repository.requested, "the first one to download")
        with downloader() as second:
            told = next((line for line in second.stdout if "waiting for it" in line), None)
            repository.may_answer.set()
            said = [process.stdout.read().splitlines() for process in (first, second)]
    assert told is not None
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert [lines[-1] for lines in said] == [str(cache / f"kafka-{VERSION}")] * 2
    assert repository.requested.count(KAFKA_JAR) == 1
    assert not [line for lines in said for line in lines if "waiting for it" in line]


@pytest.mark.usefixtures("repository")
def test_a_download_that_does_not_end_is_named_by_those_that_wait_for_it(cache, monkeypatch, download):
    monkeypatch.setattr(cached_folder, "_LOCK_TIMEOUT_S", 0.1)
    cache.mkdir(parents=True)
    with FileLock(cache / f"kafka-{VERSION}.lock"), pytest.raises(EmbeddedKafkaError, match=r"has held .*\.lock for"):
        download()
    assert download.progress == ["another process is downloading the same files: waiting for it"]
    assert is_whole(download())


@pytest.mark.usefixtures("repository")
def test_without_filelock_the_way_to_get_it_is_named(monkeypatch, download):
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(EmbeddedKafkaError, match=r"pip install 'eos-client\[test\]'"):
        download()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda jar: jar.write_bytes(jar.read_bytes()[:100]), id="cut short", marks=pytest.mark.soak),
        pytest.param(lambda jar: jar.write_bytes(jar.read_bytes()[:-50] + bytes(50)), id="same size, other bytes"),
        pytest.param(lambda jar: jar.unlink(), id="missing", marks=pytest.mark.soak),
        pytest.param(lambda jar: (jar.parent / "SHA256SUMS").unlink(), id="without manifest"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_a_damaged_copy_is_noticed_and_replaced(damage, download, cache, first_copy):
    folder = shutil.copytree(first_copy, cache / first_copy.name)
    assert is_whole(folder)
    damage(folder / f"kafka_2.13-{VERSION}.jar")
    assert not is_whole(folder)
    assert download() == folder
    assert "damaged" in download.progress[0]
    assert is_whole(folder)


def test_a_download_that_breaks_off_is_an_error_and_leaves_nothing(repository, cache, download):
    repository.cut_off.add(KAFKA_JAR)
    with pytest.raises(EmbeddedKafkaError, match=rf"could not resolve Kafka {VERSION}[\s\S]*kafka_2\.13"):
        download()
    assert left_in(cache) == set()
    repository.cut_off.clear()
    assert is_whole(download())


def test_a_jar_that_does_not_match_the_repositorys_checksum_is_refused(repository, cache, download):
    repository.files[KAFKA_JAR] = jar_of("something else")
    with pytest.raises(EmbeddedKafkaError, match=r"(?i)checksum|sha1"):
        download()
    assert left_in(cache) == set()


def test_a_file_that_is_no_jar_is_refused(repository, cache, download):
    repository._add(KAFKA_JAR, b"<html>please log in to this network</html>")
    with pytest.raises(EmbeddedKafkaError, match=f"kafka_2.13-{VERSION}.jar is no jar"):
        download()
    assert left_in(cache) == set()


@pytest.mark.usefixtures("repository")
def test_a_version_that_does_not_exist_is_said_with_the_resolvers_words(cache, download):
    with pytest.raises(
        EmbeddedKafkaError, match=r"could not resolve Kafka 9\.9\.9[\s\S]*kafka_2\.13;9\.9\.9: not found"
    ):
        download("9.9.9")
    assert left_in(cache) == set()


def test_a_repository_that_cannot_be_reached_is_named(cache, monkeypatch, download):
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://reader:hunter2@127.0.0.1:9/")
    with pytest.raises(EmbeddedKafkaError, match=r"from http://127\.0\.0\.1:9/ .*EOS_CLIENT_MAVEN_REPOSITORY") as told:
        download()
    assert "hunter2" not in str(told.value)
    assert left_in(cache) == set()


@pytest.mark.usefixtures("repository")
def test_what_an_interrupted_download_left_is_removed_by_the_next(cache, download):
    leftover = cache / f".kafka-{VERSION}.interrupted"
    leftover.mkdir(parents=True)
    download()
    assert not leftover.exists()


@pytest.mark.parametrize("version", ["latest", "4.3", "../../etc", ""])
def test_what_is_no_version_is_refused(version, download):
    with pytest.raises(EmbeddedKafkaError, match="is no Kafka version"):
        download(version)


def test_without_pyspark_maven_resolves(tmp_path, cache, monkeypatch, download):
    """The stand-in for Maven reads the pom it is given and obeys -DoutputDirectory, as copy-dependencies does."""
    jar = tmp_path / "a.jar"
    jar.write_bytes(jar_of("a"))
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        f"""#!{sys.executable}
import pathlib, re, shutil, sys
pom = pathlib.Path(sys.argv[sys.argv.index("--file") + 1]).read_text()
into = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("-DoutputDirectory="))
for name, version in re.findall("<artifactId>([^<]+)</artifactId><version>([^<]+)</version></dependency>", pom):
    print(f"Downloading from central: http://127.0.0.1/{{name}}-{{version}}.jar", flush=True)
    shutil.copy("{jar}", f"{{into}}/{{name}}-{{version}}.jar")
"""
    )
    maven.chmod(0o755)
    monkeypatch.setattr(jar_resolvers, "_pyspark_ivy", lambda: None)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    assert {jar.name for jar in download().glob("*.jar")} == JAR_NAMES
    assert f"downloading Kafka {VERSION}: slf4j-simple-1.7.36.jar (2)" in download.progress


def test_without_pyspark_and_maven_the_ways_out_are_named(cache, monkeypatch, download):
    java_only = find_java().executable.resolve().parent
    monkeypatch.setattr(jar_resolvers, "_pyspark_ivy", lambda: None)
    monkeypatch.setenv("PATH", str(java_only))
    with pytest.raises(EmbeddedKafkaError, match=r"Choose a version that is.*pip install 'eos-client\[spark\]'.*Maven"):
        download()


def test_pysparks_ivy_is_found_without_importing_pyspark():
    script = (
        "import sys; from eos_client.testing.jar_resolvers import _pyspark_ivy; "
        "print(_pyspark_ivy().name, 'pyspark' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith("ivy-")
    assert said.endswith(" False\n")
