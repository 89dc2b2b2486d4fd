"""Sender: which batches go to which broker now, and the meaning of answers. It does no I/O.

The shell calls `requests` for the requests of this moment, and reports each with `answered` or `failed`. At
`wake_ms` it asks again, at the latest.

- A request has at most one batch of a partition, and at most `max.request.size` bytes. Partitions take turns.
- Up to `max.in.flight.requests.per.connection` requests of a broker are without an answer. An idempotent
  producer keeps the order through retries by its sequence numbers (`producer_state`). Without them one
  request in flight keeps the order, and more may not: as in Java.
- A refused batch is sent again after `retry.backoff.ms`, doubled with each attempt, until
  `delivery.timeout.ms`. A batch whose leader has moved is sent again at once (KIP-951).
- A batch that is too large for the broker is split and sent in parts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.core.metadata import Leader, Metadata
from barnabas.client.core.retries import spread
from barnabas.client.producer.core.accumulator import Accumulator, Queue
from barnabas.client.producer.core.batch import NO_APPEND_TIME, NO_OFFSET, ProducerBatch
from barnabas.client.producer.core.producer_state import NO_LOG_START, ProducerState
from barnabas.client.producer.core.sender_metrics import SenderMetrics
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    MessageTooLarge,
    NetworkException,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import NO_EPOCH, ZERO_UUID, Randomness, Uuid
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from barnabas.records.batch import HEADER_BYTES

logger = logging.getLogger(__name__)

METADATA_IS_OLD: Final = (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


BACKOFF: Final = Backoff(100, 1_000)

DOUBTFUL: Final = (
    "the connection was lost before the answer, and an earlier batch expired: the records may be there or not"
)


@dataclass(frozen=True, slots=True)
class SenderOptions:
    acks: int = -1
    in_flight_max: int = 5
    request_bytes_max: int = 1024 * 1024
    retries: int = 2**31 - 1
    backoff: Backoff = BACKOFF
    keeps_order: bool = False
    """One request of a partition at a time: one request in flight, and no sequence numbers."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """One Produce request: batches of several partitions with the same leader."""

    broker_id: int
    batches: list[ProducerBatch] = field(default_factory=list)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    size_bytes: int = 0
    sent_ms: float = 0.0

    @property
    def names_ids(self) -> bool:
        """True when every topic has an id, so that the newest versions of Produce can be used."""
        return ZERO_UUID not in self.topic_ids.values()


class Sender:
    def __init__(
        self,
        options: SenderOptions,
        accumulator: Accumulator,
        state: ProducerState,
        metadata: Metadata,
        clock: Clock,
        randomness: Randomness,
        metrics: SenderMetrics,
    ) -> None:
        self._options = options
        self._accumulator = accumulator
        self._state = state
        self._metadata = metadata
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._log = RateLimitedLogger(logger, clock)
        self.in_flight: dict[int, list[Outgoing]] = {}
        """Requests without an answer, by broker."""
        self.wants_metadata = False
        """True when a leader is unknown or has moved. The shell asks for an update and clears it."""
        self.wake_ms = math.inf
        """Time of the next call of `requests` at the latest."""

    @property
    def has_waiting(self) -> bool:
        """True when records wait to be sent."""
        return bool(self._accumulator.waiting)

    # --- requests ---

    def requests(self, can_send: Callable[[int], bool]) -> list[Outgoing]:
        """Requests to send now. `can_send` is asked once for each broker that has a batch ready."""
        now_ms = self._clock.monotonic_ms()
        self._expire(now_ms)
        self._state.settle()  # after the expiry: batches behind an expired one may go in this run
        self._fail_doubtful()
        self._fail_with_transaction()
        ready = self._ready(now_ms)
        made: list[Outgoing] = []
        for broker_id, queues in ready.items():
            in_flight = self.in_flight.setdefault(broker_id, [])
            if len(in_flight) >= self._options.in_flight_max or not can_send(broker_id):
                continue
            takes_all = True
            while queues and len(in_flight) < self._options.in_flight_max:
                request = self._drain(broker_id, queues, now_ms, takes_all=takes_all)
                takes_all = False
                if request is None:
                    break
                in_flight.append(request)
                made.append(request)
        return made

    def _ready(self, now_ms: float) -> dict[int, dict[Queue, int]]:
        """Queues of brokers for which a batch is ready, each with the epoch of the leader.

        The other batches of such a broker go with it, without their linger: the request is paid already.
        """
        self.wake_ms = self._accumulator.next_expiry_ms()
        by_broker: dict[int, dict[Queue, int]] = {}
        ready: set[int] = set()
        for queue in self._accumulator.waiting:
            leader = self._metadata.leader(*queue.topic_partition)
            if leader is None:
                self.wants_metadata = True
                continue
            by_broker.setdefault(leader.broker_id, {})[queue] = leader.epoch
            at_ms = self._ready_at_ms(queue, leader.epoch)
            if at_ms <= now_ms:
                ready.add(leader.broker_id)
            else:
                self.wake_ms = min(self.wake_ms, at_ms)
        return {broker_id: by_broker[broker_id] for broker_id in by_broker if broker_id in ready}

    def _ready_at_ms(self, queue: Queue, leader_epoch: int) -> float:
        if queue.batches and not queue.is_muted:
            first = queue.batches[0]
            if first.attempts and first.leader_epoch not in (NO_EPOCH, leader_epoch):
                return -math.inf  # a new leader: no reason to wait
        return self._accumulator.ready_at_ms(queue)

    def _drain(
        self, broker_id: int, queues: dict[Queue, int], now_ms: float, *, takes_all: bool
    ) -> Outgoing | None:
        """Next request to a broker. Queues that have nothing more to send leave `queues`."""
        request = Outgoing(broker_id, sent_ms=now_ms)
        for queue, leader_epoch in list(queues.items()):
            at_ms = self._ready_at_ms(queue, leader_epoch)
            goes_along = takes_all and at_ms < math.inf and not queue.batches[0].attempts
            if (at_ms > now_ms and not goes_along) or not self._state.may_send(queue.batches[0], broker_id):
                del queues[queue]
            elif self._fits(request, queue.batches[0]):
                self._take(request, queue, leader_epoch, now_ms)
            else:
                break
        return request if request.batches else None

    def _fits(self, request: Outgoing, batch: ProducerBatch) -> bool:
        total = request.size_bytes + batch.size_bytes
        return not request.batches or total <= self._options.request_bytes_max

    def _take(self, request: Outgoing, queue: Queue, leader_epoch: int, now_ms: float) -> None:
        batch = self._accumulator.drain(queue)
        self._state.number(batch)
        try:
            self._accumulator.seal(batch)
        except Exception as error:  # noqa: BLE001 - a fault of a codec or of memory concerns this batch alone
            self.fail(batch, error, was_refused=True)
            self.wake_ms = now_ms  # the request may stay empty, and no answer wakes the sender for the rest
            return
        batch.is_in_flight = True
        batch.sequence_was_reset = False
        batch.broker_id, batch.leader_epoch = request.broker_id, leader_epoch
        queue.is_muted = self._options.keeps_order
        topic = batch.topic_partition.topic
        if topic not in request.topic_ids:
            known = self._metadata.topic(topic)
            request.topic_ids[topic] = ZERO_UUID if known is None else known.topic_id
        request.batches.append(batch)
        request.size_bytes += batch.size_bytes
        self._metrics.sent(batch, now_ms)

    # --- answers ---

    def answered(self, request: Outgoing, answer: ProduceResponse, *, by_id: bool) -> None:
        """Take the answer to a request."""
        self._remove(request)
        now_ms = self._clock.monotonic_ms()
        self._metrics.answered(now_ms - request.sent_ms, answer.throttle_time_ms)
        endpoints = {row.node_id: Endpoint(row.host, row.port) for row in answer.node_endpoints}
        rows = {
            (topic.topic_id if by_id else topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in request.batches:
            topic, partition = batch.topic_partition
            row = rows.get((request.topic_ids[topic] if by_id else topic, partition))
            self._landed(batch)
            batch.is_doubted = False
            if row is None:
                self._refused(batch, NetworkException("the Produce response lacks the partition"), now_ms)
            elif row.error_code == 0:
                self._complete(batch, row.base_offset, row.log_append_time_ms)
            else:
                self._handle(batch, row, endpoints, now_ms)

    def failed(self, request: Outgoing, error: KafkaError) -> None:
        """The request has no answer: the connection is lost, or the answer is late."""
        self._remove(request)
        now_ms = self._clock.monotonic_ms()
        self.wants_metadata = True
        for batch in request.batches:
            self._landed(batch)
            batch.was_lost = True
            if batch.is_doubted and not batch.is_done:
                self.fail(batch, NetworkException(DOUBTFUL), was_refused=True)
            else:
                self._refused(batch, error, now_ms)

    def written(self, request: Outgoing) -> None:
        """The request needs no answer (acks=0), and the connection has it."""
        self._remove(request)
        for batch in request.batches:
            self._landed(batch)
            self._complete(batch, NO_OFFSET, NO_APPEND_TIME)

    def _remove(self, request: Outgoing) -> None:
        self.in_flight[request.broker_id].remove(request)

    def _landed(self, batch: ProducerBatch) -> None:
        batch.is_in_flight = False
        self._accumulator.queue(*batch.topic_partition).is_muted = False

    def _handle(
        self,
        batch: ProducerBatch,
        row: PartitionProduceResponse,
        endpoints: Mapping[int, Endpoint],
        now_ms: float,
    ) -> None:
        message = row.error_message or f"partition {batch.topic_partition}"
        error = error_for(row.error_code, message)
        if isinstance(error, DuplicateSequenceNumber):
            self._complete(batch, row.base_offset, row.log_append_time_ms)
            return
        if isinstance(error, MessageTooLarge) and batch.record_count > 1 and not batch.is_done:
            self._split(batch)
            return
        is_news = row.current_leader is not None and self._metadata.update_leader(
            batch.topic_partition,
            Leader(row.current_leader.leader_id, row.current_leader.leader_epoch),
            endpoints,
        )
        if isinstance(error, METADATA_IS_OLD) and not is_news:
            self.wants_metadata = True
        error.record_errors = tuple(
            (each.batch_index, each.batch_index_error_message or message) for each in row.record_errors
        )
        self._refused(batch, error, now_ms, row.log_start_offset)

    def _complete(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        self._state.acknowledged(batch, base_offset)
        if not batch.is_done:
            self._metrics.acknowledged(batch)
            batch.complete(base_offset, append_time_ms)
        self._accumulator.finished(batch)

    def _refused(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now_ms: float,
        log_start_offset: int = NO_LOG_START,
    ) -> None:
        """Send a batch again, or give it up."""
        if batch.is_done:  # it expired in flight
            self._accumulator.finished(batch)
            return
        can_retry = self._state.can_retry(batch, error, log_start_offset)
        is_late = now_ms - batch.created_ms >= self._accumulator.options.delivery_timeout_ms
        if can_retry and batch.attempts < self._options.retries and not is_late:
            pause_ms = spread(self._options.backoff.after_ms(batch.attempts), self._randomness)
            batch.attempts += 1
            batch.retry_at_ms = now_ms + pause_ms
            self._metrics.retried(batch)
            self._accumulator.put_back(batch)
            return
        self.fail(batch, error, was_refused=not error.retriable)

    def _split(self, batch: ProducerBatch) -> None:
        """Replace a batch by two halves. A half that is still too large is split again."""
        parts = batch.split(HEADER_BYTES + batch.size_inflated_bytes // 2)
        self._metrics.split()
        self._state.split(batch, parts)
        self._accumulator.replace_by_parts(batch, parts)

    # --- failures ---

    def fail(self, batch: ProducerBatch, error: Exception, *, was_refused: bool) -> None:
        """Give a batch up."""
        self._metrics.failed(batch)
        if isinstance(error, KafkaError):
            self._log.warn(
                "batch",
                "partition %s: %d records failed: %s",
                batch.topic_partition,
                batch.record_count,
                error,
            )
        self._state.failed(batch, error, was_refused=was_refused)
        record_errors = error.record_errors if isinstance(error, KafkaError) else ()
        batch.fail(error, record_errors)
        if not batch.is_in_flight:
            self._accumulator.finished(batch)

    def _fail_with_transaction(self) -> None:
        """Fail the batches that a failed transaction, or an unusable producer, cannot commit any more."""
        transaction = self._state.transaction
        if transaction is None or transaction.error is None:
            return
        if transaction.is_fatal:
            self.abort_all(transaction.error)
        else:
            self.abort_unsent(transaction.error)

    def _fail_doubtful(self) -> None:
        for batch in self._state.take_doubtful():
            self._accumulator.remove(batch)
            if not batch.is_done:
                self.fail(batch, NetworkException(DOUBTFUL), was_refused=True)

    def _expire(self, now_ms: float) -> None:
        for batch in self._accumulator.expired(now_ms):
            self._accumulator.remove(batch)
            age_ms = now_ms - batch.created_ms
            error = RequestTimedOut(
                f"{batch.record_count} records for {batch.topic_partition} were not acknowledged within"
                f" {age_ms:.0f} ms (delivery.timeout.ms)"
            )
            self.fail(batch, error, was_refused=False)

    def abort_unsent(self, error: Exception) -> None:
        """Fail the batches that were never sent: their transaction is aborted. The others have a number, so
        their outcome is awaited.
        """
        for batch in self._incomplete():
            if not batch.has_sequence:
                self._accumulator.remove(batch)
                self.fail(batch, error, was_refused=True)

    def abort_all(self, error: Exception) -> None:
        """Fail every batch: the producer closes, or can no longer be used."""
        for batch in self._incomplete():
            self._accumulator.remove(batch)
            self.fail(batch, error, was_refused=True)

    def _incomplete(self) -> list[ProducerBatch]:
        return [batch for batch in self._accumulator.incomplete if not batch.is_done]
