"""A transform that fails is repeated as a tenacity policy of the application says, and never for too long."""

from datetime import timedelta
from typing import Any

import pytest
import tenacity

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import ConfigurationError
from eos_client.loop.record_failures import FailedRecords, RetryPolicyError, StoppedMeanwhileError
from eos_client.observe import Counters, RecordDeadLettered, TransactionAborted
from eos_client.testing.simulator import SimulatedClock, SimulatedCluster
from tests.loop.bench import LETTERS, Bench, config, consumed, numbers

THRICE = tenacity.stop_after_attempt(3)


class ThrottledError(Exception):
    retry_after_s = 3


def as_it_asks(state: Any) -> float:
    """A wait that knows only the failures of this application."""
    return float(state.outcome.exception().retry_after_s)


def no_letter(_state: Any) -> None:
    """What would let a record vanish whose attempts are used up."""


class Attempts:
    """A guarded transform that fails as it is told, and when it was called."""

    def __init__(self, *errors, **options):
        self.clock = SimulatedClock()
        self.at: list[float] = []
        self._errors = list(errors)
        self.records = FailedRecords(config(**LETTERS, **options), lambda event: None, Counters(), self.clock)
        self._guarded = self.records.guard(self._transform)

    def _transform(self, record):
        self.at.append(self.clock.now_s)
        if self._errors:
            raise self._errors.pop(0)
        return [b"done"]

    def run(self):
        return self._guarded(consumed())

    @property
    def waits(self):
        return [round(after - before, 3) for before, after in zip(self.at, self.at[1:], strict=False)]

    def told_attempts(self):
        """What a dead letter says of the number of attempts."""
        letter, *_ = self.records.substitutes_for(consumed(), ValueError("bad"))
        headers: Any = letter.headers
        return int(dict(headers)["eos.attempts"])


def test_the_policy_says_how_long_to_wait_and_how_often():
    policy = tenacity.Retrying(wait=tenacity.wait_exponential(), stop=tenacity.stop_after_attempt(5))
    attempts = Attempts(*[ValueError("bad")] * 4, transform_retry=policy)
    assert attempts.run() == [b"done"]
    assert attempts.waits == [1, 2, 4, 8]


def test_the_policy_says_what_is_repeated_and_a_letter_tells_how_often_it_was_tried():
    policy = tenacity.Retrying(retry=tenacity.retry_if_exception_type(OSError), stop=THRICE)
    attempts = Attempts(OSError("away"), ValueError("bad"), transform_retry=policy)
    with pytest.raises(ValueError, match="bad"):
        attempts.run()
    assert attempts.told_attempts() == 2


OF_RESULTS: tuple[Any, ...] = (
    tenacity.retry_if_result(bool),
    tenacity.retry_if_not_result(bool),
    tenacity.retry_any(tenacity.retry_if_exception_type(OSError), tenacity.retry_if_result(bool)),
    tenacity.retry_if_exception_type(OSError) & (tenacity.retry_if_not_result(bool) | tenacity.retry_never),
)


@pytest.mark.parametrize("retry", OF_RESULTS, ids=["result", "not result", "any", "nested"])
def test_a_policy_that_asks_what_the_transform_returned_is_refused(retry):
    with pytest.raises(ConfigurationError, match=r"by what the transform returned.*Raise an exception"):
        config(transform_retry=tenacity.Retrying(retry=retry, stop=THRICE))


@pytest.mark.parametrize(
    "retry", [tenacity.retry_unless_exception_type(KeyError), tenacity.retry_always], ids=["unless", "always"]
)
def test_only_failures_are_repeated(retry):
    attempts = Attempts(OSError("away"), transform_retry=tenacity.Retrying(retry=retry, stop=THRICE))
    assert attempts.run() == [b"done"]
    assert len(attempts.at) == 2


