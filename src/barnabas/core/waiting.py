"""Waiting, for coroutines that do not know which loop they run on.

What decides may await the coordination store. Where it waits for something else (an answer of a broker, a
moment that passes), or has something done beside, it uses a `Runner` that is handed in, as time and files
are: the server's runs on asyncio (`node.runtime`), a simulator's on time of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Protocol, TypeVar

from barnabas.core.scheduler import Background, Scheduler

T = TypeVar("T")


class Future(Protocol[T]):
    """What somebody else will say; awaited by one."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def set_result(self, result: T, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def __await__(self) -> Generator[Any, Any, T]: ...


class Task(Protocol):
    """Something that goes on beside what runs now."""

    async def stop(self) -> None:
        """Cancel it, if it has not ended, and wait until it has."""
        ...


class Runner(Protocol):
    def future(self) -> Future[Any]: ...
    def start(self, work: Coroutine[Any, Any, None]) -> Task: ...


class Signal:
    """Wakes the one who waits for it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._future: Future[None] = runner.future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Until it is set; then it can be waited for anew."""
        await self._future
        self._future = self._runner.future()

    async def wait_at_most(self, timeout_ms: float, scheduler: Scheduler) -> None:
        timer = scheduler.after(timeout_ms, self.set)
        try:
            await self.wait()
        finally:
            timer.cancel()


class Lock:
    """Held by one at a time, in the order of those who asked: `async with lock`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._is_held = False
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._is_held:
            self._is_held = True
            return
        turn: Future[None] = self._runner.future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if not turn.cancelled():  # it was handed on to whoever was given up at the same time
                self._hand_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False


async def turn_over(runner: Runner) -> None:
    """Until everybody has run who could run when this was called."""
    over = Signal(runner)

    async def run() -> None:
        over.set()

    task = runner.start(run())
    try:
        await over.wait()
    finally:
        await task.stop()


async def elsewhere(work: Callable[[], T], background: Background, runner: Runner) -> T:
    """The outcome of what blocks, or computes for long: it is done off the loop."""
    outcome: Future[T] = runner.future()

    def done(result: T) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def failed(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    background.submit(work, done, failed)
    return await outcome


async def within(
    timeout_ms: float, work: Coroutine[Any, Any, None], runner: Runner, scheduler: Scheduler
) -> bool:
    """Whether `work` was done in time; it is given up if not. What it raises is raised."""
    over = Signal(runner)
    errors: list[Exception] = []
    is_over = False

    async def run() -> None:
        nonlocal is_over
        try:
            await work
        except Exception as error:  # noqa: BLE001 - it is raised where the work is waited for
            errors.append(error)
        is_over = True
        over.set()

    task = runner.start(run())
    try:
        await over.wait_at_most(timeout_ms, scheduler)
    finally:
        await task.stop()
    if errors:
        raise errors[0]
    return is_over


async def gather(works: Iterable[Coroutine[Any, Any, T]], runner: Runner) -> list[T]:
    """The outcomes of all, which run beside each other; an error of one is raised when all are over."""
    outcomes: dict[int, T] = {}
    errors: list[Exception] = []
    over = Signal(runner)

    async def run(place: int, work: Coroutine[Any, Any, T]) -> None:
        try:
            outcomes[place] = await work
        except Exception as error:  # noqa: BLE001 - it is raised where the works are waited for
            errors.append(error)
        over.set()

    tasks = [runner.start(run(place, work)) for place, work in enumerate(works)]
    try:
        while len(outcomes) + len(errors) < len(tasks):
            await over.wait()
    finally:
        for task in tasks:
            await task.stop()
    if errors:
        raise errors[0]
    return [outcomes[place] for place in range(len(tasks))]
