"""Retry policy of `process`: which failures are tried again, when, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.core.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Retry:
    """Try a record `attempts` times in all; the pauses double from `first_ms` to `max_ms`."""

    attempts: int = 5
    first_ms: float = 100
    max_ms: float = 10_000
    on: tuple[type[Exception], ...] = (Exception,)
    """Errors that are worth another attempt; any other fails at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}, but a record is tried at least once")

    def pause_ms(self, failures: int, error: Exception) -> float | None:
        """Pause before the next attempt, after this many failures; None when there is none."""
        if failures >= self.attempts or not isinstance(error, self.on):
            return None
        return Backoff(self.first_ms, self.max_ms).after_ms(failures - 1)


NO_RETRY = Retry(attempts=1)
