"""The controller's queue: first in, first out, one event at a time.

Everything that the controller does is an event, so nothing that it knows changes under its hands
while it waits for the store. What only says "look again" (a watch fired) is queued once, however
often it happened, as long as nobody has looked. When the session is lost or the controller closes,
everything queued is dropped and one last event goes in its place; who waits for an answer gets
NOT_CONTROLLER.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import NotController
from barnabas.core.metrics import Metrics
from barnabas.core.sweeping import sweeping
from barnabas.core.waiting import Future, Runner, Task

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
    """`handle` processes one event; it is given the event's own `process`. What it lets escape is logged, and
    those behind it have their turn."""

    def __init__(
        self, handle: Callable[[Event], Awaitable[None]], clock: Clock, runner: Runner, metrics: Metrics
    ) -> None:
        self._handle = handle
        self._runner = runner
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
            "Events that wait for the controller.",
            lambda: len(self._events),
        )
        self._queue_time = metrics.histogram(
            "kafka_controller_event_queue_time_ms", "How long events waited for the controller."
        )

    def start(self) -> None:
        self._is_started = True
        self._process_all()

    async def close(self) -> None:
        """Drop everything, the event at hand included: it may wait for a store that never answers."""
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
        """What `process` returns or raises when its turn has come."""
        answer: Future[T] = self._runner.future()

        async def run() -> None:
            try:
                result = await process()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                raise
            except BaseException:  # it was cancelled
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
        """Forget everything queued; what is processed next is this."""
        self._drop_all()
        self.put(kind, process)

    @property
    def is_idle(self) -> bool:
        """Nothing is queued and nothing is being processed."""
        return not self._events and not self._is_processing

    def _drop_all(self) -> None:
        dropped, self._events = self._events, deque()
        self._keys.clear()
        for event in dropped:
            if event.preempt is not None:
                event.preempt()

    def _process_all(self) -> None:
        if self._is_started and not self._is_processing and self._events:
            self._is_processing = True
            self._task = self._runner.start(self._run())

    async def _run(self) -> None:
        while self._events:
            event = self._events.popleft()
            self._keys.discard(event.key)
            started_ms = self._clock.monotonic_ms()
            self._queue_time.observe(started_ms - event.queued_ms)
            with sweeping("the event", event.kind):
                await self._handle(event)
            self._metrics.histogram(
                "kafka_controller_event_time_ms",
                "How long the controller took for an event.",
                kind=event.kind,
            ).observe(self._clock.monotonic_ms() - started_ms)
        self._is_processing = False
