"""The tutorial as a reader does it: its files, its commands in its order, and what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eos_client.testing.free_ports import free_ports
from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import WAIT_S

PAGE = REPOSITORY / "docs" / "tutorial" / "first-program.md"
INSTALLED = "pip install"
BROKER, WORKER = "eos-client broker --port 9092\n", "python billing.py\n"
# test_readme.py has the same program, and the commands have tests of their own.
pytestmark = [pytest.mark.kafka, pytest.mark.soak]


class Terminals:
    """The reader's terminals, all in one folder. The broker is at a port of its own instead of 9092."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_ports(1)[0])
        self.env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self.broker: subprocess.Popen[str] | None = None
        self.worker: subprocess.Popen[str] | None = None

    def at_our_port(self, text: str) -> str:
        return text.replace("9092", self.port)

    def save(self, name: str, code: str) -> None:
        (self.folder / name).write_text(self.at_our_port(code))

    def start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["sh", "-ec", f"exec {self.at_our_port(command)}"],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, commands: str) -> str:
        """Run commands in the third terminal; return what they print."""
        if commands == BROKER:
            self.broker = self.start(commands)
            assert self.broker.stdout is not None
            return self.broker.stdout.readline()
        if commands == WORKER:
            self.worker = self.start(commands)
            return ""
        return subprocess.run(
            ["sh", "-ec", self.at_our_port(commands)],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=WAIT_S,
        ).stdout


@pytest.fixture
def terminals(tmp_path):
    opened = Terminals(tmp_path)
    yield opened
    for process in (opened.worker, opened.broker):
        if process is not None:
            process.terminate()
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 0


def lines(printed: str) -> list[str]:
    """What was printed, without the offset of each record: how many markers lie between them is a matter of time."""
    return sorted(re.sub(r"^(\d+)@\d+\t", r"\1\t", line).strip() for line in printed.splitlines())


def test_each_step_of_the_tutorial_does_what_it_says(terminals):
    printed = ""
    for block in code_blocks(PAGE):
        if block.saved_as is not None:
            terminals.save(block.saved_as, block.code)
        elif block.language == "text":
            assert lines(printed) == lines(block.code)
        elif INSTALLED not in block.code:
            printed = terminals.run(block.code)
    assert "1 passed" in printed
