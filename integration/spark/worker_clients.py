"""Keeps clients alive between tasks, because starting them is most of the cost of a small batch.

A client is taken out while it is used, so two attempts in one process never share one, and put back only after its work
was confirmed. A forked process leaves its parent's clients alone: their threads do not exist there.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from eos_client.confluent.ledger.ledger_reader import LedgerReader
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.integration.spark.settings import PickledFunction, SinkSettings

READERS_MAX = 4

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound="LedgerReader | IdleSlot")


class IdleClients(Generic[K, C]):
    """Idle clients of this process by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: OrderedDict[K, C] = OrderedDict()
        self._inherited: list[C] = []

    def take(self, key: K) -> C | None:
        """Return the idle client under ``key``, which is then the caller's; None when there is none."""
        with self._idle_here() as idle:
            return idle.pop(key, None)

    def put(self, key: K, client: C, kept_max: int, makes_room: Callable[[K, C], bool]) -> None:
        """Keep ``client`` for the next ``take`` of ``key``, where at most ``kept_max`` clients are kept.

        The oldest one that ``makes_room`` is closed for another, and else the newest, at first ``client`` itself: keys
        come again in the same order, so the oldest would be closed shortly before its own.
        """
        with self._idle_here() as idle:
            surplus = [idle.pop(key)] if key in idle else []
            idle[key] = client
            while len(idle) > kept_max:
                first = (each for each, kept in idle.items() if each != key and makes_room(each, kept))
                surplus.append(idle.pop(next(first, next(reversed(idle)))))
        for each in surplus:
            each.close()

    def close_stale(self, is_stale: Callable[[K, C], bool]) -> None:
        """Close the idle clients that will not be used again."""
        with self._idle_here() as idle:
            useless = [key for key, client in idle.items() if is_stale(key, client)]
            surplus = [idle.pop(key) for key in useless]
        for each in surplus:
            each.close()

    @contextmanager
    def _idle_here(self) -> Iterator[OrderedDict[K, C]]:
        with self._lock:
            # Destroying them in a forked process would wait for threads that do not exist there.
            if self._pid != os.getpid():
                self._inherited.extend(self._idle.values())
                self._idle.clear()
                self._pid = os.getpid()
            yield self._idle


@dataclass(eq=False, slots=True)
class IdleSlot:
    """A slot's producer with no open transaction, the run and the batch it served last, and the ledger's entry then."""

    producer: SlotProducer
    run: tuple[str, int]
    batch_id: int
    entry: LedgerEntry | None
    # A monotonic clock stands still with a machine that is suspended.
    _kept_at: float = field(default_factory=time.time, init=False)

    @property
    def idle_s(self) -> float:
        """For how many seconds it has been kept."""
        return time.time() - self._kept_at

    def close(self) -> None:
        """Leave the handle behind."""
        self.producer.close()


SLOTS: IdleClients[tuple[Hashable, int], IdleSlot] = IdleClients()
"""The producers of slots, by `cluster_key` and slot."""
READERS: IdleClients[Hashable, LedgerReader] = IdleClients()
"""The readers of ledgers, by `cluster_key`."""


def shorten_collections() -> None:
    """Exclude the loaded modules from garbage collection, again whenever more modules were loaded.

    PySpark's daemon collects garbage after every task (``pyspark/daemon.py``). With pandas and pyarrow loaded that is
    most of a small task, for objects that live as long as the process.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(modules: int) -> None:
    del modules  # once for each number of them
    gc.collect()
    gc.freeze()


def cluster_key(settings: SinkSettings) -> Hashable:
    """Return what two sinks must share to use the same clients."""
    config = frozenset((k, v if isinstance(v, PickledFunction) else str(v)) for k, v in settings.config.items())
    return settings.bootstrap_servers, settings.sink_id, settings.ledger_topic, config


def new_reader(settings: SinkSettings, *, stable: bool = True) -> LedgerReader:
    """Return a new reader of the sink's ledger."""
    return LedgerReader(settings.kafka, settings.group_id, settings.ledger_topic, stable=stable)
