"""Group coordinator on a log in memory, with a manual clock."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.config.dynamic.group_config import GROUP_KEYS
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.coordinator.group.offsets.expiry import StoredIds
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.state.client_info import Caller
from barnabas.coordinator.group.state.group_memory import group_memory_account
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.core.bounds.budget import Budget
from barnabas.core.bounds.kept_memory import MemoryOwner
from barnabas.core.errors import KafkaError, MessageTooLarge, NotLeaderOrFollower, RequestTimedOut
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.handlers.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from barnabas.handlers.describe_groups import DESCRIBE_GROUPS
from barnabas.handlers.heartbeat import HEARTBEAT
from barnabas.handlers.join_group import JOIN_GROUP
from barnabas.handlers.leave_group import LEAVE_GROUP
from barnabas.handlers.offset_commit import all_refused
from barnabas.handlers.offset_fetch import fetch_group
from barnabas.handlers.sync_group import SYNC_GROUP
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.purgatory.timer import Timer
from barnabas.records.batch import RecordBatch
from barnabas.requests.registry import Api
from barnabas.security.acl.authorizer import AllowAll
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config
from tests.support.slices import in_one_go

OWNER = MemoryOwner("user", "connection")


class MemoryLog:
    """One partition. With `is_replicated` off, answers wait until `replicate` is called."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.log_end_offset = 0
        self.high_watermark = 0
        self.is_replicated = True
        self.error: KafkaError | None = None
        self.leader_epoch = 0
        self.bytes_max = 1 << 20
        self.waiting: list[tuple[int, Callable[[KafkaError | None], None]]] = []

    def start_offset(self, topic_partition: TopicPartition) -> int:
        return 0

    def end_offset(self, topic_partition: TopicPartition) -> int:
        return self.log_end_offset

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for batch in self.batches:
            if RecordBatch(batch).last_offset >= offset:
                if found and len(found) + len(batch) > max_bytes:
                    break
                found += batch
        return bytes(found)

    def batch_bytes_max(self, topic_partition: TopicPartition) -> int:
        return self.bytes_max

    def append(self, topic_partition: TopicPartition, leader_epoch: int, batch: bytearray) -> int:
        if self.error is not None:
            raise self.error
        if len(batch) > self.bytes_max:
            raise MessageTooLarge(f"{len(batch)} bytes of records are too many")
        if leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower("the partition has moved on")
        batch[:8] = self.log_end_offset.to_bytes(8, "big")
        self.batches.append(batch)
        self.log_end_offset = RecordBatch(batch).next_offset
        if self.is_replicated:
            self.high_watermark = self.log_end_offset
        return self.log_end_offset

    def await_replication(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        end_offset: int,
        timeout_ms: float,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        if self.high_watermark >= end_offset:
            done(None)
        else:
            self.waiting.append((end_offset, done))

    def replicate(self) -> None:
        self.high_watermark = self.log_end_offset
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(None)

    def time_out(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(RequestTimedOut("not replicated in time"))

    def wake(self, topic_partition: TopicPartition) -> None:
        pass


class Table:
    """Topics by name, as the metadata cache has them."""

    class Topic:
        def __init__(self, name: str, topic_id: Uuid, partitions: int) -> None:
            self.name = name
            self.topic_id = topic_id
            self.partitions = tuple(range(partitions))

    def __init__(self, randomness: random.Random) -> None:
        self.generation = 0
        self._randomness = randomness
        self._topics: dict[str, Table.Topic] = {}

    def put(self, name: str, partitions: int) -> Uuid:
        former = self._topics.get(name)
        topic_id = Uuid.generate(self._randomness) if former is None else former.topic_id
        self._topics[name] = self.Topic(name, topic_id, partitions)
        self.generation += 1
        return topic_id

    def remove(self, name: str) -> None:
        del self._topics[name]
        self.generation += 1

    def topic(self, name: str) -> Table.Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> Table.Topic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def topic_names(self) -> list[str]:
        return list(self._topics)


class Answer:
    """Response to a request, once there is one."""

    def __init__(self) -> None:
        self.responses: list[Any] = []

    def __call__(self, response: Any) -> None:
        assert not self.responses, "a request is answered once"
        self.responses.append(response)

    @property
    def is_given(self) -> bool:
        return bool(self.responses)

    @property
    def value(self) -> Any:
        assert self.responses, "no answer yet"
        return self.responses[0]

    @property
    def error_code(self) -> int:
        code: int = self.value.error_code
        return code


class Context:
    """A request on its way through its handler."""

    def __init__(self, broker: Any, api: Api, request: Any, version: int, client: str) -> None:
        self.broker = broker
        self.request = request
        self.api_version = version
        self.client_id = client
        self.exchange = SimpleNamespace(connection=SimpleNamespace(peer_host="192.0.2.1"))
        self.answer = Answer()
        self.owner: MemoryOwner = getattr(broker, "owner", OWNER)
        self._api = api
        self.budget = Budget()

    def caller(self) -> Caller:
        return Caller.of(self.client_id, "/192.0.2.1", self.api_version, self._may_describe, self.owner)

    def memory_owner(self) -> MemoryOwner:
        return self.owner

    def _may_describe(self, topic: str) -> bool:
        return topic not in self.broker.hidden_topics

    def allows(self, *_: object, **__: object) -> bool:
        return True

    def require(self, *_: object) -> None: ...

    def authorized_operations(self, *_: object) -> int:
        return 1

    def respond(self, response: Any) -> None:
        self.answer(response)

    def answer_in_slices(self, work: Generator[None, None, Any]) -> None:
        try:
            self.answer(in_one_go(work))
        except KafkaError as error:
            self.fail(error)

    async def spread(self, work: Generator[None, None, Any]) -> Any:
        return in_one_go(work)

    async def breathe(self) -> None: ...

    def fail(self, error: KafkaError) -> None:
        if self._api.refused is not None:
            self.answer(in_one_go(self._api.refused(self.request, error, self.api_version)))
            return
        response: Any = response_class(self._api.key)()
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        self.answer(response)


def serve(broker: object, api: Api, request: Any, version: int, client: str = "client") -> Answer:
    """Have the API's handler serve a request of this version."""
    context = Context(broker, api, request, version, client)
    try:
        response = api.handle(request, context)
        if inspect.iscoroutine(response):
            response = asyncio.run(response)
        response = in_one_go(response)
    except KafkaError as error:
        context.fail(error)
    else:
        if response is not None:
            context.respond(response)
    return context.answer


class Everything:
    """Metadata in which every topic exists, with all partitions."""

    def __contains__(self, topic: str) -> bool:
        return True

    def topic(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, partitions=range(1 << 31))


class Question:
    """Question that a coroutine awaits until the test answers it."""

    def __init__(self) -> None:
        self.work: Coroutine[Any, Any, None] | None = None
        self._answer: Any = None

    def __await__(self) -> Generator[Question, None, Any]:
        yield self
        return self._answer

    def answer(self, answer: Any) -> None:
        self._answer = answer
        assert self.work is not None
        start(self.work)


def start(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine as far as it gets by itself."""
    try:
        question = work.send(None)
    except StopIteration:
        return
    assert isinstance(question, Question)
    question.work = work


class Groups:
    """A coordinator of one partition; methods send requests and give their answers."""

    def __init__(
        self,
        seed: int = 0,
        log: MemoryLog | None = None,
        topics: Table | None = None,
        stored: dict[str, Uuid | None] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.timer = Timer(self.clock)
        self.log = log or MemoryLog()
        self.randomness = random.Random(seed)
        self.topics = topics or Table(self.randomness)
        times = SimpleNamespace(group_value=lambda _, name: GROUP_KEYS[name].default)
        self.settings = replace(GroupSettings.of(broker_config(), cast("Any", times)), **settings)
        self.stored: dict[str, Uuid | None] = stored or {}
        """Topics in the store; None: the topic is gone."""
        self.asked: list[set[str]] = []
        self.unanswered: list[Callable[[StoredIds], None]] | None = None
        """If this is a list, the store takes its time."""
        self.metrics = Metrics()
        self.limited_log = RateLimitedLogger(logging.getLogger("barnabas.coordinator.group"), self.clock)
        self.account = group_memory_account(self.metrics)
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            cast("CoordinatorLog", self.log),
            self._make_shard,
            clock=self.clock,
            scheduler=self.scheduler,
            timer=self.timer,
            settings=RuntimeSettings(load_buffer_bytes=5 << 20),
            metrics=self.metrics,
        )
        self.coordinator = GroupCoordinator(self.runtime, self.settings, lambda: 1)
        self.broker = SimpleNamespace(groups=self.coordinator, metadata=Everything(), authorizer=AllowAll())
        self.broker.hidden_topics = set()
        self.elect()

    def _make_shard(self, timers: ShardTimers) -> GroupShard:
        registry = GroupRegistry(
            self.settings,
            timers,
            self.clock,
            self.randomness,
            cast("MetadataCache", self.topics),
            self.limited_log,
            self.account,
        )
        return GroupShard(registry, self._find_topics, start)

    async def _find_topics(self, names: Collection[str]) -> StoredIds:
        """Of a name that `stored` does not have nothing can be learnt."""
        self.asked.append(set(names))
        if self.unanswered is not None:
            question = Question()
            self.unanswered.append(question.answer)
            found: StoredIds = await question
            return found
        return {name: self.stored[name] for name in names if name in self.stored}

    def elect(self, leader_epoch: int = 0) -> None:
        self.log.leader_epoch = leader_epoch
        self.runtime.elected(0, leader_epoch)
        self.scheduler.run_due()

    @property
    def shard(self) -> GroupShard:
        ((_, shard),) = self.runtime.active_shards()
        return shard

    def advance(self, ms: float) -> None:
        """Let time pass, millisecond-exact for timers in between."""
        target = self.clock.monotonic_ms() + ms
        while True:
            due = self.timer.next_expiry_ms()
            if due is None or due > target:
                break
            self.clock.advance(max(due - self.clock.monotonic_ms(), 0))
            self.timer.advance()
        self.clock.advance(target - self.clock.monotonic_ms())
        self.timer.advance()

    def serve(self, api: Api, request: Any, version: int, client: str = "client") -> Answer:
        return serve(self.broker, api, request, version, client)

    def delete_topic(self, name: str) -> None:
        known = self.topics.topic(name)
        if known is not None:
            self.topics.remove(name)
        self.coordinator.topic_deleted(name, ZERO_UUID if known is None else known.topic_id)

    # Classic requests

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b""),),
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        protocol_type: str = "consumer",
        client: str = "client",
        reason: str | None = None,
    ) -> Answer:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            reason=reason,
        )
        return self.serve(JOIN_GROUP, request, version, client)

    def enter(self, group: str = "g", **how: Any) -> tuple[str, Answer]:
        """Both steps of joining as a new dynamic member."""
        member: str = self.join(group, **how).value.member_id
        return member, self.join(group, member, **how)

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
    ) -> Answer:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        return self.serve(SYNC_GROUP, request, 4)

    def heartbeat(
        self, member: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        answer = self.serve(HEARTBEAT, request, 4)
        assert isinstance(answer.value, HeartbeatResponse)
        return answer.error_code

    def leave(self, *members: str, group: str = "g", instance: str | None = None) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member_id=member, group_instance_id=instance) for member in members],
        )
        answer = self.serve(LEAVE_GROUP, request, 5)
        assert isinstance(answer.value, LeaveGroupResponse)
        return answer.value

    def stable_group(self, count: int, group: str = "g", **how: Any) -> tuple[list[str], int]:
        """A group of so many members, synced; the first one leads. Returns their ids and the generation."""
        entered = [self.enter(group, **how) for _ in range(count)]
        self.advance(self.settings.initial_rebalance_delay_ms * (count + 1))
        generation: int = entered[0][1].value.generation_id
        members = [member for member, _ in entered]
        leader = entered[0][1].value.leader
        plan = {member: f"for {member}".encode() for member in members}
        answers = [
            self.sync(member, generation, plan if member == leader else None, group=group)
            for member in members
        ]
        assert all(isinstance(answer.value, SyncGroupResponse) for answer in answers)
        assert [answer.error_code for answer in answers] == [0] * count
        return members, generation

    # The consumer protocol

    def beat(
        self,
        member: str,
        epoch: int,
        *,
        group: str = "g",
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: dict[Uuid, list[int]] | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int | None = None,
        version: int = 1,
        client: str = "client",
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
        )
        if epoch == 0 or rebalance_ms is not None:
            request.rebalance_timeout_ms = 30_000 if rebalance_ms is None else rebalance_ms
        if epoch == 0:
            owned = {}
        if owned is not None:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in owned.items()
            ]
        answer = self.serve(CONSUMER_GROUP_HEARTBEAT, request, version, client)
        assert isinstance(answer.value, ConsumerGroupHeartbeatResponse)
        return answer.value

    def settle(self, group: str = "g", rounds: int = 20) -> dict[str, dict[Uuid, list[int]]]:
        """Let all members of a consumer group follow their assignments until nothing moves; returns what each
        has."""
        shard = self.shard
        for _ in range(rounds):
            found = shard.registry.find_consumer(group)
            assert found is not None
            before = dict(found.members)
            for name, member in before.items():
                if member.is_classic or member.member_epoch < 0:
                    continue
                owned = {topic: sorted(numbers) for topic, numbers in member.assigned.items()}
                assert self.beat(name, member.member_epoch, group=group, owned=owned).error_code == 0
            if found.members == before and found.state.value == "Stable":
                break
        assert found is not None
        return {
            name: {topic: sorted(numbers) for topic, numbers in member.assigned.items()}
            for name, member in found.members.items()
        }

    # Offsets

    def commit(self, offset: int, **asked: Any) -> int:
        """The error code; `asked` as `commit_later` takes it."""
        answer = self.commit_later(offset, **asked)
        code: int = answer.value.topics[0].partitions[0].error_code
        return code

    def commit_later(
        self,
        offset: int,
        *,
        group: str = "g",
        member: str = "",
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> Answer:
        answer = Answer()
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        caller = Caller.of("client", "/192.0.2.1", version, lambda _: True, OWNER)
        self.coordinator.run(
            group,
            lambda shard: shard.offset_requests.commit(request, caller),
            answer,
            lambda error: answer(in_one_go(all_refused(request, error))),
        )
        return answer

    def fetch_later(
        self, *, group: str = "g", topic: str = "t", partition: int = 0, require_stable: bool = False
    ) -> Answer:
        request = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        )
        return self.fetch_groups([request], require_stable=require_stable)

    def fetch_groups(
        self, requests: Sequence[OffsetFetchRequestGroup], *, require_stable: bool = False
    ) -> Answer:
        answer = Answer()
        gathering: Gathering[Any] = Gathering(len(requests), answer)
        context = cast("Any", SimpleNamespace(broker=self.broker, allows=lambda *_: True))
        for place, request in enumerate(requests):
            fetch_group(request, context, partial(gathering.put, place), require_stable=require_stable)
        return answer

    def fetch(self, **asked: Any) -> int:
        """The committed offset; -1 if there is none, minus the error code times 1000 if there is one."""
        (answer,) = self.fetch_later(**asked).value
        if answer.error_code:
            return -1000 * int(answer.error_code)
        found = answer.topics[0].partitions[0]
        return -1000 * int(found.error_code) if found.error_code else int(found.committed_offset)

    def state(self, group: str = "g") -> str:
        answer = self.serve(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]), 6)
        return str(answer.value.groups[0].group_state)


def generation_of(answer: Answer) -> int:
    assert isinstance(answer.value, JoinGroupResponse)
    return answer.value.generation_id
