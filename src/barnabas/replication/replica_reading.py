"""Reading from many partitions at once, for consumers and for followers.

A fetch is tried at once; one that has to wait goes to the purgatory and is read again when it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError, UnknownServerError, UnknownTopicId
from barnabas.core.ids import BrokerId
from barnabas.core.metrics import Metrics
from barnabas.purgatory.timer import Timer
from barnabas.replication.fetching import NO_REPLICA, FetchParams, FetchPartition, PartitionRead
from barnabas.replication.leader.delayed_fetch import DelayedFetch, DelayedFollowerFetch
from barnabas.replication.leader.fetch_session import FetchSession
from barnabas.replication.leader.replica_selector import ReplicaSelector
from barnabas.replication.partition import Partition
from barnabas.replication.replica_waiting import WaitingReplicas
from barnabas.replication.settings import ReplicationSettings
from barnabas.replication.throttle import ReplicationThrottle

logger = logging.getLogger(__name__)

SWEEP_MS = 1_000.0
"""How often all partitions of a follower's session are looked at: retention moves the start of a log and
tells nobody, and a follower that has everything is noted as caught up then."""


class ReadableReplicas(WaitingReplicas):
    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        timer: Timer,
        metrics: Metrics,
        settings: ReplicationSettings,
        metadata: MetadataCache | None,
    ) -> None:
        super().__init__(broker_id, timer, metrics, settings)
        self._clock = clock
        self._selector = ReplicaSelector(broker_id, settings, metadata)
        self._leader_throttle = ReplicationThrottle(
            clock,
            lambda: self.settings.leader_throttled_rate,
            lambda partition: partition.log.config.leader_replication_throttled_replicas,
        )

    def fetch(
        self,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        """Read, and answer at once when nothing should wait, nothing is asked, there is enough,
        or something went wrong; otherwise once there is enough or time is up."""
        self.answer_or_wait(params, asks, self.read(params, asks), respond)

    def answer_or_wait(
        self,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        reads: list[PartitionRead],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        """`fetch`, after the first try of reading."""
        if params.max_wait_ms <= 0 or not asks or _is_enough(reads, params.min_bytes):
            respond(reads)
            return
        operation = DelayedFetch(self, params, asks, respond)
        self.fetch_purgatory.try_complete_else_watch(operation, [ask.topic_partition for ask in asks])

    def follow(
        self,
        params: FetchParams,
        session: FetchSession,
        respond: Callable[[list[FetchPartition], list[PartitionRead]], None],
    ) -> None:
        """The same for a session of a follower, of which only what may have news is looked at."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - session.swept_ms >= min(SWEEP_MS, self.settings.replica_lag_time_max_ms / 4):
            session.swept_ms = now_ms
            session.mark_all()
        asks = self.due(params, session)
        reads = self.read(params, asks)
        if params.max_wait_ms <= 0 or _is_enough(reads, params.min_bytes):
            respond(asks, reads)
            return
        operation = DelayedFollowerFetch(self, params, session, respond)
        self.fetch_purgatory.try_complete_else_watch(operation, (session,))

    def due(self, params: FetchParams, session: FetchSession) -> list[FetchPartition]:
        """The partitions of which the follower does not have everything or does not know everything;
        the others need no further look until something happens to them."""
        asks: list[FetchPartition] = []
        partitions, changed = session.partitions, session.changed
        session.fresh.clear()
        for key in tuple(changed):
            ask = partitions[key]
            if self._is_still_caught_up(ask, params):
                del changed[key]
            else:
                asks.append(ask)
        return asks

    def read(
        self,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        *,
        is_first_try: bool = True,
    ) -> list[PartitionRead]:
        """What can be read now, within `max_bytes` over all partitions together.

        The first partition that has anything gives at least one whole batch, however large, or
        a reader with small limits would never get past a large batch.
        """
        reads: list[PartitionRead] = []
        left_bytes = params.max_bytes
        min_one_batch = True
        for ask in asks:
            read = self._read_one(
                params,
                ask,
                min(ask.max_bytes, left_bytes),
                min_one_batch=min_one_batch,
                is_first_try=is_first_try,
            )
            reads.append(read)
            if read.records is not None:
                left_bytes -= read.records.length
                min_one_batch = False
        return reads

    def read_in_slices(
        self, params: FetchParams, asks: Sequence[FetchPartition]
    ) -> Generator[None, None, list[PartitionRead]]:
        """The same for a consumer of very many partitions, with a stop after each."""
        reads: list[PartitionRead] = []
        left_bytes = params.max_bytes
        for ask in asks:
            share_bytes = min(ask.max_bytes, left_bytes)
            is_first = left_bytes == params.max_bytes
            read = self._read_one(params, ask, share_bytes, min_one_batch=is_first, is_first_try=True)
            reads.append(read)
            if read.records is not None:
                left_bytes -= read.records.length
            yield
        return reads

    def _is_still_caught_up(self, ask: FetchPartition, params: FetchParams) -> bool:
        """A follower asks again for what is not there yet, and knows the rest."""
        partition = self._partitions.get(ask.topic_partition)
        if (
            partition is None
            or partition.leader_id != self.broker_id
            or partition.leader_epoch != ask.current_leader_epoch
        ):
            return False
        log = partition.log
        if (
            ask.fetch_offset != log.log_end_offset
            or ask.sent_high_watermark != log.high_watermark
            or ask.sent_log_start_offset != log.log_start_offset
            or log.is_closed
        ):
            return False
        follower = partition.followers.get(params.replica_id)  # type: ignore[call-overload]
        if (
            follower is None
            or follower.end_offset != ask.fetch_offset
            or follower.start_offset != ask.log_start_offset
            or follower.broker_epoch != params.broker_epoch
            or params.replica_id not in partition.maximal_isr
        ):
            return False
        follower.still_caught_up(self._clock.monotonic_ms())
        return True

    def _read_one(
        self,
        params: FetchParams,
        ask: FetchPartition,
        max_bytes: int,
        *,
        min_one_batch: bool,
        is_first_try: bool,
    ) -> PartitionRead:
        if not ask.topic_partition.topic:
            return PartitionRead(UnknownTopicId.code)
        try:
            partition = self.partition(*ask.topic_partition)
            if params.is_from_follower:
                return self._read_for_follower(
                    partition, params, ask, max_bytes, min_one_batch=min_one_batch, is_first_try=is_first_try
                )
            if params.rack_id:
                preferred = self._selector.choose(partition, params.rack_id, ask.fetch_offset)
                if preferred != NO_REPLICA:
                    return partition.redirected(ask, params, preferred)
            return partition.read(ask, params, max_bytes, min_one_batch=min_one_batch)
        except KafkaError as error:
            return self._failed_read(ask, error)
        except Exception as error:
            logger.exception("reading %s failed", ask.topic_partition)
            return self._failed_read(ask, UnknownServerError(str(error)))

    def _read_for_follower(
        self,
        partition: Partition,
        params: FetchParams,
        ask: FetchPartition,
        max_bytes: int,
        *,
        min_one_batch: bool,
        is_first_try: bool,
    ) -> PartitionRead:
        """A follower that catches up over its quota is told the offsets, and gets no records."""
        throttle = self._leader_throttle
        is_held = (
            params.replica_id not in partition.isr and throttle.is_exceeded and throttle.applies_to(partition)
        )
        read = partition.read(
            ask,
            params,
            0 if is_held else max_bytes,
            min_one_batch=min_one_batch and not is_held,
            is_first_try=is_first_try,
        )
        if read.records is not None and not throttle.is_unlimited and throttle.applies_to(partition):
            throttle.record(read.records.length)
        return read

    def is_held(self, partition: Partition, params: FetchParams) -> bool:
        """Whether the reader is a follower that has to wait until the quota allows more."""
        throttle = self._leader_throttle
        return (
            params.is_from_follower
            and params.replica_id not in partition.isr
            and throttle.is_exceeded
            and throttle.applies_to(partition)
        )

    def _failed_read(self, ask: FetchPartition, error: KafkaError) -> PartitionRead:
        known = self._topic_metrics.get(ask.topic_partition.topic)
        if known is not None:
            known.failed_fetch.value += 1
        return PartitionRead(error.code)


def _is_enough(reads: list[PartitionRead], min_bytes: int) -> bool:
    total_bytes = 0
    for read in reads:
        if read.error_code or read.diverging_epoch is not None or read.preferred_read_replica != NO_REPLICA:
            return True
        if read.records is not None:
            total_bytes += read.records.length
    return total_bytes >= min_bytes