def test_a_policy_that_gives_up_raises_what_the_transform_has_raised():
    policy = tenacity.Retrying(stop=THRICE)  # its own reraise=False would wrap it
    attempts = Attempts(*[ValueError("bad")] * 9, transform_retry=policy)
    with pytest.raises(ValueError, match="bad"):
        attempts.run()
    assert attempts.told_attempts() == 3


def test_the_simple_form_tells_the_attempts_that_were_made():
    attempts = Attempts(*[ValueError("bad")] * 9, transform_attempts_max=4)
    with pytest.raises(ValueError, match="bad"):
        attempts.run()
    assert attempts.told_attempts() == 4
    assert attempts.waits == [0.1] * 3


def test_random_waits_end_before_their_limit():
    policy = tenacity.Retrying(wait=tenacity.wait_random(1, 2))
    attempts = Attempts(*[ValueError("bad")] * 100, transform_retry=policy, transform_retry_limit_s=10)
    with pytest.raises(ValueError, match="bad"):
        attempts.run()
    assert 5 <= len(attempts.waits) <= 10
    assert 8 <= sum(attempts.waits) <= 10.001


@pytest.mark.parametrize(
    ("policy", "wait_s"),
    [
        (tenacity.Retrying(wait=tenacity.wait_fixed(2), stop=THRICE), 4),
        (tenacity.Retrying(wait=tenacity.wait_fixed(2), stop=tenacity.stop_after_delay(7)), 8),
        (tenacity.Retrying(wait=tenacity.wait_fixed(2), stop=tenacity.stop_before_delay(7)), 6),
        (tenacity.Retrying(stop=THRICE), 0),
    ],
)
def test_a_transaction_may_be_open_as_long_as_the_policy_may_wait(policy, wait_s):
    made = config(transform_retry=policy)
    assert made.retries_wait_s == wait_s
    assert made.open_limit_s == pytest.approx(9.1 + wait_s)
    with pytest.raises(ConfigurationError, match="retries of a transform"):
        EosConfig(
            {"bootstrap.servers": "localhost:1", "transaction.timeout.ms": 9099 + wait_s * 1000},
            group_id="billing",
            transform_retry=policy,
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transform_retry": tenacity.Retrying()}, r"never stops and does not wait"),
        (
            {"transform_retry": tenacity.Retrying(wait=tenacity.wait_fixed(100), stop=tenacity.stop_after_attempt(9))},
            r"transform_retry may wait 300 s, not below max.poll.interval.ms=300000",
        ),
        (
            {"transform_retry": tenacity.Retrying(stop=THRICE), "transform_retry_limit_s": 300},
            r"transform_retry_limit_s=300: transform_retry may wait 300 s, not below max.poll.interval.ms=300000",
        ),
        (
            {"transform_retry": tenacity.Retrying(wait=tenacity.wait_random(), stop=THRICE)},
            r"transform_retry_limit_s=30",
        ),
        ({"transform_retry": tenacity.Retrying(wait=as_it_asks)}, r"depend on the failure"),
        ({"transform_retry": tenacity.Retrying(stop=THRICE), "transform_attempts_max": 3}, "give one of them"),
        ({"transform_retry": tenacity.AsyncRetrying(stop=THRICE)}, r"is no tenacity.Retrying"),
        (
            {"transform_retry": tenacity.Retrying(retry_error_callback=no_letter, stop=THRICE)},
            r"retry_error_callback=<function no_letter.*on_error.*dead_letter_topic",
        ),
        ({"transform_retry": 3}, r"transform_retry=3 is no tenacity.Retrying"),
        ({"transform_retry_limit_s": 3}, r"transform_retry_limit_s=3 goes with transform_retry only"),
    ],
)
def test_a_policy_that_may_wait_for_too_long_or_is_none_is_refused_at_the_start(options, said):
    with pytest.raises(ConfigurationError, match=said):
        config(**options)


