"""The wheel and the sdist work in an empty environment without this tree, on each Python that is claimed."""

import shutil
import tarfile

import pytest

from tests.packaging.environments import (
    NEWEST,
    OLDEST,
    REPOSITORY,
    Environment,
    cells,
    claimed_pythons,
    find_python,
    lower_bounds,
)

DECIDING = ["tests/core", "tests/listeners", "tests/loop"]
# Not beside the instrumentation of confluent-kafka: that of the oldest OpenTelemetry knows no confluent-kafka of today.
TRACING = [
    "tests/observability/test_otel.py",
    "--deselect=tests/observability/test_otel.py::test_it_works_beside_the_instrumentation_of_confluent_kafka",
]
# What the versions of dependencies make a difference to; the core depends on none. A soak test runs the rest as well.
DEPENDING = [
    "tests/core/test_config_against_librdkafka.py",
    "tests/listeners",
    "tests/loop/test_default_logging.py",
    "tests/loop/test_transform_retries.py",
]

PYTEST_INI = """
[pytest]
addopts = --import-mode=importlib -p no:cacheprovider
pythonpath = .
timeout = 300
markers =
    kafka: real brokers
    spark: Spark
    soak: long runs
    in_turn: some of the cases
    alone: with the machine to itself
"""

CELLS = list(cells())
NEWEST_FOUND = next(filter(find_python, reversed(claimed_pythons())))
CORNERS = [
    pytest.param(*CELLS[0], [*DEPENDING, *TRACING], id="oldest"),
    pytest.param(NEWEST_FOUND, NEWEST, DEPENDING, id="newest", marks=pytest.mark.soak),
]
BETWEEN = CELLS[1:-1]


def environment(folder, minor):
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python {minor} is on PATH or in pyenv")
    return Environment.made(folder / "environment", python)


def shows_the_first_example(environment, folder):
    """The program behind the figures of the README, on the simulated cluster, from a folder with nothing else in it."""
    program = shutil.copy(REPOSITORY / "examples" / "hand_written_loop.py", folder)
    printed = environment.run(program, cwd=folder)
    assert "eos-client: 100 orders, 100 invoices" in printed
    where = environment.run("-c", "import eos_client; print(eos_client.__file__)", cwd=folder)
    assert str(environment.folder) in where


def shows_the_program(environment, folder):
    shows_the_first_example(environment, folder)
    version = environment.versions()["eos-client"]
    assert environment.run("-m", "eos_client", "--version", cwd=folder).startswith(f"eos-client {version} ")
    assert "--on-error" in environment.run("-m", "eos_client", "run", "--help", cwd=folder)


def install(distribution, environment, minor, resolution, *extras):
    environment.install_package(distribution, *extras, resolution=resolution)
    if resolution == OLDEST:
        bounds, found = lower_bounds(minor, *extras), environment.versions()
        assert bounds == {name: found.get(name) for name in bounds}


def run_fitting(distribution, tmp_path, minor, resolution, folders):
    installed = environment(tmp_path, minor)
    install(distribution, installed, minor, resolution)
    shows_the_first_example(installed, tmp_path)
    install(distribution, installed, minor, resolution, "cli", "test")
    shows_the_program(installed, tmp_path)
    install(distribution, installed, minor, resolution, "otel", "prometheus")
    installed.install(f"opentelemetry-sdk=={installed.versions()['opentelemetry-api']}")  # each SDK needs one API
    installed.install("hypothesis", "pytest-timeout", "pytest-xdist")
    for folder in ("tests", "docs"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "Makefile", tmp_path)  # it names the folders of tests with brokers
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    printed = installed.run("-m", "pytest", "-q", *folders, cwd=tmp_path)
    assert " passed" in printed


@pytest.mark.soak  # the wheel is built from it
def test_the_sdist_can_be_installed_and_what_depends_on_others_passes_without_the_tree(distributions, tmp_path):
    run_fitting(distributions.sdist, tmp_path, claimed_pythons()[0], NEWEST, DEPENDING)


def test_the_sdist_holds_the_package_once(distributions):
    with tarfile.open(distributions.sdist) as sdist:
        names = [name.split("/") for name in sdist.getnames() if "/" in name]
    assert {name[2] for name in names if name[1] == "docs" and len(name) > 2} == {"monitoring"}  # which `init` links to
    assert {name[1] for name in names} == {
        *("docs", "eos_client", "examples"),
        *(".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml"),
    }


@pytest.mark.soak
@pytest.mark.parametrize(("minor", "resolution"), BETWEEN)
def test_the_wheel_works_with_each_python_and_the_oldest_and_newest_dependencies(
    distributions, tmp_path, minor, resolution
):
    installed = environment(tmp_path, minor)
    install(distributions.wheel, installed, minor, resolution, "cli", "test")
    shows_the_program(installed, tmp_path)


@pytest.mark.parametrize(("minor", "resolution", "folders"), CORNERS)
def test_what_depends_on_others_passes_without_the_tree(distributions, tmp_path, minor, resolution, folders):
    run_fitting(distributions.wheel, tmp_path, minor, resolution, folders)


@pytest.mark.soak
@pytest.mark.parametrize(("minor", "resolution"), CELLS)
def test_what_needs_no_broker_passes_without_the_tree_in_every_cell(distributions, tmp_path, minor, resolution):
    run_fitting(distributions.wheel, tmp_path, minor, resolution, [*DECIDING, *TRACING, "tests/confluent"])
