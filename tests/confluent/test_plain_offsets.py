"""Offsets that the application commits outside transactions: which wait, and how they have left."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from eos_client.confluent.consumer.plain_offsets import PlainOffsets, PlainUse
from tests.core.fetched_messages import ONE, ZERO


def test_each_way_by_which_offsets_leave_outside_transactions_is_known():
    offsets = PlainOffsets()
    assert offsets.uses == []
    offsets.record_use(PlainUse.START)
    offsets.pending[ZERO] = TopicPartition("orders", 0, 5)
    offsets.record_use(PlainUse.COMMIT)
    assert offsets.uses == [PlainUse.COMMIT, PlainUse.PENDING, PlainUse.START]
    offsets.drop_pending([ZERO])
    assert offsets.uses == [PlainUse.COMMIT, PlainUse.START]


@pytest.mark.parametrize(("offset", "remain"), [(5, True), (4, False), (OFFSET_BEGINNING, False)])
def test_a_seek_back_takes_back_what_is_stored_and_pending_beyond_it(offset, remain):
    offsets = PlainOffsets()
    offsets.store([TopicPartition("orders", 0, 5)])
    offsets.pending.update(offsets.stored)
    offsets.take_back(ONE, 0)
    offsets.take_back(ZERO, offset)
    assert (ZERO in offsets.stored, ZERO in offsets.pending) == (remain, remain)


def test_what_was_stored_beyond_what_was_sent_is_still_to_be_committed():
    offsets = PlainOffsets()
    offsets.store([TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 5)])
    offsets.drop_stored({ZERO: 5, ONE: 4})
    assert set(offsets.stored) == {ONE}
    offsets.forget_stored([ONE])
    assert offsets.stored == {}
