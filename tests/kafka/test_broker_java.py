"""Which archive of loaded classes a broker's Java is given."""

from pathlib import Path

import pytest

from eos_client.testing.broker_java import BrokerJava
from eos_client.testing.java_runtime import JavaRuntime

BUILD = "17.0.9"


@pytest.fixture
def written(tmp_path):
    """What a broker that was shut down in order has left."""
    path = tmp_path / "classes.jsa"
    path.write_bytes(b"classes")
    return path


def broker_java(jars, build=BUILD):
    return BrokerJava(JavaRuntime(Path("java"), 17, build), jars, heap_mb=512)


def archive_options(java):
    command = java.broker_command(Path("server.properties"), Path("classes.jsa"))
    return [option for option in command if option.startswith(("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"))]


def test_without_an_archive_the_broker_writes_one(jars):
    assert archive_options(broker_java(jars)) == ["-XX:ArchiveClassesAtExit=classes.jsa"]
    assert not broker_java(jars).has_archive


def test_what_was_written_is_kept_and_mapped_by_this_broker_and_the_next(jars, written):
    java = broker_java(jars)
    java.keep_archive(written)
    [kept] = jars.iterdir()
    assert archive_options(java) == archive_options(broker_java(jars)) == [f"-XX:SharedArchiveFile={kept}"]
    assert java.has_archive
    assert f"-XX:SharedArchiveFile={kept}" in java.format_command("cluster", Path("server.properties"))
    assert not written.exists()


def test_a_damaged_archive_is_not_mapped_and_is_replaced(jars, written):
    broker_java(jars).keep_archive(written)
    [damaged] = jars.iterdir()
    damaged.write_bytes(b"class")
    java = broker_java(jars)
    assert archive_options(java) == ["-XX:ArchiveClassesAtExit=classes.jsa"]
    written.write_bytes(b"classes again")
    java.keep_archive(written)
    [kept] = jars.iterdir()
    assert kept.read_bytes() == b"classes again"


def test_an_archive_of_another_build_of_java_is_left_alone(jars, written):
    broker_java(jars).keep_archive(written)
    assert archive_options(broker_java(jars, "21.0.1")) == ["-XX:ArchiveClassesAtExit=classes.jsa"]


def test_a_broker_that_wrote_nothing_leaves_what_is_there(jars, written):
    java = broker_java(jars)
    java.keep_archive(written)
    java.keep_archive(written)
    assert len(list(jars.iterdir())) == 1


def test_where_the_folder_cannot_be_written_there_is_no_archive_and_no_error(jars, written):
    jars.rmdir()
    java = broker_java(jars)
    java.keep_archive(written)
    assert archive_options(java) == ["-XX:ArchiveClassesAtExit=classes.jsa"]
    assert not written.exists()
