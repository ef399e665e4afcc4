"""Avoidable or not: the definition, case by case, on hand-made exchanges."""

from __future__ import annotations

from tests.verification.proxy import Exchange
from tests.verification.refusals import analyse
from tests.verification.wire import Api, RequestFields, ResponseFields


def heartbeat(sent_s: float, epoch: int, *, sends: int = 1, error: int = 0, member: str = "m") -> Exchange:
    request = RequestFields(group="g", member_id=member, generation=sends)
    answer = ResponseFields((error,), member, epoch)
    return Exchange(1, Api.CONSUMER_GROUP_HEARTBEAT, 1, sent_s, request, sent_s + 0.01, answer)


def add_offsets(sent_s: float, error: int = 0) -> Exchange:
    request = RequestFields(group="g", transactional_id="t")
    return Exchange(2, Api.ADD_OFFSETS_TO_TXN, 0, sent_s, request, sent_s + 0.01, ResponseFields((error,)))


def commit(sent_s: float, generation: int, *errors: int, member: str = "m") -> Exchange:
    request = RequestFields(group="g", member_id=member, generation=generation, transactional_id="t")
    return Exchange(2, Api.TXN_OFFSET_COMMIT, 3, sent_s, request, sent_s + 0.01, ResponseFields(errors))


def end(sent_s: float, *, commits: bool) -> Exchange:
    request = RequestFields(transactional_id="t", commits=commits)
    return Exchange(2, Api.END_TXN, 1, sent_s, request, sent_s + 0.01, ResponseFields((0,)))


def test_a_generation_handed_over_before_the_first_request_makes_the_refusal_avoidable() -> None:
    report = analyse([heartbeat(1, 5), heartbeat(2, 6), add_offsets(2.5), commit(2.6, 5, 22)])
    (refusal,) = report.avoidable
    assert (refusal.generation, refusal.error) == (5, 22)
    assert refusal.known_for_s is not None
    assert abs(refusal.known_for_s - 0.49) < 1e-6


def test_a_generation_handed_over_while_the_commit_is_in_flight_is_unavoidable() -> None:
    report = analyse([heartbeat(1, 5), add_offsets(2.0), heartbeat(2.1, 6), commit(2.6, 5, 22)])
    assert len(report.unavoidable) == 1
    assert report.avoidable == []


def test_the_response_counts_when_it_is_delivered_not_when_it_was_asked_for() -> None:
    late = heartbeat(1.5, 6)
    late.answered_s = 2.2
    assert analyse([heartbeat(1, 5), late, add_offsets(2.0), commit(2.6, 5, 22)]).avoidable == []


def test_a_retried_first_request_does_not_restart_the_clock() -> None:
    traffic = [heartbeat(1, 5), add_offsets(2.0, error=51), heartbeat(2.1, 6), add_offsets(2.2), commit(2.6, 5, 22)]
    assert analyse(traffic).avoidable == []


def test_each_transaction_has_a_first_request_of_its_own() -> None:
    first = [heartbeat(1, 5), add_offsets(2.0), commit(2.1, 5, 0), end(2.2, commits=True)]
    second = [heartbeat(2.5, 6), add_offsets(3.0), commit(3.1, 5, 22), end(3.2, commits=False)]
    report = analyse(first + second)
    assert len(report.avoidable) == 1
    assert (report.commits, report.transactions_committed, report.transactions_aborted) == (2, 1, 1)


def test_a_member_told_that_it_is_out_could_have_known() -> None:
    expelled = heartbeat(1.5, 0, error=110)
    assert len(analyse([heartbeat(1, 5), expelled, add_offsets(2.0), commit(2.1, 5, 25)]).avoidable) == 1


def test_a_member_that_has_left_could_have_known() -> None:
    leaving = heartbeat(1.5, -1, sends=-1)
    assert len(analyse([heartbeat(1, 5), leaving, add_offsets(2.0), commit(2.1, 5, 25)]).avoidable) == 1


def test_another_members_news_is_not_this_members_knowledge() -> None:
    other = heartbeat(1.5, 6, member="other")
    assert len(analyse([heartbeat(1, 5), other, add_offsets(2.0), commit(2.1, 5, 22)]).unavoidable) == 1


def test_an_anonymous_commit_is_counted_though_the_broker_accepts_it() -> None:
    report = analyse([commit(1, -1, 0, member=""), commit(2, -1, 0, member="m"), commit(3, 4, 0, member="")])
    assert (report.anonymous, len(report.refusals), report.commits) == (3, 0, 3)


def test_other_errors_are_neither_commits_nor_refusals() -> None:
    report = analyse([commit(1, 5, 51), commit(1.2, 5, 14), commit(1.4, 5, 0)])
    assert (report.commits, len(report.refusals), dict(report.errors)) == (1, 0, {51: 1, 14: 1})


def test_one_refused_partition_refuses_the_commit_once() -> None:
    report = analyse([heartbeat(1, 5), commit(2, 5, 22, 22, 22)])
    assert (len(report.refusals), report.commits) == (1, 1)


def test_rebalances_are_the_distinct_generations_less_the_first() -> None:
    report = analyse([heartbeat(1, 1), heartbeat(2, 2), heartbeat(2.1, 2, member="n"), heartbeat(3, 4)])
    assert report.rebalances == 2
    assert report.per_100_rebalances() == 0


def test_rates_are_per_hundred() -> None:
    traffic = [heartbeat(1, 1), heartbeat(2, 2), commit(3, 1, 22), commit(4, 2, 0), commit(5, 2, 0), commit(6, 2, 0)]
    report = analyse(traffic)
    assert (report.per_100_commits(), report.per_100_rebalances()) == (25.0, 100.0)
