"""What a loop still processes before it ends, once it is to stop."""

import pytest

from eos_client.core.model import InputPartition
from eos_client.loop.shutdown import Shutdown
from tests.support.manual_clock import ManualClock

P0, P1, P2 = (InputPartition("orders", number) for number in range(3))


@pytest.mark.parametrize(
    ("assigned", "repeats"), [({P0, P1}, True), ({P0, P1, P2}, True), ({P0}, False), ({P2}, False), (set(), False)]
)
def test_records_of_an_aborted_transaction_are_repeated_while_all_its_partitions_are_ours(assigned, repeats):
    shutdown = Shutdown(10.0, ManualClock())
    shutdown.expect_redelivery(4, frozenset({P0, P1}))
    assert shutdown.must_repeat(3, frozenset(assigned)) is repeats
    assert not shutdown.must_repeat(4, frozenset(assigned)), "the open transaction has them all"


def test_nothing_is_repeated_where_nothing_was_aborted():
    assert not Shutdown(10.0, ManualClock()).must_repeat(0, frozenset({P0}))
