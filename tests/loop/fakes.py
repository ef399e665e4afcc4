"""A loop without a broker: scripted clients, a clock that only the test moves, and the real gate settings."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.clients.transaction import TransactionSession
from eos_client.clients.transaction_steps import Ending
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.last_errors import LastErrors
from eos_client.core.commit_gate import CommitGate
from eos_client.core.model import InputPartition, Outcome, ProducerLimits
from eos_client.loop import exactly_once_loop
from eos_client.observe import Counters

ENDLESS_S = 10_000.0


def config(**options):
    return EosConfig({"bootstrap.servers": "127.0.0.1:1"}, group_id="billing", **options)


@dataclass
class FakeRecord:
    """One consumed record."""

    place: int = 0
    body: bytes = b"body"
    named: tuple[tuple[str, bytes], ...] | None = None

    def topic(self):
        return "orders"

    def partition(self):
        return 2

    def offset(self):
        return self.place

    def key(self):
        return b"key"

    def value(self):
        return self.body

    def headers(self):
        return None if self.named is None else list(self.named)

    def set_topic(self, topic):
        assert topic == "orders"

    def set_value(self, value):
        self.body = value

    def set_key(self, key):
        assert key == b"key"

    def set_headers(self, headers):
        self.named = None if headers is None else tuple(headers)

    def timestamp(self):
        return (1, 0)

    def error(self):
        return None


class FakeClock:
    """Seconds that pass only when somebody spends them; `readings` counts how often it was looked at."""

    is_simulated = True

    def __init__(self):
        self.now = 100.0
        self.readings = 0

    def __call__(self):
        self.readings += 1
        return self.now

    def spend(self, seconds):
        self.now += seconds
        assert self.now < ENDLESS_S, "the loop does not end"

    sleep = spend


class FakeLibrary:
    """A client library with a clock of its own; `built` are the settings that its clients were asked for with."""

    def __init__(self, clock, consumer=None, producer=None):
        self.clock = clock
        self.built: dict[str, dict[str, Any]] = {}
        self._clients = {"consumer": consumer, "producer": producer}

    def consumer(self, settings, /):
        return self._built("consumer", settings)

    def producer(self, settings, /):
        return self._built("producer", settings)

    def _built(self, kind, settings):
        self.built[kind] = settings
        return self._clients[kind]


class FakeConsumer:
    """Hands out `waiting`; polling for nothing takes its whole time."""

    def __init__(self, settings, *, gate, clock, **_):
        self.member = self.membership = self.fetching = self.handed = self.work = self
        self.settings = settings
        self.library = SimpleNamespace(last_errors=LastErrors(None))
        self.is_member_epoch = False
        self.gate = CommitGate(gate)
        self.plain = PlainOffsets(clock)
        self.assigned = frozenset({InputPartition("orders", 2)})
        self.waiting = []
        self.taken = []
        self.close_error = None
        self.asked_for = []
        self._clock = clock

    @property
    def positions(self):
        return dict.fromkeys(self.assigned if self.taken else ())

    def poll(self, timeout_s):
        return next(iter(self.consume(1, timeout_s)), None)

    def consume(self, count, timeout_s):
        self.asked_for.append(count)
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self.taken += batch
        self._clock.spend(0.0 if batch else timeout_s)
        return batch

    def put_back(self, records):
        self.waiting = [*records, *self.waiting]
        del self.taken[-len(records) :]

    def rewind(self):
        self.put_back(list(self.taken))

    def processed(self):
        pass

    def require_open(self):
        pass

    def subscribe(self, topics):
        pass

    def wait_while_paused(self, seconds):
        self._clock.spend(seconds)

    def close_within(self, seconds):
        if self.close_error is not None:
            raise self.close_error
        return True


class ScriptedSession(TransactionSession):
    """Ends as `script` says, then always with a commit; remembers when it was asked and what is held."""

    def __init__(self, consumer, producer, *, clock):
        super().__init__(consumer, producer, producer, lambda event: None, Counters(), clock)
        self._fakes: Any = (consumer, clock)
        self.script: list[Outcome] = []
        self.ended_at: list[float] = []
        self._held = False

    @property
    def is_held(self):
        return self._held

    def end(self):
        consumer, clock = self._fakes
        self.ended_at.append(clock.now)
        outcome = self.script.pop(0) if self.script else Outcome.COMMITTED
        self._held = outcome is Outcome.SKIPPED
        if outcome is Outcome.ABORTED:
            consumer.rewind()
        if outcome is not Outcome.SKIPPED:
            consumer.taken.clear()
            self._steps.give_up()
            self._steps.clear_work()
        return Ending(outcome, "as scripted")

    def abort(self, reason):
        self.script = [Outcome.ABORTED]
        return self.end()


class FakeProducer:
    """Remembers in `written` what was written."""

    transactional_id = "billing-1"
    transaction_timeout_s = 10.0

    def __init__(self, _settings, *, clock, **_):
        self.ownership = SimpleNamespace(is_anothers=False)
        self.written = []
        self.limits = ProducerLimits()
        self.adapter = self.library = self.calls = self.registration = self.last_errors = self
        self.is_closed = False
        self._clock = clock

    def session(self, consumer):
        return ScriptedSession(consumer, self, clock=self._clock)

    def init_transactions(self, timeout_s):
        pass

    def set_deadline(self, moment_s):
        pass

    def drain_events(self):
        pass

    def begin_transaction(self):
        pass

    def abort_transaction(self, timeout_s):
        pass

    def poll(self, timeout_s):
        pass

    def raw_produce(self, topic, value, key=None):
        self.written.append(value)

    def take_refused_delivery(self):
        return ""

    def close(self):
        self.is_closed = True


class Bench:
    """A loop on fakes, with what a test moves and looks at."""

    def __init__(self, monkeypatch, transform=None, *, transform_batch=None, **options):
        self.clock = FakeClock()
        monkeypatch.setattr(exactly_once_loop, "EosConsumer", FakeConsumer)
        monkeypatch.setattr(exactly_once_loop, "EosProducer", FakeProducer)
        monkeypatch.setattr(exactly_once_loop, "require_topics", lambda *_: None)
        monkeypatch.setattr(exactly_once_loop, "require_output_topics", lambda *_: None)
        self.events: list[Any] = []
        given: dict[str, Any] = {"transform": transform, "transform_batch": transform_batch}
        self.loop = ExactlyOnceLoop(
            config(**options),
            ["orders"],
            **given,
            output_topic="bills",
            hook=self.events.append,
            clients=FakeLibrary(self.clock),
        )
        self.consumer: Any = self.loop._consumer
        self.producer: Any = self.loop._producer
        self.session: Any = self.loop._session

    def load(self, count):
        self.consumer.waiting += [FakeRecord(number, b"%d" % number) for number in range(count)]
