"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Requests arrive with topic names: the handlers translate topic ids before and after. An offset that was
committed for an earlier topic of the same name is not returned.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.group.classic.rebalance import ClassicRebalance
from barnabas.coordinator.group.offsets.checks import (
    VERSION_WITH_GROUP_ERRORS,
    check_classic_commit,
    check_consumer_commit,
    check_consumer_fetch,
    check_offset_delete,
)
from barnabas.coordinator.group.offsets.records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    OffsetRecord,
    Packed,
    is_of_another_topic,
    unpack,
)
from barnabas.coordinator.group.offsets.store import OffsetStore
from barnabas.coordinator.group.state.classic_group import PREPARING, STABLE
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.registry import Group, GroupRegistry
from barnabas.coordinator.runtime.decision import Decision
from barnabas.core.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnstableOffsetCommit,
)
from barnabas.core.ids import NO_OFFSET, ZERO_UUID, Uuid
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

TXN_VERSION_WITH_GROUP_ERRORS = 6
DEFAULT_RETENTION = -1
NEVER_MS = (1 << 63) - 1
"""Last millisecond that a record can carry."""


class OffsetRequests:
    def __init__(self, registry: GroupRegistry, rebalance: ClassicRebalance, offsets: OffsetStore) -> None:
        self._registry = registry
        self._rebalance = rebalance
        self._offsets = offsets
        self._metadata_max = registry.settings.offset_metadata_max_bytes

    # --- commit ---

    def commit(self, request: OffsetCommitRequest, caller: Caller) -> Decision[OffsetCommitResponse]:
        self._check_commit(request, caller)
        now_ms = self._registry.clock.now_ms()
        retention_ms = request.retention_time_ms
        expire_ms = NO_EXPIRY if retention_ms == DEFAULT_RETENTION else min(now_ms + retention_ms, NEVER_MS)
        records: list[OffsetRecord] = []
        topics: list[OffsetCommitResponseTopic] = []
        group_id = request.group_id
        for topic in request.topics:
            name = topic.name
            topic_id = self._registry.topic_id(name) if topic.topic_id == ZERO_UUID else topic.topic_id
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
        generation_id = request.generation_id_or_member_epoch
        knows_group_errors = caller.api_version >= VERSION_WITH_GROUP_ERRORS
        group = self._committing_group(request.group_id, generation_id, knows_group_errors=knows_group_errors)
        if group is None:
            return
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
            topic_id = self._registry.topic_id(topic.name) if topic.topic_id == ZERO_UUID else topic.topic_id
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
        generation_id = request.generation_id_or_member_epoch
        knows_group_errors = api_version >= TXN_VERSION_WITH_GROUP_ERRORS
        group = self._committing_group(request.group_id, generation_id, knows_group_errors=knows_group_errors)
        if group is None:
            return
        if isinstance(group, ConsumerGroup):
            try:
                check_consumer_commit(group, request.member_id, generation_id)
            except StaleMemberEpoch as error:
                if knows_group_errors:
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

    def _committing_group(
        self, group_id: str, generation_id: int, *, knows_group_errors: bool
    ) -> Group | None:
        """The group of a commit; None for a client that commits without being a member."""
        group = self._registry.groups.get(group_id)
        if group is None and generation_id >= 0:
            missing = f"group {group_id} does not exist"
            raise GroupIdNotFound(missing) if knows_group_errors else IllegalGeneration(missing)
        return group

    # --- fetch ---

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
            topic_id = self._registry.topic_id(name)
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

    # --- delete ---

    def delete(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        group = self._registry.group(request.group_id)
        check_offset_delete(group)
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
