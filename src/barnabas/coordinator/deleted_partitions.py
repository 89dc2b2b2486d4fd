"""Which partitions and topics are gone for good? The coordination store knows, and nobody else.

That a broker has not heard of a partition says nothing: a controller that has just been elected names brokers
first and partitions later, and a broker that was away may remember what was deleted meanwhile. A topic is
gone when it has no node, or is marked for deletion, which nobody takes back. A partition is gone with its
topic, or when the topic's node does not name it (a topic only ever grows, so this is another one of the same
name).

A server of the store may be behind the others, and not know yet of a topic that is new. So each question
begins with a write that changes nothing: what this session reads after it is as new as that.

Questions that come while one is under way are asked together when it is answered: however many transactions
wait for a broker that is down, the store hears of each topic once at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from barnabas.cluster.coordination import Check, Coordination, CoordinationError
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import TopicInfo, TopicZnode
from barnabas.coordinator.asking import Start
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)

Found = Callable[[frozenset[TopicPartition]], None]
FoundTopics = Callable[[Mapping[str, Uuid | None]], None]

_Stored = Mapping[str, TopicInfo | None]
"""By name; None for a topic that is gone. What could not be learnt is left out."""


class DeletedPartitions:
    def __init__(self, znodes: Coordination, start: Start, *, is_deletion_enabled: bool) -> None:
        self._znodes = znodes
        self._start = start
        self._is_deletion_enabled = is_deletion_enabled
        """Where topics cannot be deleted, the controller takes marks of deletion away again."""
        self._waiting: list[tuple[frozenset[str], Callable[[_Stored], None]]] = []
        self._is_asking = False

    def find(self, partitions: Collection[TopicPartition], found: Found) -> None:
        """Call `found`, later, with those of the partitions that are known to be gone."""
        asked = frozenset(partitions)

        def answered(stored: _Stored) -> None:
            found(frozenset(each for each in asked if _is_gone(each, stored)))

        self._question(frozenset(each.topic for each in asked), answered)

    def find_topics(self, names: Collection[str], found: FoundTopics) -> None:
        """Call `found`, later, with the ids of these topics: None if it is gone, ZERO_UUID if it has none.
        Of what is left out nothing could be learnt."""

        def answered(stored: _Stored) -> None:
            found({name: info and (info.topic_id or ZERO_UUID) for name, info in stored.items()})

        self._question(frozenset(names), answered)

    def _question(self, names: frozenset[str], answered: Callable[[_Stored], None]) -> None:
        self._waiting.append((names, answered))
        if not self._is_asking:
            self._is_asking = True
            self._start(self._ask())

    async def _ask(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                stored: _Stored = {}
                try:
                    stored = await self._read(sorted(frozenset().union(*(names for names, _ in waiting))))
                except Exception:
                    # Whoever waits is answered all the same, and will ask again.
                    logger.exception("the store could not be asked which topics are gone")
                for names, answered in waiting:
                    try:
                        answered({name: stored[name] for name in names if name in stored})
                    except Exception:
                        logger.exception("who asked whether %s are gone failed", sorted(names))
        finally:
            self._is_asking = False

    async def _read(self, names: Sequence[str]) -> _Stored:
        """What cannot be learnt now is not gone."""
        try:
            await self._znodes.multi([Check(TopicZnode.PARENT)])
            nodes = await self._znodes.get_many([TopicZnode.path(name) for name in names])
            marks = await self._znodes.get_many([DeleteTopicsZnode.path(name) for name in names])
        except CoordinationError as error:
            logger.info("the store does not say whether %s exist: %r", names, error)
            return {}
        stored: dict[str, TopicInfo | None] = {}
        for name, node, mark in zip(names, nodes, marks, strict=True):
            if node is None or (mark is not None and self._is_deletion_enabled):
                stored[name] = None
                continue
            try:
                stored[name] = TopicZnode.decode(name, node[0])
            except MalformedZnode as error:
                logger.warning("whether partitions of %s exist cannot be read: %s", name, error)
        return stored


def _is_gone(partition: TopicPartition, stored: _Stored) -> bool:
    if partition.topic not in stored:
        return False
    info = stored[partition.topic]
    return info is None or partition.partition not in info.assignment
