"""For a coroutine: the outcome of an order of the controller, which is carried out over several turns."""

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
        if not outcome.done():  # whoever waited may be gone
            outcome.set_result(response)

    def failed(error: Exception) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    begin(request, done, failed)
    return await outcome
