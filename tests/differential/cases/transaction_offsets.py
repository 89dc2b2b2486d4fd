"""Effects of a transaction on partitions: WriteTxnMarkers (27), TxnOffsetCommit (28).

A marker for unknown partitions alone, beside other markers, is no case: Kafka does not answer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.case import Case, InVersion, Until, case
from tests.differential.cases.groups import LOADING, MOVED, UNAVAILABLE, member_of, ready
from tests.differential.cases.transactions import (
    NEW_END,
    OLD_END,
    Owner,
    add_offsets,
    at_rest,
    begun,
    describe,
    end,
    old_add,
    other_epoch,
    producers,
    strangers,
    write,
)
from tests.differential.world import NOWHERE, Topic, World

READ_COMMITTED = 1
NEW_COMMIT = 5
MEMBERS_FROM = 3


# WriteTxnMarkers


def marker(producer_id: int, epoch: int, *topics: tuple[Topic, Sequence[int]], commit: bool = True,
           coordinator_epoch: int = 0, version: int = 0) -> WritableTxnMarker:  # fmt: skip
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[
            WritableTxnMarkerTopic(name=topic.name, partition_indexes=list(numbers))
            for topic, numbers in topics
        ],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def markers(*wanted: WritableTxnMarker) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=list(wanted))


def last_stable(topic: Topic) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])],
    )


@case(ApiKey.WRITE_TXN_MARKERS)
def markers_of_nobody(world: World) -> Case:
    topic = world.topic()
    yield markers()
    yield markers(marker(987_654_321, 0))
    yield markers(marker(987_654_321, 0, (NOWHERE, [0])))
    yield markers(marker(987_654_321, 0, (topic, [1]), (NOWHERE, [0])))
    yield markers(marker(987_654_321, 3, (topic, [0])))
    yield producers(topic)
    yield last_stable(topic)


@case(ApiKey.WRITE_TXN_MARKERS)
def a_marker_ends_what_hangs(world: World) -> Case:
    for commit in (False, True):
        owner = yield from begun(world)
        topic = world.topic()
        yield write(world, owner, topic)
        yield last_stable(topic)
        yield markers(marker(owner[1], owner[2], (topic, [0]), commit=commit))
        yield last_stable(topic)
        yield producers(topic)
        yield markers(marker(owner[1], owner[2], (topic, [0]), commit=commit))
        yield last_stable(topic)


@case(ApiKey.WRITE_TXN_MARKERS)
def markers_of_other_epochs(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield markers(marker(owner[1], 5, (topic, [0]), commit=False))
    yield markers(marker(owner[1], 4, (topic, [0]), commit=False))
    yield producers(topic)
    yield markers(marker(owner[1], 7, (topic, [0]), coordinator_epoch=9))
    yield markers(marker(owner[1], 7, (topic, [0]), coordinator_epoch=8))
    yield markers(marker(owner[1], 8, (topic, [0]), coordinator_epoch=-1))
    yield markers(marker(owner[1], -1, (topic, [0])))
    yield producers(topic)
    yield last_stable(topic)


@case(ApiKey.WRITE_TXN_MARKERS, "2+")
def markers_of_transaction_version_2(world: World) -> Case:
    owner = yield from begun(world)
    topic = world.topic()
    yield write(world, owner, topic)
    yield markers(marker(owner[1], owner[2], (topic, [0]), version=2))
    yield last_stable(topic)
    yield markers(marker(owner[1], owner[2] + 1, (topic, [0]), version=2))
    yield last_stable(topic)
    yield markers(marker(owner[1], owner[2] + 1, (topic, [0]), version=2))
    yield markers(marker(owner[1], owner[2] + 1, (topic, [0]), version=1))
    yield markers(marker(owner[1], owner[2], (topic, [0]), version=2))
    yield markers(marker(owner[1], owner[2] + 2, (topic, [0]), version=3))
    yield producers(topic)


@case(ApiKey.WRITE_TXN_MARKERS)
def several_markers(world: World) -> Case:
    one, other = world.topic(2), world.topic()
    yield markers(
        marker(987_654_321, 0, (one, [0, 1]), (other, [0])),
        marker(987_654_322, 0, (other, [0, 5]), commit=False),
    )
    yield producers(one)


# TxnOffsetCommit


def commit(world: World, owner: Owner, group: str, topic: Topic, offset: int = 7, *,
           partitions: Sequence[int] = (0,), metadata: str | None = "", member: str = "",
           generation: int = -1, instance: str | None = None) -> TxnOffsetCommitRequest:  # fmt: skip
    return TxnOffsetCommitRequest(
        transactional_id=owner[0],
        group_id=group,
        producer_id=owner[1],
        producer_epoch=owner[2],
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number in partitions
                ],
            )
        ],
    )


def committed(group: str, topic: Topic, *, stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        require_stable=stable,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=[0, 1])
                ],
            )
        ],
    )


def settled_group(group: str) -> Case:
    """The first group makes the offsets topic; its leader may be known before it serves."""
    passing = (LOADING, UNAVAILABLE, MOVED)
    asked = OffsetFetchRequestGroup(group_id=group, topics=[])
    yield ready(group)
    yield Until(OffsetFetchRequest(groups=[asked]), lambda answer: answer.groups[0].error_code not in passing)


def begun_with_group(world: World, group: str) -> Any:
    """Before version 5 the group is added to the transaction first."""
    yield from settled_group(group)
    owner = yield from begun(world)
    if world.version < NEW_COMMIT:
        yield add_offsets(owner, group)
    return owner


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_count_with_the_commit(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    for is_commit in (False, True):
        owner = yield from begun_with_group(world, group)
        yield commit(world, owner, group, topic, 7, metadata="noted")
        yield commit(world, owner, group, topic, 9, partitions=[1, 0])
        yield describe(owner[0])
        yield committed(group, topic)
        yield committed(group, topic, stable=True)
        version = NEW_END if world.version >= NEW_COMMIT else OLD_END
        yield InVersion(end(owner, commit=is_commit), version)
        yield at_rest(owner[0])
        yield Until(
            committed(group, topic, stable=True),
            lambda answer: all(each.error_code == 0 for each in answer.groups[0].topics[0].partitions),
        )


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_of_a_transaction_that_does_not_know(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield from settled_group(group)
    owner = yield from begun(world)
    yield commit(world, owner, group, topic)
    yield describe(owner[0])
    other = yield from begun(world)
    yield old_add(other, (topic, [0]))
    yield commit(world, other, group, topic)
    yield describe(other[0])


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_of_strangers(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    owner = yield from begun_with_group(world, group)
    for stranger in strangers(owner):
        yield commit(world, stranger, group, topic)
    yield committed(group, topic)
    yield describe(owner[0])


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_after_the_end(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    owner = yield from begun_with_group(world, group)
    yield commit(world, owner, group, topic)
    yield InVersion(end(owner), NEW_END)
    yield at_rest(owner[0])
    yield commit(world, owner, group, topic, 8)
    yield commit(world, other_epoch(owner, owner[2] + 1), group, topic, 9)
    yield describe(owner[0])


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_of_what_is_not_there(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    owner = yield from begun_with_group(world, group)
    yield commit(world, owner, group, NOWHERE)
    yield commit(world, owner, group, topic, partitions=[5, 0, -1])
    yield commit(world, owner, group, topic, partitions=[])
    request = commit(world, owner, group, topic)
    request.topics += commit(world, owner, group, NOWHERE).topics
    yield request
    request = commit(world, owner, group, topic)
    request.topics = []
    yield request
    yield commit(world, owner, "", topic)


@case(ApiKey.TXN_OFFSET_COMMIT)
def offsets_and_metadata_at_the_bounds(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    owner = yield from begun_with_group(world, group)
    for offset in (-1, -2, 2**63 - 1, 0):
        yield commit(world, owner, group, topic, offset)
    yield commit(world, owner, group, topic, metadata="x" * 4_096)
    yield commit(world, owner, group, topic, metadata="x" * 4_097)
    yield commit(world, owner, group, topic, metadata=None)


@case(ApiKey.TXN_OFFSET_COMMIT, f"{MEMBERS_FROM}+")
def offsets_of_members(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    member, generation = yield from member_of(world, group)
    owner = yield from begun_with_group(world, group)
    yield commit(world, owner, group, topic, 1, member=member, generation=generation)
    yield commit(world, owner, group, topic, 2, member=member, generation=generation + 1)
    yield commit(world, owner, group, topic, 3, member=member, generation=generation - 1)
    yield commit(world, owner, group, topic, 4, member=member)
    yield commit(world, owner, group, topic, 5, member="stranger", generation=generation)
    yield commit(world, owner, group, topic, 6, generation=generation)
    yield commit(world, owner, group, topic, 7, member=member, generation=generation, instance="instance")
    yield commit(world, owner, group, topic, 8)
    yield committed(group, topic)


@case(ApiKey.TXN_OFFSET_COMMIT, f"{MEMBERS_FROM}+")
def offsets_of_members_of_no_group(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    owner = yield from begun_with_group(world, group)
    yield commit(world, owner, group, topic, member="stranger", generation=3)
    yield commit(world, owner, group, topic, generation=3)
    yield commit(world, owner, group, topic, member="stranger")
