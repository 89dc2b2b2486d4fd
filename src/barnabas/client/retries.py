"""When to try again, and when to give up: one policy for whoever talks to a cluster.

What Kafka calls retriable may pass (a leader that moved, a coordinator that loads, a broker that
restarts) and is tried again until a deadline, with pauses that double and are spread, so that many
who failed together do not come back together. Everything else is raised at once. A topic may be on its
way into being: one that is still unknown after a shorter while does not exist.
"""

from __future__ import annotations

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, UnknownTopicOrPartition
from barnabas.core.ids import Randomness

RETRY_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 3_000
BACKOFF_MS = 20.0
BACKOFF_MS_MAX = 1_000.0


class Retries:
    """Of one operation, or of one wait for progress."""

    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        timeout_ms: float,
        unknown_topic_timeout_ms: float | None = None,
    ) -> None:
        """What is unknown is waited for as long as anything else, unless told otherwise."""
        self._clock = clock
        self._randomness = randomness
        self._timeout_ms = timeout_ms
        self._unknown_topic_timeout_ms = (
            timeout_ms if unknown_topic_timeout_ms is None else unknown_topic_timeout_ms
        )
        self._started_ms = clock.monotonic_ms()
        self._pause_ms = BACKOFF_MS

    @property
    def left_ms(self) -> float:
        return self._timeout_ms - self.waited_ms

    @property
    def waited_ms(self) -> float:
        return self._clock.monotonic_ms() - self._started_ms

    def next_pause_ms(self, error: Exception) -> float:
        """How long to wait before trying again after `error`; raises it if that is of no use."""
        unknown = isinstance(error, UnknownTopicOrPartition)
        limit_ms = self._unknown_topic_timeout_ms if unknown else self._timeout_ms
        is_final = isinstance(error, KafkaError) and not error.retriable
        if is_final or self.waited_ms + self._pause_ms > limit_ms:
            raise error
        pause_ms = spread(self._pause_ms, self._randomness)
        self._pause_ms = min(2 * self._pause_ms, BACKOFF_MS_MAX)
        return pause_ms

    def begin_again(self) -> None:
        """There was progress."""
        self._started_ms = self._clock.monotonic_ms()
        self._pause_ms = BACKOFF_MS


def spread(pause_ms: float, randomness: Randomness) -> float:
    """About `pause_ms`, a fifth more or less."""
    return pause_ms * (0.8 + 0.4 * randomness.random())
