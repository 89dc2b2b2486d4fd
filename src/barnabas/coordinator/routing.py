"""Which shard a key belongs to, and how the answers of several shards become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.core.ids import java_hash

_INT_MIN = -(1 << 31)

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


def partition_of(key: str, partition_count: int) -> int:
    """The partition that coordinates a group or a transactional id.

    Kafka's own rule: the smallest int has no positive counterpart and counts as 0."""
    value = java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partition_count
