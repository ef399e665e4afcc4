import os
import subprocess
from typing import Any

import pytest
from rich.console import Console

from eos_client.cli.doctor import report
from eos_client.cli.doctor_checks import Finding, Level
from eos_client.cli.printable import escaped, printable, shell_word
from eos_client.errors import ClusterUnfitError

HOSTILE = "it's\n-> \x1b[8m\u202e\x9b C:\\new"


def test_what_cannot_be_printed_is_escaped() -> None:
    assert printable("plain text, ünï") == "plain text, ünï"
    assert printable(HOSTILE) == r"it's\n-> \x1b[8m\u202e\x9b C:\new"
    assert escaped(HOSTILE) == escaped(HOSTILE.encode()) == r"it's\n-> \x1b[8m\u202e\x9b C:\\new"
    assert escaped(b"\xff") == r"\xff"


@pytest.mark.parametrize("word", ["orders", "two words; rm -rf /", "it's", "", "$HOME", HOSTILE, "no UTF-8 \udcff"])
def test_a_word_of_a_command_is_one_printable_word_that_a_shell_reads_as_it_was(word: str) -> None:
    assert shell_word(word).isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {shell_word(word)}"], capture_output=True, check=True)
    assert os.fsdecode(read.stdout) == word


def test_the_doctor_forges_no_line_and_sends_nothing_to_the_terminal(capsys: Any) -> None:
    finding = Finding(Level.FAIL, f"group {HOSTILE}", f"text {HOSTILE}", f"way out {HOSTILE}")
    with pytest.raises(ClusterUnfitError, match=r"not fit .*\\x1b") as refused:
        report([finding], Console())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in [*lines, str(refused.value)])
