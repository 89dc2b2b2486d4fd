"""Fetch requests of a consumer: which broker is asked for what, and what its answers mean. No I/O.

One request is in flight to each broker. A partition takes part when its position is valid, and it is not
paused. A broker is asked while less than `max.partition.fetch.bytes` of each of its partitions are buffered.
So the next batches are fetched while the application works on the last ones.

Buffered bytes and the sizes of the requests in flight stay below `fetch.buffer.bytes`. A request that would
exceed it asks for less, or waits. Brokers share the bound and take turns: a request that waits for records of
idle partitions keeps no other broker waiting for ever. One request is always allowed when nothing is
buffered, and one batch comes even if it is larger than asked for. A large batch cannot block a consumer.

An internal error of a broker (UNKNOWN_SERVER_ERROR) is logged, and the partition is fetched again, as Java's
consumer does: the next attempt, or another leader, may have the records.

A leader may name a nearer replica (KIP-392); it is used until it fails or `metadata.max.age.ms` passes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.consumer.core.fetch_session import FetchSession, SessionRequest, Wanted
from barnabas.client.consumer.core.fetched_data import Chunk
from barnabas.client.consumer.core.pending_errors import PendingErrors
from barnabas.client.consumer.core.positions import UNKNOWN, Need, PartitionState, Positions
from barnabas.client.consumer.core.reset_strategy import ResetStrategy
from barnabas.client.core.metadata import Leader, Metadata
from barnabas.client.core.steps import refusal
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRange,
    UnknownServerError,
    error_for,
)
from barnabas.core.ids import ZERO_UUID, TopicPartition
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

logger = logging.getLogger(__name__)

VERSION_BY_NAME: Final = 12
"""The last version of Fetch with topic names."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 500
    partition_bytes: int = 1024 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    checks_crc: bool = True
    isolation: int = 0
    rack: str = ""
    retry_ms: float = 100
    preferred_ms: float = 300_000
    reset_to: ResetStrategy | None = None


@dataclass(slots=True)
class FetchPlan:
    """One request, for one broker."""

    broker_id: int
    request: FetchRequest
    version_max: int | None
    session: SessionRequest
    versions: dict[PartitionState, int] = field(default_factory=dict)
    """Assigned partitions of the request, and the versions of the positions that it continues."""
    reserved_bytes: int = 0


