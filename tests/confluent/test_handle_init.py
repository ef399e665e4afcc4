"""What a handle's init_transactions has come to, and which fences those that were left behind may explain."""

import pytest

from eos_client.confluent.producer.handle_init import _LATE_INIT_S, AbandonedInits, HandleInit
from tests.support.manual_clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def abandoned(clock):
    made = AbandonedInits(clock)
    made.add()
    made.record_init()
    return made


def test_without_an_init_left_behind_a_fence_is_another_instances(clock):
    assert not AbandonedInits(clock).may_explain_fence


def test_each_init_left_behind_explains_one_fence(abandoned):
    abandoned.add()
    for _ in range(2):
        assert abandoned.may_explain_fence
        abandoned.record_fence()
    assert not abandoned.may_explain_fence
    abandoned.record_fence()
    assert not abandoned.may_explain_fence


def test_a_commit_soon_after_the_next_init_does_not_rule_out_a_late_init(abandoned, clock):
    clock.sleep(_LATE_INIT_S / 2)
    abandoned.record_commit()
    assert abandoned.may_explain_fence


def test_after_a_later_commit_every_fence_is_another_instances(abandoned, clock):
    clock.sleep(_LATE_INIT_S)
    assert abandoned.may_explain_fence, "without a commit, time proves nothing"
    abandoned.record_commit()
    assert not abandoned.may_explain_fence


class Raw:
    calls = 0

    def init_transactions(self, _timeout_s):
        self.calls += 1


def test_an_init_is_done_once_until_a_transaction_begins():
    init, raw = HandleInit(), Raw()
    for _ in range(2):
        init.attempt(raw, 1.0)
    assert raw.calls == 1
    init.end_freshness()
    init.attempt(raw, 1.0)
    assert raw.calls == 2
