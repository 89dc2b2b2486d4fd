"""Controller store: access to the coordination store with retries, in bulk, and under the epoch guard.

*With retries*: a lost connection is not a response. Reads and writes are repeated until the store answers or
the session is over. A repeated write may find that the first attempt took effect, so it compares the stored
state with the intended one.

*In bulk*: reads are pipelined, and writes go in transactions of bounded size, so a failover of thousands of
partitions costs a few round trips. A transaction is all or nothing: when one partition's state has changed
meanwhile, the rest is written without it.

*Under the epoch guard*: each transaction begins with the guard of this controller's election. Once another
controller was elected it fails with STALE_CONTROLLER_EPOCH.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    Watch,
)
from barnabas.cluster.coordination.store_retry import StoreRetry
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import (
    ConfigZnode,
    PartitionState,
    PartitionStateZnode,
    ReplicaAssignment,
    TopicInfo,
    TopicZnode,
)
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.core.errors import StaleControllerEpoch, UnknownServerError, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition, Uuid

T = TypeVar("T")
K = TypeVar("K")

logger = logging.getLogger(__name__)

OPERATIONS_PER_TRANSACTION_MAX: Final = 2_000
BYTES_PER_TRANSACTION_MAX: Final = 512 * 1024
"""ZooKeeper refuses requests above 1 MB."""

UNCLEAN_KEY: Final = "unclean.leader.election.enable"


Pending = dict[TopicPartition, list[Operation]]
"""Operations that are not written yet, by partition."""


class Written(NamedTuple):
    """Outcome of a bulk write of states."""

    done: dict[TopicPartition, PartitionState]
    """States as they now are in the store."""
    stale: list[TopicPartition]
    """Partitions whose state another writer changed or deleted meanwhile."""


class Registered(NamedTuple):
    """Registered brokers."""

    brokers: dict[int, BrokerInfo]
    unreadable: dict[int, int]
    """Broker epochs of registrations that cannot be read: the broker is live, but its endpoints are unknown.
    """


class ControllerStore:
    """Store of one session; `guard` is that of the term, empty before one."""

    def __init__(self, znodes: Coordination, retry: StoreRetry, guard: Sequence[Check] = ()) -> None:
        self._znodes = znodes
        self._retry = retry
        self._guard = tuple(guard)

    # --- reading ---

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Data of a node with its watch; None without a watch if the node does not exist."""
        try:
            return await self._retried(lambda: self._znodes.get(path, watch))
        except NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._retried(lambda: self._znodes.exists(path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        try:
            return await self._retried(lambda: self._znodes.children(path, watch))
        except NoNode:
            return []

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return await self._retried(lambda: self._znodes.get_many(paths)) if paths else []

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        if watches:
            await self._retried(lambda: self._znodes.watch_many(watches))

    async def read_brokers(self, broker_ids: Iterable[int]) -> Registered:
        wanted = list(broker_ids)
        nodes = await self.get_many([BrokerIdZnode.path(each) for each in wanted])
        brokers = _decoded(
            wanted, nodes, lambda each, data, stat: BrokerIdZnode.decode(each, data, stat.czxid)
        )
        unreadable = {
            each: node[1].czxid
            for each, node in zip(wanted, nodes, strict=True)
            if node is not None and each not in brokers
        }
        return Registered(brokers, unreadable)

    async def read_topics(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Topics that exist and are readable."""
        names = list(topics)
        nodes = await self.get_many([TopicZnode.path(name) for name in names])
        return _decoded(names, nodes, lambda name, data, _: TopicZnode.decode(name, data))

    async def read_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """States of the partitions that have one."""
        wanted = list(partitions)
        nodes = await self.get_many([PartitionStateZnode.path(*each) for each in wanted])
        return _decoded(wanted, nodes, lambda _, data, stat: PartitionStateZnode.decode(data, stat.version))

    async def read_written_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[PartitionState, Stat]]:
        """States of the partitions that have one, with the Stat of their last write."""
        wanted = list(partitions)
        nodes = await self.get_many([PartitionStateZnode.path(*each) for each in wanted])
        return _decoded(
            wanted,
            nodes,
            lambda _, data, stat: (PartitionStateZnode.decode(data, stat.version), stat),
        )

    async def read_notifications(self, paths: Sequence[str], decode: Callable[[bytes], T]) -> list[T]:
        """Decoded notifications of other processes."""
        nodes = await self.get_many(paths)
        return list(_decoded(paths, nodes, lambda _, data, __: decode(data)).values())

    async def topics_with_unclean_election(self, topics: Iterable[str], *, default: bool) -> set[str]:
        """Topics that allow an unclean leader election."""
        names = sorted(topics)
        nodes = await self.get_many([ConfigZnode.path(ConfigZnode.TOPICS, name) for name in names])
        allowed = set()
        for name, node in zip(names, nodes, strict=True):
            try:
                text = ConfigZnode.decode(node[0]).get(UNCLEAN_KEY) if node is not None else None
            except MalformedZnode as error:
                logger.error(
                    "topic %s: unclean election stays off until its configuration can be read: %s",
                    name,
                    error,
                )
                continue
            if default if text is None else text.strip().lower() == "true":
                allowed.add(name)
        return allowed

    async def existing_topics(self, topics: Iterable[str]) -> set[str]:
        """Topics that are in the store, readable or not."""
        names = list(topics)
        nodes = await self.get_many([TopicZnode.path(name) for name in names])
        return {name for name, node in zip(names, nodes, strict=True) if node is not None}

    # --- writing ---

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        """Write one transaction under the guard; results and error index count `operations` only."""
        guard = self._guard
        try:
            results = await self._retried(lambda: self._znodes.multi([*guard, *operations]))
        except CoordinationError as error:
            if error.index is not None:
                if error.index < len(guard):
                    raise StaleControllerEpoch("another controller has been elected") from error
                error.index -= len(guard)
            raise
        return results[len(guard) :]

    async def update_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """Replace states, each on condition of the version that it carries."""
        written = Written({}, [])

        async def sort_out(pending: Pending) -> None:
            present = await self.read_states(pending)
            for each in list(pending):
                wanted, found = states[each], present.get(each)
                if found is not None and found.state_version == wanted.state_version:
                    continue
                del pending[each]
                if found == _written_once(wanted):
                    written.done[each] = found
                else:
                    written.stale.append(each)

        for chunk in _chunks([(each, _update(each, state)) for each, state in states.items()]):
            for each in await self._write_pending(dict(chunk), sort_out):
                written.done[each] = _written_once(states[each])
        return written

    async def _write_pending(
        self, pending: Pending, sort_out: Callable[[Pending], Awaitable[None]]
    ) -> Iterable[TopicPartition]:
        """Write all pending operations in one transaction; returns their partitions.

        When a node is not as expected, `sort_out` removes or replaces the operations that cannot succeed.
        """
        while pending:
            try:
                await self.write([each for operations in pending.values() for each in operations])
            except (BadVersion, NodeExists, NoNode):
                await sort_out(pending)
            else:
                break
        return pending

    async def create_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """Create states, and the nodes above them, for partitions that have none."""
        written = Written({}, [])
        topics = dict.fromkeys(each.topic for each in states)
        missing = [
            (topic, [Create(TopicZnode.partitions_path(topic))])
            for topic in topics
            if await self.exists(TopicZnode.partitions_path(topic)) is None
        ]
        for parents in _chunks(missing):
            await self._create_all([each for _, operations in parents for each in operations])
        for chunk in _chunks([(each, _creation(each, state)) for each, state in states.items()]):
            done = await self._write_pending(
                dict(chunk), lambda pending: self._sort_out_creations(pending, states, written)
            )
            written.done.update({each: states[each] for each in done})
        return written

    async def _create_all(self, operations: Sequence[Operation]) -> None:
        """Create nodes; skip those that exist or whose parent is gone."""
        try:
            await self.write(operations)
        except (NodeExists, NoNode):
            for operation in operations:
                try:
                    await self.write([operation])
                except (NodeExists, NoNode):
                    continue

    async def _sort_out_creations(
        self, pending: Pending, states: Mapping[TopicPartition, PartitionState], written: Written
    ) -> None:
        """Remove from `pending` the states that exist or cannot be created, and parents that exist."""
        wanted = list(pending)
        parents = await self.get_many([PartitionStateZnode.partition_path(*each) for each in wanted])
        topics = await self.get_many([TopicZnode.partitions_path(each.topic) for each in wanted])
        nodes = await self.get_many([PartitionStateZnode.path(*each) for each in wanted])
        for each, parent, topic, node in zip(wanted, parents, topics, nodes, strict=True):
            if node is not None and node[0] == PartitionStateZnode.encode(states[each]):
                written.done[each] = states[each]
                del pending[each]
            elif node is not None or topic is None:
                written.stale.append(each)
                del pending[each]
            else:
                pending[each] = _creation(each, states[each])[0 if parent is None else 1 :]

    async def set_assignments(
        self,
        topic: str,
        topic_id: Uuid | None,
        change: Callable[[Mapping[int, ReplicaAssignment]], Mapping[int, ReplicaAssignment]],
    ) -> TopicInfo:
        """Change a topic's present assignment, without losing concurrent changes."""
        path = TopicZnode.path(topic)
        while True:
            found = await self.get(path)
            if found is None:
                raise UnknownTopicOrPartition(f"there is no topic {topic}")
            data, stat = found
            try:
                info = TopicZnode.decode(topic, data)
            except MalformedZnode as error:
                raise UnknownServerError(str(error)) from error
            changed = TopicInfo(info.topic_id or topic_id, change(info.assignment))
            if changed == info:
                return info
            try:
                await self.write([SetData(path, TopicZnode.encode(*changed), stat.version)])
            except (BadVersion, NoNode):
                continue
            return changed

    async def delete_all(self, paths: Sequence[str]) -> None:
        """Delete nodes, children before their parents; skip those that are gone."""
        for chunk in _chunks([(path, [Delete(path)]) for path in paths]):
            pending = [path for path, _ in chunk]
            while pending:
                try:
                    await self.write([Delete(path) for path in pending])
                except NoNode:
                    found = await self.get_many(pending)
                    pending = [path for path, node in zip(pending, found, strict=True) if node is not None]
                else:
                    break

    async def delete_notifications(self, paths: Sequence[str]) -> None:
        """Delete processed notifications; a node with children is left where it is."""
        try:
            await self.delete_all(paths)
        except NotEmpty:
            for path in paths:
                try:
                    await self.delete_all([path])
                except NotEmpty:
                    logger.warning("%s is ignored: a notification has no child nodes", path)

    async def delete_topic(self, topic: str) -> None:
        """Remove everything about a topic from the store.

        The topic's name is free when its node is gone. So the deletion mark and the configuration are deleted
        in the same transaction and never outlive it. After a lost response the name may belong to a new
        topic; the creation zxid tells them apart.
        """
        first = await self.exists(TopicZnode.path(topic))
        last = [
            DeleteTopicsZnode.path(topic),
            ConfigZnode.path(ConfigZnode.TOPICS, topic),
            TopicZnode.path(topic),
        ]
        while True:
            await self._delete_partitions(topic)
            present = await self.get_many(last)
            node = present[-1]
            is_another = node is not None and (first is None or node[1].czxid != first.czxid)
            left = [path for path, found in zip(last, present, strict=True) if found is not None]
            if is_another or not left:
                return  # the topic is deleted
            try:
                await self.write([Delete(path) for path in left])
            except NoNode:
                continue  # another writer deleted a node meanwhile
            except NotEmpty:
                await self._empty(topic, last[:-1])  # the next pass empties the topic's own node
                continue
            return

    async def _empty(self, topic: str, paths: Sequence[str]) -> None:
        """Delete unexpected nodes below paths that should be leaves."""
        below = [path for path in await self._subtrees(paths) if path not in paths]
        if below:
            logger.warning("topic %s: unknown nodes are deleted with it: %s", topic, below)
            with suppress(NotEmpty):  # another program still adds nodes; a later pass deletes them
                await self.delete_all(below)

    async def _delete_partitions(self, topic: str) -> None:
        """Empty a topic's node: first of its known children, then of all others."""
        top = TopicZnode.partitions_path(topic)
        partitions = [f"{top}/{number}" for number in await self.children(top)]
        below = [path for partition in partitions for path in (f"{partition}/state", partition)] + [top]
        while below:
            try:
                await self.delete_all(below)
            except NotEmpty:
                logger.warning("topic %s: unknown nodes are deleted with it", topic)
            names = await self.children(TopicZnode.path(topic))
            below = await self._subtrees([f"{TopicZnode.path(topic)}/{name}" for name in names])

    async def _subtrees(self, paths: Sequence[str]) -> list[str]:
        """Paths and all their descendants, leaves first; read level by level."""
        levels = [list(paths)]
        while levels[-1]:
            found = [await self.children(path) for path in levels[-1]]
            levels.append(
                [f"{path}/{name}" for path, names in zip(levels[-1], found, strict=True) for name in names]
            )
        return [path for level in reversed(levels) for path in level]

    async def _retried(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await self._retry.until_answered(operation)


def _decoded(
    keys: Sequence[K],
    nodes: Sequence[tuple[bytes, Stat] | None],
    decode: Callable[[K, bytes, Stat], T],
) -> dict[K, T]:
    """Decode nodes. A malformed node is logged and left out, so that it does not stop the rest."""
    decoded = {}
    for key, node in zip(keys, nodes, strict=True):
        if node is not None:
            try:
                decoded[key] = decode(key, *node)
            except MalformedZnode as error:
                logger.error("%s", error)
    return decoded


def _written_once(state: PartitionState) -> PartitionState:
    """State in the store after one conditional update."""
    return state._replace(state_version=state.state_version + 1)


def _update(topic_partition: TopicPartition, state: PartitionState) -> list[Operation]:
    path = PartitionStateZnode.path(*topic_partition)
    return [SetData(path, PartitionStateZnode.encode(state), state.state_version)]


def _creation(topic_partition: TopicPartition, state: PartitionState) -> list[Operation]:
    return [
        Create(PartitionStateZnode.partition_path(*topic_partition)),
        Create(PartitionStateZnode.path(*topic_partition), PartitionStateZnode.encode(state)),
    ]


def _chunks(items: Iterable[tuple[K, Sequence[Operation]]]) -> Iterator[list[tuple[K, list[Operation]]]]:
    """Split writes into transactions of a size that the store accepts."""
    chunk: list[tuple[K, list[Operation]]] = []
    count = size = 0
    for key, operations in items:
        added = sum(_size(operation) for operation in operations)
        over = (
            count + len(operations) > OPERATIONS_PER_TRANSACTION_MAX
            or size + added > BYTES_PER_TRANSACTION_MAX
        )
        if chunk and over:
            yield chunk
            chunk, count, size = [], 0, 0
        chunk.append((key, list(operations)))
        count += len(operations)
        size += added
    if chunk:
        yield chunk


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return 64 + len(operation.path) + len(data)
