"""Background work that runs when the test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Later:
    def __init__(self) -> None:
        self._work: list[Callable[[], None]] = []

    def submit(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._work.append(lambda: done(work()))

    def run_one(self) -> bool:
        if not self._work:
            return False
        self._work.pop(0)()
        return True

    async def run_all(self) -> None:
        ran = True
        while ran:
            ran = self.run_one()
            await asyncio.sleep(0)
