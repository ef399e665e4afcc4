"""Which transaction timeouts the brokers allow, also where their limit cannot be read."""

import pytest

from eos_client.core.internal_logs import whole_number
from eos_client.core.transaction_timeout import BROKERS_LIMIT, DEFAULT_LIMIT_MS, has_timed_out, is_timeout_allowed

LIMIT = "transaction.max.timeout.ms"


@pytest.mark.parametrize(
    ("asked_ms", "settings", "expected"),
    [
        (30_000, {LIMIT: "30000"}, True),
        (30_001, {LIMIT: "30000"}, False),
        (DEFAULT_LIMIT_MS + 1, {LIMIT: "3600000"}, True),
        (DEFAULT_LIMIT_MS, {}, True),
        (DEFAULT_LIMIT_MS + 1, {}, None),
        (DEFAULT_LIMIT_MS + 1, {LIMIT: ""}, None),
    ],
)
def test_a_timeout_is_judged_by_the_brokers_limit_and_by_kafkas_default_where_that_is_hidden(
    asked_ms, settings, expected
):
    assert is_timeout_allowed(asked_ms, whole_number(settings, BROKERS_LIMIT)) is expected


@pytest.mark.parametrize(("age_s", "expected"), [(9.999, False), (10.0, False), (10.001, True)])
def test_a_transaction_has_timed_out_once_it_is_older_than_its_timeout(age_s, expected):
    """``TransactionStateManager.timedOutTransactions``: ``txnStartTimestamp + txnTimeoutMs < now``."""
    assert has_timed_out(age_s, 10.0) is expected
