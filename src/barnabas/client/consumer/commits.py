"""Committed offsets of a group: OffsetCommit and OffsetFetch, retried while their errors are transient.

A commit names the member and its generation, so that the coordinator refuses commits of a member that no
longer owns the partitions: `CommitFailed`. A consumer with assigned partitions commits without a member.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import COORDINATOR
from barnabas.client.core.client_errors import CommitFailed
from barnabas.client.core.cluster_state import GROUP
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.core.retries import UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.core.steps import ClusterUnreachable, Response
from barnabas.client.membership.consumer_protocol import ConsumerProtocolMember
from barnabas.client.membership.interface import NOTHING, Membership
from barnabas.client.processing.core.finished_runs import is_runs
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    NetworkException,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import NO_EPOCH, TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)

VERSION_BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch with topic names."""

_NOT_A_MEMBER = (FencedInstanceId, FencedMemberEpoch, IllegalGeneration, RebalanceInProgress, UnknownMemberId)
_MOVED = (CoordinatorNotAvailable, NetworkException, NotCoordinator, RequestTimedOut)


class _TextsTooLong(Exception):
    """The finished records of these partitions exceed `offset.metadata.max.bytes` of the coordinator."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self.partitions = partitions


class Commits:
    def __init__(self, cluster: ClusterClient, group_id: str, instance_id: str | None) -> None:
        self.member: Membership | None = None
        """Member of the group. None while partitions are assigned by hand."""
        self._cluster = cluster
        self._group_id = group_id
        self._instance_id = instance_id
        self._has_warned_of_texts = False

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout_ms: float,
        *,
        skips_unknown: bool = False,
    ) -> AbstractSet[TopicPartition]:
        """Commit offsets. `CommitFailed` when this consumer is no longer the owner.

        A partition that the broker does not know may be new there, or the broker has just started, so the
        commit is tried again. With `skips_unknown` the partition counts as deleted after some seconds: a
        rebalance must not wait for it any longer. Returns the deleted partitions, whose offsets are not kept.

        Finished records above an offset are left out where their text is too long for the coordinator: the
        offset counts for more.
        """
        retries = self._cluster.state.retries(timeout_ms)
        patience: Retries | None = None
        member = self.member
        owned = NOTHING if member is None else member.owned
        lost = NOTHING
        deleted: AbstractSet[TopicPartition] = NOTHING
        while offsets:
            epoch = self._epoch_of(member)
            # The new epoch gives no right to partitions that were given up since the first attempt.
            if member is not None:
                lost |= (owned - member.owned) & offsets.keys()
            kept = {at: each for at, each in offsets.items() if at not in lost}
            try:
                unknown = await self._commit_once(kept, member, epoch, retries, skips_unknown=skips_unknown)
            except _TextsTooLong as error:
                offsets = self._without_texts(offsets, error.partitions)
            except StaleMemberEpoch as error:
                await self._await_epoch(member, epoch, error, retries)
            except KafkaError as error:
                await self._pause(error, retries)
            else:
                offsets = {at: offsets[at] for at in unknown}
                if unknown:
                    left_ms = min(UNKNOWN_TOPIC_TIMEOUT_MS, retries.left_ms)
                    patience = patience or self._cluster.state.retries(left_ms)
                    if not await self._may_be_new(unknown, patience):
                        deleted = unknown
                        break
        if lost:
            raise CommitFailed(
                f"group {self._group_id}: the group has rebalanced during the commit;"
                f" {', '.join(map(str, sorted(lost)))} may have another owner"
            )
        return deleted

    async def _may_be_new(self, unknown: AbstractSet[TopicPartition], patience: Retries) -> bool:
        """Pause before the next attempt; False when the broker has had time to learn of the partitions."""
        names = ", ".join(map(str, sorted(unknown)))
        try:
            await self._pause(UnknownTopicOrPartition(names), patience)
        except UnknownTopicOrPartition:
            logger.info("group %s: partitions %s are gone; no offset is kept", self._group_id, names)
            return False
        return True

    def _without_texts(
        self, offsets: Mapping[TopicPartition, CommittedOffset], refused: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        if not self._has_warned_of_texts:
            self._has_warned_of_texts = True
            logger.warning(
                "group %s: the finished records above the offset of %s are not kept, and a restart repeats"
                " them: offset.metadata.max.bytes of the broker is below its default of 4096",
                self._group_id,
                ", ".join(map(str, sorted(refused))),
            )
        return {at: each._replace(metadata="") if at in refused else each for at, each in offsets.items()}

    def _epoch_of(self, member: Membership | None) -> int:
        if member is None:
            return NO_EPOCH
        if member.epoch < 0:
            raise CommitFailed(
                f"group {self._group_id}: this consumer is not a member now; take records to join again"
            )
        return member.epoch

    async def _commit_once(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: Membership | None,
        epoch: int,
        retries: Retries,
        *,
        skips_unknown: bool,
    ) -> AbstractSet[TopicPartition]:
        """Send one request. Returns the partitions that the broker does not know, with `skips_unknown`."""
        if not offsets:
            return NOTHING
        try:
            request = self._commit_request(offsets, member, epoch)
            answer = await self._ask(request, OffsetCommitResponse, retries)
            too_long = {
                at for at in _with_error(answer, OffsetMetadataTooLarge) if is_runs(offsets[at].metadata)
            }
            if too_long:
                raise _TextsTooLong(too_long)
            return self._unknown(answer, skips_unknown=skips_unknown)
        except _NOT_A_MEMBER as error:
            if member is not None:
                member.rejoin()
            raise CommitFailed(
                f"group {self._group_id}: the group has rebalanced"
                f" ({error.protocol_name()}); the partitions may have another owner"
            ) from error

    async def fetch(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Committed offsets; None where there is none. Offsets of open transactions are waited for."""
        retries = self._cluster.state.retries(timeout_ms)
        while True:
            member = self.member if isinstance(self.member, ConsumerProtocolMember) else None
            epoch = NO_EPOCH if member is None else member.epoch
            try:
                request = self._fetch_request(partitions, member)
                return self._found(await self._ask(request, OffsetFetchResponse, retries), partitions)
            except StaleMemberEpoch as error:
                await self._await_epoch(member, epoch, error, retries)
            except KafkaError as error:
                await self._pause(error, retries)

    def _commit_request(
        self, offsets: Mapping[TopicPartition, CommittedOffset], member: Membership | None, epoch: int
    ) -> OffsetCommitRequest:
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for at, each in offsets.items():
            topics[at.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None else self._instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

    def _fetch_request(
        self, partitions: Collection[TopicPartition], member: ConsumerProtocolMember | None
    ) -> OffsetFetchRequest:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for at in partitions:
            topics[at.topic].append(at.partition)
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
        )
        if member is not None and member.epoch >= 0:
            group.member_id, group.member_epoch = member.member_id, member.epoch
        return OffsetFetchRequest(groups=[group], require_stable=True)

    def _found(
        self, answer: OffsetFetchResponse, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        (row,) = answer.groups
        if row.error_code:
            raise error_for(row.error_code, f"offsets of group {self._group_id}")
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(partitions)
        for topic in row.topics:
            for each in topic.partitions:
                at = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise error_for(each.error_code, f"committed offset of {at}")
                if each.committed_offset >= 0:
                    found[at] = CommittedOffset(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return found

    async def _ask(self, request: Message, response_class: type[Response], retries: Retries) -> Response:
        try:
            broker_id = await self._cluster.coordinator(self._group_id, GROUP)
            channel = await self._cluster.channel_to(broker_id, COORDINATOR)
            timeout_ms = max(1.0, min(self._cluster.request_timeout_ms, retries.left_ms))
            return await channel.send(
                request, response_class, version_max=VERSION_BY_NAME, timeout_ms=timeout_ms
            )
        except ClusterUnreachable as error:
            raise NetworkException(str(error)) from error

    async def _await_epoch(
        self, member: Membership | None, sent: int, error: KafkaError, retries: Retries
    ) -> None:
        """Pause: the member's epoch has moved on, or its next heartbeat brings the new one."""
        if member is None or member.epoch < 0:
            raise CommitFailed(f"group {self._group_id}: this consumer is not a member now") from error
        if member.epoch == sent:
            member.rejoin()
        # A later attempt succeeds, so it counts as a retriable error; the coordinator is the right one.
        pause_ms = retries.next_pause_ms(NetworkException(error.message))
        await asyncio.sleep(pause_ms / 1_000)

    async def _pause(self, error: KafkaError, retries: Retries) -> None:
        pause_ms = retries.next_pause_ms(error)
        if isinstance(error, _MOVED):
            self._cluster.state.forget_coordinator(self._group_id, GROUP)
        await asyncio.sleep(pause_ms / 1_000)

    def _unknown(self, answer: OffsetCommitResponse, *, skips_unknown: bool) -> AbstractSet[TopicPartition]:
        unknown: set[TopicPartition] = set()
        for topic in answer.topics:
            for row in topic.partitions:
                at = TopicPartition(topic.name, row.partition_index)
                if row.error_code == UnknownTopicOrPartition.code and skips_unknown:
                    unknown.add(at)
                elif row.error_code:
                    raise error_for(row.error_code, f"committing the offset of {at}")
        return unknown


def _with_error(answer: OffsetCommitResponse, error: type[KafkaError]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, row.partition_index)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == error.code
    ]
