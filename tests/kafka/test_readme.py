"""The README's first program prints what the README says."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WAIT_S = 120.0


def first_program(broker, unique_name):
    """The two files and what is printed, for this broker and with names that no other test uses."""
    section = README.partition("## A first program\n")[2].partition("\n## ")[0]
    topics = {name: unique_name(name) for name in ("orders", "invoices")}
    files = []
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        for name, unique in topics.items():
            code = code.replace(f'"{name}"', f'"{unique}"')  # noqa: PLW2901
        files.append(code.replace("localhost:9092", broker.bootstrap_servers))
    (printed,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    return *files, printed, topics["invoices"]


def test_the_first_program_prints_an_invoice_for_each_order(kafka_broker, unique_name, eventually, tmp_path):
    billing, see, printed, invoices = first_program(kafka_broker, unique_name)
    (tmp_path / "billing.py").write_text(billing)
    (tmp_path / "see.py").write_text(see)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    with subprocess.Popen([sys.executable, "see.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as seen:
        eventually(lambda: invoices in admin.list_topics(timeout=WAIT_S).topics, "see.py has created its topics")
        with subprocess.Popen([sys.executable, "billing.py"], cwd=tmp_path) as running:
            output, _ = seen.communicate(timeout=WAIT_S)
            running.send_signal(signal.SIGTERM)
            assert running.wait(WAIT_S) == 0
    assert (seen.returncode, output) == (0, printed)
