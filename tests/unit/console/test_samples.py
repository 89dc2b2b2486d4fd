"""Samples of the groups' lag, which go on whatever one of them meets."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.view.interface import ClusterView, NotOffered
from barnabas.console.view.rows import GroupQuery, GroupRow, Overview, Page, TopicQuery, TopicRow, Traffic
from barnabas.console.web import console as console_module
from barnabas.console.web.connections import Connections
from barnabas.console.web.console import Console, ConsoleSettings
from barnabas.core.clock import SystemClock
from tests.support.waiting import eventually_async


class View:
    """A view that fails as it is told, once."""

    def __init__(self, failure: BaseException) -> None:
        self._failures = [failure]

    async def overview(self) -> Overview:
        return Overview(7, "cluster", 1, (), 0, 0, 0, 0, 1, Traffic(5.0, 100.0, 200.0))

    async def topics(self, query: TopicQuery) -> Page[TopicRow]:
        assert query.limit
        return Page((), 0)

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        del query
        if self._failures:
            raise self._failures.pop()
        return Page((GroupRow("billing", "Stable", "consumer", 1, 1, 3, None),), 1)


@pytest.mark.parametrize(
    "failure",
    [ClusterUnreachable(["away"]), NotOffered("not here"), RuntimeError("planned"), asyncio.CancelledError()],
    ids=["unreachable", "not offered", "fault", "signed out"],
)
async def test_a_sample_that_fails_is_followed_by_others(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    monkeypatch.setattr(console_module, "SAMPLE_S", 0)
    monkeypatch.setattr(console_module, "FIRST_SAMPLES_S", ())

    async def open_view(
        cluster: ClusterClient, principal: str | None, *, by_client: bool = False
    ) -> ClusterView:
        del cluster, principal
        return cast("ClusterView", View(failure))

    clock = SystemClock()
    connections = Connections({"bootstrap.servers": "127.0.0.1:1"}, clock, open_view)
    console = Console(ConsoleSettings(), connections, (), {}, clock)
    async with console.opened():
        await console.until_open()
        assert console.shared is not None
        history = console.shared.history

        async def is_sampled() -> bool:
            return bool(history.of("billing"))

        await eventually_async(is_sampled)

        async def has_traffic() -> bool:
            return bool(console.shared and console.shared.traffic.of(lambda traffic: traffic.bytes_out))

        await eventually_async(has_traffic)
