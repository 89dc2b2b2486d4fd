"""Shard of the group coordinator: the groups and offsets of one `__consumer_offsets` partition.

The shard connects its parts and routes requests by the protocol of their group, and records by their key. It
is pure but for its timers; the runtime does the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from barnabas.coordinator.group.classic.join import ClassicJoin
from barnabas.coordinator.group.classic.rebalance import ClassicRebalance
from barnabas.coordinator.group.classic.requests import ClassicRequests
from barnabas.coordinator.group.consumer.heartbeat import ConsumerHeartbeat
from barnabas.coordinator.group.consumer.mixed_protocol import MixedProtocol
from barnabas.coordinator.group.consumer.replay import replay_consumer_record
from barnabas.coordinator.group.consumer.update import ConsumerUpdates
from barnabas.coordinator.group.describe import (
    describe_classic,
    describe_consumer,
)
from barnabas.coordinator.group.migration.conversion import Conversion
from barnabas.coordinator.group.offsets.deleted_topics import FindTopics, LostTopics
from barnabas.coordinator.group.offsets.expiry import OffsetRemoval
from barnabas.coordinator.group.offsets.records import (
    OffsetLoader,
    OffsetRecord,
    RawRecord,
    decode_key,
    decode_value,
)
from barnabas.coordinator.group.offsets.requests import OffsetRequests
from barnabas.coordinator.group.offsets.store import OffsetStore
from barnabas.coordinator.group.state.classic_group import (
    COMPLETING,
    DEAD,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicGroupRecord,
)
from barnabas.coordinator.group.state.classic_member import JoinWaiter, SyncWaiter
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.record_schemas import GroupMetadataKey, GroupMetadataValue
from barnabas.coordinator.group.state.records import GroupRecord, decode_record
from barnabas.coordinator.group.state.registry import Group, GroupRegistry
from barnabas.coordinator.runtime.decision import Answers, CoordinatorRecord, Decision, Waiter
from barnabas.coordinator.runtime.peers import Start
from barnabas.coordinator.runtime.replay import LoadStep, SetAside
from barnabas.core.errors import GroupIdNotFound, NonEmptyGroup, NotCoordinator, UnknownMemberId
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.messages import consumer_group_describe
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.records.batch import RecordBatch
from barnabas.records.record import iterate_records

EXPIRY_KEY = ("expiry",)
EXPIRY_PAUSE_MS = 20


class GroupShard:
    def __init__(self, registry: GroupRegistry, find_topics: FindTopics, start: Start) -> None:
        self.registry = registry
        self.groups = registry.groups
        self.offsets = OffsetStore()
        self.rebalance = ClassicRebalance(registry)
        self._join = ClassicJoin(registry, self.rebalance)
        self._requests = ClassicRequests(registry, self.rebalance)
        self._conversion = Conversion(registry, self.rebalance)
        updates = ConsumerUpdates(registry)
        self.consumer_heartbeats = ConsumerHeartbeat(registry, updates, self._conversion)
        self._mixed = MixedProtocol(registry, updates, self.consumer_heartbeats)
        self.offset_requests = OffsetRequests(registry, self.rebalance, self.offsets)
        self.offset_removal = OffsetRemoval(registry, self.offsets)
        self._lost_topics = LostTopics(registry, self.offsets, self.offset_removal, find_topics, start)
        self._loader: OffsetLoader | None = OffsetLoader(self.offsets.committed, self.offsets.forget_pending)

    # --- membership ---

    def join(
        self, request: JoinGroupRequest, caller: Caller, waiter: JoinWaiter
    ) -> Decision[JoinGroupResponse]:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._mixed.join(group, request, caller)
        return self._join.join(request, caller, waiter)

    def sync(self, request: SyncGroupRequest, waiter: SyncWaiter) -> Decision[SyncGroupResponse]:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.sync(group, request)
        return self._requests.sync(group, request, waiter)

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.heartbeat(group, request)
        return self._requests.heartbeat(group, request)

    def leave(self, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.leave(group, request)
        return self._requests.leave(group, request)

    def _member_group(self, group_id: str) -> Group:
        """The group of a member; UNKNOWN_MEMBER_ID if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberId(f"group {group_id} does not exist")
        return group

    # --- administration ---

    def all_groups(self) -> Decision[list[Group]]:
        """For ListGroups, which filters one by one: there may be many, and most may be hidden."""
        return Decision(list(self.groups.values()))

    def describe(self, group_id: str) -> Decision[DescribedGroup]:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a classic group.")
        return Decision(describe_classic(group))

    def describe_consumer_group(self, group_id: str) -> Decision[consumer_group_describe.DescribedGroup]:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return Decision(
            describe_consumer(group, self.registry.settings.consumer_assignors[0], self.registry.topics)
        )

    def delete_group(self, group_id: str) -> Decision[bool]:
        group = self.registry.group(group_id)
        if not group.is_empty:
            raise NonEmptyGroup(f"group {group_id} has members")
        records: list[CoordinatorRecord] = [*self.offset_removal.tombstones(group_id), *group.tombstones()]
        return Decision(True, records, is_atomic=False)

    # --- replay ---

    def load_batch(self, batch: RecordBatch) -> Iterator[LoadStep]:
        if batch.is_transactional:
            yield from self._load_transactional(batch)
            return
        assert self._loader is not None
        for step in self._loader.load(batch):
            if not isinstance(step, RawRecord):
                yield step
                continue
            try:
                self._replay_group_record(decode_record(step.key, step.value))
            except Exception as error:  # noqa: BLE001 - the loader counts and logs it
                yield SetAside(step.offset, error)

    def _load_transactional(self, batch: RecordBatch) -> Iterator[LoadStep]:
        for record in iterate_records(batch):
            if record.key is None or record.key[:2] > b"\0\1":
                continue
            try:
                group, topic, partition = decode_key(record.key)
                value = None if record.value is None else decode_value(record.value)
                offset_record = OffsetRecord(group, topic, partition, value)
                self.offsets.replay(offset_record, record.offset, batch.producer_id)
            except Exception as error:  # noqa: BLE001 - the loader counts and logs it
                yield SetAside(record.offset, error)
        yield None

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record, offset, producer_id)
            if record.value is not None:
                self.registry.ensure(record.group)
            else:
                self._forget_if_nothing(record.group)
        else:
            assert isinstance(record, GroupRecord)
            self._replay_group_record(record)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:  # noqa: ARG002
        for group_id in self.offsets.replay_marker(producer_id, is_commit=is_commit):
            self._forget_if_nothing(group_id)

    def _forget_if_nothing(self, group_id: str) -> None:
        """Remove a group that exists only by its offsets, together with the last of them."""
        group = self.groups.get(group_id)
        if group is not None and group.is_implicit and not self.offsets.has_any(group_id):
            self.registry.remove(group_id)

    def _replay_group_record(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(record, ClassicGroupRecord):
            self.groups[record.group.group_id] = record.group
        elif isinstance(key, GroupMetadataKey):
            if value is None:
                self.registry.remove(key.group)
            else:
                assert isinstance(value, GroupMetadataValue)
                group = self.groups[key.group] = ClassicGroup.from_record(key.group, value)
                for member in group.members.values():
                    member.memory = self.registry.memory.loaded_classic(member)
        else:
            replay_consumer_record(self.registry, key, value, record.memory)

    # --- lifecycle ---

    def loaded(self) -> None:
        self._loader = None
        self.offsets.prune()
        for group_id in self.offsets.committed:
            self.registry.ensure(group_id)
        for group_id in self.offsets.open_transactions:
            self.registry.ensure(group_id)
        for group in list(self.groups.values()):
            with sweeping("a loaded group", cut(group.group_id)):
                self._group_loaded(group)
        self._schedule_expiry()
        self._lost_topics.start()

    def _group_loaded(self, group: Group) -> None:
        if isinstance(group, ConsumerGroup):
            self.consumer_heartbeats.loaded(group)
            return
        for member in group.members.values():
            self.rebalance.expect_heartbeat(group, member)
        if len(group.members) > self.registry.settings.max_size:
            self.rebalance.prepare(group, "the loaded group exceeds group.max.size")

    def _schedule_expiry(self) -> None:
        interval_ms = self.registry.settings.offsets_retention_check_interval_ms
        self.registry.timers.schedule(
            EXPIRY_KEY, interval_ms, lambda: self._expire(iter(list(self.groups))), is_retried=True
        )

    def _expire(self, group_ids: Iterator[str]) -> Decision[Any]:
        """One turn of expiry; the next one is soon while groups are left, else after the interval."""
        decision = self.offset_removal.expire(group_ids)
        following = next(group_ids, None)
        if following is None:
            self._schedule_expiry()
        else:
            rest = itertools.chain((following,), group_ids)
            self.registry.timers.schedule(
                EXPIRY_KEY, EXPIRY_PAUSE_MS, lambda: self._expire(rest), is_retried=True
            )
        return decision

    def unloaded(self) -> Answers:
        """Responses to requests that wait for a rebalance: their clients must find the new coordinator."""
        code, answers = NotCoordinator.code, list[tuple[Waiter[Any], Any]]()
        now_ms = self.registry.clock.now_ms()
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                continue
            state = group.state
            group.move_to(DEAD, now_ms)
            for member in group.members.values():
                if state is PREPARING:
                    response = JoinGroupResponse(error_code=code, member_id=member.member_id)
                    answers.extend(group.complete_join(member, response))
                elif state in (COMPLETING, STABLE):
                    answers.extend(group.complete_sync(member, SyncGroupResponse(error_code=code)))
        # The parts of a shard refer to each other, so its memory would wait for the garbage collector.
        self.groups.clear()
        self.offsets.clear()
        return answers
