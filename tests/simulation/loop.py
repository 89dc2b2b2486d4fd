"""An event loop on virtual time, for several processes at once.

Time moves only when nothing is left to do, and then to the next timer: an hour takes as long as what
happens in it. Everything that is scheduled belongs to the process in whose context it was scheduled
(`contextvars`), so a process can be stopped, continued and killed between any two of its callbacks, as a
kernel would. Within a process callbacks run in the order in which they were scheduled, as asyncio promises;
what makes runs differ are the delays of the network, the disks and the store, which come from the seed.

A process may have a clock that is too fast or too slow; its timers go by it. `now_s` is the true time.

Nothing here is real: a descriptor is a number that `network` gave out.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

TURNS_AT_ONE_MOMENT_MAX = 200_000
"""More than this without any time passing, and something turns in a circle."""


class Stuck(Exception):
    """Time cannot go on."""


class Process:
    """One life of one program. Callbacks scheduled in its context stop and end with it."""

    def __init__(self, loop: SimulatedLoop, name: str, host: str, clock_rate: float = 1.0) -> None:
        self.name = name
        self.host = host
        self.clock_rate = clock_rate
        self.is_running = True
        self.is_dead = False
        self.context = loop.outside.copy()
        self.context.run(PROCESS.set, self)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """Those that have not ended. A dead process keeps them: collected, they would run their `finally`."""
        self._loop = loop
        self._held: list[asyncio.Handle] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self.context)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """From outside: as the kernel wakes a process."""
        self._loop.call_soon(callback, *arguments, context=self.context)

    def pause(self) -> None:
        self.is_running = False

    def resume(self) -> None:
        if not self.is_dead:
            self.is_running = True
            held, self._held = self._held, []
            self._loop.take_back(held)

    def die(self) -> None:
        self.is_running = False
        self.is_dead = True
        self._held.clear()

    def hold(self, handle: asyncio.Handle) -> None:
        if not self.is_dead:
            self._held.append(handle)

    def bury(self) -> None:
        """At the end of the world: let go of what it was doing, unheard."""
        for task in list(self.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                coroutine: Any = task.get_coro()
                coroutine.close()


EPOCH_MS = 1_700_000_000_000
"""Time of the wall clocks when a run begins."""
PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def current_process() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a process of the simulation does this"
    return process


Connect = Callable[..., Coroutine[Any, Any, Any]]


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.outside = contextvars.copy_context()
        """The context of what is no process: the wires, the store, the faults."""
        self.connect: Connect | None = None
        self.turns = 0
        self.now_s = 0.0
        self.clocks_drift = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """By their time, and in the order of their making where that is the same."""
        self._timers_made = 0
        self._turns_now = 0
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._readable: dict[int, None] = {}
        self._full: dict[int, None] = {}
        """Those that cannot be written to now."""
        self._clock_resolution = 1e-9
        self.set_task_factory(_make_task)
        self.complaints: list[str] = []
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        """As the process sees it."""
        return self.now_s * self._clock_rate(None)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Outside of every process."""
        return self.at(self.now_s + delay_s, callback, *arguments)

    def at(self, when_s: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Outside of every process, when it is truly so late."""
        handle = asyncio.TimerHandle(when_s, callback, arguments, self, self.outside)
        self._timers_made += 1
        heapq.heappush(self._timers, (when_s, self._timers_made, handle))
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        when_s = when / self._clock_rate(context)
        handle = asyncio.TimerHandle(when_s, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when_s, self._timers_made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        when_s = self.now_s + max(delay, 0.0) / self._clock_rate(context)
        handle = asyncio.TimerHandle(when_s, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when_s, self._timers_made, handle))
        return handle

    def _clock_rate(self, context: contextvars.Context | None) -> float:
        if not self.clocks_drift:
            return 1.0
        process = PROCESS.get() if context is None else context.get(PROCESS)
        return 1.0 if process is None else process.clock_rate

    # -- descriptors --------------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._writers[fd] = asyncio.Handle(callback, args, self)

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    def set_readable(self, fd: int, *, is_readable: bool) -> None:
        if is_readable:
            self._readable[fd] = None
        else:
            self._readable.pop(fd, None)

    def set_writable(self, fd: int, *, is_writable: bool) -> None:
        if is_writable:
            self._full.pop(fd, None)
        else:
            self._full[fd] = None

    def forget_descriptor(self, fd: int) -> None:
        for table in (self._readers, self._writers, self._readable, self._full):
            table.pop(fd, None)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert self.connect is not None
        return await self.connect(protocol_factory, host, port)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Without threads the work runs here, and its outcome arrives in the next turn."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # -- time ---------------------------------------------------------------------------------

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        """No sleeping thread needs to be woken."""

    def _process_events(self, events: Any) -> None:
        """There are none."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._readable or self._writers:
            self._poll(ready)
        self._turns_now += 1
        if not ready:
            self._advance()
        if self._turns_now > TURNS_AT_ONE_MOMENT_MAX:
            raise Stuck(f"no end of what happens at {self.now_s:.3f} s")
        timers, now_s = self._timers, self.now_s
        while timers and timers[0][0] <= now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is None or process.is_running:
                self.turns += 1
                handle._run()
            else:
                process.hold(handle)

    def _poll(self, ready: Any) -> None:
        readers = self._readers
        for fd in self._readable:
            self._call(ready, readers.get(fd))
        for fd, writer in self._writers.items():
            if fd not in self._full:
                self._call(ready, writer)

    @staticmethod
    def _call(ready: Any, handle: Any) -> None:
        """One that waits for a descriptor; of a process that stands still it waits on."""
        if handle is not None:
            process = handle._context.get(PROCESS)
            if process is None or process.is_running:
                ready.append(handle)

    def _advance(self) -> None:
        """To the time of the next timer."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing will ever happen again")
        if timers[0][0] > self.now_s:
            self.now_s = timers[0][0]
            self._turns_now = 0

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Errors that asyncio would log, because no caller awaits them."""
        self.complaints.append(f"{self.now_s:.3f} {context.get('message')}: {context.get('exception')!r}")


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context, **options)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(process.tasks.pop, context=loop.outside)  # type: ignore[attr-defined]
    return task
