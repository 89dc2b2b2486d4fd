"""How several answers become one: those of the shards, leaders or chunks that a request was divided among."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Gathering(Generic[T]):
    """The parts of one answer, which arrive one by one, in whatever order."""

    __slots__ = ("_done", "_left", "_parts")

    def __init__(self, count: int, done: Callable[[list[T]], None]) -> None:
        self._parts: dict[int, T] = {}
        self._left = count
        self._done = done
        if not count:
            done([])

    def put(self, place: int, part: T) -> None:
        self._parts[place] = part
        self._left -= 1
        if not self._left:
            self._done([self._parts[place] for place in sorted(self._parts)])
