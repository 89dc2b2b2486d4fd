"""Follows one other broker: fetches what it leads and we replicate, and appends it.

One channel, and one fetch at a time for all partitions (an incremental session, so only what changed
is mentioned). An answer is applied partition by partition where it arrives, and the next fetch leaves
from there: a write waits for this, so no task is woken in between. A task does what takes time: it
connects, asks for offsets, and waits while there is nothing to fetch.

Where a follower's log leaves the leader's is found by epochs (KIP-101, KIP-279, KIP-595): each
fetch says under which leader epoch our last batch was written. If that epoch ended elsewhere in
the leader's history, the leader sends no data but the epoch in which both can agree and where it
ended there; we cut our log to that, and ask again, until the histories meet. The high watermark
never decides, with one exception: a log that carries no epochs at all (written by brokers before
Kafka 0.11) offers nothing better.

After an election thousands of logs may have to be cut at once. That is the task's work: their recovery
points go to disk together, and the logs are cut a few at a time and synced off the loop.

A partition that fails is fetched again after a pause that grows up to `replica.fetch.backoff.ms`;
it is short at first, because the usual failure is a leader that has not yet heard that it is one. A
partition whose log directory is offline is set aside until the controller speaks of it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from barnabas.client.channel import Channel
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    OffsetOutOfRange,
    error_for,
    name_of,
)
from barnabas.core.ids import NO_EPOCH, BrokerId, TopicPartition
from barnabas.protocol.messages import fetch, list_offsets
from barnabas.replication.follower.fetch_state import FollowedPartition, FollowerSession
from barnabas.replication.partition import Partition
from barnabas.replication.throttle import ReplicationThrottle
from barnabas.storage.log.flush import CutWork
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

Connect = Callable[[BrokerId], Awaitable[Channel]]
Diverged = tuple[FollowedPartition, fetch.EpochEndOffset]
"""A partition, and the epoch in which the leader can agree with it."""

FIRST_BACKOFF_MS = 20.0
THROTTLED_PAUSE_MS = 250.0
LAST_VERSION_BY_NAME = 12
VERSION_WITH_REPLICA_STATE = 15
LATEST, EARLIEST = -1, -2
NAMED_MAX = 3
TRUNCATED_AT_ONCE = 20
"""Logs that are cut, and synced together, before others have their turn."""
NO_REPLICA = -1

_SESSION_LOST = frozenset(
    {FetchSessionIdNotFound.code, FetchSessionTopicIdError.code, InvalidFetchSessionEpoch.code}
)


class ReplicaFetcher:
    def __init__(
        self,
        source: BrokerId,
        broker_id: BrokerId,
        *,
        connect: Connect,
        log_manager: LogManager,
        clock: Clock,
        settings: BrokerConfig,
        throttle: ReplicationThrottle,
        broker_epoch: Callable[[], int],
        appended: Callable[[Partition], None],
    ) -> None:
        self.source = source
        self._broker_id = broker_id
        self._connect = connect
        self._log_manager = log_manager
        self._now_ms = clock.monotonic_ms
        self._settings = settings
        self._throttle = throttle
        self._broker_epoch = broker_epoch
        self._appended = appended
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._waiting: dict[TopicPartition, FollowedPartition] = {}
        """Left out of the session: paused, throttled, out of range, or waiting for the disk."""
        self._diverged: dict[TopicPartition, Diverged] = {}
        """To be cut, and what the leader has said of where; they wait meanwhile."""
        self._failed: set[TopicPartition] = set()
        self._refused_first: dict[int, list[TopicPartition]] = {}
        """In the answer at hand, by error: partitions that were not refused before."""
        self._channel: Channel | None = None
        self._connect_failures = 0
        self._awake = asyncio.Event()
        self._pursuit: asyncio.Future[None] | None = None
        """While fetch follows fetch: done when the task is needed again."""
        self._request = fetch.FetchRequest()
        self._task: asyncio.Task[None] | None = None

    # -- which partitions ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def max_lag(self) -> int:
        return max((followed.lag for followed in self._followed.values()), default=0)

    @property
    def failed_count(self) -> int:
        return len(self._failed)

    def follow(self, partition: Partition) -> None:
        """Fetch the partition in its present leader epoch."""
        key = partition.topic_partition
        self.unfollow(key)
        followed = self._followed[key] = FollowedPartition(partition)
        log = partition.log
        if log.leader_epochs.latest_epoch == NO_EPOCH and log.log_end_offset > log.log_start_offset:
            self._log_manager.truncate_to({key: log.high_watermark})
        self._admit(followed)
        if self._task is None:
            name = f"replica-fetcher-{self.source}"
            self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def unfollow(self, key: TopicPartition) -> None:
        self._followed.pop(key, None)
        self._waiting.pop(key, None)
        self._failed.discard(key)
        self._session.leave(key)

    def flushed(self, key: TopicPartition) -> None:
        """What we have of the partition is on disk: we may say that we have it."""
        followed = self._waiting.get(key)
        if followed is not None and followed.ready_ms == math.inf:
            followed.ready_ms = 0.0
            self._awake.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _admit(self, followed: FollowedPartition) -> None:
        self._waiting.pop(followed.key, None)
        self._session.want(followed)
        self._awake.set()

    def _pause(self, followed: FollowedPartition, delay_ms: float) -> None:
        """Leave the partition out for a while."""
        followed.ready_ms = self._now_ms() + delay_ms
        self._waiting[followed.key] = followed
        self._session.leave(followed.key)

    def _back_off(self, followed: FollowedPartition) -> None:
        self._pause(followed, self._backoff_ms(followed.failures))
        followed.failures += 1

    def _backoff_ms(self, failures: int) -> float:
        return min(FIRST_BACKOFF_MS * (1 << min(failures, 16)), self._settings.replica_fetch_backoff_ms)

    def _set_aside(self, followed: FollowedPartition) -> None:
        self.unfollow(followed.key)
        self._failed.add(followed.key)

    # -- the turns ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except KafkaError as error:
                await self._lost_leader(error)
            except Exception:
                logger.exception("fetching from broker %d failed", self.source)
                await self._lost_leader(NetworkException("an unexpected error"))

    async def _turn(self) -> None:
        self._awake.clear()
        if self._diverged:
            await self._truncate_diverged()
        self._revive()
        out_of_range = [each for each in self._waiting.values() if each.is_out_of_range]
        if not len(self._session) and not out_of_range:
            await self._rest()
            return
        channel = await self._open_channel()
        if out_of_range:
            await self._find_offsets(channel, out_of_range)
        elif len(self._session):
            await self._fetch(channel)

    def _revive(self) -> None:
        """Take back partitions whose pause is over."""
        if not self._waiting:
            return
        now_ms = self._now_ms()
        for followed in list(self._waiting.values()):
            if followed.ready_ms <= now_ms and not followed.is_out_of_range:
                self._admit(followed)

    async def _rest(self) -> None:
        """Nothing can be fetched before something changes or a pause ends."""
        delay_s: float | None = None
        if self._waiting:
            ready_ms = min(followed.ready_ms for followed in self._waiting.values())
            if ready_ms != math.inf:
                delay_s = max(ready_ms - self._now_ms(), 0.0) / 1_000
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._awake.wait()

    async def _open_channel(self) -> Channel:
        if self._channel is None or self._channel.is_closed:
            self._session.reset()
            self._channel = await self._connect(self.source)
            self._connect_failures = 0
        return self._channel

    async def _lost_leader(self, error: KafkaError) -> None:
        if self._connect_failures == 0:
            logger.warning("fetching from broker %d: %s", self.source, error)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        delay_ms = self._backoff_ms(self._connect_failures)
        self._connect_failures += 1
        await asyncio.sleep(delay_ms / 1_000)

    async def _fetch(self, channel: Channel) -> None:
        """Fetch again and again, until there is something that takes time or the leader is lost."""
        pursuit = self._pursuit = asyncio.get_running_loop().create_future()
        try:
            self._ask(channel)
            await pursuit
        finally:
            self._pursuit = None

    def _ask(self, channel: Channel) -> None:
        settings, request = self._settings, self._request
        version_max = None if self._session.settle_naming() else LAST_VERSION_BY_NAME
        version = channel.version_for(fetch.FetchRequest, version_max)
        request.max_wait_ms = settings.replica_fetch_wait_max_ms
        request.min_bytes = settings.replica_fetch_min_bytes
        request.max_bytes = settings.replica_fetch_response_max_bytes
        # One request serves all fetches, and versions change: what another one has must not stay behind.
        if version >= VERSION_WITH_REPLICA_STATE:
            request.replica_id = NO_REPLICA
            request.replica_state = fetch.ReplicaState(
                replica_id=self._broker_id, replica_epoch=self._broker_epoch()
            )
        else:
            request.replica_id = self._broker_id
            request.replica_state = None
        self._leave_out_throttled()
        if not len(self._session):
            self._end_pursuit()
            return
        self._session.fill(request, settings.replica_fetch_max_bytes)
        channel.post(
            request,
            fetch.FetchResponse,
            version,
            answered=self._answered,
            failed=self._end_pursuit,
            timeout_ms=settings.replica_socket_timeout_ms,
        )

    def _end_pursuit(self, error: Exception | None = None) -> None:
        pursuit = self._pursuit
        if pursuit is None or pursuit.done():
            return
        if error is None:
            pursuit.set_result(None)
        else:
            pursuit.set_exception(error)

    def _answered(self, answer: fetch.FetchResponse) -> None:
        if self._pursuit is None or self._pursuit.done():
            return  # nobody follows any more
        try:
            self._apply(answer)
            self._revive()
            channel = self._channel
            if (
                channel is None
                or channel.is_closed
                or not len(self._session)
                or self._diverged
                or any(each.is_out_of_range for each in self._waiting.values())
            ):
                self._end_pursuit()
            else:
                self._ask(channel)
        except Exception as error:  # noqa: BLE001 - the task decides what becomes of it
            self._end_pursuit(error)

    def _apply(self, answer: fetch.FetchResponse) -> None:
        if answer.error_code in _SESSION_LOST:
            self._session.reset()
            return
        if answer.error_code:
            raise error_for(answer.error_code, f"broker {self.source} refuses to be followed")
        asked = [
            (followed, data)
            for topic in answer.responses
            for data in topic.partitions
            if (followed := self._session.asked(topic, data.partition_index)) is not None
        ]
        self._session.answered(answer.session_id)
        for followed, data in asked:
            self._take(followed, data)
        if self._refused_first:
            self._report_refusals()

    def _leave_out_throttled(self) -> None:
        """Partitions that have catching up to do wait while the quota is used up."""
        if self._throttle.is_exceeded:
            for followed in self._followed.values():
                if (
                    followed.key not in self._waiting
                    and followed.lag
                    and self._throttle.applies_to(followed.partition)
                ):
                    self._pause(followed, THROTTLED_PAUSE_MS)

    # -- what an answer does ------------------------------------------------------------------

    def _take(self, followed: FollowedPartition, data: fetch.PartitionData) -> None:
        """Apply one partition of an answer; its failure is its own."""
        with self._answerable_alone(followed):
            if data.error_code:
                self._refused(followed, data.error_code)
            elif data.diverging_epoch is not None:
                followed.failures = 0
                self._diverged[followed.key] = (followed, data.diverging_epoch)
                self._pause(followed, math.inf)
            else:
                self._append(followed, data)

    @contextmanager
    def _answerable_alone(self, followed: FollowedPartition) -> Iterator[None]:
        """Whatever goes wrong inside is a matter of this partition."""
        try:
            yield
        except (CorruptMessage, OffsetOutOfRange) as error:
            logger.warning("%s: an answer of broker %d: %s", followed.key, self.source, error)
            self._back_off(followed)
        except FencedLeaderEpoch:
            self.unfollow(followed.key)  # the controller has spoken meanwhile
        except KafkaStorageError as error:
            if followed.partition.log.log_directory.failure is None:
                logger.warning("%s cannot be written now: %s", followed.key, error)
                self._back_off(followed)
            else:
                logger.error("%s is followed no longer: %s", followed.key, error)
                self._set_aside(followed)
        except Exception:
            logger.exception("%s is followed no longer", followed.key)
            self._set_aside(followed)

    def _append(self, followed: FollowedPartition, data: fetch.PartitionData) -> None:
        followed.failures = 0
        followed.high_watermark = data.high_watermark
        partition = followed.partition
        log = partition.log
        records = data.records
        if records:
            assert isinstance(records, memoryview)
            partition.append_as_follower(records, followed.leader_epoch)
            if not self._throttle.is_unlimited and self._throttle.applies_to(partition):
                self._throttle.record(len(records))
            self._session.want(followed)
        log.advance_high_watermark(min(data.high_watermark, log.log_end_offset))
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(data.log_start_offset, "the leader's has moved")
            self._session.want(followed)
        self._appended(partition)
        if log.durable_end_offset < log.log_end_offset:
            # To fetch from our end would be to say that we have everything before it for sure.
            self._pause(followed, math.inf)

    def _refused(self, followed: FollowedPartition, error_code: int) -> None:
        if error_code == OffsetOutOfRange.code:
            followed.is_out_of_range = True
            self._pause(followed, 0)
            return
        if followed.failures == 0:
            self._refused_first.setdefault(error_code, []).append(followed.key)
        self._back_off(followed)

    def _report_refusals(self) -> None:
        """In one line for each error: a leader may not have heard yet of a thousand partitions."""
        refused, self._refused_first = self._refused_first, {}
        for error_code, keys in refused.items():
            names = ", ".join(map(str, keys[:NAMED_MAX]))
            more = f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else ""
            logger.info("%s%s: broker %d says: %s", names, more, self.source, name_of(error_code))

    async def _truncate_diverged(self) -> None:
        diverged, self._diverged = self._diverged, {}
        waiting = [(each, leader) for each, leader in diverged.values() if self._is_waiting(each)]
        targets = {each.key: _target_of(each, leader) for each, leader in waiting}
        try:
            self._log_manager.lower_recovery_points(targets)
        except KafkaStorageError as error:
            # Cutting a log says it once more, and what comes of it.
            logger.warning("the recovery points of %d logs were not written: %s", len(targets), error)
        for first in range(0, len(waiting), TRUNCATED_AT_ONCE):
            await self._truncate_some(waiting[first : first + TRUNCATED_AT_ONCE])

    async def _truncate_some(self, some: list[Diverged]) -> None:
        cuts: list[tuple[FollowedPartition, Log, CutWork | None]] = []
        for followed, leader in some:
            if self._is_waiting(followed):
                with self._answerable_alone(followed):
                    self._truncate(followed, leader)
                    log = followed.partition.log
                    cuts.append((followed, log, log.unsynced_cut))
        errors = await asyncio.to_thread(_sync_all, [cut for *_, cut in cuts])
        for (followed, log, cut), error in zip(cuts, errors, strict=True):
            if self._is_waiting(followed):
                with self._answerable_alone(followed):
                    # A log that was moved to another disk meanwhile has nothing to do with the old directory.
                    if followed.partition.log is log:
                        log.cut_synced(cut, error)
                    self._admit(followed)

    def _is_waiting(self, followed: FollowedPartition) -> bool:
        """The partition is still followed as it was when it was told to wait."""
        is_followed = self._followed.get(followed.key) is followed
        return is_followed and followed.partition.leadership.leader_epoch == followed.leader_epoch

    def _truncate(self, followed: FollowedPartition, leader: fetch.EpochEndOffset) -> None:
        log, target = followed.partition.log, _target_of(followed, leader)
        if target < log.high_watermark:
            logger.warning(
                "%s is truncated to %d, below the high watermark %d", followed.key, target, log.high_watermark
            )
        else:
            logger.info("%s is truncated from %d to %d", followed.key, log.log_end_offset, target)
        self._log_manager.truncate_to({followed.key: target})

    async def _find_offsets(self, channel: Channel, lost: list[FollowedPartition]) -> None:
        """Our offset is not within the leader's log: ask where that begins and ends."""
        ends = await self._list_offsets(channel, lost, LATEST)
        starts = await self._list_offsets(channel, lost, EARLIEST)
        for followed in lost:
            key = followed.key
            if self._waiting.get(key) is not followed:
                continue
            start_offset, end_offset = starts.get(key), ends.get(key)
            followed.is_out_of_range = False
            if start_offset is None or end_offset is None:
                self._back_off(followed)
                continue
            with self._answerable_alone(followed):
                self._move_into(followed, start_offset, end_offset)

    def _move_into(self, followed: FollowedPartition, start_offset: int, end_offset: int) -> None:
        log = followed.partition.log
        if log.log_end_offset > end_offset:
            logger.warning(
                "%s ends at %d, its leader at %d: truncating", followed.key, log.log_end_offset, end_offset
            )
            self._log_manager.truncate_to({followed.key: end_offset})
        elif log.log_end_offset < start_offset:
            logger.warning(
                "%s ends at %d, before its leader starts: starting over at %d",
                followed.key,
                log.log_end_offset,
                start_offset,
            )
            self._log_manager.truncate_fully_and_start_at(followed.key, start_offset)
        else:
            # The leader's log covers our end after all: it has moved since, or refuses our epoch.
            self._back_off(followed)
            return
        self._admit(followed)

    async def _list_offsets(
        self, channel: Channel, lost: list[FollowedPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list_offsets.ListOffsetsTopic] = {}
        for followed in lost:
            name, index = followed.key
            topic = topics.setdefault(name, list_offsets.ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                list_offsets.ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
                )
            )
        request = list_offsets.ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))
        answer = await channel.send(
            request,
            list_offsets.ListOffsetsResponse,
            timeout_ms=self._settings.replica_socket_timeout_ms,
        )
        return {
            TopicPartition(topic.name, part.partition_index): part.offset
            for topic in answer.topics
            for part in topic.partitions
            if not part.error_code
        }


def _sync_all(cuts: Iterable[CutWork | None]) -> list[OSError | None]:
    """Off the loop: what became of each."""
    errors: list[OSError | None] = []
    for cut in cuts:
        try:
            if cut is not None:
                cut()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def _target_of(followed: FollowedPartition, leader: fetch.EpochEndOffset) -> int:
    log = followed.partition.log
    return truncation_offset(log.end_offset_for_epoch, log.log_end_offset, leader)


def truncation_offset(
    end_offset_for_epoch: Callable[[int], tuple[int, int]], log_end_offset: int, leader: fetch.EpochEndOffset
) -> int:
    """Where to cut our log, given the epoch that the leader offers and where it ended there.

    If we know that epoch, both histories are one up to the smaller of its two ends. If we do not
    (KIP-279), nothing of ours beyond the largest epoch below it can be the leader's: cut there, and
    the next fetch compares again."""
    epoch, end_offset = end_offset_for_epoch(leader.epoch)
    if NO_EPOCH in (leader.epoch, epoch):
        return min(leader.end_offset, log_end_offset)
    if epoch != leader.epoch:
        return min(end_offset, log_end_offset)
    return min(end_offset, leader.end_offset, log_end_offset)
