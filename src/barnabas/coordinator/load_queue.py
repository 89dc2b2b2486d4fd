"""Shards that are being loaded, one after the other, a little in each turn of the loop.

A load that fails is tried again, later and later, for as long as the partition is led: what was in the way
may pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinator.loading import Shard, load_steps
from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.shard_context import ShardContext, ShardState
from barnabas.coordinator.timers import ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.metrics import Histogram
from barnabas.core.scheduler import Scheduler

logger = logging.getLogger(__name__)

LOAD_TURN_MS = 10.0
"""How long loading may keep the loop before others have their turn."""

LOAD_RETRY_MS = 1_000.0
LOAD_RETRY_MS_MAX = 60_000.0
"""A failed load is tried again after this, doubled each time."""

S = TypeVar("S", bound=Shard)


class _Load(NamedTuple, Generic[S]):
    context: ShardContext[S]
    steps: Iterator[None]
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
    ) -> None:
        self._log = log
        self._make_shard = make_shard
        self._make_timers = make_timers
        self._monotonic_ms = clock.monotonic_ms
        self._scheduler = scheduler
        self._buffer_bytes = buffer_bytes
        self._load_time = load_time
        self._queue: list[_Load[S]] = []
        self._has_turn = False

    def begin(self, context: ShardContext[S], retry_ms: float = LOAD_RETRY_MS) -> None:
        """Load the shard; should that fail, again after `retry_ms`."""
        timers = self._make_timers(context)
        context.begin(self._make_shard(timers), timers)
        steps = load_steps(self._log, context.topic_partition, context.shard, self._buffer_bytes)
        self._queue.append(_Load(context, steps, self._monotonic_ms(), retry_ms))
        if not self._has_turn:
            self._has_turn = True
            self._scheduler.after(0, self._turn)

    def _turn(self) -> None:
        """Load for one turn of the loop, and come back for the rest."""
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
        """True when the shard is loaded, or cannot be."""
        context = load.context
        try:
            for _ in load.steps:
                if self._monotonic_ms() >= deadline_ms:
                    return False
            context.loaded(self._log.end_offset(context.topic_partition))
        except Exception:
            logger.exception("%s could not be loaded", context.topic_partition)
            context.load_failed()
            self._scheduler.after(load.retry_ms, lambda: self._again(load))
        else:
            self._load_time.observe(self._monotonic_ms() - load.begun_ms)
            context.tell_loaded()
        return True

    def _again(self, load: _Load[S]) -> None:
        if load.context.state is ShardState.FAILED:
            self.begin(load.context, min(2 * load.retry_ms, LOAD_RETRY_MS_MAX))
