"""Task that gives partitions their positions: committed offsets, resets, and checks for truncation.

It wakes when a partition needs something (`positions.Need`). Each leader is asked by a task of its own: one
that stands still holds up its own partitions alone. A partition whose position or leader has changed since is
asked about again, and the answer to the earlier question is dropped.

A failure is retried after `retry.backoff.ms`; errors that no retry mends go to the application.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.client.aio.background import OnFailure, background_task
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.consumer.commits import Commits
from barnabas.client.consumer.core.pending_errors import PendingErrors
from barnabas.client.consumer.core.positions import Need, PartitionState, Positions
from barnabas.client.consumer.core.reset_strategy import TO_LATEST, ResetStrategy
from barnabas.client.core.client_errors import CommitFailed, LogTruncated, NoCommittedOffset
from barnabas.client.core.metadata import Leader
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError, UnsupportedVersion, error_for
from barnabas.core.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

CONSUMER_REPLICA = -1


class Question(NamedTuple):
    """A need of a partition, with the version of its position and the leader to ask."""

    need: Need
    version: int
    leader: Leader | None


Questions: TypeAlias = Mapping[PartitionState, Question]


class PositionUpdates:
    def __init__(
        self,
        cluster: ClusterClient,
        positions: Positions,
        commits: Commits | None,
        *,
        reset_to: ResetStrategy | None,
        isolation: int,
        retry_ms: float,
        timeout_ms: float,
        on_update: Callable[[], None],
        on_failure: OnFailure,
    ) -> None:
        self.errors = PendingErrors()
        """Errors for the application."""
        self._cluster = cluster
        self._positions = positions
        self._commits = commits
        self._reset_to = reset_to
        self._isolation = isolation
        self._retry_ms = retry_ms
        self._timeout_ms = timeout_ms
        self._on_update = on_update
        self._on_failure = on_failure
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._asked: dict[PartitionState, Question] = {}
        """Questions without an answer yet."""

    def start(self) -> None:
        if self._task is None:
            self._task = background_task(self._run(), self._on_failure)

    def wake(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        tasks = [*self._asking, *(() if self._task is None else (self._task,))]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        clock = self._cluster.clock
        while True:
            self._woken.clear()
            self._ask_what_is_needed()
            wait_ms = self._positions.retry_ms(except_for=self._asked) - clock.monotonic_ms()
            try:
                async with asyncio.timeout(None if wait_ms == math.inf else max(0.0, wait_ms) / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _ask_what_is_needed(self) -> None:
        """Begin to ask for all partitions that need something, unless the same question is under way."""
        now_ms = self._cluster.clock.monotonic_ms()
        for need, work in (
            (Need.COMMITTED, self._take_committed),
            (Need.RESET, self._reset),
            (Need.VALIDATION, self._validate),
        ):
            by_broker: dict[int | None, dict[PartitionState, Question]] = {}
            for state in self._positions.needing(need, now_ms):
                leader = None if need is Need.COMMITTED else self._cluster.metadata.leader(*state.at)
                question = Question(need, state.version, leader)
                if self._asked.get(state) != question:
                    self._asked[state] = question
                    broker_id = None if leader is None else leader.broker_id
                    by_broker.setdefault(broker_id, {})[state] = question
            for questions in by_broker.values():
                task = background_task(self._ask(work, questions), self._on_failure)
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _ask(self, work: Callable[[Questions], Awaitable[None]], questions: Questions) -> None:
        try:
            await work(questions)
        finally:
            for state, question in questions.items():
                if self._asked.get(state) is question:
                    del self._asked[state]
        self._on_update()
        self.wake()

    # --- committed offsets ---

    async def _take_committed(self, questions: Questions) -> None:
        offsets: Mapping[TopicPartition, CommittedOffset | None] = {}
        if self._commits is not None:
            try:
                offsets = await self._commits.fetch([state.at for state in questions], self._timeout_ms)
            except (KafkaError, ClusterUnreachable, CommitFailed) as error:
                self._failed(self._unmoved(questions), error)
                return
        for state in self._unmoved(questions):
            found = offsets.get(state.at)
            if found is not None:
                state.continue_at(found.offset, found.leader_epoch, found.metadata)
                self._look_at_leader(state)
            elif self._reset_to is not None:
                state.reset(self._reset_to)
            else:
                state.retry_ms = math.inf
                self.errors.add(
                    NoCommittedOffset(
                        f"partition {state.at} has no committed offset, and auto.offset.reset is none:"
                        " seek, or choose earliest or latest"
                    )
                )

    # --- resets ---

    async def _reset(self, questions: Questions) -> None:
        now_ms = self._cluster.clock.now_ms()
        wanted = {state.at: (state.reset_to or TO_LATEST).timestamp_at(now_ms) for state in questions}
        found = await self.list_offsets(wanted)
        for state in self._unmoved(questions):
            answer = found[state.at]
            if isinstance(answer, Exception):
                self._failed([state], answer)
            elif answer[0] == NO_OFFSET:
                state.reset(TO_LATEST)  # no record is as young as that
            else:
                logger.info("partition %s: the position is reset to offset %d", state.at, answer[0])
                state.seek(answer[0], answer[1])
                self._look_at_leader(state)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int, int] | Exception]:
        """Offset, leader epoch and timestamp for each partition's timestamp, or the error."""
        outcomes: dict[TopicPartition, tuple[int, int, int] | Exception] = {}

        async def ask(broker_id: int, leaders: Mapping[TopicPartition, Leader]) -> None:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for at, leader in leaders.items():
                row = ListOffsetsPartition(
                    partition_index=at.partition,
                    current_leader_epoch=leader.epoch,
                    timestamp=wanted[at],
                )
                topics.setdefault(at.topic, []).append(row)
            request = ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA,
                isolation_level=self._isolation,
                topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
                timeout_ms=int(self._timeout_ms),
            )
            channel = await self._cluster.channel_to(broker_id)
            answer = await channel.send(request, ListOffsetsResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    at = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        outcomes[at] = error_for(each.error_code, f"offsets of {at}")
                    else:
                        outcomes[at] = (each.offset, each.leader_epoch, each.timestamp)

        await self._ask_leaders(list(wanted), ask, outcomes)
        return outcomes

    async def _ask_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[int, Mapping[TopicPartition, Leader]], Awaitable[None]],
        outcomes: dict[TopicPartition, tuple[int, int, int] | Exception],
    ) -> None:
        """Ask the leader of each partition. Every partition gets an outcome."""
        by_leader: dict[int, dict[TopicPartition, Leader]] = {}
        metadata = self._cluster.metadata
        for at in partitions:
            leader = metadata.leader(*at)
            if leader is None:
                error = metadata.errors.get(at.topic)
                outcomes[at] = error or error_for(5, f"partition {at} has no leader")
            else:
                by_leader.setdefault(leader.broker_id, {})[at] = leader

        async def guarded(broker_id: int, leaders: Mapping[TopicPartition, Leader]) -> None:
            try:
                await ask(broker_id, leaders)
            except (KafkaError, ClusterUnreachable) as error:
                outcomes.update(dict.fromkeys(leaders, error))
            for at in leaders:
                outcomes.setdefault(at, error_for(-1, f"the answer lacks partition {at}"))

        await asyncio.gather(*(guarded(*each) for each in by_leader.items()))

    # --- validation ---

    async def _validate(self, questions: Questions) -> None:
        asked = {state.at: state for state in questions}
        ends: dict[TopicPartition, tuple[int, int, int] | Exception] = {}
        leaders_asked: dict[TopicPartition, Leader] = {}

        async def ask(broker_id: int, leaders: Mapping[TopicPartition, Leader]) -> None:
            leaders_asked.update(leaders)
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for at, leader in leaders.items():
                row = OffsetForLeaderPartition(
                    partition=at.partition,
                    current_leader_epoch=leader.epoch,
                    leader_epoch=asked[at].fetch_epoch,
                )
                topics.setdefault(at.topic, []).append(row)
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA,
                topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            )
            channel = await self._cluster.channel_to(broker_id)
            answer = await channel.send(request, OffsetForLeaderEpochResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    at = TopicPartition(topic.topic, each.partition)
                    ends[at] = _end_of(each, at)

        await self._ask_leaders(list(asked), ask, ends)
        for state in self._unmoved(questions):
            end = ends[state.at]
            if isinstance(end, UnsupportedVersion):
                state.validated(leaders_asked[state.at].epoch)
            elif isinstance(end, Exception):
                self._failed([state], end)
            else:
                self._compare(state, leaders_asked[state.at].epoch, *end[:2])

    def _compare(self, state: PartitionState, leader_epoch: int, end_offset: int, end_epoch: int) -> None:
        """Compare the fetch position with the end of its epoch in the leader's log."""
        if end_offset >= state.fetch_offset and end_epoch != NO_EPOCH:
            state.validated(leader_epoch)
            return
        if end_offset >= state.position:
            # Only batches that were not handed out are dropped.
            state.refetch()
            state.validated(leader_epoch)
            return
        message = f"partition {state.at}: its log was truncated below offset {state.position}"
        if self._reset_to is None:
            state.retry_ms = math.inf
            state.drop_buffer()
            self.errors.add(LogTruncated(f"{message}; it continues at offset {end_offset}: seek there"))
        elif end_offset == NO_OFFSET or end_epoch == NO_EPOCH:
            logger.warning("%s; auto.offset.reset applies", message)
            state.reset(self._reset_to)
        else:
            logger.warning("%s; reading continues at offset %d", message, end_offset)
            state.seek(end_offset, end_epoch)
            state.validated(leader_epoch)

    # --- shared ---

    def _look_at_leader(self, state: PartitionState) -> None:
        leader = self._cluster.metadata.leader(*state.at)
        if leader is not None:
            state.leader_changed(leader, can_validate=True)

    def _unmoved(self, questions: Questions) -> list[PartitionState]:
        """Partitions that still have this assignment and position, and were not asked about again."""
        return [
            state
            for state, question in questions.items()
            if self._asked.get(state) is question
            and (state.version, state.need) == (question.version, question.need)
            and self._positions.get(state.at) is state
        ]

    def _failed(self, states: Collection[PartitionState], error: Exception) -> None:
        self._cluster.updates.request()
        is_final = isinstance(error, KafkaError) and not error.retriable
        for state in states:
            state.retry_ms = self._cluster.clock.monotonic_ms() + self._retry_ms
        if is_final:
            self.errors.add(error)


def _end_of(row: EpochEndOffset, at: TopicPartition) -> tuple[int, int, int] | Exception:
    if row.error_code:
        return error_for(row.error_code, f"leader epochs of {at}")
    return row.end_offset, row.leader_epoch, 0
