"""The embedded coordination store inside the simulated world, on the simulated disk.

The store is the product's own, with its journal, on the machine's files. Parts and judges look at a tree:
here it is the tree of the store that was opened last. Faults of a ZooKeeper (sessions, elections, outages) do
not exist for it. Its faults are those of the disk, of power and of threads.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.cluster.embedded.tree import Tree
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.files import Files
from barnabas.core.scheduler import Background
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from tests.chaos.leaderships import Leaders


class EmbeddedView:
    """The interface of `store.Store` that parts, judges and faults use."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.is_up = True
        self.forced_s = -math.inf
        self.forced_moments_s: list[float] = []
        self.session_ids: list[int] = []
        self.leaders: Leaders = {}
        """Unknown: one broker has every epoch, and no other can lead."""

    def restart(self, outage_s: float) -> None:
        """It lives and dies with its broker."""

    def elect(self, outage_s: float) -> None:
        """It has no servers to choose from."""

    def expire(self, session_id: int) -> None:
        """Its sessions end with its broker."""

    def spoil(self, path: str, data: bytes) -> None:
        """Only its broker reaches it."""


def embedded_opener(view: EmbeddedView, files: Files) -> Any:
    """A `node.membership.coordination_store.OpenCoordination` on the simulated disk."""

    @asynccontextmanager
    async def open_store(
        config: BrokerConfig, clock: Clock, background: Background
    ) -> AsyncIterator[Coordination]:
        directory = f"{config.log_dirs[0]}/{COORDINATION_DIRECTORY}"
        store = EmbeddedStore.open(files, directory, clock, background)
        view.tree = store._tree
        try:
            yield store.connect()
        finally:
            await store.close()

    return open_store
