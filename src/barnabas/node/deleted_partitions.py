"""Which partitions are gone for good? The coordination store knows, and nobody else.

That a broker has not heard of a partition says nothing: a controller that has just been elected names brokers
first and partitions later, and a broker that was away may remember what was deleted meanwhile. A partition is
gone when its topic has no node; when the topic's node does not name it (a topic only ever grows, so this is
another one of the same name); or when the topic is marked for deletion, which nobody takes back.

Questions that come while one is under way are asked together when it is answered: however many transactions
wait for a broker that is down, the store hears of each topic once at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from barnabas.cluster.coordination import Coordination, CoordinationError
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import TopicZnode
from barnabas.core.ids import TopicPartition

logger = logging.getLogger(__name__)

Found = Callable[[frozenset[TopicPartition]], None]


class DeletedPartitions:
    def __init__(self, znodes: Coordination, *, is_deletion_enabled: bool) -> None:
        self._znodes = znodes
        self._is_deletion_enabled = is_deletion_enabled
        """Where topics cannot be deleted, the controller takes marks of deletion away again."""
        self._waiting: list[tuple[frozenset[TopicPartition], Found]] = []
        self._asking: asyncio.Task[None] | None = None

    def find(self, partitions: Collection[TopicPartition], found: Found) -> None:
        """Call `found`, later, with those of the partitions that are known to be gone."""
        self._waiting.append((frozenset(partitions), found))
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                try:
                    gone = await self._gone({each for partitions, _ in waiting for each in partitions})
                except Exception:
                    # Whoever waits is answered all the same, and will ask again.
                    logger.exception("the store could not be asked which partitions are gone")
                    gone = frozenset()
                for partitions, found in waiting:
                    try:
                        found(partitions & gone)
                    except Exception:
                        logger.exception("who asked whether %s are gone failed", sorted(partitions))
        finally:
            self._asking = None

    async def _gone(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """What cannot be learnt now is not gone."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for each in partitions:
            by_topic.setdefault(each.topic, []).append(each)
        names = list(by_topic)
        try:
            nodes = await self._znodes.get_many([TopicZnode.path(name) for name in names])
            marks = await self._znodes.get_many([DeleteTopicsZnode.path(name) for name in names])
        except CoordinationError as error:
            logger.info("the store does not say whether %s exist: %r", names, error)
            return frozenset()
        gone: set[TopicPartition] = set()
        for (name, asked), node, mark in zip(by_topic.items(), nodes, marks, strict=True):
            if node is None or (mark is not None and self._is_deletion_enabled):
                gone.update(asked)
                continue
            try:
                assignment = TopicZnode.decode(name, node[0]).assignment
            except MalformedZnode as error:
                logger.warning("whether partitions of %s exist cannot be read: %s", name, error)
                continue
            gone.update(each for each in asked if each.partition not in assignment)
        return frozenset(gone)
