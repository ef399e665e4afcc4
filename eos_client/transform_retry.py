"""How often a failing transform is repeated and how long that may wait: one tenacity policy, built or given."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real

import tenacity

from eos_client.errors import ConfigurationError, repr_of

_ATTEMPTS_MAX = 100_000
_TOLERANCE_S = 1e-6


def longest_wait_s(policy: tenacity.Retrying, limit_s: float) -> float:
    """Return how long ``policy`` waits in all for a transform that always fails; no more is tried from ``limit_s`` on.

    Infinity where it never ends. Raises ConfigurationError where that cannot be known beforehand (the waits are random,
    or depend on more than the number and the time of the attempts), and for a wait that is no number of seconds.
    """
    first, second = _waits_or_error(policy, limit_s), _waits_or_error(policy, limit_s)
    if isinstance(first, float) and first == second:
        return first
    cause = first if isinstance(first, Exception) else None
    reason = (
        f"its wait or stop raised {repr_of(cause)}: correct that, unless they depend on the failure"
        if cause
        else "its waits are random"
    )
    raise ConfigurationError(
        f"how long transform_retry may wait is not known beforehand, because {reason}. "
        "Say how long its waits may take for one record, for example transform_retry_limit_s=30."
    ) from cause


def check_policy(policy: object) -> None:
    """Raise ConfigurationError unless ``policy`` is a tenacity.Retrying that stops and decides by failures only."""
    if not isinstance(policy, tenacity.Retrying):
        raise ConfigurationError(
            f"transform_retry={policy!r} is no tenacity.Retrying. Give for example "
            "tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(1))."
        )
    if policy.retry_error_callback is not None:
        raise ConfigurationError(
            f"transform_retry has retry_error_callback={repr_of(policy.retry_error_callback)}, but what becomes of a "
            "record whose attempts are used up is decided by on_error alone. Leave it out; "
            'on_error="dead_letter" with dead_letter_topic keeps such records.'
        )
    if _asks_for_results(policy.retry):
        raise ConfigurationError(
            "transform_retry decides by what the transform returned, but only failures are repeated. Raise an "
            "exception in the transform instead, and name its class by tenacity.retry_if_exception_type."
        )
    if _waits_or_error(policy, _TOLERANCE_S) == math.inf:  # no limit of its waits would end it
        raise ConfigurationError(
            "transform_retry never stops and does not wait: it would call the transform for one record for ever. "
            "Give it a stop, for example stop=tenacity.stop_after_attempt(3)."
        )


def _asks_for_results(retry: object) -> bool:
    """Whether ``retry``, or a part of it, decides by what was returned."""
    parts: tuple[object, ...] = getattr(retry, "retries", ())  # of retry_any and retry_all
    return isinstance(retry, (tenacity.retry_if_result, tenacity.retry_if_not_result)) or any(
        map(_asks_for_results, parts)
    )


def _waits_or_error(policy: tenacity.Retrying, limit_s: float) -> float | Exception:
    """Return how long ``policy`` waits, or what a wait or stop raised that may need a failure of the application."""
    try:
        return _waits_s(policy, limit_s)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001
        return error


def _seconds(wait_s: float) -> float:
    if not (isinstance(wait_s, Real) and wait_s < math.inf):  # nor is NaN
        given = "its total_seconds()" if hasattr(wait_s, "total_seconds") else "one that ends"
        raise ConfigurationError(
            f"transform_retry: its wait returned {wait_s!r}, which is no number of seconds. Return {given}, or give "
            "for example wait=tenacity.wait_fixed(1)."
        )
    return wait_s


def _waits_s(policy: tenacity.Retrying, limit_s: float) -> float:
    state = tenacity.RetryCallState(policy, None, (), {})
    state.set_exception((TimeoutError, TimeoutError("a trial"), None))
    state.start_time = 0.0
    while state.attempt_number <= _ATTEMPTS_MAX:
        state.outcome_timestamp = state.idle_for
        state.upcoming_sleep = max(0.0, _seconds(policy.wait(state)))
        if policy.stop(state):
            return state.idle_for
        state.idle_for += state.upcoming_sleep
        if state.idle_for >= limit_s:
            return state.idle_for
        state.attempt_number += 1
    return math.inf


def bounded(
    policy: tenacity.Retrying, waits_max_s: float, sleep: Callable[[float], None], is_over: Callable[[float], bool]
) -> tenacity.Retrying:
    """Return ``policy`` with ``sleep``, for failures only, and ended before it has waited ``waits_max_s`` in all.

    It also ends where ``is_over`` says of the next wait that it would end too late. ``sleep`` takes one below 0 as 0.
    Where it gives up, it returns None: a future does not raise an exception that counts as false.
    """

    def stop(state: tenacity.RetryCallState) -> bool:
        pause_s = _seconds(state.upcoming_sleep)
        return policy.stop(state) or state.idle_for + pause_s > waits_max_s + _TOLERANCE_S or is_over(pause_s)

    def retry(state: tenacity.RetryCallState) -> bool:
        return state.outcome is not None and state.outcome.failed and bool(policy.retry(state))

    return policy.copy(sleep=sleep, stop=stop, retry=retry, reraise=False, retry_error_callback=lambda _state: None)
