"""scripts/docker_engine.sh never passes a broken engine off as a missing one; tried with stand-ins on PATH."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "docker_engine.sh"
ON_DEBIAN = Path("/etc/debian_version").exists()


@pytest.fixture
def run_script(tmp_path, monkeypatch):
    """A function that runs the script with stand-ins for docker, dockerd and id."""
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("PATH", str(stand_ins), prepend=":")

    def run(*arguments, docker, dockerd="exit 1", user_id=0):
        for name, body in (("docker", docker), ("dockerd", dockerd), ("id", f"echo {user_id}")):
            (stand_ins / name).write_text(f"#!/bin/sh\n{body}\n")
            (stand_ins / name).chmod(0o755)
        return subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, check=False)

    return run


def test_an_engine_that_answers_is_used_and_not_stopped(run_script, tmp_path):
    directory = str(tmp_path / "engine")
    started = run_script("start", directory, docker="echo 99.1", dockerd="touch started")
    assert (started.returncode, started.stdout) == (0, "")
    assert "using the Docker engine that answers (99.1)" in started.stderr
    assert not Path(directory).exists()
    assert run_script("stop", directory, docker="echo 99.1").returncode == 0


@pytest.mark.skipif(not ON_DEBIAN, reason="an engine is only started on Debian")
def test_an_engine_that_does_not_start_is_an_error_with_the_end_of_its_log(run_script, tmp_path):
    directory = tmp_path / "engine"
    assert run_script("possible", docker="exit 1").returncode == 0
    started = run_script("start", str(directory), docker="exit 1", dockerd="echo no cgroups here; exit 1")
    assert started.returncode == 1
    assert started.stdout == ""
    assert "the Docker engine did not start" in started.stderr
    assert "no cgroups here" in started.stderr
    assert not directory.exists()


def test_where_no_engine_can_be_started_the_reason_is_one_line(run_script):
    said = run_script("possible", docker="exit 1", user_id=1000)
    assert said.returncode == 1
    assert said.stdout.startswith("no Docker engine answers, and ")
    assert said.stdout.count("\n") == 1
