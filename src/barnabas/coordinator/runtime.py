"""A coordinator is one shard of state per partition of an internal topic that this broker leads.

A shard is loaded when its partition is won, refuses requests with COORDINATOR_LOAD_IN_PROGRESS until
everything is replayed, and is dropped when the partition is lost. A load that fails is tried again, later and
later, for as long as the partition is led: what was in the way may pass. An epoch comes with each election:
news of a lower one is news from the past.

Every operation, requests and timers alike, goes through `run`: decide, append, replay, wait for
replication, answer. State is ahead of replication, so an answer waits for the *last* write of its shard,
even if it wrote nothing itself: nobody is told what could still be lost. With one in-sync replica an
append is replicated when it returns, and the answer leaves at once.

Should a replay fail, memory would differ from the log: the shard is thrown away and loaded again.

What nobody waits for must not be lost either: `carry_through` waits for shards that are being loaded, and
tries again what could not be written, for as long as the partition is coordinated here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.coordinator.batches import as_batches
from barnabas.coordinator.decision import Decision
from barnabas.coordinator.loading import Shard, load_steps
from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.routing import Gathering
from barnabas.coordinator.timers import Operation, ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.purgatory.timer import Timer
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.builder import BatchBuilder, build_end_transaction_marker
from barnabas.records.compression import Codec
from barnabas.records.record import EndTransactionMarker

logger = logging.getLogger(__name__)

LOAD_TURN_MS = 10.0
"""How long loading may keep the loop before others have their turn."""

LOAD_RETRY_MS = 1_000.0
LOAD_RETRY_MS_MAX = 60_000.0
"""A failed load is tried again after this, doubled each time."""

RETRY_MS = 500.0
RETRY_MS_MAX = 60_000.0
"""What must be carried through is tried again after this, doubled each time."""

S = TypeVar("S", bound=Shard)
R = TypeVar("R")


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    load_buffer_bytes: int
    write_timeout_ms: float = 5_000.0
    codec: Codec = Codec.NONE


class Producer(NamedTuple):
    """On whose behalf records are written; they count only once its transaction is committed."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ShardContext(Generic[S]):
    """A shard and what the runtime knows about it."""

    __slots__ = (
        "leader_epoch",
        "load_begun_ms",
        "retry_ms",
        "shard",
        "state",
        "timers",
        "topic_partition",
        "waiting",
        "written_to",
    )

    def __init__(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.retry_ms = LOAD_RETRY_MS
        self.load_begun_ms = 0.0
        self.written_to = 0
        """The offset after the last record that the state reflects."""
        self.waiting: list[Callable[[], None]] = []
        """Called once the shard is loaded, before any request."""
        self.timers: ShardTimers
        self.shard: S


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        topic: str,
        log: CoordinatorLog,
        make_shard: Callable[[ShardTimers], S],
        *,
        clock: Clock,
        scheduler: Scheduler,
        timer: Timer,
        settings: RuntimeSettings,
        metrics: Metrics,
    ) -> None:
        self.topic = topic
        self._log = log
        self._make_shard = make_shard
        self._clock = clock
        self._scheduler = scheduler
        self._timer = timer
        self._settings = settings
        self._contexts: dict[int, ShardContext[S]] = {}
        self._load_queue: list[tuple[ShardContext[S], Iterator[None]]] = []
        self._is_loading = False
        metrics.gauge(
            "kafka_coordinator_partitions",
            "Partitions coordinated here.",
            lambda: len(self._contexts),
            topic=topic,
        )
        self._load_time = metrics.histogram(
            "kafka_coordinator_load_time_ms", "Time to replay a partition.", topic=topic
        )

    # Elections

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on: replay it."""
        former = self._contexts.get(partition)
        if former is not None:
            if leader_epoch <= former.leader_epoch:
                return
            self._close(former)
        context: ShardContext[S] = ShardContext(TopicPartition(self.topic, partition), leader_epoch)
        self._contexts[partition] = context
        self._begin_load(context)

    def _begin_load(self, context: ShardContext[S]) -> None:
        """Load from nothing: what a load that failed has left must not be seen."""
        context.state = ShardState.LOADING
        context.load_begun_ms = self._clock.monotonic_ms()
        context.timers = ShardTimers(
            self._timer,
            lambda operation, failed: self._run_timer(context, operation, failed),
            context.leader_epoch,
        )
        context.shard = self._make_shard(context.timers)
        steps = load_steps(
            self._log, context.topic_partition, context.shard, self._settings.load_buffer_bytes
        )
        self._load_queue.append((context, steps))
        if not self._is_loading:
            self._is_loading = True
            self._scheduler.after(0, self._load_turn)

    def resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker does not lead the partition any more, as of `leader_epoch` if that is known."""
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch < context.leader_epoch):
            return
        del self._contexts[partition]
        self._close(context)

    def answer_waiting(self) -> None:
        """No more requests are read: whoever waits is sent to look for the coordinator elsewhere, and
        this one does nothing any more."""
        for context in self._contexts.values():
            self._close(context)

    def close(self) -> None:
        for partition in list(self._contexts):
            self.resigned(partition)

    def _close(self, context: ShardContext[S]) -> None:
        was_active = context.state is ShardState.ACTIVE
        context.state = ShardState.CLOSED
        context.timers.close()
        if was_active:
            context.shard.unloaded()

    # Loading

    def _load_turn(self) -> None:
        """Load for one turn of the loop, one partition after the other, and come back for the rest."""
        deadline_ms = self._clock.monotonic_ms() + LOAD_TURN_MS
        monotonic_ms = self._clock.monotonic_ms
        while self._load_queue:
            context, steps = self._load_queue[0]
            if context.state is not ShardState.LOADING or self._load_for_a_turn(context, steps, deadline_ms):
                self._load_queue.pop(0)
            if monotonic_ms() >= deadline_ms:
                break
        self._is_loading = bool(self._load_queue)
        if self._is_loading:
            self._scheduler.after(0, self._load_turn)

    def _load_for_a_turn(self, context: ShardContext[S], steps: Iterator[None], deadline_ms: float) -> bool:
        """True when the shard is loaded, or cannot be."""
        monotonic_ms = self._clock.monotonic_ms
        try:
            for _ in steps:
                if monotonic_ms() >= deadline_ms:
                    return False
            context.written_to = self._log.end_offset(context.topic_partition)
            context.shard.loaded()
        except Exception:
            logger.exception("%s could not be loaded", context.topic_partition)
            context.state = ShardState.FAILED
            context.timers.close()
            self._scheduler.after(context.retry_ms, lambda: self._load_again(context))
            context.retry_ms = min(2 * context.retry_ms, LOAD_RETRY_MS_MAX)
        else:
            context.state = ShardState.ACTIVE
            self._load_time.observe(monotonic_ms() - context.load_begun_ms)
            waiting, context.waiting = context.waiting, []
            for told in waiting:
                told()
        return True

    def _load_again(self, context: ShardContext[S]) -> None:
        if context.state is ShardState.FAILED:
            self._begin_load(context)

    # Operations

    def active_shards(self) -> Iterator[tuple[int, S]]:
        for partition, context in list(self._contexts.items()):
            if context.state is ShardState.ACTIVE:
                yield partition, context.shard

    def partitions(self) -> list[int]:
        """Every partition that this broker coordinates, loaded or not."""
        return list(self._contexts)

    def run(
        self,
        partition: int,
        decide: Callable[[S], Decision[R]],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
        *,
        producer: Producer = NO_PRODUCER,
    ) -> None:
        """Run an operation on the shard of `partition`; exactly one of `respond` and `refuse` is called,
        unless the decision's response is None: then whoever holds the request answers it.

        With a `producer`, the records belong to its transaction."""
        try:
            context = self._active(partition)
            decision = decide(context.shard)
        except Exception as error:  # noqa: BLE001 - it is logged, and answered
            refuse(_expected(error, self.topic, partition))
            return
        self._carry_out(context, decision, respond, refuse, producer)

    def run_everywhere(
        self,
        decide: Callable[[S], Decision[R]],
        respond: Callable[[list[R]], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Run an operation on every shard. One error refuses the whole; a shard that is coordinated here no
        more has nothing to say."""
        partitions = self.partitions()
        errors: list[KafkaError] = []

        def done(parts: list[list[R]]) -> None:
            refuse(errors[0]) if errors else respond([each for part in parts for each in part])

        gathering: Gathering[list[R]] = Gathering(len(partitions), done)

        def run(place: int, partition: int) -> None:
            def refused(error: KafkaError) -> None:
                if not isinstance(error, NotCoordinator):
                    errors.append(error)
                gathering.put(place, [])

            self.run(partition, decide, lambda part: gathering.put(place, [part]), refused)

        for place, partition in enumerate(partitions):
            run(place, partition)

    def carry_through(self, decide: Callable[[S, int], Decision[bool]]) -> None:
        """Run an operation that nobody waits for on every shard, once it is loaded, and again until it
        answers True: at once when it answers False, after a pause when it fails.

        `decide` is told the end of the log when its first turn came: what is written after that, whatever
        is late, is none of its business."""
        for context in list(self._contexts.values()):
            self._when_active(context, decide)

    def _when_active(self, context: ShardContext[S], decide: Callable[[S, int], Decision[bool]]) -> None:
        if context.state is ShardState.ACTIVE:
            self._insist(context, decide, context.written_to, RETRY_MS)
        elif context.state is not ShardState.CLOSED:
            context.waiting.append(lambda: self._when_active(context, decide))

    def _insist(
        self,
        context: ShardContext[S],
        decide: Callable[[S, int], Decision[bool]],
        end_offset: int,
        retry_ms: float,
    ) -> None:
        if context.state is ShardState.CLOSED:
            return
        if context.state is not ShardState.ACTIVE:
            context.waiting.append(lambda: self._insist(context, decide, end_offset, retry_ms))
            return

        def respond(is_done: bool) -> None:
            if not is_done:
                self._scheduler.after(0, lambda: self._insist(context, decide, end_offset, RETRY_MS))

        def refuse(error: KafkaError) -> None:
            logger.warning("%s: an operation is tried again: %s", context.topic_partition, error.message)
            next_ms = min(2 * retry_ms, RETRY_MS_MAX)
            self._scheduler.after(retry_ms, lambda: self._insist(context, decide, end_offset, next_ms))

        try:
            decision = decide(context.shard, end_offset)
        except Exception as error:  # noqa: BLE001 - it is logged, and tried again
            refuse(_expected(error, self.topic, context.topic_partition.partition))
            return
        self._carry_out(context, decision, respond, refuse)

    def complete_transaction(
        self,
        partition: int,
        producer: Producer,
        marker: EndTransactionMarker,
        respond: Callable[[None], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Append the marker that ends a producer's transaction here, and replay it."""
        try:
            context = self._active(partition)
            batch = build_end_transaction_marker(
                marker,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                timestamp=self._clock.now_ms(),
            )
            context.written_to = self._log.append(context.topic_partition, context.leader_epoch, batch)
            try:
                context.shard.replay_marker(producer.id, producer.epoch, is_commit=marker.is_commit)
            except Exception as error:
                raise self._replay_failed(context, error) from error
        except Exception as error:  # noqa: BLE001 - it is logged, and answered
            refuse(as_coordinator_error(_expected(error, self.topic, partition)))
            return
        done: Decision[None] = Decision(committed=lambda: respond(None))
        self._await_replication(context, done, respond, refuse)
        self._log.wake(context.topic_partition)

    def _active(self, partition: int) -> ShardContext[S]:
        context = self._contexts.get(partition)
        if context is None:
            raise NotCoordinator(f"this broker does not coordinate {self.topic}-{partition}")
        if context.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being loaded")
        if context.state is not ShardState.ACTIVE:
            why = "could not be loaded" if context.state is ShardState.FAILED else "is given up"
            raise NotCoordinator(f"{self.topic}-{partition} {why}")
        return context

    def _run_timer(self, context: ShardContext[S], operation: Operation, failed: Callable[[], None]) -> None:
        if context.state is not ShardState.ACTIVE:
            return

        def refuse(error: KafkaError) -> None:
            logger.warning("a timer of %s failed: %s", context.topic_partition, error.message)
            failed()

        try:
            decision = operation()
        except Exception as error:  # noqa: BLE001 - it is logged
            refuse(_expected(error, self.topic, context.topic_partition.partition))
            return
        self._carry_out(context, decision, _ignore, refuse)

    def _carry_out(
        self,
        context: ShardContext[S],
        decision: Decision[R],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
        producer: Producer = NO_PRODUCER,
    ) -> None:
        if not decision.records:
            self._await_replication(context, decision, respond, refuse)
            return
        try:
            self._append(context, decision, producer)
        except Exception as error:  # noqa: BLE001 - it is logged, and answered
            expected = _expected(error, self.topic, context.topic_partition.partition)
            _fail(decision, as_coordinator_error(expected), refuse)
            if not decision.is_atomic:
                self._log.wake(context.topic_partition)
            return
        self._await_replication(context, decision, respond, refuse)
        self._log.wake(context.topic_partition)

    def _append(self, context: ShardContext[S], decision: Decision[Any], producer: Producer) -> None:
        bytes_max = None if decision.is_atomic else self._log.batch_bytes_max(context.topic_partition)
        now_ms = self._clock.now_ms()
        for records, batch in as_batches(
            decision.records, lambda: self._new_batch(producer), now_ms, bytes_max
        ):
            if decision.room_bytes:
                self._check_room(context, len(batch) + decision.room_bytes)
            end_offset = self._log.append(context.topic_partition, context.leader_epoch, batch)
            context.written_to = end_offset
            try:
                if decision.is_replayed:
                    replay = context.shard.replay
                    for offset, record in enumerate(records, end_offset - len(records)):
                        replay(record, offset, producer.id)
            except Exception as error:
                raise self._replay_failed(context, error) from error
        if decision.applied is not None:
            try:
                decision.applied()
            except Exception as error:
                raise self._replay_failed(context, error) from error

    def _check_room(self, context: ShardContext[S], wanted_bytes: int) -> None:
        bytes_max = self._log.batch_bytes_max(context.topic_partition)
        if wanted_bytes > bytes_max:
            raise MessageTooLarge(
                f"{wanted_bytes} bytes are more than max.message.bytes of {self.topic}, {bytes_max}"
            )

    def _new_batch(self, producer: Producer) -> BatchBuilder:
        return BatchBuilder(
            codec=self._settings.codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer is not NO_PRODUCER,
        )

    def _replay_failed(self, context: ShardContext[S], error: Exception) -> CoordinatorLoadInProgress:
        """The records are written, but the state does not show them: begin again from the log."""
        logger.error(
            "replaying what was written to %s failed; it is loaded again",
            context.topic_partition,
            exc_info=error,
        )
        self._log.wake(context.topic_partition)
        try:
            self._close(context)
        except Exception:
            logger.exception("%s could not be closed properly", context.topic_partition)
        self._begin_load(context)
        return CoordinatorLoadInProgress(f"{context.topic_partition} is being loaded again")

    def _await_replication(
        self,
        context: ShardContext[S],
        decision: Decision[R],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        def done(error: KafkaError | None) -> None:
            if error is not None:
                _fail(decision, as_coordinator_error(error), refuse)
                return
            if decision.committed is not None:
                decision.committed()
            if decision.response is not None:
                respond(decision.response)

        self._log.await_replication(
            context.topic_partition,
            context.leader_epoch,
            context.written_to,
            self._settings.write_timeout_ms,
            done,
        )


def _expected(error: Exception, topic: str, partition: int) -> KafkaError:
    """What a client is told; what nobody expected is told to the log, too."""
    if isinstance(error, KafkaError):
        return error
    logger.error("an operation on %s-%d failed", topic, partition, exc_info=error)
    return UnknownServerError("the broker met an unexpected error; its log says more")


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """What a failed append means to a client of the coordinator."""
    match error:
        case (
            UnknownTopicOrPartition()
            | NotEnoughReplicas()
            | NotEnoughReplicasAfterAppend()
            | RequestTimedOut()
        ):
            return CoordinatorNotAvailable(error.message)
        case NotLeaderOrFollower() | KafkaStorageError():
            return NotCoordinator(error.message)
        case _:
            return error


def _fail(decision: Decision[Any], error: KafkaError, refuse: Callable[[KafkaError], None]) -> None:
    if decision.failed is not None:
        decision.failed(error)
    refuse(error)


def _ignore(_: object) -> None:
    """Nobody waits for the response of a timer."""
