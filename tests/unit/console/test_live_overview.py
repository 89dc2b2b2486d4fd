"""Viewers of one user share the figures of the overview."""

from __future__ import annotations

import asyncio
from typing import cast

from barnabas.console.view.interface import ClusterView
from barnabas.console.web.connections import LIVE_FRESH_MS, Connection
from tests.support.manual_time import ManualClock

VIEWERS = 200


class View:
    def __init__(self) -> None:
        self.asked = 0

    async def overview(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        return self.asked


def test_viewers_share_one_overview() -> None:
    async def look() -> list[tuple[set[object], int]]:
        clock, view = ManualClock(), View()
        connection = Connection({"bootstrap.servers": "127.0.0.1:1"}, clock, None)
        connection.view = cast("ClusterView", view)
        found: list[tuple[set[object], int]] = []
        for _ in range(2):
            shown = await asyncio.gather(*(connection.live_overview.get() for _ in range(VIEWERS)))
            found.append((set[object](shown), view.asked))
            clock.advance(LIVE_FRESH_MS)
        await connection.close()
        return found

    assert asyncio.run(look()) == [({1}, 1), ({2}, 2)]
