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


async def test_many_requests_at_once_share_their_pages() -> None:
    clock, metrics = ManualClock(), Metrics()
    reads: list[None] = []

    def read() -> float:
        clock.advance(ms=TURN_MS_MAX + 1)  # the loop has a turn after each line
        reads.append(None)
        return float(len(reads))

    metrics.gauge("reads", "", read)
    lifecycle: Any = None
    endpoint = MetricsEndpoint(metrics, lifecycle, clock)
    request: Any = SimpleNamespace(head=SimpleNamespace(method="GET", path=b"/metrics"))
    first = asyncio.create_task(endpoint.answer(request))
    await asyncio.sleep(0)
    others = [asyncio.create_task(endpoint.answer(request)) for _ in range(10)]
    others[0].cancel()
    pages = [await first, *(await asyncio.gather(*others[1:]))]
    made = len(reads)
    assert made <= 3
    assert [b"reads 1\n" in page.body for page in pages] == [True, *(False for _ in others[1:])]
    assert f"reads {made + 1}\n".encode() in (await endpoint.answer(request)).body
