"""Failures in the service's event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.pipelines.service.http.server import LoopTimers


async def test_a_timer_whose_task_fails_says_so_and_leaves_the_loop_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    later = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("no such driver")

    LoopTimers().after(0, fail)
    LoopTimers().after(1, later.set)
    await asyncio.wait_for(later.wait(), 10)
    assert unhandled == []
    assert "no such driver" in caplog.text
