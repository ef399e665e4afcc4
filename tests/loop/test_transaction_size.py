"""How many records a transaction may hold after one that could not be committed."""

import pytest

from eos_client.loop.transaction_size import TransactionSize


def test_the_transaction_size_narrows_by_tenths_until_records_are_written_one_by_one():
    size = TransactionSize(100_000)
    seen = []
    while size.narrow(size.records_max):
        seen.append((size.records_max, size.one_by_one))
    assert seen == [(10_000, False), (1_000, False), (100, False), (10, True)]


def test_the_transaction_size_narrows_from_the_failed_transactions_size_to_one_record_at_least():
    size = TransactionSize(100_000)
    assert size.narrow(3)
    assert (size.records_max, size.one_by_one) == (1, True)


def test_each_commit_doubles_it_up_to_its_first_size():
    size = TransactionSize(50)
    assert size.shrink_to_one()
    assert not size.shrink_to_one(), "it cannot become smaller"
    seen = []
    for _ in range(7):
        size.committed()
        seen.append(size.records_max)
    assert seen == [2, 4, 8, 16, 32, 50, 50]


def test_it_hardly_grows_once_acknowledgements_take_a_quarter_of_their_time_limit():
    seen = []
    for waited in (0.0, 0.125, 0.2, 0.25, 0.9):
        size = TransactionSize(1_000)
        size.shrink_to_one()
        while size.records_max < 100:
            size.committed()
        size.committed(waited)
        seen.append(size.records_max)
    assert seen == [256, 256, 160, 129, 129]


def test_records_are_written_together_again_when_more_than_a_few_get_through():
    size = TransactionSize(100)
    size.narrow(60)
    assert size.one_by_one
    size.committed()
    assert (size.records_max, size.one_by_one) == (12, False)


@pytest.mark.parametrize(
    ("was_refused", "was_too_slow", "flush_share", "records_max", "will_help"),
    [
        (True, True, 1.0, 6, True),
        (False, True, 1.0, 1, True),
        (False, True, 0.0, 1, True),
        (False, False, 1.0, 1, False),
        (False, False, 0.9, 100, False),
    ],
)
def test_an_abort_shrinks_the_next_transaction_where_fewer_records_may_help(
    was_refused, was_too_slow, flush_share, records_max, will_help
):
    size = TransactionSize(100)
    helps = size.aborted(60, was_refused=was_refused, was_too_slow=was_too_slow, flush_share=flush_share)
    assert (helps, size.records_max) == (will_help, records_max)


def test_an_abort_of_a_slow_transaction_of_one_record_is_no_progress():
    size = TransactionSize(1)
    assert not size.aborted(1, was_refused=False, was_too_slow=True, flush_share=0.0)
