"""Topics, configurations and producer ids in the store, and their changes.

Every change is one transaction: a topic exists with its configuration and assignment, or not at all. The
controller owns the partition states and creates them after the topic (`controller.state.store`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Check,
    Coordination,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import (
    ConfigZnode,
    PartitionState,
    PartitionStateZnode,
    ProducerIdBlock,
    ProducerIdBlockZnode,
    ReplicaAssignment,
    TopicInfo,
    TopicZnode,
)
from barnabas.cluster.znodes.notifications import ConfigChangeZnode, DeleteTopicsZnode
from barnabas.core.errors import (
    InvalidPartitions,
    InvalidTopicException,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import Uuid, check_topic_name

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = (1 << 63) - 1


class StoredTopic(NamedTuple):
    name: str
    info: TopicInfo
    states: dict[int, PartitionState]
    """States by partition; a partition without a leader yet has no state."""
    config: dict[str, str] | None
    """None if it cannot be read."""


async def create_topic(
    znodes: Coordination,
    topic: str,
    topic_id: Uuid,
    assignment: Mapping[int, Sequence[int]],
    config: Mapping[str, str],
) -> None:
    """Create a topic; TOPIC_ALREADY_EXISTS if it exists or is being deleted."""
    if await znodes.exists(DeleteTopicsZnode.path(topic)) is not None:
        raise TopicAlreadyExists(f"topic {topic} is being deleted")
    creation = Create(TopicZnode.path(topic), TopicZnode.encode(topic_id, _assigned(assignment)))
    while True:
        configuring = await _put_topic_config(znodes, topic, config)
        try:
            await znodes.multi([creation, *configuring])
        except NodeExists as error:
            if error.index == 0:
                raise TopicAlreadyExists(f"topic {topic} already exists") from error
            continue  # an orphaned configuration appeared meanwhile
        return


async def add_partitions(znodes: Coordination, topic: str, added: Mapping[int, Sequence[int]]) -> TopicInfo:
    """Append partitions to a topic; returns the new state of its znode."""
    info, version = await read_topic(znodes, topic)
    count = len(info.assignment)
    if sorted(added) != list(range(count, count + len(added))):
        raise InvalidPartitions(
            f"topic {topic} has {count} partitions; new partitions are numbered from {count}"
        )
    grown = TopicInfo(info.topic_id, {**info.assignment, **_assigned(added)})
    await znodes.set(TopicZnode.path(topic), TopicZnode.encode(*grown), version)
    return grown


def _assigned(replicas: Mapping[int, Sequence[int]]) -> dict[int, ReplicaAssignment]:
    return {number: ReplicaAssignment(tuple(given)) for number, given in sorted(replicas.items())}


async def mark_for_deletion(znodes: Coordination, topic: str) -> None:
    """Mark the topic for deletion by the controller."""
    if await znodes.exists(TopicZnode.path(topic)) is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic}")
    try:
        await znodes.create(DeleteTopicsZnode.path(topic), make_parents=True)
    except NodeExists as error:
        raise TopicAlreadyExists(f"topic {topic} is being deleted already") from error


async def read_topic(znodes: Coordination, topic: str) -> tuple[TopicInfo, int]:
    """Topic assignment and the version of its node.

    An invalid topic name would lead to no node, or to that of something else.
    """
    try:
        check_topic_name(topic)
        data, stat = await znodes.get(TopicZnode.path(topic))
    except (InvalidTopicException, NoNode) as error:
        raise UnknownTopicOrPartition(f"there is no topic {topic}") from error
    return TopicZnode.decode(topic, data), stat.version


async def read_topics(znodes: Coordination) -> dict[str, StoredTopic]:
    """All topics with their states and configuration. Unreadable topics are left out."""
    try:
        names = await znodes.children(TopicZnode.PARENT)
    except NoNode:
        return {}
    nodes = await znodes.get_many([TopicZnode.path(name) for name in names])
    configs = await znodes.get_many([ConfigZnode.path(ConfigZnode.TOPICS, name) for name in names])
    found: dict[str, StoredTopic] = {}
    for name, node, config in zip(names, nodes, configs, strict=True):
        if node is None:
            continue
        try:
            info = TopicZnode.decode(name, node[0])
        except MalformedZnode as error:
            logger.error("topic is ignored until its znode is repaired: %s", error)
            continue
        states = await read_partition_states(znodes, name, info.assignment)
        overrides = readable_config(f"{ConfigZnode.TOPICS}/{name}", config[0]) if config else {}
        found[name] = StoredTopic(name, info, states, overrides)
    return found


async def read_partition_states(
    znodes: Coordination, topic: str, partitions: Iterable[int]
) -> dict[int, PartitionState]:
    """States of the partitions that have a readable one."""
    numbers = list(partitions)
    nodes = await znodes.get_many([PartitionStateZnode.path(topic, number) for number in numbers])
    states = {}
    for number, node in zip(numbers, nodes, strict=True):
        if node is not None:
            try:
                states[number] = PartitionStateZnode.decode(node[0], node[1].version)
            except MalformedZnode as error:
                logger.error("%s: %s", PartitionStateZnode.path(topic, number), error)
    return states


async def read_config(znodes: Coordination, entity_type: str, entity_name: str) -> dict[str, str]:
    """Configuration of an entity (`<default>` is an entity, too); empty if it has none."""
    try:
        data, _ = await znodes.get(ConfigZnode.path(entity_type, entity_name))
    except NoNode:
        return {}
    return ConfigZnode.decode(data)


async def read_configs(znodes: Coordination, entity_type: str) -> dict[str, dict[str, str] | None]:
    """Configurations of all entities of a type; None if one cannot be read."""
    try:
        names = await znodes.children(ConfigZnode.type_path(entity_type))
    except NoNode:
        return {}
    nodes = await znodes.get_many([ConfigZnode.path(entity_type, name) for name in names])
    return {
        name: readable_config(f"{entity_type}/{name}", node[0])
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }


def readable_config(entity_path: str, data: bytes) -> dict[str, str] | None:
    """Configuration in a node, or None with a line in the log if it cannot be read."""
    try:
        return ConfigZnode.decode(data)
    except MalformedZnode as error:
        logger.error("%s: %s", ConfigZnode.path(*entity_path.split("/", 1)), error)
        return None


async def change_config(
    znodes: Coordination,
    entity_type: str,
    entity_name: str,
    change: Callable[[dict[str, str] | None], Mapping[str, str]],
) -> None:
    """Write `change(present configuration)` and the change notification in one transaction.

    `change` gets None if the present configuration is unreadable. The write is conditional on the version
    that was read, and on the existence of a topic. No change overwrites another broker's, and none leaves a
    configuration behind for the next topic of the name.
    """
    path = ConfigZnode.path(entity_type, entity_name)
    note = ConfigChangeZnode.encode(f"{entity_type}/{entity_name}")
    telling = Create(ConfigChangeZnode.CREATE_PATH, note, sequential=True)
    conditions = [Check(TopicZnode.path(entity_name))] if entity_type == ConfigZnode.TOPICS else []
    while True:
        (node,) = await znodes.get_many([path])
        present = {} if node is None else readable_config(f"{entity_type}/{entity_name}", node[0])
        data = ConfigZnode.encode(change(present))
        writing = Create(path, data) if node is None else SetData(path, data, node[1].version)
        try:
            await znodes.multi([*conditions, writing, telling])
        except (BadVersion, NodeExists):
            continue  # another writer was first
        except NoNode as error:
            if conditions and error.index == 0:
                raise UnknownTopicOrPartition(f"there is no topic {entity_name}") from error
            if node is None or error.index != len(conditions):
                raise
            continue  # another writer deleted the node
        return


async def allocate_producer_ids(znodes: Coordination, broker_id: int) -> ProducerIdBlock:
    """Next block of producer ids, for this broker alone."""

    def following(last: int) -> int:
        if last + 1 > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise UnknownServerError("all producer ids have been used")
        return last + 1

    block = await _take_producer_ids(znodes, broker_id, following)
    assert block is not None
    return block


async def retire_producer_ids(znodes: Coordination, broker_id: int, last_used: int) -> None:
    """Never allocate ids up to `last_used`: producers have used them in imported logs."""
    await _take_producer_ids(
        znodes,
        broker_id,
        lambda last: None if last >= last_used else last_used - last_used % PRODUCER_ID_BLOCK_SIZE,
    )


async def _take_producer_ids(
    znodes: Coordination, broker_id: int, first_after: Callable[[int], int | None]
) -> ProducerIdBlock | None:
    """Write the block that starts at `first_after(last allocated id)` (-1: none); None: nothing to write."""
    while True:
        try:
            data, stat = await znodes.get(ProducerIdBlockZnode.PATH)
        except NoNode:
            with suppress(NodeExists):
                await znodes.create(ProducerIdBlockZnode.PATH)
            continue
        first = first_after(ProducerIdBlockZnode.decode(data).last if data else -1)
        if first is None:
            return None
        block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        try:
            await znodes.set(ProducerIdBlockZnode.PATH, ProducerIdBlockZnode.encode(block), stat.version)
        except BadVersion:
            continue
        return block


async def _put_topic_config(znodes: Coordination, topic: str, config: Mapping[str, str]) -> list[Operation]:
    path = ConfigZnode.path(ConfigZnode.TOPICS, topic)
    if await znodes.exists(path) is not None:
        return [SetData(path, ConfigZnode.encode(config))]
    return [Create(path, ConfigZnode.encode(config))] if config else []
