"""The support matrix claims what the classifiers, the admitted versions and the commands that run them say."""

import re

import pytest

from tests.conformance.versions import VERSIONS
from tests.packaging.environments import REPOSITORY, claimed_pythons
from tests.support import schema_registry

PAGE = (REPOSITORY / "docs" / "reference" / "support.md").read_text()
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text()
MAKEFILE = (REPOSITORY / "Makefile").read_text()


def claimed(part):
    (versions,) = re.findall(rf"^\| {part} \| ([^|]+) \|", PAGE, re.MULTILINE)
    return re.findall(r"\d+(?:\.\d+)+", versions)


def in_makefile(variable):
    (versions,) = re.findall(rf"^{variable} \?= (.+)$", MAKEFILE, re.MULTILINE)
    return versions.split()


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def test_the_pythons_are_those_of_the_classifiers_and_the_lowest_is_what_the_package_requires():
    assert claimed("Python") == claimed_pythons()
    assert f'requires-python = ">={claimed_pythons()[0]}"' in PYPROJECT


def test_the_kafka_clients_are_those_that_are_run():
    assert [minor(version) for version in claimed("confluent-kafka")] == [
        minor(version) for version in in_makefile("CLIENT_VERSIONS")
    ]


def test_the_brokers_are_those_of_the_conformance_suite():
    assert claimed("Kafka brokers") == sorted(VERSIONS)


def test_the_schema_registry_is_the_one_that_is_run():
    assert f"Apicurio Registry {schema_registry.VERSION} by Confluent's API" in PAGE


def test_the_pysparks_are_those_that_are_run_and_none_that_is_newer_is_admitted():
    (developed_with,) = re.findall(r'"pyspark\[connect,sql\]==([\d.]+)"', PYPROJECT)
    versions = claimed("PySpark")
    assert versions == sorted([developed_with, *in_makefile("SPARK_VERSIONS")])
    ((lowest, below),) = re.findall(r'"pyspark\[sql\]>=([\d.]+),<([\d.]+)"', PYPROJECT)
    assert minor(versions[0]) == minor(lowest)
    assert (minor(versions[-1])[0], minor(versions[-1])[1] + 1) == minor(below)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`make ([a-z-]+)`", PAGE))))
def test_each_command_on_the_page_is_a_target(command):
    assert re.search(rf"^{command}:", MAKEFILE, re.MULTILINE)
