"""Long work that is partly on the loop and partly off it, written from top to bottom.

The work is a generator that runs on the loop. What it yields happens elsewhere: a callable is
blocking work for the background, a `Pause` is time that passes. When that is over the
generator goes on, on the loop; an error in the background is raised at the yield. So between
two yields nothing else moves, and each yield is a place where everything may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from barnabas.core.scheduler import Background, Scheduler


class Pause(NamedTuple):
    ms: float


Step = Callable[[], object] | Pause
Steps = Generator[Step, None, None]


class Course:
    """Takes the steps one after the other; `done` gets the error that ended them, or None."""

    def __init__(
        self,
        steps: Steps,
        background: Background,
        scheduler: Scheduler,
        done: Callable[[Exception | None], None],
    ) -> None:
        self._steps = steps
        self._background = background
        self._scheduler = scheduler
        self._done = done
        self._is_stepping = False
        self._outcomes: list[Exception | None] = []

    def start(self) -> None:
        self._go_on(None)

    def _go_on(self, error: BaseException | None) -> None:
        # A background may answer at once, from within `submit`: then the step under way goes on.
        self._outcomes.append(error if error is None or isinstance(error, Exception) else RuntimeError(error))
        if self._is_stepping:
            return
        self._is_stepping = True
        while self._outcomes:
            outcome = self._outcomes.pop()
            try:
                step = next(self._steps) if outcome is None else self._steps.throw(outcome)
            except StopIteration:
                self._done(None)
                return
            except Exception as failure:  # noqa: BLE001 - the outcome is handed on, whatever it is
                self._done(failure)
                return
            if isinstance(step, Pause):
                self._scheduler.after(step.ms, lambda: self._go_on(None))
            else:
                self._background.submit(step, lambda _: self._go_on(None), self._go_on)
        self._is_stepping = False
