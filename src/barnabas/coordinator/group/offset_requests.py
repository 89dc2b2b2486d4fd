"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

Requests come with topic names: whoever speaks topic ids is translated before and after.

An offset expires when its group has been without members for the retention time; the clock starts when the
group became empty or, for offsets without a group, at the commit. While a group has members only topics
that it no longer reads expire. A group that has nothing left goes too.

An offset that was committed for another topic than the one that has its name now is not shown, and goes with
the next expiry: the coordinator that heard of the deletion may have been gone before it could remove it. If
no topic has the name, nobody here can tell; `LostTopics` asks the store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from barnabas.coordinator.decision import CoordinatorRecord, Decision
from barnabas.coordinator.group.callers import Caller
from barnabas.coordinator.group.classic_group import (
    COMPLETING,
    DEAD,
    EMPTY,
    NO_TIMESTAMP,
    PREPARING,
    STABLE,
    ClassicGroup,
)
from barnabas.coordinator.group.classic_rebalance import ClassicRebalance
from barnabas.coordinator.group.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer_member import ConsumerMember
from barnabas.coordinator.group.offset_records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    OffsetRecord,
    Packed,
    is_of_another_topic,
    topic_id_of,
    unpack,
)
from barnabas.coordinator.group.offset_store import OffsetStore
from barnabas.coordinator.group.registry import Group, GroupRegistry
from barnabas.coordinator.group.topics import StoredIds
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnstableOffsetCommit,
    UnsupportedVersion,
)
from barnabas.core.ids import NO_OFFSET, ZERO_UUID, Uuid
from barnabas.core.sweeping import sweeping
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

VERSION_WITH_GROUP_ERRORS = 9
TXN_VERSION_WITH_GROUP_ERRORS = 6
DEFAULT_RETENTION = -1
OFFSETS_PER_TURN = 5_000
"""Offsets that one turn of expiry looks at (a group is not divided), or that one turn of a topic's deletion
removes; then others have their turn."""


