"""Loop time of a request, which its client's quota is charged for.

A handler rarely finishes in one turn: it runs in slices, awaits the coordination store or leaves its request
in the purgatory. The watch runs while the handler does, and pauses while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol


class Stopwatch(Protocol):
    def resume(self, now_ms: float, /) -> None:
        """Idempotent: a slice may begin within another."""
        ...

    def pause(self, now_ms: float, /) -> None:
        """Idempotent."""
        ...

    @property
    def spent_ms(self) -> float:
        """Time up to the last pause."""
        ...


class DecodingWatch:
    """Measures the decoding of a request that has no context yet."""

    __slots__ = ("_since_ms", "spent_ms")

    def __init__(self, since_ms: float) -> None:
        self._since_ms: float | None = since_ms
        self.spent_ms = 0.0

    def resume(self, now_ms: float, /) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms

    def pause(self, now_ms: float, /) -> None:
        if self._since_ms is not None:
            self.spent_ms += now_ms - self._since_ms
            self._since_ms = None


class Measured:
    """Awaits `work`; the watch runs while `work` does, and keeps running after its end."""

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
            except BaseException as error:  # noqa: BLE001 - passed on to the work, cancellation above all
                go_on = partial(self._work.throw, error)
            else:
                go_on = partial(self._work.send, None)
