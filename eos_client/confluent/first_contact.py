"""Limits the first contact with a cluster: less time where a broker has refused the credentials.

A start waits for brokers that are still coming up, but one that refuses the credentials would refuse them again. It is
asked a little longer all the same: another broker may take them, or the same one in a moment, when it knows its users.
"""

from __future__ import annotations

from collections.abc import Callable

from eos_client.confluent.failures.client_failures import refusal_among
from eos_client.confluent.last_errors import LastErrors

REFUSED_WAIT_S = 2.0


class FirstContact:
    """The time limit of ``limit_s`` seconds of ``clock`` for an answer of a client that reports errors to ``errors``.

    Where ``was_answered`` before, refused credentials do not shorten it: a running loop waits out what may pass.
    ``is_stopped`` ends it.
    """

    def __init__(
        self,
        errors: LastErrors,
        limit_s: float,
        clock: Callable[[], float],
        *,
        was_answered: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._errors = errors
        self._limit_s = limit_s
        self._clock = clock
        self._was_answered = was_answered
        self._is_stopped = is_stopped
        self._began_at = clock()
        self._ends_at = self._began_at + limit_s
        self.is_refused = False

    def is_over(self) -> bool:
        """Whether to wait no more; ask once the errors that the client has reported are served."""
        now = self._clock()
        if not (self.is_refused or self._was_answered) and refusal_among(self._errors.by_code):
            self.is_refused = True
            self._ends_at = min(self._ends_at, now + REFUSED_WAIT_S)
        if self._is_stopped():
            self._ends_at = min(self._ends_at, now)
        return now >= self._ends_at

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._ends_at - self._clock())

    @property
    def waited_s(self) -> float:
        """For how long it was tried, once it is over."""
        is_shorter = self._ends_at < self._began_at + self._limit_s
        return round(min(self._limit_s, self._clock() - self._began_at), 1) if is_shorter else self._limit_s
