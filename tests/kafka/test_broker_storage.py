"""The storage of a broker is formatted without Java once Kafka's own tool has formatted one of the version."""

import pytest

from eos_client.testing.broker_storage import KeptFormat

CLUSTER_ID, NODE_ID = "AAAAAAAAAAAAAAAAAAAAAQ", 2
FEATURES = b"metadata.version, group.version, transaction.version"
IDS = "#\n#Tue Dec 01 05:09:51 UTC 2026\nnode.id=1\ndirectory.id=JTMyLuEmMj-eUdw2ypEfrA\nversion=1\ncluster.id=A\n"
A_VERSION = {"inter.broker.protocol.version": "3.9"}


@pytest.fixture
def formatted(tmp_path):
    """What Kafka's tool has left."""
    data = tmp_path / "formatted"
    data.mkdir()
    (data / "meta.properties").write_text(IDS)
    (data / "bootstrap.checkpoint").write_bytes(FEATURES)
    return data


@pytest.fixture
def data(tmp_path):
    """The storage of another broker, which is not there yet."""
    return tmp_path / "data"


def kept_format(jars, properties=None):
    return KeptFormat(jars, properties or {})


def test_where_nothing_was_kept_nothing_is_written(jars, data):
    assert not kept_format(jars).write(data, CLUSTER_ID, NODE_ID)
    assert not data.exists()


def test_another_broker_begins_with_the_same_features_and_ids_of_its_own(jars, formatted, data):
    kept_format(jars).keep(formatted)
    assert kept_format(jars, {"log.retention.hours": "7"}).write(data, CLUSTER_ID, NODE_ID)
    assert (data / "bootstrap.checkpoint").read_bytes() == FEATURES
    ids = dict(line.split("=") for line in (data / "meta.properties").read_text().splitlines())
    assert len(ids.pop("directory.id")) == len(CLUSTER_ID)
    assert ids == {"version": "1", "cluster.id": CLUSTER_ID, "node.id": str(NODE_ID)}


def test_no_two_storages_have_the_same_directory_id(jars, formatted, tmp_path):
    kept_format(jars).keep(formatted)
    for name in "ab":
        kept_format(jars).write(tmp_path / name, CLUSTER_ID, NODE_ID)
    assert (tmp_path / "a" / "meta.properties").read_text() != (tmp_path / "b" / "meta.properties").read_text()


def test_a_setting_that_may_choose_other_features_is_left_to_kafkas_tool(jars, formatted, data):
    kept_format(jars, A_VERSION).keep(formatted)
    assert not list(jars.iterdir())
    kept_format(jars).keep(formatted)
    assert not kept_format(jars, A_VERSION).write(data, CLUSTER_ID, NODE_ID)


def test_damaged_features_are_not_used(jars, formatted, data):
    kept_format(jars).keep(formatted)
    [damaged] = jars.iterdir()
    damaged.write_bytes(FEATURES[:-1])
    assert not kept_format(jars).write(data, CLUSTER_ID, NODE_ID)


@pytest.mark.parametrize(
    ("name", "text"),
    [("more.properties", ""), ("meta.properties", IDS + "more=1\n"), ("meta.properties", IDS.replace("=1\n", "=2\n"))],
    ids=["another file", "another id", "another format"],
)
def test_what_another_kafka_would_write_otherwise_is_not_kept(jars, formatted, name, text):
    (formatted / name).write_text(text)
    kept_format(jars).keep(formatted)
    assert not list(jars.iterdir())


def test_where_the_folder_cannot_be_written_nothing_is_kept_and_nothing_fails(jars, formatted, data):
    jars.rmdir()
    kept_format(jars).keep(formatted)
    assert not kept_format(jars).write(data, CLUSTER_ID, NODE_ID)
