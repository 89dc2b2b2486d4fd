"""Retry policy of clients: backoff, jitter, deadline.

Errors that Kafka calls retriable are transient: a leader that moved, a coordinator that loads, a broker that
restarts. They are retried until a deadline. The pauses double and are spread, so that clients which failed
together do not return together. Every other error is raised at once. A topic may be in creation: one that is
still unknown after a shorter time does not exist.
"""

from __future__ import annotations

import math

from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, UnknownTopicOrPartition
from barnabas.core.ids import Randomness

RETRY_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 3_000
BACKOFF = Backoff(first_ms=20.0, max_ms=1_000.0)


class Retries:
    """Retry state of one operation, or of one wait for progress."""

    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        timeout_ms: float,
        unknown_topic_timeout_ms: float | None = None,
        *,
        backoff: Backoff = BACKOFF,
        retries_max: float = math.inf,
    ) -> None:
        """Wait for an unknown topic as long as for any other error, unless `unknown_topic_timeout_ms` is
        given.
        """
        self._backoff = backoff
        self._retries_max = retries_max
        self._retries = 0
        self._clock = clock
        self._randomness = randomness
        self._timeout_ms = timeout_ms
        self._unknown_topic_timeout_ms = (
            timeout_ms if unknown_topic_timeout_ms is None else unknown_topic_timeout_ms
        )
        self._started_ms = clock.monotonic_ms()
        self._pause_ms = backoff.after_ms(0)

    @property
    def left_ms(self) -> float:
        return self._timeout_ms - self.waited_ms

    @property
    def waited_ms(self) -> float:
        return self._clock.monotonic_ms() - self._started_ms

    def next_pause_ms(self, error: Exception) -> float:
        """Pause before the next attempt after `error`. Raises the error when a retry is useless."""
        unknown = isinstance(error, UnknownTopicOrPartition)
        limit_ms = self._unknown_topic_timeout_ms if unknown else self._timeout_ms
        is_final = isinstance(error, KafkaError) and not error.retriable
        is_last = self._retries >= self._retries_max
        if is_final or is_last or self.waited_ms + self._pause_ms > limit_ms:
            raise error
        self._retries += 1
        pause_ms = spread(self._pause_ms, self._randomness)
        self._pause_ms = self._backoff.following_ms(self._pause_ms)
        return pause_ms

    def begin_again(self) -> None:
        """Reset deadline, backoff and number of retries after progress."""
        self._started_ms = self._clock.monotonic_ms()
        self._pause_ms = self._backoff.after_ms(0)
        self._retries = 0


def spread(pause_ms: float, randomness: Randomness) -> float:
    """`pause_ms` with jitter, 20 % either way."""
    return pause_ms * (0.8 + 0.4 * randomness.random())
