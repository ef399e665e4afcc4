"""Which open transactions hang: what a partition holds, against what the coordinator of its producer knows."""

from dataclasses import replace

import pytest

from eos_client.core.hanging_transactions import KnownTransaction, OpenTransaction, TransactionStatus, status_of

NOW_MS, LIMIT_MS = 10_000_000, 900_000
OLD = OpenTransaction("orders", 0, 4000, 3, 1, 17, last_timestamp_ms=NOW_MS - LIMIT_MS - 1)
YOUNG = replace(OLD, last_timestamp_ms=NOW_MS - LIMIT_MS)
ITS_OWN = KnownTransaction("billing-0", 1, 4000, "Ongoing", 3, 60_000, NOW_MS, frozenset({("orders", 0)}))
ELSEWHERE = replace(ITS_OWN, partitions=frozenset({("orders", 1), ("invoices", 0)}))
AT_REST = KnownTransaction("billing-0", 1, 4000, "CompleteAbort")
OTHERS = replace(ITS_OWN, transactional_id="billing-1", producer_id=4001)


@pytest.mark.parametrize(
    ("found", "known", "sees_all_ids", "status"),
    [
        (OLD, [ITS_OWN], True, TransactionStatus.ONGOING),
        (YOUNG, [ITS_OWN], True, TransactionStatus.ONGOING),
        (OLD, [ITS_OWN], False, TransactionStatus.ONGOING),
        (OLD, [ELSEWHERE, OTHERS], True, TransactionStatus.HANGING),
        (OLD, [AT_REST], True, TransactionStatus.HANGING),
        (OLD, [OTHERS], True, TransactionStatus.HANGING),
        (OLD, [], True, TransactionStatus.HANGING),
        (YOUNG, [], True, TransactionStatus.RECENT),
        (YOUNG, [ELSEWHERE], True, TransactionStatus.RECENT),
        # An id that this user may not see may be the producer's; one that it sees is the only one.
        (OLD, [OTHERS], False, TransactionStatus.HIDDEN),
        (OLD, [ELSEWHERE], False, TransactionStatus.HANGING),
        (YOUNG, [], False, TransactionStatus.RECENT),
    ],
)
def test_only_what_no_coordinator_will_end_hangs(
    found: OpenTransaction, known: list[KnownTransaction], sees_all_ids: bool, status: TransactionStatus
) -> None:
    assert status_of(found, known, now_ms=NOW_MS, limit_ms=LIMIT_MS, sees_all_ids=sees_all_ids) is status


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "SomethingNew"])
def test_a_transaction_is_open_in_every_state_but_those_at_rest(state: str) -> None:
    assert replace(ITS_OWN, state=state).is_open
    assert not any(
        replace(ITS_OWN, state=rest).is_open for rest in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
    )
