"""Fan-in of several answers into one: those of the shards, leaders or chunks of a divided request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

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
