"""Requests in flight on a channel: receivers of the answers, and deadlines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from barnabas.client.core.session import Pending
from barnabas.protocol.schema.message import Message


class Posted(Pending):
    """Request whose answer goes to a function, which keeps nothing of the frame."""

    __slots__ = ("answered", "deadline_s", "failed", "timeout_ms")

    gives_memory_back = True

    def __init__(self, answered: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        self.answered = answered
        self.failed = failed
        self.timeout_ms = self.deadline_s = 0.0


class Awaited(Posted):
    """Request whose answer is awaited and kept. It belongs to no reference cycle: an answer may be megabytes,
    and must be freed with its last reference, not by the garbage collector.
    """

    __slots__ = ()

    gives_memory_back = False

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        super().__init__(partial(_set_result, answer), partial(_set_exception, answer))


def _set_result(future: asyncio.Future[Any], answer: Message) -> None:
    if not future.done():
        future.set_result(answer)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Held(NamedTuple):
    request: Message
    response_class: type[Message]
    version: int
    pending: Posted
    timeout_ms: float


class Deadlines:
    """One timer for all requests in flight on a channel. It fires at the first deadline."""

    def __init__(self, pending: deque[Posted], passed: Callable[[Posted], None]) -> None:
        self._pending = pending
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None

    def set(self, request: Posted, timeout_ms: float) -> None:
        loop = asyncio.get_running_loop()
        request.timeout_ms = timeout_ms
        request.deadline_s = loop.time() + timeout_ms / 1_000
        if self._timer is None or request.deadline_s < self._timer.when():
            self.cancel()
            self._timer = loop.call_at(request.deadline_s, self._look)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        first = min(self._pending, key=lambda each: each.deadline_s)
        if first.deadline_s > loop.time():
            self._timer = loop.call_at(first.deadline_s, self._look)
        else:
            self._passed(first)
