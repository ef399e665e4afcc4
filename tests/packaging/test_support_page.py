"""The support matrix claims what the classifiers, the admitted versions and the commands that run them say."""

import re

import pytest

from tests.conformance.versions import VERSIONS
from tests.packaging.environments import REPOSITORY, claimed_pythons
from tests.support import schema_registry

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "reference" / "support.md").read_text()
TELLING = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *DOCS.glob("how-to/*.md"),
    *DOCS.glob("tutorial/*.md"),
]
"""Pages that say what one needs."""
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text()
SINK = (REPOSITORY / "integration" / "spark" / "__init__.py").read_text()
SCRIPTS = REPOSITORY / "scripts"


def claimed(part):
    (versions,) = re.findall(rf"^\| {part} \| ([^|]+) \|", PAGE, re.MULTILINE)
    return re.findall(r"\d+(?:\.\d+)*(?!\.x)", versions)


def run_by(script, variable):
    (versions,) = re.findall(rf'^{variable}="(.+)"$', (SCRIPTS / script).read_text(), re.MULTILINE)
    return versions.split()


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def named_on(page, what):
    """The versions that follow the name, up to ``or newer`` where the page says so."""
    text = " ".join(page.read_text().split())
    version = r"\d+(?:\.\d+)*"
    ranges = re.findall(
        rf"\b{what} ({version}(?:,? (?:or|to|and) {version})*\+?(?: (?:or|and) (?:newer|later))?)", text
    )
    return [each for found in ranges for each in re.findall(rf"{version}|\+|newer|later", found)]


def test_the_pythons_are_those_of_the_classifiers_and_the_lowest_is_what_the_package_requires():
    assert claimed("Python") == claimed_pythons()
    assert f'requires-python = ">={claimed_pythons()[0]}"' in PYPROJECT


def test_the_kafka_clients_are_those_that_are_run():
    assert [minor(version) for version in claimed("confluent-kafka")] == [
        minor(version) for version in run_by("client_versions.sh", "client_versions")
    ]


def test_the_brokers_are_those_of_the_conformance_suite():
    assert claimed("Kafka brokers") == sorted(VERSIONS)


def test_the_schema_registry_is_the_one_that_is_run():
    assert f"Apicurio Registry {schema_registry.VERSION} by Confluent's API" in PAGE


def test_the_pysparks_are_those_that_are_run_and_none_that_is_newer_is_admitted():
    (developed_with,) = re.findall(r'"pyspark\[connect,sql\]==([\d.]+)"', PYPROJECT)
    versions = claimed("PySpark")
    assert versions == sorted([developed_with, *run_by("spark_versions.sh", "spark_versions")])
    ((lowest, below),) = re.findall(r'"pyspark\[sql\]>=([\d.]+),<([\d.]+)"', PYPROJECT)
    assert versions[0] == lowest
    assert f'_SPARK_FIRST, _SPARK_END = "{lowest}", "{below}"' in SINK
    assert (minor(versions[-1])[0], minor(versions[-1])[1] + 1) == minor(below)


def test_the_spark_tests_run_with_what_the_extra_itself_brings_and_with_nothing_beside_it():
    script = (SCRIPTS / "spark_versions.sh").read_text()
    (extras,) = re.findall(r"--editable '\.\[([\w,-]+)\]'", script)
    assert "spark-connect" in extras.split(",")
    assert re.findall(r"pandas|grpcio|\[connect\]", script) == []
    assert 'for pin in "" "$@"' in script


@pytest.mark.parametrize(
    ("extra", "part"),
    [("prometheus-client", r"prometheus-client [^|]+"), ("opentelemetry-api", r"OpenTelemetry [^|]+")],
)
def test_the_oldest_of_an_extra_is_its_lower_bound(extra, part):
    (lowest,) = re.findall(rf'^\w+ = \["{extra}>=([\d.]+)', PYPROJECT, re.MULTILINE)
    assert claimed(part) == [lowest]


@pytest.mark.parametrize("page", TELLING, ids=lambda page: page.name)
def test_no_page_asks_for_a_java_or_a_pyspark_that_is_not_run(page):
    assert set(named_on(page, "Java")) <= set(claimed("Java, [^|]+"))
    run = claimed("PySpark")
    for version in named_on(page, "PySpark"):
        patched = version.count(".") == 2
        assert version in (run if patched else [each.rpartition(".")[0] for each in run]), version


def test_the_page_about_spark_names_the_oldest_pyspark_that_is_run():
    assert named_on(DOCS / "how-to" / "spark-sink.md", "PySpark")[0] == claimed("PySpark")[0]
    assert "Java" in (DOCS / "how-to" / "spark-sink.md").read_text()


def test_a_range_without_an_end_is_read_as_one(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("It needs PySpark 4.1 or\nnewer, and Java 17 or 21. Or Java 17+, or PySpark 4.1.1 to 4.3.")
    assert named_on(page, "PySpark") == ["4.1", "newer", "4.1.1", "4.3"]
    assert named_on(page, "Java") == ["17", "21", "17", "+"]


def test_linux_is_claimed_and_no_other_system():
    assert re.findall(r'"Operating System :: (.+)"', PYPROJECT) == ["POSIX :: Linux"]
    assert re.search(r"^\| operating system \| Linux ", PAGE, re.MULTILINE)
    for page in TELLING:
        assert not re.search(r"macOS|Darwin|BSD|Linux (?:and|or) [A-Z]", " ".join(page.read_text().split())), page


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`make ([a-z-]+)`", PAGE))))
def test_each_command_on_the_page_is_a_target(command):
    assert re.search(rf"^{command}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", sorted(set(re.findall(r"`scripts/(\w+\.sh)`", PAGE))))
def test_each_script_on_the_page_exists(script):
    assert (SCRIPTS / script).is_file()
