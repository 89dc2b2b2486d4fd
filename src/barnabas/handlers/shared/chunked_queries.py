"""Coordinator queries about many elements, in chunks.

Coordinators decide inline and answer through a callback, at once or later. A query about thousands of groups
is divided into chunks, and the loop serves other connections between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.requests.context import RequestContext

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 10


async def ask_in_chunks(
    items: Sequence[T], ask: Callable[[T, Callable[[R], None]], None], context: RequestContext
) -> list[R]:
    """Results of `ask` for each item, in the order of the items."""
    answers: list[R] = []
    for start in range(0, len(items), CHUNK):
        chunk = items[start : start + CHUNK]
        answer: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()

        def respond(parts: list[R], answer: asyncio.Future[list[R]] = answer) -> None:
            if not answer.done():  # the broker may have stopped waiting
                answer.set_result(parts)

        gathering = Gathering(len(chunk), respond)
        for index, item in enumerate(chunk):
            ask(item, partial(gathering.put, index))
        answers += await answer
        await context.breathe()
    return answers
