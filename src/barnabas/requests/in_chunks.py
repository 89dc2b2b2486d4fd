"""Asking a coordinator about many things, some at a time.

Coordinators decide inline and answer through a callback, now or later. What is asked about
thousands of groups is asked in chunks, with a breath between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from barnabas.coordinator.gathering import Gathering
from barnabas.requests.context import RequestContext

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 10


async def ask_in_chunks(
    items: Sequence[T], ask: Callable[[T, Callable[[R], None]], None], context: RequestContext
) -> list[R]:
    """What `ask` answers for each item, in their order."""
    answers: list[R] = []
    for start in range(0, len(items), CHUNK):
        chunk = items[start : start + CHUNK]
        answer: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()

        def respond(parts: list[R], answer: asyncio.Future[list[R]] = answer) -> None:
            if not answer.done():  # the broker may have stopped waiting
                answer.set_result(parts)

        gathering = Gathering(len(chunk), respond)
        for place, item in enumerate(chunk):
            ask(item, partial(gathering.put, place))
        answers += await answer
        await context.breathe()
    return answers
