"""The SBOM of a release names what no metadata of a Python package names."""

import re

import confluent_kafka

from eos_client.testing.pinned_jars import LISTS
from scripts import sbom


def test_the_sbom_names_the_dependencies_librdkafka_openssl_and_each_pinned_jar_once():
    components = sbom.document()["components"]
    by_purl = {each["purl"]: each for each in components}
    assert len(by_purl) == len(components)
    names = {each["name"]: each["version"] for each in components}
    assert {"confluent-kafka", "msgspec", "structlog", "tenacity"} <= names.keys()
    assert names["librdkafka"] == confluent_kafka.libversion()[0]
    assert re.fullmatch(r"3\.\d+\.\d+", names["openssl"])
    checksums = {line.split()[0] for file in LISTS.glob("*.sha256") for line in file.read_text().splitlines()}
    assert {hashed["content"] for each in components for hashed in each.get("hashes", ())} == checksums
    assert by_purl["pkg:maven/org.apache.kafka/kafka-clients@4.3.1"]["scope"] == "optional"
