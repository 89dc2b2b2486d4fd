"""Member of a consumer group that reads one topic, by the classic protocol.

JoinGroup returns when every member has joined, and names a leader. The leader divides the partitions in
ranges, as every Kafka client can, and hands them out with SyncGroup. From then on heartbeats keep the member
in the group, and their answers request a rejoin. Offsets are committed under the generation in which they
were read, so that an expired member cannot move the group back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from barnabas.client.admin.groups import Groups, assigned_partitions, commit_request
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable, Steps, raise_for
from barnabas.core.errors import (
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.consumer_protocol import TopicPartition as Assigned
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

T = TypeVar("T")

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
ANSWERED_WITHIN_MS = REBALANCE_TIMEOUT_MS + 5_000
"""Timeout of JoinGroup: a rebalance lasts this long at most, and a coordinator without power never answers.
"""
HEARTBEAT_INTERVAL_MS = 3_000
CONSUMER = "consumer"
RANGE = "range"
VERSION_PREFIX = b"\0\0"
"""Version of the consumer protocol's metadata: version 0 has every field that is needed here."""

_REJOIN = (IllegalGeneration, RebalanceInProgress, UnknownMemberId)


class GroupMember:
    """Group member, used as a context. Its exit leaves the group, so that others need not wait for the
    session.
    """

    def __init__(self, cluster: ClusterClient, group_id: str, topic: str) -> None:
        self.must_rejoin = asyncio.Event()
        """Set when the group rebalances, or when the coordinator no longer knows this member."""
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._group_id = group_id
        self._topic = topic
        self._member_id = ""
        self._generation_id = -1
        self._heartbeats: asyncio.Task[None] | None = None
        self._uncommitted: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_heartbeats()
        if self._member_id:
            # An interrupt between reading and committing does not undo the reading.
            with suppress(KafkaError, ClusterUnreachable):
                await self.commit({})
        if self._member_id:
            request = LeaveGroupRequest(
                group_id=self._group_id, members=[MemberIdentity(member_id=self._member_id)]
            )
            # The session expires if LeaveGroup cannot be sent.
            with suppress(KafkaError, ClusterUnreachable):
                await self._cluster.run(self._groups.ask(self._group_id, request, LeaveGroupResponse))

    async def join(self) -> list[int]:
        """Join or rejoin the group. Returns the partitions to read until `must_rejoin` is set."""
        await self._stop_heartbeats()
        while True:
            try:
                joined = await self._retrying(self._join)
                partitions = await self._retrying(partial(self._sync, joined))
            except _REJOIN as error:
                if isinstance(error, UnknownMemberId):
                    self._member_id = ""
                continue
            self.must_rejoin.clear()
            self._heartbeats = asyncio.create_task(self._beat())
            return partitions

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets: the next ones to read. The coordinator rejects those of an earlier generation."""
        self._uncommitted.update(offsets)
        if not self._uncommitted:
            return
        by_partition = {
            TopicPartition(self._topic, each): offset for each, offset in self._uncommitted.items()
        }
        request = commit_request(
            self._group_id, by_partition, member_id=self._member_id, generation_id=self._generation_id
        )
        try:
            await self._groups.send_commit(self._group_id, request)
        except _REJOIN as error:
            self._heard(error)
        self._uncommitted.clear()

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Committed offsets of these partitions, where there are any."""
        offsets = await self._groups.offsets(self._group_id)
        found = {each: offsets.get(TopicPartition(self._topic, each)) for each in partitions}
        return {each: offset for each, offset in found.items() if offset is not None}

    def _join(self) -> Steps[JoinGroupResponse]:
        subscription = VERSION_PREFIX + ConsumerProtocolSubscription(topics=[self._topic]).encode(0)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=subscription)],
        )
        answer = yield from self._groups.ask(self._group_id, request, JoinGroupResponse, ANSWERED_WITHIN_MS)
        if answer.error_code == MemberIdRequired.code:
            self._member_id = request.member_id = answer.member_id
            answer = yield from self._groups.ask(
                self._group_id, request, JoinGroupResponse, ANSWERED_WITHIN_MS
            )
        raise_for(answer.error_code, None, f"joining group {self._group_id}")
        self._member_id, self._generation_id = answer.member_id, answer.generation_id
        return answer

    def _sync(self, joined: JoinGroupResponse) -> Steps[list[int]]:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocol_name=RANGE,
            assignments=(yield from self._divide(joined.members)) if joined.leader == self._member_id else [],
        )
        answer = yield from self._groups.ask(self._group_id, request, SyncGroupResponse, ANSWERED_WITHIN_MS)
        raise_for(answer.error_code, None, f"joining group {self._group_id}")
        assigned = assigned_partitions(answer.assignment)
        return [each.partition for each in assigned if each.topic == self._topic]

    def _divide(self, members: Sequence[JoinGroupResponseMember]) -> Steps[list[SyncGroupRequestAssignment]]:
        """Range assignment of every topic to its subscribers, computed by the group leader."""
        wanted: dict[str, list[str]] = {}
        for each in sorted(members, key=lambda each: each.member_id):
            subscription, _ = ConsumerProtocolSubscription.decode(each.metadata, 0, len(VERSION_PREFIX))
            for topic in subscription.topics:
                wanted.setdefault(topic, []).append(each.member_id)
        shares: dict[str, list[Assigned]] = {each.member_id: [] for each in members}
        for topic, member_ids in wanted.items():
            count = len((yield from self._cluster.state.topic(topic)).partitions)
            for member_id, partitions in in_ranges(count, member_ids).items():
                shares[member_id].append(Assigned(topic=topic, partitions=partitions))
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=VERSION_PREFIX + ConsumerProtocolAssignment(assigned_partitions=share).encode(0),
            )
            for member_id, share in shares.items()
        ]

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self._generation_id, member_id=self._member_id
        )
        while not self.must_rejoin.is_set():
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1_000)
            try:
                answer = await self._cluster.run(self._groups.ask(self._group_id, request, HeartbeatResponse))
                raise_for(answer.error_code, None, f"group {self._group_id}")
            except KafkaError as error:
                self._heard(error)
            except ClusterUnreachable:
                continue  # the consumer meets the same error and raises it

    def _heard(self, error: KafkaError) -> None:
        if isinstance(error, UnknownMemberId):
            self._member_id = ""
        if isinstance(error, _REJOIN) or not error.retriable:
            self.must_rejoin.set()

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None

    async def _retrying(self, attempt: Callable[[], Steps[T]]) -> T:
        """Retry transient errors, except those that require a rejoin."""

        def guarded() -> Steps[T | KafkaError]:
            try:
                return (yield from attempt())
            except _REJOIN as error:
                return error

        outcome = await self._cluster.run_with_retries(guarded)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome


def in_ranges(partitions: int, member_ids: Sequence[str]) -> dict[str, list[int]]:
    """Range assignment: neighbouring partitions stay together; the first members get the remainder."""
    each, left = divmod(partitions, len(member_ids))
    shares: dict[str, list[int]] = {}
    first = 0
    for index, member_id in enumerate(member_ids):
        count = each + (index < left)
        shares[member_id] = list(range(first, first + count))
        first += count
    return shares
