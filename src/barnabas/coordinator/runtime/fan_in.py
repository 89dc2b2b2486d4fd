"""Fan-in of several answers into one: those of the shards, leaders or chunks of a divided request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.core.waiting import Future, future

T = TypeVar("T")


class Gathering(Generic[T]):
    """Parts of one answer, which arrive one by one, in any order."""

    __slots__ = ("_done", "_left", "_parts")

    def __init__(self, count: int, done: Callable[[list[T]], None]) -> None:
        self._parts: dict[int, T] = {}
        self._left = count
        self._done = done
        if not count:
            done([])

    def put(self, index: int, part: T) -> None:
        self._parts[index] = part
        self._left -= 1
        if not self._left:
            self._done([self._parts[index] for index in sorted(self._parts)])


class Window(Generic[T]):
    """Parts of one answer that are begun in order, with at most so many of them under way."""

    __slots__ = ("_parts", "_size", "_waiting")

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts: list[T] = []
        self._waiting: deque[Future[T]] = deque()

    async def begin(self, start: Callable[[Callable[[T], None]], None]) -> None:
        """Begin one more part, which calls back with its result; then wait until there is room for the
        next."""
        part = future()

        def done(result: T) -> None:
            if not part.done():  # the waiting coroutine may be cancelled
                part.set_result(result)

        start(done)
        self._waiting.append(part)
        if len(self._waiting) >= self._size:
            self._parts.append(await self._waiting.popleft())

    async def parts(self) -> list[T]:
        """All results, in the order of their beginning."""
        while self._waiting:
            self._parts.append(await self._waiting.popleft())
        return self._parts
