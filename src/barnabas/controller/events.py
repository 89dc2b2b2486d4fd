"""Event queue of the controller: first in, first out, one event at a time.

Everything that the controller does is an event, so its context does not change while an event waits for the
store. An event that only says "read again" (a watch fired) is queued once until it runs. When the session is
lost or the controller closes, all queued events are dropped and one last event replaces them. Callers that
wait for a dropped event get NOT_CONTROLLER.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import NotController
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.waiting import Future, Task, future

logger = logging.getLogger(__name__)

T = TypeVar("T")

Process = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    kind: str
    """For metrics and logs."""
    process: Process
    key: Hashable
    """Events with the same key are queued once; None: always."""
    preempt: Callable[[], None] | None
    queued_ms: float


class EventQueue:
    """Queue of events. `handle` processes one event and calls its `process`.

    An error that escapes from `handle` is logged, and the next event runs.
    """

    def __init__(self, handle: Callable[[Event], Awaitable[None]], clock: Clock, metrics: Metrics) -> None:
        self._handle = handle
        self._clock = clock
        self._metrics = metrics
        self._events: deque[Event] = deque()
        self._keys: set[Hashable] = set()
        self._is_started = False
        self._is_processing = False
        self._closed = False
        self._task: Task | None = None
        metrics.gauge(
            "kafka_controller_event_queue_size",
            "Controller events that wait to be processed.",
            lambda: len(self._events),
        )
        self._queue_time = metrics.histogram(
            "kafka_controller_event_queue_time_ms", "Time that controller events waited to be processed."
        )

    def start(self) -> None:
        self._is_started = True
        self._process_all()

    async def close(self) -> None:
        """Drop all events, also the running one: it may wait for a store that never answers."""
        self._closed = True
        self._drop_all()
        if self._task is not None:
            await self._task.stop()

    def put(
        self,
        kind: str,
        process: Process,
        *,
        key: Hashable = None,
        preempt: Callable[[], None] | None = None,
    ) -> None:
        if self._closed:
            if preempt is not None:
                preempt()
            return
        if key is not None:
            if key in self._keys:
                return
            self._keys.add(key)
        self._events.append(Event(kind, process, key, preempt, self._clock.monotonic_ms()))
        self._process_all()

    async def call(self, kind: str, process: Callable[[], Awaitable[T]]) -> T:
        """Run `process` as an event; returns its result or raises its error."""
        answer: Future[T] = future()

        async def run() -> None:
            try:
                result = await process()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                raise
            except BaseException:  # cancelled
                preempt()
                raise
            if not answer.done():
                answer.set_result(result)

        def preempt() -> None:
            if not answer.done():
                answer.set_exception(NotController("this broker is no longer the controller"))

        self.put(kind, run, preempt=preempt)
        return await answer

    def clear_and_put(self, kind: str, process: Process) -> None:
        """Drop all queued events; this one runs next."""
        self._drop_all()
        self.put(kind, process)

    def _drop_all(self) -> None:
        dropped, self._events = self._events, deque()
        self._keys.clear()
        for event in dropped:
            if event.preempt is not None:
                event.preempt()

    def _process_all(self) -> None:
        if self._is_started and not self._is_processing and self._events:
            self._is_processing = True
            self._task = Task(self._run())

    async def _run(self) -> None:
        while self._events:
            event = self._events.popleft()
            self._keys.discard(event.key)
            started_ms = self._clock.monotonic_ms()
            self._queue_time.observe(started_ms - event.queued_ms)
            with sweeping("processing the controller event", event.kind):
                await self._handle(event)
            self._metrics.histogram(
                "kafka_controller_event_time_ms",
                "Time that the controller took to process an event.",
                kind=event.kind,
            ).observe(self._clock.monotonic_ms() - started_ms)
        self._is_processing = False
