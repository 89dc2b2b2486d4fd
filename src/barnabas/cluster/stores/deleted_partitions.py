"""Lookup of deleted partitions and topics in the coordination store.

The metadata cache cannot answer this. A new controller names brokers first and partitions later, and a broker
that was away may remember partitions that were deleted meanwhile. A topic is gone when it has no node, or is
marked for deletion, which is final. A partition is gone with its topic, or when the topic's node does not
name it. Topics only grow, so that node belongs to another topic of the same name.

A ZooKeeper server may lag behind the others and not know a new topic yet. So each lookup begins with a write
that changes nothing: later reads of this session are at least as new as that write.

Lookups that arrive during one are combined into the next. So the store is asked about each topic once at a
time, even if very many transactions wait for a broker that is down.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from barnabas.cluster.coordination.contract import Check, Coordination, CoordinationError
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import TopicInfo, TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.core.waiting import Lock, turn_over

logger = logging.getLogger(__name__)

_Stored = Mapping[str, TopicInfo | None]
"""Topics by name; None for a deleted topic. A topic that could not be read is left out."""


class _Question:
    """Combined lookup of several callers."""

    __slots__ = ("names", "stored")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.stored: _Stored | None = None


class DeletedPartitions:
    def __init__(self, znodes: Coordination, *, is_deletion_enabled: bool) -> None:
        self._znodes = znodes
        self._is_deletion_enabled = is_deletion_enabled
        """If topics cannot be deleted, the controller removes deletion marks again."""
        self._next = _Question()
        self._asking = Lock()

    async def find(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions that are known to be deleted."""
        stored = await self._ask({each.topic for each in partitions})
        return frozenset(each for each in partitions if _is_gone(each, stored))

    async def find_topics(self, names: Collection[str]) -> Mapping[str, Uuid | None]:
        """Ids of these topics: None if deleted, ZERO_UUID if it has no id. Unreadable topics are left out."""
        stored = await self._ask(names)
        return {
            name: (info := stored[name]) and (info.topic_id or ZERO_UUID) for name in names if name in stored
        }

    async def _ask(self, names: Collection[str]) -> _Stored:
        question = self._next
        question.names.update(names)
        async with self._asking:
            if question.stored is None:
                await turn_over()  # callers of this turn join this lookup
                self._next = _Question()
                try:
                    question.stored = await self._read(sorted(question.names))
                except Exception:
                    # The callers get an answer all the same, and ask again later.
                    logger.exception("lookup of deleted topics failed; it is tried again")
                    question.stored = {}
        return question.stored

    async def _read(self, names: Sequence[str]) -> _Stored:
        """Read topics and deletion marks. A topic that cannot be read now does not count as deleted."""
        try:
            await self._znodes.multi([Check(TopicZnode.PARENT)])
            nodes = await self._znodes.get_many([TopicZnode.path(name) for name in names])
            marks = await self._znodes.get_many([DeleteTopicsZnode.path(name) for name in names])
        except CoordinationError as error:
            logger.info("lookup of deleted topics %s is tried again: %r", names, error)
            return {}
        stored: dict[str, TopicInfo | None] = {}
        for name, node, mark in zip(names, nodes, marks, strict=True):
            if node is None or (mark is not None and self._is_deletion_enabled):
                stored[name] = None
                continue
            try:
                stored[name] = TopicZnode.decode(name, node[0])
            except MalformedZnode as error:
                logger.warning(
                    "topic %s: its znode cannot be read, and its partitions count as existing: %s",
                    name,
                    error,
                )
        return stored


def _is_gone(partition: TopicPartition, stored: _Stored) -> bool:
    if partition.topic not in stored:
        return False
    info = stored[partition.topic]
    return info is None or partition.partition not in info.assignment
