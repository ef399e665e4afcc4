"""Which transaction timeouts the brokers allow, also where their limit cannot be read."""

import pytest

from eos_client.core.transaction_timeout import DEFAULT_LIMIT_MS, Allowance, brokers_limit_ms, judge_timeout

LIMIT = "transaction.max.timeout.ms"


@pytest.mark.parametrize(
    ("asked_ms", "settings", "expected"),
    [
        (30_000, {LIMIT: "30000"}, Allowance.ALLOWED),
        (30_001, {LIMIT: "30000"}, Allowance.REFUSED),
        (DEFAULT_LIMIT_MS + 1, {LIMIT: "3600000"}, Allowance.ALLOWED),
        (DEFAULT_LIMIT_MS, {}, Allowance.ALLOWED),
        (DEFAULT_LIMIT_MS + 1, {}, Allowance.UNKNOWN),
        (DEFAULT_LIMIT_MS + 1, {LIMIT: ""}, Allowance.UNKNOWN),
    ],
)
def test_a_timeout_is_judged_by_the_brokers_limit_and_by_kafkas_default_where_that_is_hidden(
    asked_ms, settings, expected
):
    assert judge_timeout(asked_ms, brokers_limit_ms(settings)) is expected