def never_known(_state: Any) -> bool:
    raise KeyError("attempts_max")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (tenacity.Retrying(stop=never_known), r"its wait or stop raised KeyError\('attempts_max'\)"),
        (tenacity.Retrying(wait=as_it_asks), r"its wait or stop raised AttributeError\(.*retry_after_s"),
        (tenacity.Retrying(wait=tenacity.wait_random(), stop=THRICE), r"its waits are random"),
    ],
)
def test_a_policy_whose_waits_are_not_known_beforehand_is_refused_with_the_cause(policy, said):
    with pytest.raises(ConfigurationError, match=f"known beforehand, because {said}.*transform_retry_limit_s=30") as it:
        config(transform_retry=policy)
    assert ("raised" in said) == isinstance(it.value.__cause__, (KeyError, AttributeError))


@pytest.mark.parametrize("limit_s", [None, 30])
@pytest.mark.parametrize("wait", [timedelta(seconds=1), None, "1", float("inf"), float("nan")])
def test_a_wait_that_is_no_number_of_seconds_is_refused_with_what_it_returned(wait, limit_s):
    policy = tenacity.Retrying(wait=lambda _state: wait, stop=THRICE)
    with pytest.raises(ConfigurationError, match=r"its wait returned") as it:
        config(transform_retry=policy, transform_retry_limit_s=limit_s)
    assert repr(wait) in str(it.value)
    assert ("total_seconds()" in str(it.value)) == isinstance(wait, timedelta)


def test_a_wait_of_tenacity_may_be_given_as_a_timedelta():
    policy = tenacity.Retrying(wait=tenacity.wait_fixed(timedelta(seconds=2)), stop=THRICE)
    attempts = Attempts(ValueError("bad"), ValueError("bad"), transform_retry=policy)
    assert attempts.run() == [b"done"]
    assert attempts.waits == [2, 2]
    assert config(transform_retry=policy).retries_wait_s == 4


def test_a_wait_that_depends_on_the_failure_is_taken_with_a_limit():
    policy = tenacity.Retrying(wait=as_it_asks)
    attempts = Attempts(ThrottledError(), ThrottledError(), transform_retry=policy, transform_retry_limit_s=30)
    assert attempts.run() == [b"done"]
    assert attempts.waits == [3, 3]


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
def test_a_loop_that_is_stopped_while_a_record_waits_ends_at_once_and_leaves_the_record_to_the_next_start(on_error):
    cluster = SimulatedCluster(seed=5)
    for topic in ("orders", "invoices", "letters"):
        cluster.create_topic(topic)
    events: list[Any] = []
    is_repaired = False

    def transform(record):
        if record.value() == b"2" and not is_repaired:
            raise OSError("away")
        return record.value()

    def loop():
        options = LETTERS if on_error == "dead_letter" else {}
        patient = config(transform_attempts_max=2, transform_backoff_s=200, **options)
        return ExactlyOnceLoop(
            patient, ["orders"], transform, output_topic="invoices", hook=events.append, clients=cluster
        )

    first = loop()
    cluster.after(5, lambda: cluster.write("orders", [b"1", b"2", b"3"]))
    cluster.after(100, first.stop)  # more than recovery_timeout_s of work that nothing has come of
    first.run()
    assert cluster.clock() < 102
    assert [event for event in events if isinstance(event, RecordDeadLettered)] == []
    assert [event for event in events if isinstance(event, TransactionAborted)] != []
    assert cluster.values("invoices") == cluster.values("letters") == []
    is_repaired = True
    second = loop()
    cluster.after(20, second.stop)
    second.run()
    assert cluster.values("invoices") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("takes_batches", [False, True])
def test_a_stop_between_attempts_repeats_nothing_of_a_batch_that_was_aborted_before(simulated_cluster, takes_batches):
    calls: list[bytes] = []
    calls_at_stop: list[int] = []

    def price(record):
        calls.append(record.value())
        if record.value() == b"too large":
            return [b"fits", b"x" * 2_000_000]  # which aborts the transaction
        raise ConnectionError("the service is away")

    def price_all(records):
        return [output for record in records for output in price(record)]

    def stop():
        calls_at_stop.append(len(calls))
        bench.loop.stop()

    transform: Any = {"transform_batch": price_all} if takes_batches else {"transform": price}
    bench = Bench(simulated_cluster, **transform, transform_attempts_max=5, transform_backoff_s=4, **LETTERS)
    simulated_cluster.write("orders", [b"too large", b"never"])
    simulated_cluster.after(10, stop)
    bench.run()
    assert calls_at_stop == [len(calls)]
    assert simulated_cluster.values("letters") == []


