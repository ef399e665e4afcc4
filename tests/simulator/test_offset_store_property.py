"""Random commits, transactions, deaths at any record, recoveries and compactions, against a plain dict (P4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulator.brokers.offset_log import CoordinatorDiedError, OffsetLog
from eos_client.testing.simulator.brokers.offset_store import OffsetMismatchError, OffsetStore

GROUPS = ("billing", "audit")
KEYS = (PartitionKey("orders", 0), PartitionKey("orders", 1), PartitionKey("refunds", 0))

Offsets = dict[PartitionKey, OffsetAndMetadata]
groups = st.sampled_from(GROUPS)
keys = st.sampled_from(KEYS)
producers = st.builds(ProducerIdentity, st.sampled_from([7, 8]), st.sampled_from([0, 0, 0, 1]))
commits = st.dictionaries(keys, st.builds(OffsetAndMetadata, st.integers(0, 9), st.sampled_from(["", "m"])), min_size=1)


@dataclass
class Model:
    """Where each commit stands in the log decides; nothing is ever torn."""

    place: int = 0
    values: dict[tuple[str, PartitionKey], tuple[int, OffsetAndMetadata | None]] = field(default_factory=dict)
    staged: dict[tuple[str, int], dict[PartitionKey, tuple[int, OffsetAndMetadata]]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def offset(self, group: str, key: PartitionKey) -> int | None:
        entry = self.values.get((group, key), (0, None))[1]
        return None if entry is None else entry.offset

    def commit(self, group: str, offsets: Offsets) -> None:
        self.place += 1
        self.values.update({(group, key): (self.place, entry) for key, entry in offsets.items()})

    def delete(self, group: str, gone: list[PartitionKey]) -> None:
        self.place += 1
        self.values.update({(group, key): (self.place, None) for key in gone})

    def is_fenced(self, producer: ProducerIdentity) -> bool:
        return producer.producer_epoch < self.epochs.get(producer.producer_id, 0)

    def stage(self, group: str, producer: ProducerIdentity, offsets: Offsets) -> None:
        self.place += 1
        self.epochs[producer.producer_id] = producer.producer_epoch
        staged = self.staged.setdefault((group, producer.producer_id), {})
        staged.update({key: (self.place, entry) for key, entry in offsets.items()})

    def complete(self, group: str, producer: ProducerIdentity, committed: bool) -> None:
        if self.is_fenced(producer):
            return
        self.epochs[producer.producer_id] = producer.producer_epoch
        for key, (place, entry) in self.staged.pop((group, producer.producer_id), {}).items():
            if committed and place > self.values.get((group, key), (0, None))[0]:
                self.values[group, key] = (place, entry)

    def pending(self, group: str) -> set[PartitionKey]:
        return {key for (of, _), staged in self.staged.items() if of == group for key in staged}


class OffsetStorage(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = OffsetLog()
        self.store = OffsetStore(self.log)
        self.model = Model()

    @rule(group=groups, offsets=commits)
    def commit(self, group: str, offsets: Offsets) -> None:
        assert set(self.store.commit(group, offsets).values()) == {"NONE"}
        self.model.commit(group, offsets)

    @rule(group=groups, offsets=commits, wrong=st.sets(keys, max_size=1))
    def compare_and_set(self, group: str, offsets: Offsets, wrong: set[PartitionKey]) -> None:
        actual = {key: self.model.offset(group, key) for key in offsets}
        expected = {key: 99 if key in wrong else offset for key, offset in actual.items()}
        if self.model.pending(group) & set(expected):
            assert "UNSTABLE_OFFSET_COMMIT" in self.store.commit(group, offsets, expected=expected).values()
        elif expected != actual:
            with pytest.raises(OffsetMismatchError) as mismatch:
                self.store.commit(group, offsets, expected=expected)
            assert mismatch.value.actual == {key: actual[key] for key in wrong if key in actual}
        else:
            self.store.commit(group, offsets, expected=expected)
            self.model.commit(group, offsets)

    @rule(group=groups, producer=producers, offsets=commits)
    def stage(self, group: str, producer: ProducerIdentity, offsets: Offsets) -> None:
        if self.model.is_fenced(producer):
            with pytest.raises(BrokerError):
                self.store.stage(group, producer, offsets)
        else:
            self.store.stage(group, producer, offsets)
            self.model.stage(group, producer, offsets)

    @rule(group=groups, producer=producers, committed=st.booleans())
    def complete(self, group: str, producer: ProducerIdentity, committed: bool) -> None:
        self.store.complete(group, producer, committed=committed)
        self.model.complete(group, producer, committed)

    @rule(group=groups, gone=st.lists(keys, unique=True, min_size=1))
    def delete(self, group: str, gone: list[PartitionKey]) -> None:
        self.store.delete(group, gone)
        self.model.delete(group, gone)

    @rule(group=groups, offsets=commits, written=st.integers(0, 3), repairs=st.lists(st.integers(0, 2), max_size=2))
    def die_in_a_commit(self, group: str, offsets: Offsets, written: int, repairs: list[int]) -> None:
        self._die(written, len(offsets), lambda: self.store.commit(group, offsets), repairs)
        if written >= len(offsets):
            self.model.commit(group, offsets)

    @rule(group=groups, producer=producers, offsets=commits, written=st.integers(0, 3))
    def die_in_a_transactional_commit(
        self, group: str, producer: ProducerIdentity, offsets: Offsets, written: int
    ) -> None:
        if self.model.is_fenced(producer):
            return
        self._die(written, len(offsets), lambda: self.store.stage(group, producer, offsets), [])
        if written >= len(offsets):
            self.model.stage(group, producer, offsets)

    @rule(group=groups, producer=producers, written=st.integers(0, 1))
    def die_at_a_commit_marker(self, group: str, producer: ProducerIdentity, written: int) -> None:
        if self.model.is_fenced(producer):
            return
        self._die(written, 1, lambda: self.store.complete(group, producer, committed=True), [])
        if written:
            self.model.complete(group, producer, committed=True)

    def _die(self, written: int, size: int, request: Callable[[], object], repairs: list[int]) -> None:
        self.log.die_after(min(written, size))
        with pytest.raises(CoordinatorDiedError):
            request()
        for repaired in repairs:
            self.log.die_after(repaired)
            try:
                OffsetStore(self.log)
            except CoordinatorDiedError:
                continue
        self.log.die_after(10**9)
        self.store = OffsetStore(self.log)

    @rule()
    def restart(self) -> None:
        self.store = self.store.reopened()

    @rule()
    def compact(self) -> None:
        self.log.compact()

    @rule()
    def compact_and_restart(self) -> None:
        self.log.compact()
        self.store = self.store.reopened()

    @invariant()
    def every_answer_is_that_of_the_model(self) -> None:
        for group in GROUPS:
            fetched = self.store.fetch(group, KEYS, require_stable=False)
            for key in KEYS:
                entry = self.model.values.get((group, key), (0, None))[1] or OffsetAndMetadata(-1)
                offset = fetched[key].offset
                assert (-1 if offset is None else offset, fetched[key].metadata) == (entry.offset, entry.metadata)
            assert set(self.store.pending(group)) == self.model.pending(group)


TestOffsetStorage = OffsetStorage.TestCase
TestOffsetStorage.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
