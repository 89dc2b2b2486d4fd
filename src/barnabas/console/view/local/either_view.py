"""View that asks the brokers of this machine at their sockets, and by the client while none answers.

A console starts beside its broker, and its broker may restart: neither must end with an empty page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.view.interface import ClusterView
from barnabas.console.view.rows import (
    ClientRow,
    GroupDetail,
    GroupQuery,
    GroupRow,
    LogPicture,
    Overview,
    Page,
    TopicDetail,
    TopicQuery,
    TopicRow,
    TransactionRow,
)

T = TypeVar("T")


class EitherView:
    def __init__(self, local: ClusterView, by_client: ClusterView) -> None:
        self._local = local
        self._by_client = by_client

    async def _ask(self, question: Callable[[ClusterView], Awaitable[T]]) -> T:
        try:
            return await question(self._local)
        except ClusterUnreachable:
            return await question(self._by_client)

    async def overview(self) -> Overview:
        return await self._ask(lambda view: view.overview())

    async def topics(self, query: TopicQuery) -> Page[TopicRow]:
        return await self._ask(lambda view: view.topics(query))

    async def topic(self, name: str) -> TopicDetail:
        return await self._ask(lambda view: view.topic(name))

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        return await self._ask(lambda view: view.groups(query))

    async def group(self, group_id: str) -> GroupDetail:
        return await self._ask(lambda view: view.group(group_id))

    async def log_picture(self, topic: str, partition: int) -> LogPicture:
        return await self._ask(lambda view: view.log_picture(topic, partition))

    async def transactions(self, *, find_hanging: bool = False) -> tuple[TransactionRow, ...]:
        return await self._ask(lambda view: view.transactions(find_hanging=find_hanging))

    async def clients(self) -> tuple[ClientRow, ...]:
        return await self._ask(lambda view: view.clients())