def test_a_stop_is_heard_between_attempts_that_do_not_wait():
    attempts = Attempts(
        *[ValueError("bad")] * 60, transform_retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(60))
    )
    attempts.records._is_stopping = lambda: len(attempts.at) == 3
    with pytest.raises(StoppedMeanwhileError):
        attempts.run()
    assert len(attempts.at) == 3


def test_the_limit_counts_the_time_of_the_attempts_too():
    attempts = Attempts(transform_retry=tenacity.Retrying(wait=tenacity.wait_fixed(0.1)), transform_retry_limit_s=2)

    def slow(_record):
        attempts.at.append(attempts.clock.now_s)
        attempts.clock.sleep(0.5)
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        attempts.records.guard(slow)(consumed())
    assert len(attempts.at) == 4
    assert attempts.at[-1] - attempts.at[0] <= 2


def test_a_policy_that_neither_stops_nor_waits_is_refused_with_a_limit_too():
    with pytest.raises(ConfigurationError, match="never stops and does not wait"):
        config(transform_retry=tenacity.Retrying(), transform_retry_limit_s=2)


def test_a_negative_wait_is_none():
    attempts = Attempts(*[ValueError("bad")] * 9, transform_retry=tenacity.Retrying(wait=lambda _: -5, stop=THRICE))
    assert attempts.records._config.retries_wait_s == 0
    with pytest.raises(ValueError, match="bad"):
        attempts.run()
    assert len(attempts.at) == 3


@pytest.mark.parametrize("wait_s", [float("nan"), float("inf")])
@pytest.mark.parametrize("limit", [{}, {"transform_retry_limit_s": 5}], ids=["no limit", "limit"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(wait_s, limit):
    policy = tenacity.Retrying(wait=lambda _: wait_s, stop=THRICE)
    with pytest.raises(ConfigurationError, match=rf"its wait returned {wait_s}.*wait=tenacity.wait_fixed\(1\)"):
        config(transform_retry=policy, **limit)


def test_a_wait_that_is_no_number_of_seconds_only_at_times_ends_the_loop_and_no_record_is_given_up():
    waits: Any = tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(float("nan")))
    attempts = Attempts(
        *[ValueError("bad")] * 9,
        transform_retry=tenacity.Retrying(wait=waits, stop=THRICE),
        transform_retry_limit_s=5,
    )
    with pytest.raises(RetryPolicyError, match=r"its wait returned nan"):
        attempts.run()
    assert len(attempts.at) == 2


@pytest.mark.parametrize("part", ["before", "after", "retry"])
def test_a_policy_that_raises_is_at_fault_and_not_the_record(part):
    def broken(_state):
        raise KeyError("of the policy")

    settings: dict[str, Any] = {part: broken, "stop": THRICE}
    attempts = Attempts(ValueError("bad"), transform_retry=tenacity.Retrying(**settings))
    with pytest.raises(RetryPolicyError, match=r"transform_retry itself raised KeyError") as raised:
        attempts.run()
    assert isinstance(raised.value, ConfigurationError)


def test_a_loop_ends_with_the_error_of_its_policy_and_no_record_is_given_up(simulated_cluster):
    def broken(_state):
        raise KeyError("of the policy")

    policy = tenacity.Retrying(before=broken, stop=THRICE)
    bench = Bench(simulated_cluster, lambda _: None, **LETTERS, transform_retry=policy)
    with pytest.raises(RetryPolicyError):
        bench.run_all(numbers(2))
    assert simulated_cluster.values("letters") == []
    assert bench.committed == 0
