"""Who goes through the runs in which a transactional request is late: a loop as it is written by hand, and ours."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.clients.transaction_block import Transaction
from eos_client.core.model import ProducerLimits
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification.held_requests import HeldRequest
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api, RequestFields

if TYPE_CHECKING:
    from typing_extensions import Self

RECORDS = 12
CALL_TIMEOUT_S = 20.0
COMMIT_TIMEOUT_S = 2.0
"""How long the end of a transaction is waited for where the test keeps its request back; all others are patient."""
LIMITS = ProducerLimits(commit_timeout_s=CALL_TIMEOUT_S, start_timeout_s=CALL_TIMEOUT_S, recovery_timeout_s=20.0)
SOCKET_TIMEOUT_MS = 2000
FENCED_CODES = frozenset({47, 90})  # INVALID_PRODUCER_EPOCH, and PRODUCER_FENCED in newer versions of the requests
_ATTEMPTS_MAX = 5


class Reading(enum.Enum):
    """What a hand-written loop takes a commit for that was not answered in time."""

    UNFINISHED = "call it again until it succeeds, as the client library's documentation says"
    FAILED = "a new handle, back to the first record of the batch"
    DONE = "a new handle, on with the next batch"


class NaiveLoop:
    """One consumer, one transactional producer, and a `Reading` of time-outs; it rewinds and checks errors' flags.

    `copy` is one transaction; `meanwhile` is called in it once, when its first `after` outputs are at the broker.
    """

    def __init__(self, bootstrap: str, source: str, sink: str, group: str, reading: Reading) -> None:
        self.transactional_id = f"naive-{group}"
        self._bootstrap = bootstrap
        self._sink = sink
        self._reading = reading
        self._producer = self._new_producer()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.subscribe([source])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        # What a commit of it has raised may keep it in use, and it looks for the brokers of this test for ever.
        self._producer.purge()
        self._producer.close()

    def copy(
        self,
        count: int,
        *,
        after: int = 0,
        meanwhile: Callable[[], Any] = lambda: None,
        commit_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Copy the next `count` records in one transaction, again from its start as often as the broker refuses it."""
        for _ in range(_ATTEMPTS_MAX):
            batch = self._consume(count)
            try:
                self._attempt(batch, after, meanwhile, commit_timeout_s)
            except KafkaException as exception:
                after, meanwhile = 0, lambda: None
                self._recover(exception)
                self._rewind(batch)
            else:
                return
        raise AssertionError(f"{self.transactional_id} got nowhere in {_ATTEMPTS_MAX} attempts")

    def abort(self, count: int) -> None:
        """Copy the next `count` records, find that they are no good, and abort."""
        batch = self._consume(count)
        self._producer.begin_transaction()
        self._produce(batch)
        self._patiently(self._producer.abort_transaction)
        self._rewind(batch)

    def _attempt(self, batch: list[Message], after: int, meanwhile: Callable[[], Any], commit_timeout_s: float) -> None:
        self._producer.begin_transaction()
        self._produce(batch[:after])
        meanwhile()
        self._produce(batch[after:])
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
            CALL_TIMEOUT_S,
        )
        if self._reading is Reading.UNFINISHED:
            self._patiently(self._producer.commit_transaction)
            return
        try:
            self._producer.commit_transaction(commit_timeout_s)
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise
            self._producer = self._new_producer()
            if self._reading is Reading.FAILED:
                self._rewind(batch)

    def _patiently(self, end: Callable[[float], None]) -> None:
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while True:
            try:
                end(COMMIT_TIMEOUT_S)
            except KafkaException as exception:  # noqa: PERF203  # seconds apart
                if not exception.args[0].retriable() or time.monotonic() > deadline_s:
                    raise
            else:
                return

    def _recover(self, exception: KafkaException) -> None:
        if exception.args[0].txn_requires_abort():
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(CALL_TIMEOUT_S)
                return
        self._producer = self._new_producer()

    def _rewind(self, batch: Iterable[Message]) -> None:
        starts: dict[tuple[Any, Any], int] = {}
        for message in batch:
            starts.setdefault((message.topic(), message.partition()), int(message.offset() or 0))
        for (topic, partition), offset in starts.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))

    def _consume(self, count: int) -> list[Message]:
        batch: list[Message] = []
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while len(batch) < count and time.monotonic() < deadline_s:
            batch += [m for m in self._consumer.consume(count - len(batch), 0.1) if m.error() is None]
        return batch

    def _produce(self, batch: Iterable[Message]) -> None:
        for message in batch:
            self._producer.produce(self._sink, message.value())
        self._producer.flush(CALL_TIMEOUT_S)

    def _new_producer(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": self.transactional_id,
            "linger.ms": 0,
        }
        if self._reading is Reading.UNFINISHED:  # the others have given up before the socket does
            settings["socket.timeout.ms"] = SOCKET_TIMEOUT_MS
        producer = Producer(settings)
        producer.init_transactions(CALL_TIMEOUT_S)
        return producer


