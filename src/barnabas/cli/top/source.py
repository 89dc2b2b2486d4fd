"""Sources of the figures: the sockets of this machine's brokers, or any Kafka through the client.

The socket is quicker, and knows the traffic and the lag in time. It is used if it belongs to a broker of the
cluster that `--bootstrap` names. Its answers are those for the user whom the client signs in as.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.cli.support.session import Bootstrap, admin_of
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.config.derived import default_cluster_directory, default_log_directory
from barnabas.console.view.client.client_view import ClientView
from barnabas.console.view.interface import ClusterView
from barnabas.console.view.local.brokers import LocalBrokers, find_sockets
from barnabas.console.view.local.local_view import LocalView
from barnabas.console.view.rows import GroupQuery, GroupRow, Overview, Page, TopicQuery, TopicRow
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError

SOCKET_PATIENCE_S: Final = 3.0
"""Time for a broker to answer at its socket. One that hangs is asked by its address, as any other."""


class Frame(NamedTuple):
    """Figures of one picture."""

    overview: Overview
    topics: Page[TopicRow]
    groups: Page[GroupRow]
    is_local: bool


class Source(NamedTuple):
    view: ClusterView
    is_local: bool

    async def frame(self, topics: TopicQuery, groups: GroupQuery) -> Frame:
        return Frame(
            await self.view.overview(),
            await self.view.topics(topics),
            await self.view.groups(groups),
            self.is_local,
        )


@asynccontextmanager
async def open_source(
    bootstrap: Bootstrap, directory: Path | None, principal: str | None
) -> AsyncIterator[Source]:
    """`directory` is the data directory of a broker or a local cluster, if the user named one."""
    defaults = default_log_directory(), default_cluster_directory()
    for each in defaults if directory is None else (directory,):
        brokers = LocalBrokers(find_sockets(each)) if each.is_dir() else LocalBrokers(())
        try:
            view = LocalView(brokers, principal)
            if len(brokers) and (directory is not None or await _serves(view, bootstrap.addresses)):
                yield Source(view, is_local=True)
                return
        finally:
            await brokers.close()
    if directory is not None:
        raise ClusterUnreachable([f"no broker runs on {directory}"])
    async with admin_of(bootstrap).cluster as cluster:
        yield Source(ClientView(cluster, SystemClock()), is_local=False)


async def _serves(view: LocalView, addresses: Sequence[object]) -> bool:
    """Whether one of the brokers has one of the addresses."""
    try:
        async with asyncio.timeout(SOCKET_PATIENCE_S):
            overview = await view.overview()
    except (ClusterUnreachable, KafkaError, TimeoutError):
        return False
    return not {str(each) for each in addresses}.isdisjoint(row.address for row in overview.brokers)
