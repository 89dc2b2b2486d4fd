"""Timer over a hierarchy of timing wheels. `advance` runs the tasks that are due.

The timer has no thread and no loop. Its driver sleeps until `next_expiry_ms` and calls `advance`. `wake`
notifies the driver when a task is added that is due before all others. An idle timer therefore costs nothing,
however many tasks wait in it.

A task never runs early: its expiration is rounded up to a whole millisecond. Due tasks run in order of their
milliseconds. An error in one task is logged and does not keep the others from running.

A timer cannot spin. `advance` runs only tasks that were due when it began, and stops after its share of one
turn of the loop. A task that adds itself again without a delay leaves room for requests. So does a crowd of
tasks with the same expiration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop

from barnabas.core.clock import Clock
from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.reporting.error_isolation import complain
from barnabas.purgatory.timing_wheel import Bucket, BucketQueue, PendingCount, TimerTask, TimingWheel

TICK_MS = 1
WHEEL_SIZE = 20


class Timer:
    __slots__ = ("_count", "_due", "_due_next", "_monotonic_ms", "_queue", "_wheel", "wake")

    def __init__(
        self,
        clock: Clock,
        *,
        tick_ms: int = TICK_MS,
        wheel_size: int = WHEEL_SIZE,
        wake: Callable[[float], None] | None = None,
    ) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self._queue: BucketQueue = []
        self._wheel = TimingWheel(tick_ms, wheel_size, int(clock.monotonic_ms()), self._queue)
        self._due = Bucket(serial=0)
        self._due_next = Bucket(serial=0)
        self._count = PendingCount()
        self.wake = wake
        """Called with the new `next_expiry_ms` when that moves nearer; may be set after construction."""

    @property
    def pending(self) -> int:
        """Tasks that wait."""
        return self._count.value

    def add(self, task: TimerTask) -> None:
        """Run `task` once its `delay_ms` has passed: in an `advance`, never inside this call."""
        assert task.previous is None, "the task is already in a timer"
        now_ms = self._monotonic_ms()
        task.expiration_ms = math.ceil(now_ms + task.delay_ms)
        task.pending_count = count = self._count
        count.value += 1
        queue = self._queue
        wheel = self._wheel
        if queue:
            earliest_ms: float = queue[0][0]
        else:
            # No task waits, so no bucket can be passed over: catch up with the present.
            wheel.advance(int(now_ms))
            earliest_ms = math.inf
        if not wheel.add(task):
            self._due.append(task)
            if self.wake is not None:
                self.wake(now_ms)
        elif self.wake is not None and queue[0][0] < earliest_ms:
            self.wake(queue[0][0])

    def next_expiry_ms(self) -> float | None:
        """Monotonic time of the next `advance`; None if no task waits."""
        if not self._due.is_empty:
            return self._monotonic_ms()
        queue = self._queue
        while queue and queue[0][2].is_empty:
            heappop(queue)[2].expiration_ms = Bucket.NOT_QUEUED
        return queue[0][0] if queue else None

    def advance(self) -> int:
        """Run the due tasks; returns how many ran. Tasks that become due meanwhile, and tasks left over at
        the end of the turn, stay in order for the next call."""
        began_ms = self._monotonic_ms()
        self._collect_due(int(began_ms))
        due, self._due = self._due, self._due_next
        ran = 0
        try:
            while (task := due.pop_first()) is not None:
                self._count.value -= 1
                ran += 1
                try:
                    task.run()
                except Exception as error:  # noqa: BLE001 - `complain` logs it
                    complain("a timer task", task, error)
                if self._monotonic_ms() - began_ms > TURN_MS_MAX:
                    break
        finally:
            while (task := self._due.pop_first()) is not None:
                due.append(task)
            self._due, self._due_next = due, self._due
        return ran

    def _collect_due(self, now_ms: int) -> None:
        """Empty every bucket up to now, into finer wheels or onto the due list.

        Tasks run only after this, when the wheels are consistent, so that a task may add and cancel others.
        """
        queue = self._queue
        wheel = self._wheel
        due = self._due
        while queue and queue[0][0] <= now_ms:
            bucket_ms, _, bucket = heappop(queue)
            bucket.expiration_ms = Bucket.NOT_QUEUED
            wheel.advance(bucket_ms)
            while (task := bucket.pop_first()) is not None:
                if not wheel.add(task):
                    due.append(task)
        wheel.advance(now_ms)
