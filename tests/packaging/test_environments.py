"""The wheel and the sdist work in an empty environment without this tree, on each Python that is claimed."""

import shutil
import tarfile

import pytest

from tests.packaging.environments import NEWEST, OLDEST, REPOSITORY, Environment, cells, claimed_pythons, find_python

DECIDING = ["tests/core", "tests/listeners", "tests/loop"]
# Of these, what the versions of dependencies make a difference to; `make support-matrix` runs the others, too.
DEPENDING = ["tests/core/test_config_against_librdkafka.py", "tests/listeners", "tests/loop"]
# With the newest versions: these are also what the checkout's own environment has, where all tests run.
DEPENDING_NEWEST = [*DEPENDING[:2], "tests/loop/test_default_logging.py", "tests/loop/test_transform_retries.py"]

PYTEST_INI = """
[pytest]
addopts = --import-mode=importlib -p no:cacheprovider
pythonpath = .
timeout = 300
markers =
    kafka: real brokers
    spark: Spark
    soak: long runs
    alone: with the machine to itself
"""

CELLS = list(cells())
CORNERS = [(*CELLS[0], DEPENDING), (*CELLS[-1], DEPENDING_NEWEST)]
BETWEEN = CELLS[1:-1]
OF_THE_OTHER_PYTHONS = [(minor, (NEWEST, OLDEST)[n % 2]) for n, minor in enumerate(claimed_pythons()[1:-1])]
"""Each of them once, with the newest and the oldest dependencies in turn."""


def environment(folder, minor):
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python {minor} is on PATH or in pyenv")
    return Environment.made(folder / "environment", python)


def shows_the_first_example(environment, folder):
    """The program that opens the README, on the simulated cluster, from a folder with nothing else in it."""
    program = shutil.copy(REPOSITORY / "examples" / "hand_written_loop.py", folder)
    printed = environment.run(program, cwd=folder)
    assert "eos-client: 100 orders, 100 invoices" in printed
    where = environment.run("-c", "import eos_client; print(eos_client.__file__)", cwd=folder)
    assert str(environment.folder) in where


def shows_the_program(environment, folder):
    shows_the_first_example(environment, folder)
    assert environment.run("-m", "eos_client", "--version", cwd=folder).startswith("eos-client ")


def test_the_sdist_can_be_installed_and_holds_the_package_once(distributions, tmp_path):
    installed = environment(tmp_path, claimed_pythons()[0])
    installed.install(f"{distributions.sdist}")
    shows_the_first_example(installed, tmp_path)
    with tarfile.open(distributions.sdist) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    assert tops == {
        *("eos_client", "examples"),
        *(".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml"),
    }


@pytest.mark.parametrize(
    ("minor", "resolution"),
    [
        *OF_THE_OTHER_PYTHONS,
        *(pytest.param(*cell, marks=pytest.mark.soak) for cell in BETWEEN if cell not in OF_THE_OTHER_PYTHONS),
    ],
)
def test_the_wheel_works_with_each_python_and_the_oldest_and_newest_dependencies(
    distributions, tmp_path, minor, resolution
):
    installed = environment(tmp_path, minor)
    installed.install(f"{distributions.wheel}[cli,test]", resolution=resolution)
    shows_the_program(installed, tmp_path)


def run_fitting(wheel, tmp_path, minor, resolution, folders):
    installed = environment(tmp_path, minor)
    installed.install(f"{wheel}[cli,test]", resolution=resolution)
    shows_the_program(installed, tmp_path)
    installed.install(f"{wheel}[prometheus]", resolution=resolution)
    installed.install("hypothesis", "pytest-timeout", "pytest-xdist")
    for folder in ("tests", "docs"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "Makefile", tmp_path)  # it names the folders of tests with brokers
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    printed = installed.run("-m", "pytest", "-q", *folders, cwd=tmp_path)
    assert " passed" in printed


@pytest.mark.parametrize(("minor", "resolution", "folders"), CORNERS, ids=["oldest", "newest"])
def test_what_depends_on_others_passes_without_the_tree_with_the_oldest_of_all_and_with_the_newest(
    distributions, tmp_path, minor, resolution, folders
):
    run_fitting(distributions.wheel, tmp_path, minor, resolution, folders)


@pytest.mark.soak
@pytest.mark.parametrize(("minor", "resolution"), CELLS)
def test_what_needs_no_broker_passes_without_the_tree_in_every_cell(distributions, tmp_path, minor, resolution):
    run_fitting(distributions.wheel, tmp_path, minor, resolution, [*DECIDING, "tests/confluent"])
