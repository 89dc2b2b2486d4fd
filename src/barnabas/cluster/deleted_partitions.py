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
from collections.abc import Collection, Mapping, Sequence

from barnabas.cluster.coordination import Check, Coordination, CoordinationError
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import TopicInfo, TopicZnode
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.core.waiting import Lock, Runner, turn_over

logger = logging.getLogger(__name__)

_Stored = Mapping[str, TopicInfo | None]
"""By name; None for a topic that is gone. What could not be learnt is left out."""


class _Question:
    """What is asked together."""

    __slots__ = ("names", "stored")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.stored: _Stored | None = None


class DeletedPartitions:
    def __init__(self, znodes: Coordination, runner: Runner, *, is_deletion_enabled: bool) -> None:
        self._znodes = znodes
        self._is_deletion_enabled = is_deletion_enabled
        """Where topics cannot be deleted, the controller takes marks of deletion away again."""
        self._next = _Question()
        self._runner = runner
        self._asking = Lock(runner)

    async def find(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of the partitions that are known to be gone."""
        stored = await self._ask({each.topic for each in partitions})
        return frozenset(each for each in partitions if _is_gone(each, stored))

    async def find_topics(self, names: Collection[str]) -> Mapping[str, Uuid | None]:
        """The ids of these topics: None if it is gone, ZERO_UUID if it has none. Of what is left out nothing
        could be learnt."""
        stored = await self._ask(names)
        return {
            name: (info := stored[name]) and (info.topic_id or ZERO_UUID) for name in names if name in stored
        }

    async def _ask(self, names: Collection[str]) -> _Stored:
        question = self._next
        question.names.update(names)
        async with self._asking:
            if question.stored is None:
                await turn_over(self._runner)  # whoever asks in this turn asks with us
                self._next = _Question()
                try:
                    question.stored = await self._read(sorted(question.names))
                except Exception:
                    # Whoever waits is answered all the same, and will ask again.
                    logger.exception("the store could not be asked which topics are gone")
                    question.stored = {}
        return question.stored

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
