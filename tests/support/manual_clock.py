"""A clock on which time passes only by waiting for it."""


class ManualClock:
    """Starts at 0; a test may set ``now_s``."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.now_s += seconds