class _CoordinatorConnections:
    """A logger that counts how often a producer has connected to its transaction coordinator."""

    def __init__(self) -> None:
        self.heard = 0

    def log(self, _level: int, _text: str, *arguments: Any) -> None:
        self.heard += str(arguments[-1]).endswith("TxnCoordinator: Broker changed state APIVERSION_QUERY -> UP")


class Ours:
    """Our producer and consumer on a stage with one partition of `RECORDS` records; its methods are `NaiveLoop`'s."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.transactional_id = f"ours-{stage.group}"
        self._stage = stage
        self._connected = _CoordinatorConnections()
        self._producer: EosProducer = stage.producer(
            limits=LIMITS,
            transactional_id=self.transactional_id,
            logger=self._connected,
            debug="broker",
            **settings,
        )
        self._consumer: EosConsumer = stage.subscribed()
        stage.load(RECORDS)

    def copy(
        self,
        count: int,
        *,
        after: int = 0,
        meanwhile: Callable[[], Any] = lambda: None,
        commit_timeout_s: float = CALL_TIMEOUT_S,
        offsets_timeout_s: float = CALL_TIMEOUT_S,
        recovery_timeout_s: float = CALL_TIMEOUT_S,
    ) -> Outcome | None:
        """Copy the next `count` records in a transaction, `last`; returns what became of it.

        `commit_timeout_s` is how long its end is waited for, and its offsets `offsets_timeout_s`.
        """
        ends = {"commit_transaction": commit_timeout_s, "abort_transaction": commit_timeout_s}
        self._producer.limits = replace(LIMITS, recovery_timeout_s=recovery_timeout_s)
        self.last = txn = self._producer.transaction(self._consumer)
        try:
            with self._in_time(send_offsets_to_transaction=offsets_timeout_s, **ends), txn:
                batch = self._stage.collect(self._consumer, count)
                self._produce(txn, batch[:after])
                meanwhile()
                self._produce(txn, batch[after:])
        finally:
            self._producer.limits = LIMITS
        return txn.outcome

    @contextlib.contextmanager
    def _in_time(self, **timeouts_s: float) -> Iterator[None]:
        """Give those calls that long, whatever the session would: the others are not to fail on a busy machine."""

        def limited(call: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
            return lambda *arguments, **options: call(*arguments, timeout_s, **options)

        with pytest.MonkeyPatch.context() as patch:
            for name, timeout_s in timeouts_s.items():
                adapter = self._producer.adapter
                patch.setattr(adapter, name, limited(getattr(adapter, name), timeout_s))
            yield

    def _produce(self, txn: Transaction, batch: Iterable[Message]) -> None:
        for message in batch:
            txn.produce(self._stage.sink, message.value())
        self._producer.flush(CALL_TIMEOUT_S)

    def replay_from(self, offset: int) -> None:
        """Go back to records that are committed."""
        self._consumer.seek(TopicPartition(self._stage.source, 0, offset))

    def begin(self) -> None:
        """Begin a transaction by hand, as a member of the group."""
        wait_for(self._consumer.assignment, "an assignment", lambda: self._consumer.poll(0.05))
        self._producer.begin_transaction()

    def send_offsets(self, offset: int) -> None:
        """Send the offset of the partition by hand."""
        self._producer.send_offsets_to_transaction(
            [TopicPartition(self._stage.source, 0, offset)], self._consumer.consumer_group_metadata()
        )

    def abort_by_hand(self) -> None:
        """Abort what was begun by hand."""
        self._producer.abort_transaction()

    def commit_by_hand(self) -> None:
        """Commit what was begun by hand."""
        self._producer.commit_transaction()

    def lose_connections(self, proxy: KafkaProxy) -> None:
        """Lose every connection while no transaction is open, and wait until the coordinator's is there again."""
        before = self._connected.heard
        proxy.cut_off_clients()
        wait_for(lambda: self._connected.heard > before, "a new connection to the coordinator", self._serve_log)

    def _serve_log(self) -> None:
        self._producer.poll(0.05)

    def abort(self, count: int, *, commit_timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Copy the next `count` records, find that they are no good, and abort."""

        def no_good() -> None:
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            self.copy(count, after=count, meanwhile=no_good, commit_timeout_s=commit_timeout_s)

    def assert_exactly_once(self) -> None:
        """Copy the rest; then every record has one output."""
        wait_for(lambda: settled_offset(self._stage) == RECORDS, "all inputs committed", self._copy_what_comes)
        outputs = self._stage.outputs()
        assert outputs == ids(0, RECORDS), f"{RECORDS} inputs, but these outputs: {outputs}"

    def _copy_what_comes(self) -> None:
        with self._producer.transaction(self._consumer) as txn:
            for message in self._consumer.consume(RECORDS, 0.1):
                txn.produce(self._stage.sink, message.value())

    def resolved(self) -> list[str]:
        """The outcomes that were looked up in the log."""
        return [event.outcome for event in self._stage.named("outcome_resolved")]


def commit_of(transactional_id: str) -> Callable[[RequestFields], bool]:
    """Matches the EndTxn that commits."""
    return lambda request: request.transactional_id == transactional_id and request.commits is True


def abort_of(transactional_id: str) -> Callable[[RequestFields], bool]:
    """Matches the EndTxn that aborts."""
    return lambda request: request.transactional_id == transactional_id and request.commits is False


def sent_by(transactional_id: str) -> Callable[[RequestFields], bool]:
    """Matches whatever that id sends."""
    return lambda request: request.transactional_id == transactional_id


def arrive_late(held: HeldRequest) -> tuple[int, ...]:
    """Let the request reach the broker now; returns the broker's error codes."""
    held.deliver()
    return held.wait_for_answer().errors


@contextlib.contextmanager
def arriving_before_the_commit(proxy: KafkaProxy, transactional_id: str, late: HeldRequest) -> Iterator[None]:
    """In the transaction of the block, the late request arrives after its offsets and before its EndTxn."""
    commit = proxy.hold_next(Api.END_TXN, commit_of(transactional_id))

    def deliver_both() -> None:
        commit.wait_until_caught()
        try:
            arrive_late(late)
        finally:
            commit.deliver()

    thread = threading.Thread(target=deliver_both, daemon=True)
    thread.start()
    yield
    thread.join()


def ids(first: int, end: int) -> list[str]:
    """The values of the stage's first partition from the `first` record to before the `end`."""
    return [f"0-{number}" for number in range(first, end)]


def doubled(outputs: list[str]) -> set[str]:
    """The values that are there more than once."""
    return {each for each, count in Counter(outputs).items() if count > 1}


def settled_offset(stage: Stage) -> int | None:
    """The offset of the stage's first partition, which is all that these stories use."""
    return stage.committed()[0]


def endings(proxy: KafkaProxy, transactional_id: str) -> list[tuple[int, bool]]:
    """Producer epoch and kind (True: commit) of every EndTxn that was sent under that id, in order."""
    return [
        (-1 if exchange.request.producer_epoch is None else exchange.request.producer_epoch, commits)
        for exchange in tuple(proxy.exchanges)
        if exchange.request.transactional_id == transactional_id and (commits := exchange.request.commits) is not None
    ]
