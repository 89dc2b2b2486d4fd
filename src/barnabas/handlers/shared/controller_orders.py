"""Controller requests as coroutines: LeaderAndIsr and StopReplica take several turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Request = TypeVar("Request")


async def carried_out(
    begin: Callable[[Request, Callable[[T], None], Callable[[Exception], None]], None], request: Request
) -> T:
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(response: T) -> None:
        if not outcome.done():  # the waiting coroutine may be cancelled
            outcome.set_result(response)

    def failed(error: Exception) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    begin(request, done, failed)
    return await outcome
