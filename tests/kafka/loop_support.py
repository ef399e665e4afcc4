"""What the tests of the loop on a real broker share: a job (topics, group, input), loops in threads or processes.

Everything that judges a run is raw confluent-kafka, never the client.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from eos_client import EosConfig, ExactlyOnceLoop
from tests.support.protocols import CONSUMER, NAMES, settings_of
from tests.support.reading import read_to_the_end, reader
from tests.support.waiting import TICK_S, WAIT_S, wait_for
from tests.verification.answers import settled
from tests.verification.checker import History, Status, check
from tests.verification.topics import await_topics, loader_settings, stored

REPOSITORY = Path(__file__).parents[2]
ANSWER_S = 60.0

# Limits that nothing reaches on a busy machine; what is about a limit has its own.
PATIENT = {"commit_timeout_s": 20.0, "start_timeout_s": 60.0}

PROTOCOLS = {
    name: settings_of(protocol) | ({} if protocol == CONSUMER else {"heartbeat.interval.ms": 300})
    for name, protocol in NAMES.items()
}
KIP_848, COOPERATIVE, EAGER = PROTOCOLS.values()
ONE_PROTOCOL = pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(settings, id=name, marks=() if settings is KIP_848 else pytest.mark.soak)
        for name, settings in PROTOCOLS.items()
    ],
)
"""For what is no matter of the protocol; the simulated cluster tells it under each."""


def copy(record):
    """The plainest transform: the value, for the default output topic."""
    return [record.value()]


class EventLog:
    """A hook that remembers every event."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def forget(self):
        """Begin anew: what is asked for from now on has happened since."""
        self.events = []

    def of(self, kind, **fields):
        return [e for e in self.events if isinstance(e, kind) and all(getattr(e, k) == v for k, v in fields.items())]

    def wait_for(self, kind, count=1, timeout_s=WAIT_S, **fields):
        wait_for(
            lambda: len(self.of(kind, **fields)) >= count, f"{count} {kind.__name__} {fields}", timeout_s=timeout_s
        )
        return self.of(kind, **fields)


def is_open_soon(job, wait_s=1.0):
    """Whether a transaction is open at the broker, or will be within `wait_s`."""
    seen_until = time.monotonic() + wait_s
    while job.is_settled():
        if time.monotonic() > seen_until:
            return False
        time.sleep(TICK_S)
    return True


