"""Commits that are retried while the group rebalances. The coordinator is a list of answers."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import connect_by_socket
from barnabas.client.config.settings import ConsumerSettings
from barnabas.client.consumer import commits as commits_module
from barnabas.client.consumer.commits import Commits
from barnabas.client.consumer.engine import ConsumerEngine, PartitionOwner
from barnabas.client.core.client_errors import CommitFailed
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.core.retries import Retries
from barnabas.client.extensions.interceptors import ConsumerInterceptor, ConsumerInterceptors
from barnabas.client.membership.consumer_protocol import ConsumerProtocolMember
from barnabas.client.membership.interface import GroupOptions, Revoked
from barnabas.core.clock import SystemClock
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    KafkaError,
    NetworkException,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.schema.message import Message

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)

Answer = Callable[[Message], Message]


class Coordinator:
    """Cluster of one broker, which is the channel to itself. Each answer belongs to one request."""

    request_timeout_ms = 1_000.0

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[Message] = []
        self.state = self
        self._answers = list(answers)
        self._clock = SystemClock()

    async def coordinator(self, *_: object) -> int:
        return 1

    async def channel_to(self, *_: object) -> Coordinator:
        return self

    async def send(self, request: Message, *_: object, **__: object) -> Message:
        self.requests.append(request)
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(request)

    def retries(self, timeout_ms: float) -> Retries:
        return Retries(self._clock, random.Random(1), timeout_ms)

    def forget_coordinator(self, *_: object) -> None:
        pass

    @property
    def committed(self) -> list[tuple[int, dict[int, int]]]:
        """Epoch and offsets of each OffsetCommit request."""
        found = []
        for request in self.requests:
            assert isinstance(request, OffsetCommitRequest)
            rows = [row for topic in request.topics for row in topic.partitions]
            offsets = {row.partition_index: row.committed_offset for row in rows}
            found.append((request.generation_id_or_member_epoch, offsets))
        return found


def commits_at(coordinator: Coordinator) -> Commits:
    return Commits(cast("ClusterClient", coordinator), "g", None)


def member(*owned: TopicPartition, epoch: int = 1) -> ConsumerProtocolMember:
    made = ConsumerProtocolMember(GroupOptions("g"), Metadata(), SystemClock(), random.Random(1))
    made.owned, made.epoch = frozenset(owned), epoch
    return made


def answer(error: type[KafkaError] | None = None, then: Callable[[], None] | None = None) -> Answer:
    """Answer to a commit of partition 0; `then` happens before it arrives."""

    def answered(_: Message) -> Message:
        if then is not None:
            then()
        row = OffsetCommitResponsePartition(partition_index=0, error_code=error.code if error else 0)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[row])])

    return answered


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, StaleMemberEpoch])
async def test_a_retry_leaves_out_partitions_that_were_given_up(error: type[KafkaError]) -> None:
    owner = member(AT, OTHER)

    def rebalance() -> None:
        owner.owned, owner.epoch = frozenset([OTHER]), 2

    coordinator = Coordinator(answer(error, rebalance), answer())
    commits = commits_at(coordinator)
    commits.member = owner
    with pytest.raises(CommitFailed, match="t-0 may have another owner"):
        await commits.commit({AT: CommittedOffset(100), OTHER: CommittedOffset(7)}, 60_000)
    assert coordinator.committed == [(1, {0: 100, 1: 7}), (2, {1: 7})]


async def test_a_retry_is_not_sent_when_all_partitions_were_given_up() -> None:
    owner = member(AT)

    def rebalance() -> None:
        owner.owned, owner.epoch = frozenset(), 2

    coordinator = Coordinator(answer(CoordinatorLoadInProgress, rebalance), answer())
    commits = commits_at(coordinator)
    commits.member = owner
    with pytest.raises(CommitFailed, match="t-0 may have another owner"):
        await commits.commit({AT: CommittedOffset(100)}, 60_000)
    assert coordinator.committed == [(1, {0: 100})]


async def test_a_retry_has_the_new_epoch_when_the_partitions_stay() -> None:
    owner = member(AT)

    def rebalance() -> None:
        owner.epoch = 2

    coordinator = Coordinator(answer(StaleMemberEpoch, rebalance), answer())
    commits = commits_at(coordinator)
    commits.member = owner
    await commits.commit({AT: CommittedOffset(100)}, 60_000)
    assert coordinator.committed == [(1, {0: 100}), (2, {0: 100})]


def offset_answer(error: type[KafkaError] | None = None, then: Callable[[], None] | None = None) -> Answer:
    """Answer to OffsetFetch for partition 0: offset 7, or an error."""

    def answered(_: Message) -> Message:
        if then is not None:
            then()
        row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
        topic = OffsetFetchResponseTopics(name="t", partitions=[row])
        group = OffsetFetchResponseGroup(
            group_id="g", error_code=error.code if error else 0, topics=[] if error else [topic]
        )
        return OffsetFetchResponse(groups=[group])

    return answered


async def test_offsets_are_fetched_with_the_epoch_that_replaced_a_stale_one() -> None:
    owner = member(AT)

    def rebalance() -> None:
        owner.epoch = 2

    coordinator = Coordinator(offset_answer(StaleMemberEpoch, rebalance), offset_answer())
    commits = commits_at(coordinator)
    commits.member = owner
    assert await commits.fetch([AT], 60_000) == {AT: CommittedOffset(7)}
    epochs = [
        request.groups[0].member_epoch
        for request in coordinator.requests
        if isinstance(request, OffsetFetchRequest)
    ]
    assert epochs == [1, 2]


async def test_a_fetch_of_offsets_pauses_for_a_new_epoch_until_its_deadline() -> None:
    coordinator = Coordinator(offset_answer(StaleMemberEpoch))
    commits = commits_at(coordinator)
    owner = commits.member = member(AT)
    owner._beats_ms = math.inf
    with pytest.raises(NetworkException):
        async with asyncio.timeout(10):
            await commits.fetch([AT], 100)
    assert len(coordinator.requests) <= 4, "the pauses double"
    assert owner._beats_ms == -math.inf, "a heartbeat is due"


def engine_at(coordinator: Coordinator) -> ConsumerEngine:
    settings = ConsumerSettings.given("127.0.0.1:1", keywords={"group_id": "g"})
    engine = ConsumerEngine(
        settings, listener=None, interceptors=(), clock=None, randomness=None, connect=connect_by_socket
    )
    engine.commits = commits_at(coordinator)
    engine.positions.add([AT])
    engine.positions.of(AT).seek(5)
    return engine


class _Told(ConsumerInterceptor):
    def __init__(self, told: list[Mapping[TopicPartition, int]]) -> None:
        self._told = told

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._told.append(offsets)


async def _revoke(engine: ConsumerEngine) -> None:
    await engine._handle(Revoked(frozenset([AT])))


async def _give_up(engine: ConsumerEngine) -> None:
    await engine._give_up_partitions(engine.clock.monotonic_ms() + 60_000)


@pytest.mark.parametrize("give_up", [_revoke, _give_up])
async def test_the_last_commit_waits_for_the_automatic_one_in_flight(give_up: Any) -> None:
    coordinator = Coordinator(answer(CoordinatorLoadInProgress), answer())
    engine = engine_at(coordinator)
    engine._auto_commit_if_due()
    assert engine._auto_commit is not None
    engine.positions.of(AT).position = 9
    await give_up(engine)
    await engine._auto_commit
    assert [offsets[0] for _, offsets in coordinator.committed] == [5, 5, 9]


class Owner:
    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        return {AT: CommittedOffset(5)}


async def test_no_automatic_commit_while_an_owner_commits() -> None:
    engine = engine_at(Coordinator(answer()))
    engine.owner = cast("PartitionOwner", Owner())
    engine._auto_commit_if_due()
    assert engine._auto_commit is None
    engine._arrived = asyncio.Event()
    waiting = asyncio.create_task(engine.wait(math.inf))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done(), "no automatic commit is due"
    engine._arrived.set()
    await waiting


async def test_a_revocation_waits_briefly_for_a_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator does not know it, and no retry changes that. Nobody is told that it was committed."""
    monkeypatch.setattr(commits_module, "UNKNOWN_TOPIC_TIMEOUT_MS", 100)
    told: list[Mapping[TopicPartition, int]] = []
    engine = engine_at(Coordinator(answer(UnknownTopicOrPartition)))
    engine.interceptors = ConsumerInterceptors([_Told(told)])
    async with asyncio.timeout(10):
        await _revoke(engine)
    assert told == []


