"""The README's first program prints what the README says, as a program and under ``eos-client run``."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import WAIT_S

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## A first program\n")[2].partition("\n## ")[0]
(BILLING,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
STARTED, LOOKED_AT = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
(PRINTED,) = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
(COMMAND,) = re.findall(r"```console\n\$ (.*)\n```", SECTION)


@pytest.mark.parametrize("command", ["python billing.py", COMMAND], ids=["program", "run"])
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
    (tmp_path / "billing.py").write_text(changed(BILLING))
    subprocess.run(**in_a_shell(create), check=True, timeout=WAIT_S)
    with subprocess.Popen(**in_a_shell(f"exec {command}")) as running:
        seen = subprocess.run(**in_a_shell(LOOKED_AT), stdout=subprocess.PIPE, check=True, timeout=WAIT_S)
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT_S) == 0
    without_offsets = re.compile(r"@\d+")
    assert without_offsets.sub("", seen.stdout) == without_offsets.sub("", PRINTED)
