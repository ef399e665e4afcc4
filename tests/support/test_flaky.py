"""`tests.support.flaky` counts failures for each test, keeps the machine busy meanwhile, and leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytestmark = pytest.mark.soak  # it is run by hand

REPOSITORY = Path(__file__).parents[2]
TESTS = """
import os, pathlib, time

HERE = pathlib.Path(__file__).parent

def children_of(parent):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and int(stat.parent.name) != os.getpid():
            found.append(stat.parent.name)
    return found

def test_every_second_time():
    runs = HERE / "runs"
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert len(runs.read_text()) % 2 == 0

def test_beside_two_busy_processes():
    busy = children_of(os.getppid())
    (HERE / "busy").write_text(" ".join(busy))
    assert len(busy) == 2

def test_that_ends_its_process_in_the_third_run():
    if len((HERE / "runs").read_text()) == 3:
        os._exit(9)

def test_until_told():
    (HERE / "begun").write_text("")
    while (HERE / "wait").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    return tmp_path


def flaky(project, *arguments):
    """`python -m tests.support.flaky` on the project's tests."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.flaky", "--logs", str(project / "logs"), *arguments),
            *("--", "-c", str(project / "pytest.ini"), str(project / "test_some.py")),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the project needs none, and starts sooner
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_running(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def busy_in(project):
    return [pid for pid in (project / "busy").read_text().split() if is_running(pid)]


def test_counts_the_failures_of_each_test_and_of_one_that_took_its_process_down(project):
    with flaky(project, "--runs", "3") as repeated:
        said = repeated.communicate(timeout=240)[0]
    assert repeated.returncode == 1, said
    assert re.findall(r"(\d+ of \d+) +([\d.]+%) .*::(\w+)", said) == [
        ("2 of 3", "66.7%", "test_every_second_time"),
        ("1 of 3", "33.3%", "test_that_ends_its_process_in_the_third_run"),
        ("0 of 3", "0.0%", "test_beside_two_busy_processes"),
        ("0 of 2", "0.0%", "test_until_told"),
    ]
    assert "(first: " + str(project / "logs/run-001.log") in said
    assert "assert (1 % 2) == 0" in (project / "logs/run-001.log").read_text()
    assert busy_in(project) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_busy_processes_end_when_it_is_ended(project, number):
    (project / "wait").touch()
    with flaky(project, "--runs", "2") as repeated:
        wait_for((project / "begun").exists, "the first run")
        assert len(busy_in(project)) == 2
        os.kill(repeated.pid, number)
        (project / "wait").unlink()
        repeated.communicate(timeout=240)
    wait_for(lambda: not busy_in(project), "the busy processes to end")


def test_without_tests_it_says_what_it_wants(project):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.flaky", "--runs", "2", "--"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "name the tests to repeat: python -m tests.support.flaky --runs 20 -- tests/loop" in ran.stderr