class FetchPlans:
    def __init__(self, positions: Positions, metadata: Metadata, clock: Clock, options: FetchOptions) -> None:
        self.errors = PendingErrors()
        """Errors for the application."""
        self.wants_metadata = False
        """Set when an answer shows that the metadata is old. The owner resets it."""
        self.wants_positions = False
        """Set when a partition needs a new position, or has another leader. The owner resets it."""
        self._positions = positions
        self._metadata = metadata
        self._clock = clock
        self._options = options
        self._log = RateLimitedLogger(logger, clock)
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, FetchPlan] = {}
        self._asked = 0
        self._turns: dict[int, int] = {}
        """When each broker was asked last. The one that has waited longest comes first."""

    # --- requests ---

    def plans(self) -> Iterator[FetchPlan]:
        """Requests to send now. Each is followed by `answered` or `failed`."""
        now_ms = self._clock.monotonic_ms()
        by_broker: dict[int, list[PartitionState]] = {}
        full: set[int] = set()
        for state in self._positions:
            broker_id = self._source(state, now_ms)
            if broker_id is None or broker_id in self._in_flight:
                continue
            if state.buffered_bytes >= self._options.partition_bytes:
                full.add(broker_id)
            else:
                by_broker.setdefault(broker_id, []).append(state)
        brokers = len(by_broker.keys() | full | self._in_flight.keys())
        for broker_id in sorted(by_broker, key=lambda each: self._turns.get(each, 0)):
            # A request for the others would wait for their records, and block this one for as long.
            if broker_id in full:
                continue
            room_bytes = self._room(brokers)
            if room_bytes <= 0:
                return
            yield self._plan(broker_id, by_broker[broker_id], room_bytes)

    def _room(self, brokers: int) -> int:
        """Bytes that the next request may ask for: a share of the bound, so that each broker has one."""
        options = self._options
        reserved = sum(plan.reserved_bytes for plan in self._in_flight.values())
        used = reserved + self._positions.buffered_bytes
        left = options.buffer_bytes - used
        least = min(options.partition_bytes, options.max_bytes)
        if left < least:
            return 0 if used else max(1, min(least, options.buffer_bytes))
        return min(left, options.max_bytes, max(least, options.buffer_bytes // brokers))

    def _source(self, state: PartitionState, now_ms: float) -> int | None:
        """Broker to fetch a partition from; None when it is not fetched now."""
        if (
            state.need is not Need.NOTHING
            or not state.is_given
            or state.is_in_flight
            or state.retry_ms > now_ms
        ):
            return None
        if state.preferred_replica != UNKNOWN:
            if state.preferred_until_ms > now_ms and state.preferred_replica in self._metadata.brokers:
                return state.preferred_replica
            state.preferred_replica = UNKNOWN
        leader = self._metadata.leader(*state.at)
        if leader is None:
            self.wants_metadata = True
            return None
        return leader.broker_id

    def _plan(self, broker_id: int, states: list[PartitionState], room_bytes: int) -> FetchPlan:
        options = self._options
        wanted: dict[TopicPartition, Wanted] = {}
        for state in states:
            topic = self._metadata.topic(state.at.topic)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            wanted[state.at] = Wanted(
                topic_id, state.fetch_offset, state.leader_epoch, options.partition_bytes
            )
            state.is_in_flight = True
        session = self._sessions.setdefault(broker_id, FetchSession()).request(wanted)
        reserved = min(room_bytes, len(states) * options.partition_bytes)
        request = FetchRequest(
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=min(options.max_bytes, room_bytes),
            isolation_level=options.isolation,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=_named(session),
            forgotten_topics_data=_forgotten(session),
            rack_id=options.rack,
        )
        by_name = any(each.topic_id == ZERO_UUID for each in wanted.values())
        plan = FetchPlan(
            broker_id,
            request,
            VERSION_BY_NAME if by_name else None,
            session,
            {state: state.version for state in states},
            reserved,
        )
        self._in_flight[broker_id] = plan
        self._asked += 1
        self._turns[broker_id] = self._asked
        return plan

    # --- answers ---

    def failed(self, plan: FetchPlan) -> None:
        """The request got no answer: the leaders may have moved."""
        self._sessions.pop(plan.broker_id, None)
        for state in self._landed(plan):
            state.preferred_replica = UNKNOWN
            self._retry(state)
        self.wants_metadata = True

    def answered(self, plan: FetchPlan, answer: FetchResponse) -> bool:
        """Take the answer; True when records came."""
        session = self._sessions.setdefault(plan.broker_id, FetchSession())
        states = {state.at: state for state in self._landed(plan)}
        if answer.error_code:
            session.refused(answer.error_code)
            self._refused(plan, states.values(), answer.error_code)
            return False
        session.answered(plan.session, answer.session_id)
        endpoints = {row.node_id: Endpoint(row.host, row.port) for row in answer.node_endpoints}
        has_records = False
        for group in answer.responses:
            topic = group.topic or self._metadata.names.get(group.topic_id or ZERO_UUID)
            if topic is None:
                self.wants_metadata = True
                continue
            for row in group.partitions:
                found = states.get(TopicPartition(topic, row.partition_index))
                if found is None:
                    continue
                if row.error_code:
                    self._answered_error(plan, found, row, endpoints)
                else:
                    has_records |= self._take(found, row)
        return has_records

    def _refused(self, plan: FetchPlan, states: Iterable[PartitionState], error_code: int) -> None:
        """The broker refuses a whole request."""
        error = error_for(error_code, f"fetching from broker {plan.broker_id}")
        if isinstance(error, FetchSessionIdNotFound | InvalidFetchSessionEpoch):
            return
        if isinstance(error, UnknownServerError):
            self._warn_of_broker(error)
        elif not error.retriable:
            self.errors.add(error)
        self.wants_metadata = True
        for state in states:
            self._retry(state)

    def _landed(self, plan: FetchPlan) -> list[PartitionState]:
        """Partitions of a request that is no longer in flight, whose positions are the same as before."""
        del self._in_flight[plan.broker_id]
        states = []
        for state, version in plan.versions.items():
            state.is_in_flight = False
            # A partition that was assigned again meanwhile has another state, and maybe another position.
            if state.version == version and self._positions.get(state.at) is state:
                states.append(state)
        return states

    def _take(self, state: PartitionState, row: PartitionData) -> bool:
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = row.log_start_offset
        if row.preferred_read_replica != UNKNOWN:
            state.preferred_replica = row.preferred_read_replica
            state.preferred_until_ms = self._clock.monotonic_ms() + self._options.preferred_ms
        if not isinstance(row.records, memoryview) or not len(row.records):
            return False
        aborted = row.aborted_transactions if self._options.isolation else None
        pairs = [(each.first_offset, each.producer_id) for each in aborted or ()]
        try:
            chunk = Chunk(state.at, row.records, pairs, checks_crc=self._options.checks_crc)
        except CorruptMessage as error:
            self._fail(state, CorruptMessage(f"fetching {state.at} at offset {state.fetch_offset}: {error}"))
            return False
        if chunk.is_empty:
            text = f"the first batch at offset {state.fetch_offset} of {state.at} came incomplete"
            self._fail(state, UnknownServerError(text))
            return False
        state.add(chunk)
        # The broker fills an answer in the order of the request: each partition leads in turn.
        self._positions.to_back(state.at)
        return True

    def _answered_error(
        self,
        plan: FetchPlan,
        state: PartitionState,
        row: PartitionData,
        endpoints: dict[int, Endpoint],
    ) -> None:
        subject = f"fetching {state.at} at offset {state.fetch_offset}"
        error = refusal(row.error_code, None, subject, needs=f"READ on TOPIC {state.at.topic}")
        leader = self._metadata.leader(*state.at)
        of_leader = leader is None or leader.broker_id == plan.broker_id
        state.preferred_replica = UNKNOWN
        if isinstance(error, OffsetOutOfRange):
            if of_leader:
                self._out_of_range(state, error)
            return  # a follower may lag behind: the leader knows
        is_faulty_broker = isinstance(error, UnknownServerError)
        if isinstance(error, CorruptMessage) or not (error.retriable or is_faulty_broker):
            self._fail(state, error)
            return
        if is_faulty_broker:
            self._warn_of_broker(error)
        self._retry(state)
        current = row.current_leader
        if current is not None and current.leader_id >= 0:
            named = Leader(current.leader_id, current.leader_epoch)
            if self._metadata.update_leader(state.at, named, endpoints):
                state.retry_ms = self._clock.monotonic_ms()
                self.wants_positions = True
                return
        self.wants_metadata = True

    def _warn_of_broker(self, error: KafkaError) -> None:
        self._log.warn("fetch", "%s: internal error of the broker, see its log; trying again", error)

    def _out_of_range(self, state: PartitionState, error: KafkaError) -> None:
        if state.chunks:
            self._retry(state)  # the application takes the buffered records first
        elif self._options.reset_to is None:
            self._fail(state, error)
        else:
            logger.warning(
                "partition %s: offset %d is out of range; auto.offset.reset applies",
                state.at,
                state.fetch_offset,
            )
            state.reset(self._options.reset_to)
            self.wants_positions = True

    def _fail(self, state: PartitionState, error: KafkaError) -> None:
        self.errors.add(error)
        self._retry(state)

    def _retry(self, state: PartitionState) -> None:
        state.retry_ms = self._clock.monotonic_ms() + self._options.retry_ms

    def wakes_ms(self) -> float:
        """End of the first pause after a failure."""
        now_ms = self._clock.monotonic_ms()
        pauses = (each.retry_ms for each in self._positions if each.retry_ms > now_ms)
        return min(pauses, default=float("inf"))


def _named(session: SessionRequest) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for at, each in session.named.items():
        row = FetchPartition(
            partition=at.partition,
            current_leader_epoch=each.leader_epoch,
            fetch_offset=each.offset,
            partition_max_bytes=each.max_bytes,
        )
        group = topics.get(at.topic)
        if group is None:
            topics[at.topic] = FetchTopic(topic=at.topic, topic_id=each.topic_id, partitions=[row])
        else:
            group.partitions.append(row)
    return list(topics.values())


def _forgotten(session: SessionRequest) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(topic=at.topic, topic_id=topic_id, partitions=[at.partition])
        for at, topic_id in session.forgotten
    ]
