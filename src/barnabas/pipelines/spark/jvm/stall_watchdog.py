"""Stall watchdog: detects a query that makes no progress outside of jobs.

Spark waits for its Python processes without a bound; for the process that plans a stream's batches it has no
setting at all. A process that hangs would keep a pipeline RUNNING for ever. The session bounds the workers of
tasks and of planning (`WORKER_SILENCE_S_MAX`). This watchdog bounds everything else that a query does outside
of jobs. A query that waits for its next trigger or has a running job is at work. A query that shows the same
other status for that long is stuck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.core.clock import Clock
from barnabas.pipelines.spark.context.run_context import PipelineFailed

WORKER_SILENCE_S_MAX: Final = 1_000
"""Longer than any wait in our code: the longest, for an open transaction of another driver, is 960 s."""
_AT_REST: Final = "Waiting for"
"""Beginning of Spark's status of a query between two micro-batches."""


class StallWatchdog:
    """Watchdog of one query, checked periodically."""

    def __init__(self, clock: Clock, is_job_running: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_job_running = is_job_running
        self._shown: object = None
        self._since_ms = clock.monotonic_ms()

    def check(self, doing: str, batch_id: int | None) -> None:
        """`doing` is the query's status in Spark's words; raises PipelineFailed when the query is stuck."""
        now_ms = self._clock.monotonic_ms()
        shown = (doing, batch_id)
        if shown != self._shown or doing.startswith(_AT_REST):
            self._shown, self._since_ms = shown, now_ms
        elif now_ms - self._since_ms >= WORKER_SILENCE_S_MAX * 1_000:
            if not self._is_job_running():
                raise PipelineFailed(
                    f"Spark has been at {doing!r} for {WORKER_SILENCE_S_MAX} s without progress:"
                    " one of its Python processes is stuck"
                )
            self._since_ms = now_ms
