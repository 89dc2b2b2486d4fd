"""Blocking work that waits until the test lets it happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ManualBackground:
    """`core.scheduler.Background` by hand: `run_one` does the oldest piece of work."""

    def __init__(self) -> None:
        self.waiting: list[
            tuple[Callable[[], Any], Callable[[Any], None], Callable[[BaseException], None]]
        ] = []

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[BaseException], None]
    ) -> None:
        self.waiting.append((work, done, failed))

    def run_one(self) -> None:
        work, done, failed = self.waiting.pop(0)
        try:
            result = work()
        except OSError as error:
            failed(error)
        else:
            done(result)
