"""A confluent-kafka that is too old is named by whichever import needs it first."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
import tomli

from eos_client.cli.exit_codes import ExitCode
from eos_client.client_version import CONFLUENT_KAFKA_MIN

REPOSITORY = Path(__file__).parents[2]
OLD = '__version__ = "2.14.0"\n'
IMPORTS = [
    "from eos_client import EosConsumer",
    "from eos_client import EosProducer",
    "from eos_client import ExactlyOnceLoop",
    "from eos_client import AsyncExactlyOnceLoop",
    "from eos_client import DeserializedRecord",
    "from eos_client.integration.spark import EosKafkaSink",
    "from eos_client.testing import SimulatedCluster",
]


@pytest.fixture
def run_beside_an_old_one(tmp_path):
    package = tmp_path / "confluent_kafka"
    package.mkdir()
    (package / "__init__.py").write_text(OLD)
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, check=False, env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize("first", IMPORTS)
def test_the_first_import_says_what_is_needed_and_what_is_there(run_beside_an_old_one, first):
    ran = run_beside_an_old_one("-c", first)
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: eos-client needs confluent-kafka 2.15 or newer, and 2.14.0 is installed: pip install --upgrade "
        "'confluent-kafka>=2.15,<3'"
    )


def test_the_command_line_says_it_without_a_traceback(run_beside_an_old_one):
    ran = run_beside_an_old_one("-m", "eos_client", "--help")
    assert ran.returncode == ExitCode.EXTRA_MISSING
    assert ran.stderr.startswith("eos-client needs confluent-kafka 2.15 or newer, and 2.14.0 is installed")


def test_a_librdkafka_of_the_system_that_is_older_is_named_too(monkeypatch):
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("2.8.0", 0))
    with pytest.raises(ImportError, match=r"needs librdkafka 2\.15 or newer, and 2\.8\.0 is installed"):
        importlib.reload(importlib.import_module("eos_client.confluent"))


def test_the_minimum_is_the_one_that_the_package_declares():
    project = tomli.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = ".".join(map(str, CONFLUENT_KAFKA_MIN))
    assert f"confluent-kafka>={needed},<3" in project["dependencies"]
