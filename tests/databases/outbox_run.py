"""Relays as processes on a real broker and a real database, killed again and again; counts what is lost and doubled.

    python -m tests.databases.outbox_run --database postgresql+psycopg://postgres@127.0.0.1:25432/outbox --seconds 120

Writers lock a key, count it up, and write a row of it into the outbox, in transactions of which some stay open for
seconds. So the rows of a key have an order, and the topic must have them in it, each once. Relays are killed with
SIGKILL, stopped with SIGSTOP for longer than their session, and told to stop.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, create_engine, insert, select, text, update

from eos_client import OutputRecord
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.integration.sql import outbox_table, write_outbox
from eos_client.testing import EmbeddedKafka

METADATA = MetaData()
OUTBOX = outbox_table("outbox", METADATA)
KEYS = Table("outbox_keys", METADATA, Column("name", String(20), primary_key=True), Column("counted", BigInteger))
GROUP, TOPIC, LEDGER = "outbox-run", "outbox-out", "outbox-run-outbox"
SESSION_MS = 6000


class Writers:
    """Threads that write rows until they are told to stop; ``late``: how many transactions stayed open for seconds."""

    def __init__(self, engine: Engine, keys: int, threads: int, seed: int) -> None:
        self.engine, self.keys, self.seed = engine, keys, seed
        self.late = self.rows = self.rolled_back = 0
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(n,)) for n in range(threads)]

    def write(self, number: int) -> None:
        chance = random.Random(self.seed + number)
        while not self.is_over.is_set():
            names = sorted(chance.sample([f"key-{n}" for n in range(self.keys)], chance.randint(1, 3)))
            open_s = chance.uniform(0.5, 4.0) if chance.random() < 0.02 else 0.0
            with self.engine.connect() as connection, connection.begin() as transaction:
                records = []
                for name in names:
                    row = select(KEYS.c.counted).where(KEYS.c.name == name).with_for_update()
                    count = connection.execute(row).scalar_one()
                    connection.execute(update(KEYS).where(KEYS.c.name == name).values(counted=count + 1))
                    records.append(OutputRecord(key=name, value=str(count)))
                write_outbox(connection, OUTBOX, records)
                time.sleep(open_s)
                if chance.random() < 0.05:
                    transaction.rollback()  # leaves a gap in the ids
                    self.rolled_back += 1
                    continue
            self.late += open_s > 0
            self.rows += len(records)
            time.sleep(chance.uniform(0, 0.02))


class Relays:
    """Processes of ``eos-client relay``."""

    def __init__(self, database: str, bootstrap: str, count: int, buckets: int, protocol: str) -> None:
        self.count = count
        self.running: list[subprocess.Popen[bytes]] = []
        self.log = open("/tmp/outbox_run.log", "wb")  # noqa: PTH123, SIM115
        extra = [] if protocol == "classic" else ["--config", "group.protocol=consumer"]
        session = [] if extra else ["--config", f"session.timeout.ms={SESSION_MS}"]
        self.command = [
            sys.executable, "-m", "eos_client", "relay", "--database", database, "--outbox", "outbox", "--bootstrap",
            bootstrap, "--group", GROUP, "--to", TOPIC, "--buckets", str(buckets), *session, *extra,
            "--config", "transaction.timeout.ms=15000",
        ]  # fmt: skip

    def fill(self) -> None:
        while len(self.running) < self.count:
            self.running.append(subprocess.Popen(self.command, stderr=self.log))

    def finish(self) -> None:
        for each in self.running:
            each.kill()
        subprocess.run([*self.command, "--until-end"], check=True, stderr=self.log, timeout=600)


def torment(relays: Relays, seconds: float, seed: int) -> Counter[str]:
    """Kill, freeze and stop relays for ``seconds``; returns how often each was done."""
    chance, done = random.Random(seed), Counter[str]()
    deadline = time.monotonic() + seconds
    frozen: list[tuple[float, subprocess.Popen[bytes]]] = []
    while time.monotonic() < deadline:
        relays.fill()
        time.sleep(chance.uniform(1.0, 9.0))
        for thaw_at, each in list(frozen):
            if time.monotonic() >= thaw_at:
                each.send_signal(signal.SIGCONT)
                frozen.remove((thaw_at, each))
        ended = [each for each in relays.running if each.poll() is not None]
        for each in ended:
            done[f"ended by itself with {each.returncode}"] += 1
            relays.running.remove(each)
        awake = [each for each in relays.running if each not in [e for _, e in frozen]]
        if not awake:
            continue
        victim, act = chance.choice(awake), chance.choices(("kill -9", "freeze", "SIGTERM"), (6, 2, 2))[0]
        done[act] += 1
        if act == "freeze":
            victim.send_signal(signal.SIGSTOP)
            frozen.append((time.monotonic() + SESSION_MS / 1000 * chance.uniform(0.5, 2.5), victim))
            continue
        victim.send_signal(signal.SIGKILL if act == "kill -9" else signal.SIGTERM)
        victim.wait()
        relays.running.remove(victim)
    for _, each in frozen:
        each.send_signal(signal.SIGCONT)
    return done


def read(bootstrap: str, expected: int) -> dict[str, list[int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outbox-run-reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([TOPIC])
    found: dict[str, list[int]] = defaultdict(list)
    seen, quiet_since = 0, time.monotonic()
    while seen < expected or time.monotonic() - quiet_since < 10:
        message: Any = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found[message.key().decode()].append(int(message.value()))
            seen, quiet_since = seen + 1, time.monotonic()
        elif time.monotonic() - quiet_since > 60:
            break
    consumer.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--relays", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    engine = create_engine(given.database)
    with engine.begin() as connection:
        for name in ("outbox_buckets", "outbox", "outbox_keys"):
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(KEYS), [{"name": f"key-{n}", "counted": 0} for n in range(given.keys)])
    with EmbeddedKafka(
        properties={
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": str(SESSION_MS),
        }
    ) as kafka:
        with ClusterAdmin(kafka.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: 3})
        relays = Relays(given.database, kafka.bootstrap_servers, given.relays, given.buckets, given.protocol)
        writers = Writers(engine, given.keys, given.writers, given.seed)
        for thread in writers.threads:
            thread.start()
        done = torment(relays, given.seconds, given.seed)
        writers.is_over.set()
        for thread in writers.threads:
            thread.join()
        relays.finish()
        with engine.connect() as connection:
            counts = {row.name: row.counted for row in connection.execute(select(KEYS))}
            left = len(connection.execute(select(OUTBOX.c.id)).all())
        found = read(kafka.bootstrap_servers, sum(counts.values()))
    lost = sum(len(set(range(count)) - set(found[name])) for name, count in counts.items())
    doubled = sum(len(values) - len(set(values)) for values in found.values())
    disordered = sum(1 for values in found.values() for a, b in pairwise(values) if b < a)
    print(
        f"{sum(counts.values())} rows of {given.keys} keys, {writers.late} transactions open for 0.5 to 4 s, "
        f"{writers.rolled_back} rolled back"
    )
    print(", ".join(f"{act}: {count}" for act, count in sorted(done.items())))
    print(f"lost {lost}, doubled {doubled}, out of order {disordered}, left in the outbox {left}")
    return 0 if lost == doubled == disordered == left == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
