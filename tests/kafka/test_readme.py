"""The README's first program prints what the README says, and so does the function of the page on the command line."""

import re
import signal
import subprocess
import sys

import pytest

from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import WAIT_S

README = REPOSITORY / "README.md"
COMMANDS = REPOSITORY / "docs" / "reference" / "command-line.md"
(BILLING,) = code_blocks(README, "python")
_DEMO, STARTED, LOOKED_AT = (block.code for block in code_blocks(README, "sh"))
_PICTURE, PRINTED = (block.code for block in code_blocks(README, "text"))
(PRICING,) = code_blocks(COMMANDS, "python")
(RUN,) = (block.code.strip() for block in code_blocks(COMMANDS, "sh"))


@pytest.mark.parametrize("command", ["python billing.py", RUN], ids=["program", "run"])
def test_the_first_program_prints_an_invoice_for_each_order(kafka_broker, unique_name, tmp_path, command):
    # The README's names, each replaced by one that no other test uses; its address is that of this test's broker.
    changes = {f"{name}": unique_name(name) for name in ("orders", "invoices")}
    changes["localhost:9092"] = kafka_broker.bootstrap_servers
    changes["--group billing"] = f"--group {unique_name('billing')}"
    changes['group_id="billing"'] = f'group_id="{unique_name("billing")}"'
    words = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?!\w)" for word in changes))

    def changed(text):
        return words.sub(lambda found: changes[found[0]], text)

    def in_a_shell(text):
        line = changed(text).replace("eos-client ", "python -m eos_client ").replace("python ", f"{sys.executable} ")
        return {"args": ["sh", "-ec", line], "cwd": tmp_path, "text": True}

    create, starts = STARTED.splitlines()
    assert starts == "python billing.py"
    for block in (BILLING, PRICING):
        (tmp_path / block.saved_as).write_text(changed(block.code))
    subprocess.run(**in_a_shell(create), check=True, timeout=WAIT_S)
    with subprocess.Popen(**in_a_shell(f"exec {command}"), stderr=subprocess.PIPE) as running:
        seen = subprocess.run(**in_a_shell(LOOKED_AT), stdout=subprocess.PIPE, check=True, timeout=WAIT_S)
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=WAIT_S)
        assert running.returncode == 0
    assert "load in progress" not in told
    assert told.find("loop_started") < told.find("partitions_assigned") < told.find("loop_stopped")
    without_offsets = re.compile(r"@\d+")
    assert without_offsets.sub("", seen.stdout) == without_offsets.sub("", PRINTED)
