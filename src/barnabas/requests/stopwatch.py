"""What a request takes of the loop's time, which is what its client is charged for.

A handler rarely works in one go: it is done in `slices`, it awaits the coordination store, it leaves its
request in the purgatory. The watch runs while the handler does, and stands while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol


class Stopwatch(Protocol):
    def resume(self, now_ms: float, /) -> None:
        """Nothing happens if it runs already: a slice may begin within another."""
        ...

    def pause(self, now_ms: float, /) -> None:
        """Nothing happens if it stands already."""
        ...


class Measured:
    """Awaits `work`; the watch runs whenever that does, and still when it has ended."""

    def __init__(self, work: Coroutine[Any, Any, Any], watch: Stopwatch, now_ms: Callable[[], float]) -> None:
        self._work = work
        self._watch = watch
        self._now_ms = now_ms

    def __await__(self) -> Generator[Any, None, Any]:
        go_on: Callable[[], Any] = partial(self._work.send, None)
        while True:
            self._watch.resume(self._now_ms())
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value
            self._watch.pause(self._now_ms())
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the work is told, above all that it is cancelled
                go_on = partial(self._work.throw, error)
            else:
                go_on = partial(self._work.send, None)
