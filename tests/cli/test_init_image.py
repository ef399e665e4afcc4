"""The image of a new project, where a Docker engine answers and the image that it is built on can be had."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from eos_client.cli.project import create_project
from eos_client.testing.docker_engine import engine_version
from tests.cli.conftest import Cluster
from tests.packaging.environments import build_distributions, run
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.kafka]

_PLATFORMS = [f"--platform=manylinux{level}_{{machine}}" for level in ("2014", "_2_17", "_2_28")]
_TOLD = "import json, platform, sys; print(json.dumps(['%d.%d' % sys.version_info[:2], platform.machine()]))"


def docker(*arguments: str, cwd: Path) -> str:
    return run("docker", *arguments, cwd=cwd).strip()


@pytest.fixture
def base(tmp_path: Path) -> str:
    """The image that the project's is built on."""
    if shutil.which("docker") is None or engine_version() is None:
        pytest.skip("no Docker engine answers")
    create_project("billing", tmp_path)
    first = (tmp_path / "billing" / "Dockerfile").read_text().splitlines()[0]
    name = first.removeprefix("FROM ")
    for command in ("image inspect", "pull"):
        if subprocess.run(["docker", *command.split(), name], capture_output=True, check=False).returncode == 0:
            return name
    pytest.skip(f"no registry has {name}")


@pytest.fixture
def image(base: str, tmp_path: Path) -> Iterator[str]:
    """The project's image, with this version of eos-client, which no package index has; it is removed at the end."""
    project, tag = tmp_path / "billing", f"eos-client-init-{uuid4().hex[:8]}"
    version, machine = json.loads(docker("run", "--rm", base, "python", "-c", _TOLD, cwd=tmp_path))
    wheel = build_distributions(tmp_path).wheel
    platforms = [each.format(machine=machine) for each in _PLATFORMS]
    chosen = ["--only-binary=:all:", f"--python-version={version}", *platforms, f"--dest={project}"]
    run(sys.executable, "-m", "pip", "download", "--quiet", *chosen, f"{wheel}[cli,prometheus]", cwd=tmp_path)
    requirements = project / "requirements.txt"
    requirements.write_text(f"--no-index\n{requirements.read_text()}")
    docker("build", "--quiet", f"--tag={tag}", str(project), cwd=tmp_path)
    yield tag
    docker("rmi", "--force", tag, cwd=tmp_path)


@pytest.fixture
def container(image: str, make_kafka_broker: Any, tmp_path: Path) -> Iterator[tuple[str, Cluster]]:
    """A worker with the restrictions of the StatefulSet, and its cluster; removed at the end."""
    cluster = Cluster(make_kafka_broker().bootstrap_servers)
    with cluster.admin:
        cluster.admin.create_topics({"orders": 1, "invoices": 1})
        locked = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]
        given = [f"--bootstrap={cluster.bootstrap_servers}", "--transactional-id=default-billing-0"]
        name = docker("run", "--detach", *locked, image, *given, cwd=tmp_path)
        yield name, cluster
        docker("rm", "--force", name, cwd=tmp_path)


def test_the_image_works_without_root_and_ends_by_the_signal_to_process_1(
    container: tuple[str, Cluster], tmp_path: Path
) -> None:
    name, cluster = container
    cluster.load("orders", [b"1", b"2"])
    wait_for(
        lambda: cluster.values("invoices") == [b"invoice for 1", b"invoice for 2"],
        lambda: docker("logs", name, cwd=tmp_path),
    )
    assert docker("exec", name, "id", "-u", cwd=tmp_path) == "10001"
    assert "eos-client\0run\0" in docker("exec", name, "cat", "/proc/1/cmdline", cwd=tmp_path)
    docker("stop", "--time=45", name, cwd=tmp_path)
    assert docker("inspect", "--format={{.State.ExitCode}}", name, cwd=tmp_path) == "0"  # 137: it had to be killed