class LoopThread:
    """`loop.run()` in a thread of its own; what it raised is raised by `join` and `stop`."""

    def __init__(self, loop, events):
        self.loop = loop
        self.events = events
        self.error = None
        self._thread = threading.Thread(target=self._run, name="loop-under-test", daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001  # it is the test's to judge
            self.error = error

    @property
    def running(self):
        return self._thread.is_alive()

    def ended(self, timeout_s=WAIT_S):
        """Wait for the end and return the error, None after an orderly stop."""
        self._thread.join(timeout_s)
        assert not self.running, f"the loop still runs after {timeout_s:g} s"
        return self.error

    def stop(self, timeout_s=WAIT_S):
        self.loop.stop()
        error = self.ended(timeout_s)
        if error is not None:
            raise error


class LoopProcess:
    """A loop in a process (`loop_worker.py`); `said` is what it has said so far."""

    def __init__(self, job, transform, kafka, options):
        told = {
            "bootstrap": job.bootstrap,
            "source": job.source,
            "sink": job.sink,
            "transform": transform,
            "kafka": kafka,
            "options": {"group_id": job.group, "commit_interval_s": 0.05, **PATIENT, **options},
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.loop_worker", json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.said = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._output:
            self.said.append(json.loads(line))

    def of(self, what):
        return [each for each in self.said if each["said"] == what]

    def wait_for(self, what, count=1, timeout_s=WAIT_S):
        def heard():
            assert len(self.of(what)) >= count or self._process.poll() is None, f"it ended early: {self.said[-3:]}"
            return len(self.of(what)) >= count

        wait_for(heard, f"the process says {what!r}", timeout_s=timeout_s)
        return self.of(what)

    def signal(self, number=signal.SIGTERM):
        self._process.send_signal(number)

    def ended(self, timeout_s=WAIT_S):
        """Wait for the end and return the exit code, negative for a signal."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:g} s; it said {self.said[-5:]}") from None
        self._reader.join(ANSWER_S)
        return code

    @property
    def running(self):
        return self._process.poll() is None

    def close(self):
        self._process.kill()
        self._process.wait()
        self._reader.join(ANSWER_S)
        self._output.close()


class Job:
    """Topics and a group that no other test uses, the input, the loops that work on it, and the verdict.

    A context manager: leaving it stops the loops that still run.
    """

    def __init__(self, broker, *, partitions=4):
        self.bootstrap = broker if isinstance(broker, str) else broker.bootstrap_servers
        self.partitions = partitions
        name = uuid.uuid4().hex[:10]
        self.source, self.sink, self.group = f"in-{name}", f"out-{name}", f"group-{name}"
        self.loaded = 0
        self._threads = []
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._observer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        self._loader = Producer(loader_settings(self.bootstrap) | {"log_level": 0})
        self._ending = ExitStack()
        self._ending.callback(self._observer.close)
        self.create_topics(self.source, self.sink)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ending.close()

    # -- the cluster -----------------------------------------------------------------------------------------------

    def create_topics(self, *names, **config):
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topics = [NewTopic(name, self.partitions, 1, config=settings) for name in names]
        for future in self._admin.create_topics(topics).values():
            future.result(ANSWER_S)
        await_topics(self._admin, dict.fromkeys(names, self.partitions))

    def more_topics(self, *kinds, **config):
        """Further topics of this job; returns their names."""
        names = [f"{kind}-{self.group}" for kind in kinds]
        self.create_topics(*names, **config)
        return names if len(names) > 1 else names[0]

    def hasten_rebalances(self, heartbeat_ms=300):
        """Let a KIP-848 group hear of its rebalances quickly: the interval is the broker's, by group."""
        interval = ConfigEntry(
            "consumer.heartbeat.interval.ms", str(heartbeat_ms), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=[interval])
        settled(lambda: self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_S))

    def members(self):
        group = settled(lambda: self._admin.describe_consumer_groups([self.group])[self.group].result(ANSWER_S))
        return len(group.members)

    def load(self, count, *, headers=None, first_partition=0):
        """Write `count` records with unique values, round robin; returns the values."""
        values = [b"%d" % number for number in range(self.loaded, self.loaded + count)]
        for number, value in enumerate(values):
            partition = (first_partition + number) % self.partitions
            self._loader.produce(self.source, value, b"key-" + value, partition, headers=headers)
        assert self._loader.flush(ANSWER_S) == 0
        self.loaded += count
        return values

    def load_value(self, value, key: bytes | None = b"key"):
        """Write one more record, to partition 0."""
        self._loader.produce(self.source, value, key, 0)
        assert self._loader.flush(ANSWER_S) == 0
        self.loaded += 1

    # -- loops -----------------------------------------------------------------------------------------------------

    def config(self, *, kafka=None, **options):
        given = {"group_id": self.group, "commit_interval_s": 0.05, **PATIENT, **options}
        return EosConfig({"bootstrap.servers": self.bootstrap, "log_level": 0, **(kafka or {})}, **given)

    def loop(self, transform=copy, *, topics=None, events=None, output_topic=None, **options):
        """A loop that is not running yet."""
        topics = topics or [self.source]
        hook = EventLog() if events is None else events
        return ExactlyOnceLoop(
            self.config(**options), topics, transform, output_topic=output_topic or self.sink, hook=hook
        )

    def start(self, transform=copy, **options):
        """A loop that runs in a thread."""
        events = EventLog()
        return self.start_loop(self.loop(transform, events=events, **options), events)

    def start_loop(self, loop, events):
        running = LoopThread(loop, events)
        self._threads.append(running)
        self._ending.callback(running.ended)
        self._ending.callback(running.loop.stop)
        return running

    def start_process(self, transform="copy", *, kafka=None, **options):
        """A loop that runs in a process of its own; `transform` is the name of one in `loop_worker.py`."""
        running = LoopProcess(self, transform, kafka or {}, options)
        self._ending.callback(running.close)
        return running

    # -- what is in the log ----------------------------------------------------------------------------------------

    def committed(self):
        """How many input records the group's committed offsets cover."""
        return sum(offset or 0 for offset in self.offsets().values())

    def offsets(self):
        """The group's committed offsets; None where there is none.

        Asked by a consumer that never joins: the admin client's own call crashes the process when it meets a
        coordinator that is still loading (librdkafka 2.16.0).
        """
        places = [TopicPartition(self.source, number) for number in range(self.partitions)]
        answers = settled(lambda: self._observer.committed(places, ANSWER_S))
        return {place.partition: place.offset if place.offset >= 0 else None for place in answers}

    def await_committed(self, count=None, timeout_s=WAIT_S):
        """Wait until the group's offsets cover `count` inputs (None: all); fails at once when a loop has failed."""
        wanted = self.loaded if count is None else count

        def done():
            for each in self._threads:
                if each.error is not None:
                    raise AssertionError("the loop has failed") from each.error
            return self.committed() >= wanted

        wait_for(done, f"{wanted} inputs committed", timeout_s=timeout_s)

    def log_ends(self, topic, isolation=IsolationLevel.READ_UNCOMMITTED):
        spec = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(self.partitions)}

        def ask():
            answers = self._admin.list_offsets(spec, isolation_level=isolation)
            try:
                return {place.partition: future.result(ANSWER_S).offset for place, future in answers.items()}
            except KafkaException:
                self._admin.list_topics(timeout=ANSWER_S)  # it may remember a leader from before a restart
                raise

        return settled(ask)

    def written(self, topic=None):
        """Offsets used in the topic, by committed, aborted and open transactions and their markers."""
        return sum(self.log_ends(topic or self.sink).values())

    def is_settled(self, topic=None):
        """Whether no transaction is open on the topic."""
        topic = topic or self.sink
        return self.log_ends(topic, IsolationLevel.READ_COMMITTED) == self.log_ends(topic)

    def await_settled(self, *topics, timeout_s=WAIT_S):
        for topic in topics or (self.sink,):
            wait_for(lambda topic=topic: self.is_settled(topic), f"no open transaction on {topic}", timeout_s=timeout_s)

    def messages(self, topic=None, *, isolation="read_committed"):
        """Every record of a topic whose transactions have all ended, by a reader of its own."""
        topic = topic or self.sink
        self.await_settled(topic)
        return list(read_to_the_end(reader(self.bootstrap, isolation), topic, self.partitions))

    def values(self, topic=None, *, isolation="read_committed"):
        return sorted(
            (m.value() for m in self.messages(topic, isolation=isolation)), key=lambda value: (len(value), value)
        )

    def verdict(self):
        """What the checker says of copying the source to the sink."""
        return check(
            History(
                inputs=[stored(message) for message in self.messages(self.source)],
                outputs=[stored(message) for message in self.messages(self.sink)],
                input_ends=self.log_ends(self.source),
                committed=self.offsets(),
            )
        )

    def assert_exactly_once(self):
        """Every input has one output, in order, and the group's offsets are at the end of the input."""
        verdict = self.verdict()
        assert verdict.inputs == self.loaded
        assert verdict.status is Status.HOLDS, str(verdict)
