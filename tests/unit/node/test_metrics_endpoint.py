"""The metrics page of many topics is made in turns of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.manual_time import ManualClock

from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.node.metrics_endpoint import MetricsEndpoint

TOPICS = 100


async def test_other_work_has_its_turns_while_the_page_is_made() -> None:
    clock, metrics = ManualClock(), Metrics()

    def read() -> float:
        clock.advance(ms=1)
        return 7.0

    for number in range(TOPICS):
        metrics.gauge("kafka_log_size", "Bytes of a log.", read, topic=f"topic-{number}")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count_turns())
    request: Any = SimpleNamespace(head=SimpleNamespace(method="GET", path=b"/metrics"))
    lifecycle: Any = None
    page = await MetricsEndpoint(metrics, lifecycle, clock).answer(request)
    others.cancel()
    assert turns >= TOPICS / (TURN_MS_MAX + 1) - 1
    assert page.body == render_prometheus(metrics).encode()
