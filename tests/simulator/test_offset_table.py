"""The table of committed offsets: a dict in little space."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.testing.simulator.brokers.model import OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.offset_table import OffsetTable

ORDERS = PartitionKey("orders", 0)
HIGHEST = PartitionKey("orders", 2**31 - 1)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
groups = st.sampled_from(["billing", "audit", "Billing"])
partitions = st.builds(PartitionKey, st.sampled_from(["a", "b"]), st.sampled_from([0, 1, 2**31 - 1]))
removed = st.builds(PartitionKey, st.sampled_from(["a", "b", "c"]), st.sampled_from([-1, 0, 1, 2**31 - 1, 2**31]))
entries = st.builds(OffsetAndMetadata, st.integers(0, 2**63 - 1), st.text(max_size=5))
puts = st.tuples(groups, st.dictionaries(partitions, entries, max_size=4))
removals = st.tuples(groups, st.lists(removed, max_size=4))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(puts, removals), max_size=12))
def test_the_offset_table_holds_what_a_dict_would_hold(changes):
    table = OffsetTable()
    model: dict[str, dict[PartitionKey, OffsetAndMetadata]] = {}
    for group, change in changes:
        if isinstance(change, dict):
            table.put(group, change)
            model.setdefault(group, {}).update(change)
        else:
            table.remove(group, change)
            model[group] = {key: entry for key, entry in model.get(group, {}).items() if key not in change}
    assert table.groups() == tuple(sorted(group for group, offsets in model.items() if offsets))
    assert len(table) == sum(len(offsets) for offsets in model.values())
    for group in ("billing", "audit", "Billing"):
        assert table.of_group(group) == model.get(group, {})
        for topic in ("a", "b", "never seen"):
            for number in (-1, 0, 1, 2, 2**31 - 1, 2**31):
                key = PartitionKey(topic, number)
                assert table.get(group, key) == model.get(group, {}).get(key)


@given(names, names, st.text())
def test_names_and_metadata_of_any_characters_come_back_as_they_were(group, topic, metadata):
    table = OffsetTable()
    table.put(group, {PartitionKey(topic, 3): OffsetAndMetadata(7, metadata)})
    assert table.of_group(group) == {PartitionKey(topic, 3): OffsetAndMetadata(7, metadata)}


def test_an_update_of_several_partitions_is_one_statement_under_the_tables_one_lock():
    """P4: the in-memory table is updated under one lock."""
    table = OffsetTable()
    table.put("billing", {ORDERS: OffsetAndMetadata(1), HIGHEST: OffsetAndMetadata(1)})
    statements: list[str] = []
    table._rows.set_trace_callback(statements.append)
    table.put("billing", {ORDERS: OffsetAndMetadata(2), HIGHEST: OffsetAndMetadata(2)})
    changing = [text for text in statements if not text.lstrip().startswith("SELECT")]
    assert len(changing) == 1


def test_an_update_that_fails_in_the_middle_changes_nothing():
    """P4: the in-memory table is updated under one lock."""
    table = OffsetTable()
    table.put("billing", {ORDERS: OffsetAndMetadata(1)})
    broken = OffsetAndMetadata(None)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.IntegrityError):
        table.put("billing", {ORDERS: OffsetAndMetadata(2), HIGHEST: broken})
    assert table.of_group("billing") == {ORDERS: OffsetAndMetadata(1)}


def test_a_removed_group_leaves_no_row_behind():
    table = OffsetTable()
    for number in range(50):
        table.put(f"billing-{number}", {ORDERS: OffsetAndMetadata(number)})
        table.remove(f"billing-{number}", [ORDERS])
    assert len(table) == 0
    assert table.groups() == ()
    assert table._rows.execute("SELECT count(*) FROM pairs").fetchone() == (0,)
