"""What is installed is what was tested: one package, real files in place of the links, typed, with its program."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
import subprocess
import sys
import zipfile

import pytest

from tests.packaging.environments import REPOSITORY, run

LINKED = ("listeners", "integration")
IMPORT_ALL = """
import pathlib, pkgutil, sys
import eos_client, eos_client.listeners, eos_client.integration
home = pathlib.Path(sys.argv[1])
for module in (eos_client, eos_client.listeners, eos_client.integration):
    path = pathlib.Path(module.__file__)
    assert home in path.parents, path
assert eos_client.listeners.RevocationListener.__module__ == "eos_client.listeners.revocation"
print(" ".join(eos_client.__all__))
"""


@pytest.fixture(scope="module")
def wheel(distributions):
    """The project's wheel, built from its sdist."""
    with zipfile.ZipFile(distributions.wheel) as opened:
        yield opened


def text(wheel, ending):
    (name,) = (name for name in wheel.namelist() if name.endswith(ending))
    return wheel.read(name).decode()


def test_the_wheel_puts_one_package_on_the_path_and_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"eos_client"}


@pytest.mark.parametrize("linked", LINKED)
def test_the_linked_folders_are_real_files_inside_the_package(wheel, linked):
    source = {path.relative_to(REPOSITORY / linked).as_posix() for path in (REPOSITORY / linked).rglob("*.py")}
    packed = {name for name in wheel.namelist() if name.startswith(f"eos_client/{linked}/")}
    assert {name.removeprefix(f"eos_client/{linked}/") for name in packed} >= source
    for name in packed:
        entry = wheel.getinfo(name)
        assert (entry.external_attr >> 16) & 0o170000 in {0, 0o100000}, f"{name} is not a regular file"
        if name.endswith(".py"):
            assert wheel.read(name) == (REPOSITORY / name.removeprefix("eos_client/")).read_bytes()


def test_every_source_file_of_the_package_is_in_the_wheel(wheel):
    package = REPOSITORY / "eos_client"
    files = [*package.rglob("*.py"), *package.rglob("*.sha256")]
    source = {f"eos_client/{path.relative_to(package).as_posix()}" for path in files}
    assert source - set(wheel.namelist()) == set()


def test_the_files_of_a_new_project_are_real_files_in_the_wheel(wheel):
    template = REPOSITORY / "eos_client" / "cli" / "project_files"
    files = [path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {"Dockerfile", ".dockerignore", "eos-client-alerts.yaml"} < {path.name for path in files}
    for path in files:
        assert wheel.read(path.relative_to(REPOSITORY).as_posix()) == path.read_bytes()


def test_nothing_but_the_package_slips_in(wheel):
    strange = [
        name
        for name in wheel.namelist()
        if "__pycache__" in name or name.endswith((".pyc", ".log")) or "/tests/" in name or name.startswith("tests/")
    ]
    assert strange == []


def test_the_metadata_names_the_licence_the_authors_and_the_version_of_the_sdist(wheel, distributions):
    metadata = text(wheel, "METADATA")
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Author: eos-client contributors\n" in metadata
    assert f"Version: {distributions.version}\n" in metadata
    assert text(wheel, "licenses/LICENSE") == (REPOSITORY / "LICENSE").read_text()


def test_the_package_says_that_it_is_typed(wheel):
    assert "eos_client/py.typed" in wheel.namelist()


def test_the_program_and_the_pytest_plugin_are_announced_and_exist(wheel):
    announced = configparser.ConfigParser()
    announced.read_string(text(wheel, "entry_points.txt"))
    assert dict(announced["console_scripts"]) == {"eos-client": "eos_client.cli:main"}
    assert dict(announced["pytest11"]) == {"eos_client": "eos_client.testing.pytest_plugin"}
    assert {"eos_client/cli/__init__.py", "eos_client/testing/pytest_plugin.py"} <= set(wheel.namelist())


def test_a_plain_install_asks_for_the_kafka_client_the_logger_and_the_retries_and_nothing_else(wheel):
    required = [line for line in text(wheel, "METADATA").splitlines() if line.startswith("Requires-Dist: ")]
    plain = [line.removeprefix("Requires-Dist: ") for line in required if "extra ==" not in line]
    assert {re.split(r"[^\w-]", line)[0] for line in plain} == {"confluent-kafka", "msgspec", "structlog", "tenacity"}


def test_the_extra_for_spark_connect_brings_what_the_one_for_spark_brings_and_pysparks_own(wheel):
    required = re.findall(r"^Requires-Dist: (\S+); extra == '([\w-]+)'$", text(wheel, "METADATA"), re.MULTILINE)
    spark, connect = ({line for line, each in required if each == extra} for extra in ("spark", "spark-connect"))
    assert connect - spark == {"pyspark[connect]"}
    assert spark - connect == set()
    assert len(spark) == 2


def numbers(version):
    return [int(part) for part in version.split(".")]


def found(name, pattern):
    """What the pattern's group matches in that file of the checkout, where it matches once."""
    (match,) = re.findall(pattern, (REPOSITORY / name).read_text(), re.MULTILINE)
    return match


def test_the_client_versions_begin_with_the_lowest_admitted_and_end_with_the_minor_version_that_is_installed():
    versions = [
        numbers(version) for version in found("scripts/client_versions.sh", r'^client_versions="(.+)"$').split()
    ]
    lowest = numbers(found("pyproject.toml", r'"confluent-kafka>=([\d.]+),<\d+"'))
    assert versions == sorted(versions)
    assert versions[0][: len(lowest)] == lowest
    assert versions[-1][:2] == numbers(importlib.metadata.version("confluent-kafka"))[:2]


def test_what_is_installed_can_be_imported_without_the_checkout(wheel, tmp_path):
    wheel.extractall(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "ExactlyOnceLoop" in ran.stdout


@pytest.mark.parametrize("linked", LINKED)
def test_the_folders_at_the_root_cannot_be_imported_as_a_second_copy(linked):
    ran = subprocess.run(
        [sys.executable, "-c", f"import {linked}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode != 0
    assert f"ImportError: import eos_client.{linked}, not {linked}" in ran.stderr


@pytest.mark.parametrize("linked", LINKED)
def test_the_folders_at_the_root_are_links_inside_the_package(linked):
    link = REPOSITORY / "eos_client" / linked
    assert link.is_symlink(), "a checkout without link support cannot be used (CONTRIBUTING)"
    assert link.resolve() == REPOSITORY / linked


@pytest.mark.parametrize("import_as", ["eos_client", "eos_client.cli", "eos_client.testing"])
def test_a_plain_install_imports_without_any_extra(import_as):
    blocked = "import sys; sys.modules.update(dict.fromkeys(['rich', 'typer', 'pyspark', 'docker', 'testcontainers']))"
    run(sys.executable, "-c", f"{blocked}; import {import_as}", cwd=REPOSITORY)
