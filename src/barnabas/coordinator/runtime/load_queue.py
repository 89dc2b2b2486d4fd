"""Queue of shards to load, one after the other, a little in each turn of the loop.

A failed load is retried with growing pauses for as long as the partition is led: the cause may pass. An
unreadable record fails no load: it is counted, logged and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.replay import LoadStep, SetAside, Shard, load_steps
from barnabas.coordinator.runtime.shard_context import ShardContext, ShardState
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.metrics import Counter, Histogram
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Scheduler

logger = logging.getLogger(__name__)

LOAD_TURN_MS = 10.0
"""Time of loading in one turn of the loop, before other work has its turn."""

LOAD_BACKOFF = Backoff(first_ms=1_000.0, max_ms=60_000.0)
"""Pauses before a failed load is retried."""

S = TypeVar("S", bound=Shard)


class _Load(NamedTuple, Generic[S]):
    context: ShardContext[S]
    steps: Iterator[LoadStep]
    begun_ms: float
    retry_ms: float


class LoadQueue(Generic[S]):
    def __init__(
        self,
        log: CoordinatorLog,
        make_shard: Callable[[ShardTimers], S],
        make_timers: Callable[[ShardContext[S]], ShardTimers],
        clock: Clock,
        scheduler: Scheduler,
        buffer_bytes: int,
        load_time: Histogram,
        set_aside: Counter,
    ) -> None:
        self._log = log
        self._make_shard = make_shard
        self._make_timers = make_timers
        self._monotonic_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._buffer_bytes = buffer_bytes
        self._load_time = load_time
        self._set_aside = set_aside
        self._limited_log = RateLimitedLogger(logger, clock)
        self._queue: list[_Load[S]] = []
        self._has_turn = False

    def begin(self, context: ShardContext[S], retry_ms: float = LOAD_BACKOFF.first_ms) -> None:
        """Load the shard; after a failure, again after `retry_ms`."""
        timers = self._make_timers(context)
        context.begin(self._make_shard(timers), timers)
        steps = load_steps(self._log, context.topic_partition, context.shard, self._buffer_bytes)
        self._queue.append(_Load(context, steps, self._monotonic_ms(), retry_ms))
        if not self._has_turn:
            self._has_turn = True
            self._scheduler.after(0, self._turn)

    def _turn(self) -> None:
        """Load for one turn of the loop, and schedule the rest."""
        deadline_ms = self._monotonic_ms() + LOAD_TURN_MS
        while self._queue:
            load = self._queue[0]
            if load.context.state is not ShardState.LOADING or self._is_over(load, deadline_ms):
                self._queue.pop(0)
            if self._monotonic_ms() >= deadline_ms:
                break
        self._has_turn = bool(self._queue)
        if self._has_turn:
            self._scheduler.after(0, self._turn)

    def _is_over(self, load: _Load[S], deadline_ms: float) -> bool:
        """True when the shard is loaded, or its load has failed."""
        context = load.context
        try:
            for step in load.steps:
                if step is not None:
                    self._leave_out(context, step)
                if self._monotonic_ms() >= deadline_ms:
                    return False
            context.loaded(self._log.end_offset(context.topic_partition))
        except Exception:
            logger.exception(
                "partition %s: loading the coordinator's state failed and is retried", context.topic_partition
            )
            context.load_failed()
            self._scheduler.after(load.retry_ms, lambda: self._again(load))
        else:
            self._load_time.observe(self._monotonic_ms() - load.begun_ms)
            context.notify_loaded()
        return True

    def _leave_out(self, context: ShardContext[S], record: SetAside) -> None:
        self._set_aside.value += 1
        self._limited_log.warn(
            "set aside",
            "partition %s: the record at offset %d cannot be read and is left out: %s; "
            "the group or transaction that it belongs to may be older than its last change",
            context.topic_partition,
            record.offset,
            cut(str(record.error) or repr(record.error)),
        )

    def _again(self, load: _Load[S]) -> None:
        if load.context.state is ShardState.FAILED:
            self.begin(load.context, LOAD_BACKOFF.following_ms(load.retry_ms))
