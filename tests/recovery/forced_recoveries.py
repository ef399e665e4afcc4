"""Two loops that are made to recover again and again, from every cause that can be brought about quickly.

What the broker can be made to do, it does: a fence, a time-out, an expired id, a restart. The rest is done to the
calls of the client library, once each time: an answer that gets lost, a call that does not return.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eos_client.observe import Event, ProducerRebuilt, ProducerRecovered
from tests.kafka.loop_support import Job, LoopThread
from tests.kafka.own_process import handles, resident_mb, threads
from tests.recovery.forced_support import await_state, coordinator
from tests.support.interception import Intercepted
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

RECOVERY_S = 60.0
LOADED_AT_ONCE = 10
LOAD_PAUSE_S = 0.05
EXPIRY_MS = 3000
BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transactional.id.expiration.ms": str(EXPIRY_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
LOOP = {
    "commit_timeout_s": 1.0,
    "hold_limit_s": 0.5,
    "start_timeout_s": 20.0,
    "producer": {"transaction.timeout.ms": 2000, "statistics.interval.ms": 200},
}


def lost(code: str = "_TIMED_OUT", **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(getattr(KafkaError, code), "on purpose", **flags))


class Worker:
    """A loop in a thread, and what can be done to it."""

    def __init__(self, job: Job) -> None:
        self.recovered: list[ProducerRecovered] = []
        self.rebuilt_s: list[float] = []
        self._stalls_until = 0
        self._seen: list[tuple[int, int]] = []
        self._released = threading.Event()
        self._strikes: dict[str, Callable[..., Any]] = {}
        loop = job.loop(self._copy, events=self._hear, **LOOP)
        self.producer: Any = loop._producer
        replacements = {
            name: self._struck(name)
            for name in ("commit_transaction", "send_offsets_to_transaction", "abort_transaction")
        }
        library = self.producer.adapter.library
        library.factory = lambda settings: Intercepted(Producer(settings), replacements)
        library.raw = Intercepted(library.raw, replacements)
        self.running: LoopThread = job.start_loop(loop, self._hear)

    def _hear(self, event: Event) -> None:
        if isinstance(event, ProducerRecovered):
            self.recovered.append(event)
        elif isinstance(event, ProducerRebuilt):
            self.rebuilt_s.append(event.duration_s)

    def _copy(self, record: Any) -> list[bytes]:
        counters = self.producer.counters
        if counters.producer_rebuilds < self._stalls_until:
            self._stall_at_second_record((counters.committed, counters.aborted))
        return [record.value()]

    def _stall_at_second_record(self, transaction: tuple[int, int]) -> None:
        """Once in a transaction, when its first output is on the way: before that the broker knows of none."""
        self._seen = [*self._seen, transaction] if transaction in self._seen else [transaction]
        if len(self._seen) == 2:
            time.sleep(LOOP["producer"]["transaction.timeout.ms"] / 1000 + 0.7)  # type: ignore[index]

    def _struck(self, name: str) -> Callable[..., Any]:
        def call(raw: Any, *arguments: Any) -> Any:
            strike = self._strikes.pop(name, None)
            return getattr(raw, name)(*arguments) if strike is None else strike(getattr(raw, name), *arguments)

        return call

    # -- causes ------------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """Somebody else initialises the id. It was generated, so that cannot be a second instance."""
        other = Producer(
            {"bootstrap.servers": self.producer.settings["bootstrap.servers"], "log_level": 0}
            | {"transactional.id": self.producer.transactional_id}
        )
        try:
            other.init_transactions(RECOVERY_S)
        except KafkaException as refused:
            # Its first attempt fenced the worker, which may have its id back before another attempt is answered.
            if refused.args[0].code() != KafkaError._FENCED:
                raise
        finally:
            other.close()

    def stall(self) -> None:
        """Take longer over records than a transaction may last."""
        self._stalls_until = self.producer.counters.producer_rebuilds + 1

    def lose_answer(self) -> None:
        def commit(call: Callable[..., Any], *arguments: Any) -> None:
            call(*arguments)
            raise lost(retriable=True)

        self._strikes["commit_transaction"] = commit

    def lose_commit(self) -> None:
        def commit(_call: Callable[..., Any], *_: Any) -> None:
            raise lost(retriable=True)

        self._strikes["commit_transaction"] = commit

    def hang(self, name: str) -> None:
        self._released.clear()

        def stay(_call: Callable[..., Any], *_: Any) -> None:
            self._released.wait(RECOVERY_S)
            raise lost(retriable=True)

        self._strikes[name] = stay

    def release(self) -> None:
        """Let what hangs come back: its handle was left behind long since."""
        self._released.set()

    def forget_id(self) -> None:
        def send(_call: Callable[..., Any], *_: Any) -> None:
            raise lost("INVALID_PRODUCER_ID_MAPPING", txn_requires_abort=True)

        self._strikes["send_offsets_to_transaction"] = send

    def fail_abort(self) -> None:
        def send(_call: Callable[..., Any], *_: Any) -> None:
            raise lost("ILLEGAL_GENERATION", txn_requires_abort=True)

        def abort(_call: Callable[..., Any], *_: Any) -> None:
            raise lost(retriable=True)

        self._strikes |= {"send_offsets_to_transaction": send, "abort_transaction": abort}


QUICK: dict[str, Callable[[Worker], None]] = {
    "fenced by another init": Worker.fence,
    "answer to the commit lost": Worker.lose_answer,
    "commit lost": Worker.lose_commit,
    "id forgotten at send_offsets": Worker.forget_id,
    "offsets refused, abort unanswered": Worker.fail_abort,
}
SLOW: dict[str, Callable[[Worker], None]] = {
    "commit hangs": lambda worker: worker.hang("commit_transaction"),
    "send_offsets hangs": lambda worker: worker.hang("send_offsets_to_transaction"),
    "timed out at the broker": Worker.stall,
}


class ForcedRecoveries:
    """The job, its two workers, and the input that keeps coming."""

    def __init__(self, broker: Any, job: Job, seed: int) -> None:
        self._broker = broker
        self._job = job
        self._random = random.Random(seed)
        self._loading = threading.Event()
        self._loading.set()
        self._over = False
        self.caused: Counter[str] = Counter()
        self.workers = [Worker(job), Worker(job)]
        self._loader = threading.Thread(target=self._load, daemon=True)
        self._loader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_loading()

    def _stop_loading(self) -> None:
        self._over = True
        self._loading.set()
        self._loader.join(RECOVERY_S)

    def _load(self) -> None:
        while not self._over:
            if self._loading.wait(LOAD_PAUSE_S):
                self._job.load(LOADED_AT_ONCE)
                time.sleep(LOAD_PAUSE_S)

    def await_work(self) -> None:
        """Wait until both have partitions and commit."""
        for worker in self.workers:
            before = worker.running.loop.counters.committed
            wait_for(
                lambda w=worker, b=before: w.running.loop.counters.committed > b,
                "each of them commits",
                timeout_s=RECOVERY_S,
            )

    def one(self, name: str, cause: Callable[[Worker], None]) -> None:
        """Bring `cause` about at one of the workers, and wait until it has committed again."""
        worker = self._random.choice(self.workers)
        before = len(worker.recovered)
        cause(worker)
        self._await(worker, before, name)
        worker.release()
        self.caused[name] += 1

    def _await(self, worker: Worker, before: int, name: str) -> None:
        def recovered() -> bool:
            if worker.running.error is not None:
                raise AssertionError(f"after {name}") from worker.running.error
            return len(worker.recovered) > before

        wait_for(recovered, f"recovered: {name}", timeout_s=RECOVERY_S)

    def expire(self) -> None:
        """Nobody writes until both ids have expired."""
        before = [len(worker.recovered) for worker in self.workers]
        self._loading.clear()
        self._job.await_committed()
        with coordinator(self._broker) as line:  # no client hears of it until the id is used again
            for worker in self.workers:
                await_state(line, worker.producer.transactional_id, None)
        self._loading.set()
        for worker, count in zip(self.workers, before, strict=True):
            self._await(worker, count, "the id has expired")
            self.caused["the id has expired"] += 1

    def restart_broker(self) -> None:
        """Cleanly, with the same data; whether a transaction is hit by it is left to chance."""
        self._broker.restart()
        self.await_work()
        self.caused["(broker restarted)"] += 1

    def finish(self) -> None:
        """Let everything be processed, and stop."""
        self._stop_loading()
        self._job.await_committed(timeout_s=RECOVERY_S)
        for worker in self.workers:
            worker.running.stop()


def opened() -> dict[str, int]:
    """Threads, handles and resident memory of this process."""
    return {"threads": threads(), "handles": handles(), "resident MB": resident_mb()}