async def test_a_commit_at_a_revocation_outlives_a_broker_that_knows_no_topic_yet() -> None:
    """A broker that has just started knows none. The wait for it begins with its first answer."""
    told: list[Mapping[TopicPartition, int]] = []
    coordinator = Coordinator(answer(NetworkException), answer(UnknownTopicOrPartition), answer())
    engine = engine_at(coordinator)
    engine.interceptors = ConsumerInterceptors([_Told(told)])
    await _revoke(engine)
    assert len(coordinator.requests) == 3
    assert told == [{AT: 5}]


async def test_a_commit_of_the_application_waits_for_a_topic_that_may_be_new() -> None:
    coordinator = Coordinator(answer(UnknownTopicOrPartition), answer())
    await commits_at(coordinator).commit({AT: CommittedOffset(100)}, 60_000)
    assert len(coordinator.requests) == 2


async def test_an_offset_is_committed_without_a_text_that_is_too_long() -> None:
    """`offset.metadata.max.bytes` may be below its default. Other partitions keep their texts."""

    def takes_eight_characters(request: Message) -> Message:
        assert isinstance(request, OffsetCommitRequest)
        rows = [
            OffsetCommitResponsePartition(
                partition_index=row.partition_index,
                error_code=OffsetMetadataTooLarge.code if len(row.committed_metadata or "") > 8 else 0,
            )
            for row in request.topics[0].partitions
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])

    coordinator = Coordinator(takes_eight_characters)
    offsets = {AT: CommittedOffset(7, "b1:AQEBAQEB"), OTHER: CommittedOffset(8, "b1:AQE")}
    assert not await commits_at(coordinator).commit(offsets, 60_000, skips_unknown=True)
    last = cast("OffsetCommitRequest", coordinator.requests[-1]).topics[0].partitions
    assert [(row.committed_offset, row.committed_metadata) for row in last] == [(7, ""), (8, "b1:AQE")]
    assert len(coordinator.requests) == 2
    with pytest.raises(OffsetMetadataTooLarge):
        await commits_at(coordinator).commit({AT: CommittedOffset(7, "text of the application")}, 60_000)


async def test_commits_at_each_call_do_not_make_a_wait_spin() -> None:
    engine = engine_at(Coordinator(answer()))
    engine.settings.auto_commit_interval_ms = 0
    engine._arrived = asyncio.Event()
    engine._auto_commit_if_due()
    waiting = asyncio.create_task(engine.wait(math.inf))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    engine._arrived.set()
    await waiting
