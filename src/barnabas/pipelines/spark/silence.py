"""Notices a query that has fallen silent.

Spark waits for its Python processes without a bound by itself: for the one that plans a stream's batches
it has not even a setting. A process that is wedged, not dead, would keep a pipeline RUNNING for ever. The
workers of tasks and of planning are given a bound by the session (`WORKER_SILENCE_S_MAX`); everything
else a query does outside of jobs is watched here. A query that rests until its next trigger, and one that
has a job running, are at work; one that is in the middle of something and shows nothing else for that
long is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.core.clock import Clock
from barnabas.pipelines.spark.run import PipelineFailed

WORKER_SILENCE_S_MAX: Final = 1_000
"""Longer than anything of ours waits for: the longest is for a transaction that somebody left open, 960 s."""
_AT_REST: Final = "Waiting for"
"""How Spark's words for a query between two micro-batches begin."""


class Silence:
    """Of one query; it is looked at every now and then."""

    def __init__(self, clock: Clock, is_job_running: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_job_running = is_job_running
        self._shown: object = None
        self._since_ms = clock.monotonic_ms()

    def look(self, doing: str, batch_id: int | None) -> None:
        """`doing` is the query's status in Spark's words; raises PipelineFailed when it is wedged."""
        now_ms = self._clock.monotonic_ms()
        shown = (doing, batch_id)
        if shown != self._shown or doing.startswith(_AT_REST):
            self._shown, self._since_ms = shown, now_ms
        elif now_ms - self._since_ms >= WORKER_SILENCE_S_MAX * 1_000:
            if not self._is_job_running():
                raise PipelineFailed(
                    f"Spark has been at {doing!r} for {WORKER_SILENCE_S_MAX} s without a sign of life:"
                    " one of its Python processes must be stuck"
                )
            self._since_ms = now_ms
