"""Long work as generators, and the functions that drive them.

A `yield` has one of two meanings, which the type says:

- `Sliced[T]` yields nothing: here other work may have a turn. `requests.time_slicing` queues such work for
  the loop, `replication.controller_orders` runs it in order, a coordinator's timer runs an assignment.
- `Steps[S, T]` yields a step that its driver carries out: a request to a broker (`client.core`), a call for a
  thread, or a pause. The answer is the value of the `yield`, and a failure is raised there.

The two stay apart. A slice waits for nothing, so it can always be run to its end at once. A step needs a
connection, a thread or a timer. The drivers of steps differ only in how an answer comes: `drive` has a thread
of its own, `drive_async` awaits, and `Course` gets a callback.

Shared state may change at each `yield`. A generator reads it again afterwards, or takes what it needs before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas.core.scheduler import Background, NotBegun, Scheduler

S = TypeVar("S")
T = TypeVar("T")

Sliced: TypeAlias = Generator[None, None, T]
Steps: TypeAlias = Generator[S, Any, T]


class Ended(Generic[T]):
    """Result of work that has no further step."""

    __slots__ = ("result",)

    def __init__(self, result: T) -> None:
        self.result: Final = result


def advance(work: Generator[S, Any, T], answer: Any = None, error: Exception | None = None) -> S | Ended[T]:
    """Answer the last step, or raise `error` there. Returns the next step, or the end."""
    try:
        return work.send(answer) if error is None else work.throw(error)
    except StopIteration as end:
        return Ended(end.value)


def advance_until(work: Sliced[T], now_ms: Callable[[], float], end_ms: float) -> Ended[T] | None:
    """Run one slice at least, and more until `end_ms`; None when work is left."""
    try:
        next(work)
        while now_ms() < end_ms:
            next(work)
    except StopIteration as end:
        return Ended(end.value)
    return None


def run_to_end(work: Sliced[T]) -> T:
    """Run all slices at once."""
    while True:
        ended = advance(work)
        if ended is not None:
            return ended.result


def drive(steps: Steps[S, T], do: Callable[[S], Any]) -> T:
    """Drive `steps` in this thread; `do` carries out each one."""
    step = advance(steps)
    while not isinstance(step, Ended):
        try:
            answer = do(step)
        except Exception as error:  # noqa: BLE001 - the steps handle it
            step = advance(steps, None, error)
        else:
            step = advance(steps, answer)
    return step.result


async def drive_async(steps: Steps[S, T], do: Callable[[S], Awaitable[Any]]) -> T:
    """Drive `steps` in a coroutine; `do` carries out each one."""
    step = advance(steps)
    while not isinstance(step, Ended):
        try:
            answer = await do(step)
        except Exception as error:  # noqa: BLE001 - the steps handle it
            step = advance(steps, None, error)
        else:
            step = advance(steps, answer)
    return step.result


class Pause(NamedTuple):
    """Step of a course that waits."""

    ms: float


CourseSteps: TypeAlias = Steps[Callable[[], object] | Pause, T]
"""Calls for a thread, and pauses."""


class Course:
    """Drives steps on the loop: runs each call in a thread, and continues on the loop with its result."""

    def __init__(
        self,
        steps: CourseSteps[None],
        background: Background,
        scheduler: Scheduler,
        done: Callable[[Exception | None], None],
    ) -> None:
        """`done` gets the error that ended the steps, or None."""
        self._steps = steps
        self._background = background
        self._scheduler = scheduler
        self._done = done
        self._is_stepping = False
        self._outcomes: list[tuple[object, Exception | None]] = []

    def start(self) -> None:
        self._go_on(None)

    def _failed(self, error: BaseException) -> None:
        self._go_on(None, error if isinstance(error, Exception) else RuntimeError(error))

    def _go_on(self, answer: object, error: Exception | None = None) -> None:
        # `submit` may call back before it returns: then the loop below continues with that outcome.
        self._outcomes.append((answer, error))
        if self._is_stepping:
            return
        self._is_stepping = True
        while self._outcomes:
            try:
                step = advance(self._steps, *self._outcomes.pop())
            except Exception as failure:  # noqa: BLE001 - `done` gets every error
                self._done(failure)
                return
            if isinstance(step, Ended):
                self._done(None)
                return
            if isinstance(step, Pause):
                self._scheduler.after(step.ms, lambda: self._go_on(None))
            else:
                try:
                    self._background.submit(step, self._go_on, self._failed)
                except RuntimeError as refusal:
                    self._outcomes.append((None, NotBegun(str(refusal))))
        self._is_stepping = False
