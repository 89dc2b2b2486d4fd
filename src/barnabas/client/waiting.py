"""Requests of a channel that wait for their answers, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from barnabas.client.session import Pending
from barnabas.protocol.schema import Message


class Posted(Pending):
    """Whose answer goes to a function, which keeps nothing of the frame."""

    __slots__ = ("answered", "deadline_s", "failed", "timeout_ms")

    gives_memory_back = True

    def __init__(self, answered: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        self.answered = answered
        self.failed = failed
        self.timeout_ms = self.deadline_s = 0.0


class Awaited(Posted):
    """One whose answer somebody awaits, and keeps. It is part of no cycle: an answer may be megabytes, which
    are to be freed with the last reference, and not when the collector comes by."""

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