class OffsetRequests:
    def __init__(self, registry: GroupRegistry, rebalance: ClassicRebalance, offsets: OffsetStore) -> None:
        self._registry = registry
        self._rebalance = rebalance
        self._offsets = offsets
        self._metadata_max = registry.settings.offset_metadata_max_bytes

    # Committing

    def commit(self, request: OffsetCommitRequest, caller: Caller) -> Decision[OffsetCommitResponse]:
        self._check_commit(request, caller)
        now_ms = self._registry.clock.now_ms()
        retention_ms = request.retention_time_ms
        expire_ms = NO_EXPIRY if retention_ms == DEFAULT_RETENTION else now_ms + retention_ms
        records: list[OffsetRecord] = []
        topics: list[OffsetCommitResponseTopic] = []
        group_id = request.group_id
        for topic in request.topics:
            name = topic.name
            topic_id = self._topic_id(name) if topic.topic_id == ZERO_UUID else topic.topic_id
            answers: list[OffsetCommitResponsePartition] = []
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=answers))
            for each in topic.partitions:
                partition = each.partition_index
                metadata = each.committed_metadata or ""
                if len(metadata) > self._metadata_max:
                    answers.append(
                        OffsetCommitResponsePartition(
                            partition_index=partition, error_code=OffsetMetadataTooLarge.code
                        )
                    )
                    continue
                value = OffsetAndMetadata(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expire_ms,
                    topic_id=topic_id,
                )
                records.append(OffsetRecord(group_id, name, partition, value))
                answers.append(OffsetCommitResponsePartition(partition_index=partition))
        return Decision(OffsetCommitResponse(topics=topics), records)

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller) -> None:
        group = self._registry.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return
            if caller.api_version >= VERSION_WITH_GROUP_ERRORS:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            raise IllegalGeneration(f"there is no group {request.group_id}")
        if isinstance(group, ConsumerGroup):
            check_consumer_commit(group, request.member_id, generation_id, api_version=caller.api_version)
            return
        check_classic_commit(group, request.member_id, request.group_instance_id, generation_id)
        if group.state in (STABLE, PREPARING):
            self._rebalance.expect_heartbeat(group, group.members[request.member_id])

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> Decision[TxnOffsetCommitResponse]:
        """Stage offsets under the producer's open transaction; the runtime writes them as its records."""
        self._check_transactional_commit(request, api_version)
        now_ms = self._registry.clock.now_ms()
        records: list[OffsetRecord] = []
        topics: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            topic_id = self._topic_id(topic.name) if topic.topic_id == ZERO_UUID else topic.topic_id
            answers: list[TxnOffsetCommitResponsePartition] = []
            topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
            for each in topic.partitions:
                answer = TxnOffsetCommitResponsePartition(partition_index=each.partition_index)
                answers.append(answer)
                metadata = each.committed_metadata or ""
                if len(metadata) > self._metadata_max:
                    answer.error_code = OffsetMetadataTooLarge.code
                    continue
                value = OffsetAndMetadata(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    now_ms,
                    topic_id=topic_id,
                )
                records.append(OffsetRecord(request.group_id, topic.name, each.partition_index, value))
        return Decision(TxnOffsetCommitResponse(topics=topics), records)

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest, api_version: int) -> None:
        group = self._registry.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return
            if api_version >= TXN_VERSION_WITH_GROUP_ERRORS:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            raise IllegalGeneration(f"there is no group {request.group_id}")
        if isinstance(group, ConsumerGroup):
            try:
                check_consumer_commit(group, request.member_id, generation_id)
            except StaleMemberEpoch as error:
                if api_version >= TXN_VERSION_WITH_GROUP_ERRORS:
                    raise
                raise IllegalGeneration(error.message) from None
            return
        check_classic_commit(
            group,
            request.member_id,
            request.group_instance_id,
            generation_id,
            is_transactional=True,
        )

    def _topic_id(self, name: str) -> Uuid:
        """The topic that has this name now, as far as is known: one that is missing is not gone for that."""
        topic = self._registry.topics.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    # Fetching

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Decision[OffsetFetchResponseGroup]:
        group_id = request.group_id
        group = self._registry.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_consumer_fetch(group, request.member_id, request.member_epoch)
        committed = self._offsets.topics(group_id)
        wanted: list[tuple[str, Iterable[int] | None]] = (
            [(name, None) for name in committed]
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )
        must_look = require_stable and self._offsets.has_open_transaction(group_id)
        topics: list[OffsetFetchResponseTopics] = []
        for name, asked in wanted:
            topic_id = self._topic_id(name)
            found = committed.get(name, {})
            partitions = _known(found, topic_id) if asked is None else asked
            answers = [
                self._unstable(partition)
                if must_look and self._offsets.is_pending(group_id, name, partition)
                else _fetched(partition, found.get(partition), topic_id)
                for partition in partitions
            ]
            if answers or asked is not None:
                topics.append(OffsetFetchResponseTopics(name=name, partitions=answers))
        return Decision(OffsetFetchResponseGroup(group_id=group_id, topics=topics))

    def _unstable(self, partition: int) -> OffsetFetchResponsePartitions:
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=UnstableOffsetCommit.code,
        )

    # Deleting

    def delete(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        group = self._registry.group(request.group_id)
        _check_offset_delete(group)
        records: list[OffsetRecord] = []
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            code = GroupSubscribedToTopic.code if group.is_subscribed_to(topic.name) else 0
            answers: list[OffsetDeleteResponsePartition] = []
            for each in topic.partitions:
                partition = each.partition_index
                answers.append(OffsetDeleteResponsePartition(partition_index=partition, error_code=code))
                if not code and self._is_known(request.group_id, topic.name, partition):
                    records.append(OffsetRecord(request.group_id, topic.name, partition, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        return Decision(OffsetDeleteResponse(topics=topics), records, is_atomic=False)

    def _is_known(self, group_id: str, topic: str, partition: int) -> bool:
        offsets = self._offsets
        return offsets.get(group_id, topic, partition) is not None or offsets.is_pending(
            group_id, topic, partition
        )

    def tombstones(self, group_id: str) -> list[OffsetRecord]:
        """What removes every offset of a group."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, partition in self._offsets.partitions_of(group_id)
        ]

    def topic_deleted(self, topic: str, topic_id: Uuid, end_offset: int) -> Decision[bool]:
        """Offsets of a topic that is gone mean nothing to one that comes back under its name; those that
        stand at `end_offset` or behind it were committed since. True when none is left."""
        known = self._offsets.partitions_of_topic(topic, topic_id, end_offset)
        found = itertools.islice(known, OFFSETS_PER_TURN)
        records = [OffsetRecord(group, topic, partition, None) for group, partition in found]
        return Decision(len(records) < OFFSETS_PER_TURN, records, is_atomic=False)

    def topics_lost(self, stored: StoredIds) -> Decision[bool]:
        """Remove the offsets of topics that neither the store nor the metadata know any more. True when none
        is left."""
        lost = self._offsets.where({topic: self._is_lost(topic, each) for topic, each in stored.items()})
        records = [OffsetRecord(*place, None) for place in itertools.islice(lost, OFFSETS_PER_TURN)]
        return Decision(len(records) < OFFSETS_PER_TURN, records, is_atomic=False)

    def _is_lost(self, topic: str, stored_id: Uuid | None) -> Callable[[Packed], bool]:
        """The metadata may have heard since of a topic that was made after the store was asked."""
        known_id = self._topic_id(topic)
        is_gone = stored_id is None and self._registry.topics.topic(topic) is None
        is_certain = stored_id != ZERO_UUID

        def is_lost(packed: Packed) -> bool:
            committed = topic_id_of(packed)
            if committed == ZERO_UUID:
                return is_gone
            return is_certain and committed not in (stored_id, known_id)

        return is_lost

    # Expiring

    def expire(self, group_ids: Iterator[str]) -> Decision[None]:
        """Look at some of the groups that are left in `group_ids`; what has expired is removed."""
        records: list[CoordinatorRecord] = []
        left = OFFSETS_PER_TURN
        for group_id in group_ids:
            group = self._registry.groups.get(group_id)
            if group is None:
                continue
            with sweeping("the expiry of group", group_id):
                expired: list[CoordinatorRecord] = []
                if self._expire_group(group, expired) and group.is_empty:
                    expired.extend(group.tombstones())
                records.extend(expired)
            left -= 1 + sum(map(len, self._offsets.topics(group_id).values()))
            if left <= 0:
                break
        return Decision(records=records, is_atomic=False)

    def _expire_group(self, group: Group, records: list[CoordinatorRecord]) -> bool:
        """Add tombstones for what has expired; True if nothing of the group's offsets will be left."""
        group_id = group.group_id
        topics = self._offsets.topics(group_id)
        if not topics:
            return not self._offsets.has_open_transaction(group_id)
        since_ms = expiry_base_ms(group)
        now_ms = self._registry.clock.now_ms()
        is_all = True
        for topic, partitions in topics.items():
            topic_id = self._topic_id(topic)
            is_read = group.is_subscribed_to(topic)
            for partition, packed in partitions.items():
                is_over = is_of_another_topic(packed, topic_id) or (
                    not is_read and self._is_expired(unpack(packed), since_ms, now_ms)
                )
                if is_over and not self._offsets.is_pending(group_id, topic, partition):
                    records.append(OffsetRecord(group_id, topic, partition, None))
                else:
                    is_all = False
        return is_all and not self._offsets.has_open_transaction(group_id)

    def _is_expired(self, value: OffsetAndMetadata, since_ms: int | None, now_ms: int) -> bool:
        if since_ms is None:
            return False
        if value.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= value.expire_timestamp_ms
        base_ms = value.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms
        return now_ms - base_ms >= self._registry.settings.offsets_retention_ms


def expiry_base_ms(group: Group) -> int | None:
    """From when on a group's offsets age: a time, NO_TIMESTAMP for the time of each commit, None: never."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return NO_TIMESTAMP
    if group.state is EMPTY:
        return group.state_timestamp_ms
    if group.is_for_consumers and group.subscribed_topics is not None and group.state is STABLE:
        return NO_TIMESTAMP
    return None


def check_consumer_commit(
    group: ConsumerGroup, member_id: str, epoch: int, *, api_version: int | None = None
) -> None:
    """A member commits at its epoch; from outside one may commit while the group is empty."""
    if epoch < 0 and group.is_empty:
        return
    member = group.member(member_id)
    if api_version is not None and api_version < VERSION_WITH_GROUP_ERRORS and not member.is_classic:
        raise UnsupportedVersion("members of the consumer protocol commit with version 9 or later")
    _check_member_epoch(member, epoch)


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Tools do not say who they are, and may look."""
    if member_id is None and epoch < 0:
        return
    _check_member_epoch(group.member(member_id or ""), epoch)


def _check_member_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.member_epoch:
        return
    message = f"member {member.member_id} is at epoch {member.member_epoch}, not {epoch}"
    raise IllegalGeneration(message) if member.is_classic else StaleMemberEpoch(message)


def check_classic_commit(
    group: ClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation_id: int,
    *,
    is_transactional: bool = False,
) -> None:
    """A commit must come from a member of this generation, or from outside while the group is empty."""
    if group.state is DEAD:
        raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
    if generation_id < 0 and group.state is EMPTY:
        return
    if generation_id >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation_id != group.generation_id:
            raise IllegalGeneration(f"group {group.group_id} is at generation {group.generation_id}")
    elif not is_transactional and group.state is not EMPTY:
        raise UnknownMemberId(f"group {group.group_id} has members; only they may commit")
    if not is_transactional and group.state is COMPLETING:
        raise RebalanceInProgress(f"group {group.group_id} is rebalancing")


def _check_offset_delete(group: Group) -> None:
    if isinstance(group, ConsumerGroup):
        return
    if group.state is DEAD:
        raise GroupIdNotFound(f"group {group.group_id} is being removed")
    if group.state is not EMPTY and not group.is_for_consumers:
        raise NonEmptyGroup(f"group {group.group_id} has members, and nobody knows what they read")


def _known(found: dict[int, Packed], topic_id: Uuid) -> list[int]:
    return [partition for partition, packed in found.items() if not is_of_another_topic(packed, topic_id)]


def _fetched(partition: int, packed: Packed | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
    if packed is None or is_of_another_topic(packed, topic_id):
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=NO_OFFSET, metadata=""
        )
    value = unpack(packed)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
