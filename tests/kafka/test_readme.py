"""The README's first program prints what the README says, as a program and under ``eos-client run``."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.waiting import WAIT_S, wait_for

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## A first program\n")[2].partition("\n## ")[0]
BILLING, SEE = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
(PRINTED,) = re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
(COMMAND,) = re.findall(r"```sh\neos-client (.*)\n```", SECTION)


@pytest.mark.parametrize(
    "command", [["billing.py"], ["-m", "eos_client", *shlex.split(COMMAND)]], ids=["program", "run"]
)
def test_the_first_program_prints_an_invoice_for_each_order(kafka_broker, unique_name, tmp_path, command):
    # The README's names, each replaced by one that no other test uses; its address is that of this test's broker.
    names = {name: unique_name(name) for name in ("orders", "invoices", "billing")}
    changes = {f'"{name}"': f'"{unique}"' for name, unique in names.items()}
    changes["localhost:9092"] = kafka_broker.bootstrap_servers

    def changed(text):
        return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found[0]], text)

    (tmp_path / "billing.py").write_text(changed(BILLING))
    (tmp_path / "see.py").write_text(changed(SEE))
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    with subprocess.Popen([sys.executable, "see.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as seen:
        wait_for(lambda: names["invoices"] in admin.list_topics(timeout=WAIT_S).topics, "see.py has made its topics")
        arguments = [names.get(word, changed(word)) for word in command]
        with subprocess.Popen([sys.executable, *arguments], cwd=tmp_path) as running:
            output, _ = seen.communicate(timeout=WAIT_S)
            running.send_signal(signal.SIGTERM)
            assert running.wait(WAIT_S) == 0
    assert (seen.returncode, output) == (0, PRINTED)
