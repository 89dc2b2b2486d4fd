"""Threads of a simulated machine, below the product's own `ThreadBackground`.

The queue, the counting of threads and the delivery of outcomes are the product's. A thread is a sequence of
events here: it takes a piece of work after a pause, does it at one moment, and its outcome arrives after
another pause. A machine can be short of threads: then none starts, as when the pids limit is reached.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any

from barnabas.node.background_threads import ThreadBackground
from tests.simulation.loop import SimulatedLoop

_Work = Callable[[], None]


class SimulatedWorkers(ThreadBackground):
    def __init__(
        self,
        loop: SimulatedLoop,
        threads: int,
        chance: random.Random,
        delay_s: Callable[[], float],
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(loop, threads)
        self.may_start = may_start
        self._chance = chance
        self._delay_s = delay_s
        self._queue: Any = _Queue()

    def _new_thread(self) -> Any:
        return _SimulatedThread(self)

    def _post(self, callback: Callable[[], None]) -> None:
        self._loop.call_later(self._pause_s(), callback)

    def serve_by(self, thread: _SimulatedThread) -> None:
        """The thread waits for work from now on."""
        work = self._queue.take(thread)
        if work is not None:
            self._loop.call_later(self._pause_s(), self._do, thread, work[0])

    def wake(self, thread: _SimulatedThread, work: _Work | None) -> None:
        self._loop.call_later(self._pause_s(), self._do, thread, work)

    def _do(self, thread: Any, work: _Work | None) -> None:
        if work is None:
            self._post(lambda: self._gone(thread))
            return
        work()
        self.serve_by(thread)

    def _pause_s(self) -> float:
        return self._chance.uniform(0, self._delay_s())


class _Queue:
    """`SimpleQueue` for threads that do not block: work goes to the thread that has waited longest."""

    def __init__(self) -> None:
        self._work: deque[_Work | None] = deque()
        self._idle: deque[_SimulatedThread] = deque()

    def put(self, work: _Work | None) -> None:
        if self._idle:
            thread = self._idle.popleft()
            thread.workers.wake(thread, work)
        else:
            self._work.append(work)

    def take(self, thread: _SimulatedThread) -> tuple[_Work | None] | None:
        if self._work:
            return (self._work.popleft(),)
        self._idle.append(thread)
        return None

    def get_nowait(self) -> _Work | None:
        if not self._work:
            raise Empty
        return self._work.popleft()


class _SimulatedThread:
    def __init__(self, workers: SimulatedWorkers) -> None:
        self.workers = workers

    def start(self) -> None:
        if not self.workers.may_start():
            raise RuntimeError("can't start new thread")
        self.workers.serve_by(self)
