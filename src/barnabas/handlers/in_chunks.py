"""Asking a coordinator about many things, some at a time.

Coordinators decide inline and answer through a callback, now or later. What is asked about
thousands of groups is asked in chunks, with a breath between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.handlers.context import RequestContext

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 10


async def ask_in_chunks(
    items: Sequence[T],
    ask: Callable[[Sequence[T], Callable[[list[R]], None]], None],
    context: RequestContext,
) -> list[R]:
    """What `ask` answers for all items, in their order."""
    answers: list[R] = []
    for start in range(0, len(items), CHUNK):
        answer: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()

        def respond(part: list[R], answer: asyncio.Future[list[R]] = answer) -> None:
            if not answer.done():  # the broker may have stopped waiting
                answer.set_result(part)

        ask(items[start : start + CHUNK], respond)
        answers += await answer
        await context.breathe()
    return answers
