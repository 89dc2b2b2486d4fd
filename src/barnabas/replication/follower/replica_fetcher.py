"""Replica fetcher of one source broker: decides what to fetch from it, and appends the records.

This is the deciding part, without a connection, a task or a clock of its own. Its driver (`fetcher_driver`,
or a simulator) reports events, and each event returns the next step:

    start, or a pause is over   next_step()         Connect   open a connection to the source
    a connection is open        connected(...)      Send      send this request, and bring its answer
    an answer came              answered(...)       Sync      run this off the loop, and bring its outcome
    anything failed             lost(...)           Rest      wait until then, or until something changes
    what was to be synced is    synced(...)

One step is in progress at a time. One fetch serves all partitions: an incremental session mentions only what
changed. `answered` applies a response partition by partition and returns the next fetch. Producers wait for
that fetch, so nothing is woken in between. The fetcher writes the logs, not the driver: the next fetch
depends on the outcome of each append.

Leader epochs find where a follower's log diverges from the leader's (KIP-101, KIP-279, KIP-595). Each fetch
carries the leader epoch of the last local batch. If that epoch ended elsewhere in the leader's history, the
leader sends no records. It sends the largest epoch that both can share, and where that epoch ended. The
follower truncates to it and fetches again, until the histories meet. The high watermark never decides, with
one exception: a log without any epochs (written by brokers before Kafka 0.11) offers nothing better.

After an election thousands of logs may have to be truncated at once. Their recovery points are written
together; the logs are truncated a few at a time and synced off the loop.

A fetch offset promises that the follower has everything below it for good. So a partition whose log is being
synced (`flush.messages`) is left out of the fetch until it is flushed. Meanwhile the fetcher does not wait at
the leader for the other partitions. It polls, so that the flushed partition is not held up.

A partition that fails is fetched again after a pause that grows up to `replica.fetch.backoff.ms`. The pause
is short at first: usually the leader has not yet received its LeaderAndIsr. A partition in an offline log
directory is left out until the next LeaderAndIsr for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_for,
    name_of,
)
from barnabas.core.ids import NO_EPOCH, BrokerId, TopicPartition
from barnabas.core.reporting.log_text import named
from barnabas.protocol.messages import fetch, list_offsets
from barnabas.replication.follower.connection import Connection
from barnabas.replication.follower.fetch_session import FollowerSession
from barnabas.replication.follower.followed_partition import FollowedPartition
from barnabas.replication.follower.offset_search import OffsetSearch
from barnabas.replication.follower.steps import Connect, Rest, Send, Step, Sync
from barnabas.replication.follower.truncation import truncation_offset
from barnabas.replication.partition.fetching import NO_REPLICA
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.throttle import ReplicationThrottle
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.flush_state import CutWork
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

Diverged = tuple[FollowedPartition, fetch.EpochEndOffset]
"""A partition, and the largest epoch that it can share with the leader."""
Cut = tuple[FollowedPartition, Log, CutWork | None]

FIRST_BACKOFF_MS = 20.0
THROTTLED_PAUSE_MS = 250.0
DISK_POLL_MS = 5.0
"""Pause between two fetches without records while a log is being synced."""
LAST_VERSION_BY_NAME = 12
VERSION_WITH_REPLICA_STATE = 15
TRUNCATED_AT_ONCE = 20
"""Logs that are truncated and synced together, before other work has its turn."""

_SESSION_LOST = frozenset(
    {FetchSessionIdNotFound.code, FetchSessionTopicIdError.code, InvalidFetchSessionEpoch.code}
)

_OF_A_MOVING_LEADER = frozenset(
    {
        FencedLeaderEpoch.code,
        NotLeaderOrFollower.code,
        UnknownLeaderEpoch.code,
        UnknownTopicOrPartition.code,
    }
)
"""Refusals while one of the two brokers has not received its LeaderAndIsr; logged when they repeat."""


class ReplicaFetcher:
    def __init__(
        self,
        source: BrokerId,
        broker_id: BrokerId,
        *,
        log_manager: LogManager,
        clock: Clock,
        config: BrokerConfig,
        throttle: ReplicationThrottle,
        broker_epoch: Callable[[], int],
        appended: Callable[[Partition], None],
    ) -> None:
        self.source = source
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._now_ms = clock.monotonic_ms
        self._config = config
        self._throttle = throttle
        self._broker_epoch = broker_epoch
        self._appended = appended
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._waiting: dict[TopicPartition, FollowedPartition] = {}
        """Partitions left out of the session: paused, throttled, out of range, or waiting for the disk."""
        self._diverged: dict[TopicPartition, Diverged] = {}
        """Partitions to truncate, and the leader's answer about where. They wait meanwhile."""
        self._to_cut: list[Diverged] = []
        self._cuts: list[Cut] = []
        """Truncations whose sync is in progress."""
        self._is_idle = False
        """The last response carried no records."""
        self._search: OffsetSearch | None = None
        self._failed: set[TopicPartition] = set()
        self._refused_first: dict[int, list[TopicPartition]] = {}
        """Partitions of the current response, by error, that were not refused before."""
        self._connection: Connection | None = None
        self._connect_failures = 0
        self._retry_ms = -math.inf
        """Without a connection, no step before this time."""
        self._request = fetch.FetchRequest()
        self._send = Send(self._request, fetch.FetchResponse, 0)
        """One step object serves all fetches of one version."""

    # --- partitions ---

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def max_lag(self) -> int:
        return max((followed.lag for followed in self._followed.values()), default=0)

    def lags(self) -> list[tuple[TopicPartition, int]]:
        """Lag of each followed partition, in records."""
        return [(key, followed.lag) for key, followed in self._followed.items()]

    @property
    def failed_count(self) -> int:
        return len(self._failed)

    def follow(self, partition: Partition) -> None:
        """Fetch the partition in its current leader epoch."""
        key = partition.topic_partition
        self.unfollow(key)
        followed = self._followed[key] = FollowedPartition(partition)
        log = partition.log
        if log.leader_epochs.latest_epoch == NO_EPOCH and log.log_end_offset > log.log_start_offset:
            self._log_manager.truncate_to({key: log.high_watermark})
        self._admit(followed)

    def unfollow(self, key: TopicPartition) -> None:
        self._followed.pop(key, None)
        self._waiting.pop(key, None)
        self._failed.discard(key)
        self._session.leave(key)

    def flushed(self, key: TopicPartition) -> bool:
        """The partition's log is flushed and may be fetched from its end. True if it waited for that."""
        followed = self._waiting.get(key)
        if followed is None or followed.ready_ms != math.inf:
            return False
        followed.ready_ms = 0.0
        return True

    def _admit(self, followed: FollowedPartition) -> None:
        if followed.is_durable:
            self._waiting.pop(followed.key, None)
            self._session.want(followed)
        else:
            self._pause(followed, math.inf)  # until `flushed`

    def _pause(self, followed: FollowedPartition, delay_ms: float) -> None:
        """Leave the partition out for a while."""
        followed.ready_ms = self._now_ms() + delay_ms
        self._waiting[followed.key] = followed
        self._session.leave(followed.key)

    def _back_off(self, followed: FollowedPartition) -> None:
        self._pause(followed, self._backoff_ms(followed.failures))
        followed.failures += 1

    def _backoff_ms(self, failures: int) -> float:
        return Backoff(FIRST_BACKOFF_MS, self._config.replica_fetch_backoff_ms).after_ms(failures)

    def _set_aside(self, followed: FollowedPartition) -> None:
        self.unfollow(followed.key)
        self._failed.add(followed.key)

    # --- events and next steps ---

    def next_step(self) -> Step:
        """The next step when none is in progress."""
        try:
            return self._next_step()
        except Exception as error:  # noqa: BLE001 - `lost` logs it and retries
            return self.lost(error)

    def connected(self, connection: Connection) -> Step:
        self._connection = connection
        self._connect_failures = 0
        return self.next_step()

    def answered(self, answer: fetch.FetchResponse | list_offsets.ListOffsetsResponse) -> Step:
        try:
            if isinstance(answer, fetch.FetchResponse):
                self._apply(answer)
            elif (question := self._take_offsets(answer)) is not None:
                return question
            return self._next_step()
        except Exception as error:  # noqa: BLE001 - `lost` logs it and retries
            return self.lost(error)

    def lost(self, error: BaseException) -> Step:
        """Start over after a pause: the leader is unreachable, or its response is unusable."""
        if not isinstance(error, KafkaError):
            logger.error("replica fetcher: fetching from broker %d failed", self.source, exc_info=error)
        elif self._connect_failures == 0:
            logger.warning(
                "replica fetcher: fetching from broker %d failed and is retried: %s", self.source, error
            )
        self._search = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._retry_ms = self._now_ms() + self._backoff_ms(self._connect_failures)
        self._connect_failures += 1
        cuts, self._cuts = self._cuts, []
        for followed, *_ in cuts:
            if self._is_waiting(followed):
                self._back_off(followed)  # a truncation without a sync is synced before the next append
        return Rest(self._retry_ms)

    def synced(self, errors: Iterable[OSError | None]) -> Step:
        cuts, self._cuts = self._cuts, []
        for (followed, log, cut), error in zip(cuts, errors, strict=True):
            if self._is_waiting(followed):
                with self._answerable_alone(followed):
                    # A log that moved to another disk meanwhile has nothing to do with the old directory.
                    if followed.partition.log is log:
                        log.cut_synced(cut, error)
                    self._admit(followed)
        return self.next_step()

    def _next_step(self) -> Step:
        connection = self._connection
        if connection is None and self._retry_ms > self._now_ms():
            return Rest(self._retry_ms)
        if self._diverged:
            self._begin_truncation()
        while self._to_cut:
            self._truncate_some()
            if self._cuts:
                return Sync(tuple(cut for *_, cut in self._cuts))
        out_of_range = self._revive() if self._waiting else []
        if not len(self._session) and not out_of_range:
            return self._rest()
        if connection is None or connection.is_closed:
            self._session.reset()
            return Connect(self.source)
        if out_of_range:
            self._search = OffsetSearch(self._broker_id, out_of_range)
            return self._search.ask(connection)
        return self._fetch(connection)

    def _is_disk_awaited(self) -> bool:
        return any(followed.ready_ms == math.inf for followed in self._waiting.values())

    def _revive(self) -> list[FollowedPartition]:
        """Take back partitions whose pause is over; returns those that need a search for their offset."""
        out_of_range: list[FollowedPartition] = []
        now_ms = self._now_ms()
        for followed in list(self._waiting.values()):
            if followed.is_out_of_range:
                out_of_range.append(followed)
            elif followed.ready_ms <= now_ms:
                self._admit(followed)
        return out_of_range

    def _rest(self) -> Rest:
        """Rest until something changes or a pause ends."""
        return Rest(min((followed.ready_ms for followed in self._waiting.values()), default=math.inf))

    def _fetch(self, connection: Connection) -> Step:
        config, request = self._config, self._request
        max_wait_ms = config.replica_fetch_wait_max_ms
        if self._waiting and self._is_disk_awaited():
            if self._is_idle:
                self._is_idle = False
                return Rest(self._now_ms() + DISK_POLL_MS)
            max_wait_ms = 0
        version_max = None if self._session.settle_naming() else LAST_VERSION_BY_NAME
        version = connection.version_for(fetch.FetchRequest, version_max)
        request.max_wait_ms = max_wait_ms
        request.min_bytes = config.replica_fetch_min_bytes
        request.max_bytes = config.replica_fetch_response_max_bytes
        # One request object serves all versions: fields of another version must not stay behind.
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
            return self._rest()
        self._session.fill(request, config.replica_fetch_max_bytes)
        if version != self._send.version:
            self._send = self._send._replace(version=version)
        return self._send

    def _apply(self, answer: fetch.FetchResponse) -> None:
        if answer.error_code in _SESSION_LOST:
            self._session.reset()
            return
        if answer.error_code:
            raise error_for(answer.error_code, f"broker {self.source} refuses the fetch")
        asked = [
            (followed, data)
            for topic in answer.responses
            for data in topic.partitions
            if (followed := self._session.asked(topic, data.partition_index)) is not None
        ]
        self._session.answered(answer.session_id)
        self._is_idle = not any(data.records for _, data in asked)
        for followed, data in asked:
            self._take(followed, data)
        if self._refused_first:
            self._report_refusals()

    def _leave_out_throttled(self) -> None:
        """Leave out partitions that are catching up while the quota is used up."""
        if self._throttle.is_exceeded:
            for followed in self._followed.values():
                if (
                    followed.key not in self._waiting
                    and followed.lag
                    and self._throttle.applies_to(followed.partition)
                ):
                    self._pause(followed, THROTTLED_PAUSE_MS)

    # --- responses ---

    def _take(self, followed: FollowedPartition, data: fetch.PartitionData) -> None:
        """Apply one partition of a response; its failure stays its own."""
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
        """Keep any error inside this partition."""
        try:
            yield
        except (CorruptMessage, OffsetOutOfRange) as error:
            logger.warning(
                "partition %s: the fetch response of broker %d is unusable: %s",
                followed.key,
                self.source,
                error,
            )
            self._back_off(followed)
        except FencedLeaderEpoch:
            self.unfollow(followed.key)  # a newer LeaderAndIsr has arrived
        except KafkaStorageError as error:
            if followed.partition.log.log_directory.failure is None:
                logger.warning(
                    "partition %s: the follower cannot append and retries: %s", followed.key, error
                )
                self._back_off(followed)
            else:
                logger.error(
                    "partition %s: fetching stops until the next LeaderAndIsr: %s", followed.key, error
                )
                self._set_aside(followed)
        except Exception:
            logger.exception("partition %s: fetching stops until the next LeaderAndIsr", followed.key)
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
            partition.metrics.replication_bytes_in.value += len(records)
            if not self._throttle.is_unlimited and self._throttle.applies_to(partition):
                self._throttle.record(len(records))
            self._session.want(followed)
        log.advance_high_watermark(min(data.high_watermark, log.log_end_offset))
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(data.log_start_offset, "the leader's log start offset moved")
            self._session.want(followed)
        self._appended(partition)
        if not followed.is_durable:
            self._pause(followed, math.inf)

    def _refused(self, followed: FollowedPartition, error_code: int) -> None:
        if error_code == OffsetOutOfRange.code:
            followed.is_out_of_range = True
            self._pause(followed, 0)
            return
        reported = 1 if error_code in _OF_A_MOVING_LEADER else 0
        if followed.failures == reported:
            self._refused_first.setdefault(error_code, []).append(followed.key)
        self._back_off(followed)

    def _report_refusals(self) -> None:
        """Log refusals, one line per error: a leader may lack its LeaderAndIsr for a thousand partitions."""
        refused, self._refused_first = self._refused_first, {}
        for error_code, keys in refused.items():
            logger.info(
                "partitions %s: broker %d refuses the fetch with %s",
                named(keys),
                self.source,
                name_of(error_code),
            )

    def _begin_truncation(self) -> None:
        diverged, self._diverged = self._diverged, {}
        self._to_cut = [(each, leader) for each, leader in diverged.values() if self._is_waiting(each)]
        targets = {each.key: _target_of(each, leader) for each, leader in self._to_cut}
        try:
            self._log_manager.lower_recovery_points(targets)
        except KafkaStorageError as error:
            # The truncation of each log writes it again, and reports its own failure.
            logger.warning(
                "writing the recovery points of %d logs failed before truncation: %s", len(targets), error
            )

    def _truncate_some(self) -> None:
        some, self._to_cut = self._to_cut[:TRUNCATED_AT_ONCE], self._to_cut[TRUNCATED_AT_ONCE:]
        for followed, leader in some:
            if self._is_waiting(followed):
                with self._answerable_alone(followed):
                    self._truncate(followed, leader)
                    log = followed.partition.log
                    self._cuts.append((followed, log, log.flush_state.unsynced_cut))

    def _is_waiting(self, followed: FollowedPartition) -> bool:
        """Whether the partition is still followed as it was when it began to wait."""
        is_followed = self._followed.get(followed.key) is followed
        return is_followed and followed.partition.leadership.leader_epoch == followed.leader_epoch

    def _truncate(self, followed: FollowedPartition, leader: fetch.EpochEndOffset) -> None:
        log, target = followed.partition.log, _target_of(followed, leader)
        if target < log.high_watermark:
            logger.warning(
                "partition %s: truncating to offset %d, below the high watermark %d",
                followed.key,
                target,
                log.high_watermark,
            )
        else:
            logger.info(
                "partition %s: truncating from offset %d to %d", followed.key, log.log_end_offset, target
            )
        self._log_manager.truncate_to({followed.key: target})

    def _take_offsets(self, answer: list_offsets.ListOffsetsResponse) -> Step | None:
        """Apply the leader's start and end offsets; returns the next ListOffsets request, if any."""
        search, connection = self._search, self._connection
        assert search is not None
        assert connection is not None
        if not search.take(answer):
            return search.ask(connection)
        self._search = None
        ends = search.ends or {}
        for followed in search.partitions:
            if self._waiting.get(followed.key) is not followed:
                continue
            start_offset, end_offset = search.starts.get(followed.key), ends.get(followed.key)
            followed.is_out_of_range = False
            if start_offset is None or end_offset is None:
                self._back_off(followed)
                continue
            with self._answerable_alone(followed):
                self._move_into(followed, start_offset, end_offset)
        return None

    def _move_into(self, followed: FollowedPartition, start_offset: int, end_offset: int) -> None:
        log = followed.partition.log
        if log.log_end_offset > end_offset:
            logger.warning(
                "partition %s: log end offset %d is beyond the leader's %d; truncating",
                followed.key,
                log.log_end_offset,
                end_offset,
            )
            self._log_manager.truncate_to({followed.key: end_offset})
        elif log.log_end_offset < start_offset:
            logger.warning(
                "partition %s: log end offset %d precedes the leader's log start; restarting at offset %d",
                followed.key,
                log.log_end_offset,
                start_offset,
            )
            self._log_manager.truncate_fully_and_start_at(followed.key, start_offset)
        else:
            # The leader's log covers the local end after all: it has moved since, or refuses the local epoch.
            self._back_off(followed)
            return
        self._admit(followed)


def _target_of(followed: FollowedPartition, leader: fetch.EpochEndOffset) -> int:
    log = followed.partition.log
    return truncation_offset(log.end_offset_for_epoch, log.log_end_offset, leader)
