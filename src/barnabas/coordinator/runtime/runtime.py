"""Coordinator runtime: one shard of state per partition of an internal topic that this broker leads.

A shard is loaded when this broker becomes the partition's leader. It refuses requests with
COORDINATOR_LOAD_IN_PROGRESS until everything is replayed, and is dropped when the leadership ends. Each
election has a leader epoch; events of a lower one are stale.

Every operation, requests and timers alike, goes through `run`: decide, append, replay, wait for replication
(`shard_writer`), respond. If a replay failed, memory would differ from the log: the shard is dropped and
loaded again.

Operations without a client must not be lost either. `carry_through` waits for shards that are being loaded,
and retries failed writes for as long as the partition is coordinated here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from barnabas.coordinator.producer import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.coordinator.runtime.decision import Decision, deliver
from barnabas.coordinator.runtime.fan_in import Gathering
from barnabas.coordinator.runtime.load_queue import LoadQueue
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.replay import Shard
from barnabas.coordinator.runtime.shard_context import RuntimeSettings, ShardContext, ShardState
from barnabas.coordinator.runtime.shard_writer import ReplayFailed, ShardWriter, as_coordinator_error
from barnabas.coordinator.runtime.timers import Operation, ShardTimers
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator, UnknownServerError
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.log_text import cut
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Scheduler
from barnabas.purgatory.timer import Timer
from barnabas.records.record import EndTransactionMarker

logger = logging.getLogger(__name__)

CARRY_THROUGH_BACKOFF = Backoff(first_ms=500.0, max_ms=60_000.0)
"""Pauses before `carry_through` retries."""

S = TypeVar("S", bound=Shard)
R = TypeVar("R")


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
        self._scheduler = scheduler
        self._timer = timer
        self._limited_log = RateLimitedLogger(logger, clock)
        self._writer = ShardWriter(log, clock, settings)
        self._contexts: dict[int, ShardContext[S]] = {}
        load_time = metrics.histogram(
            "kafka_coordinator_load_time_ms", "Time to replay a partition.", topic=topic
        )
        set_aside = metrics.counter(
            "barnabas_coordinator_records_set_aside_total",
            "Records that could not be read when their partition was loaded.",
            topic=topic,
        )
        self._loads = LoadQueue(
            log,
            make_shard,
            self._timers_of,
            clock,
            scheduler,
            settings.load_buffer_bytes,
            load_time,
            set_aside,
        )
        metrics.gauge(
            "kafka_coordinator_partitions",
            "Partitions coordinated here.",
            lambda: len(self._contexts),
            topic=topic,
        )

    def _timers_of(self, context: ShardContext[S]) -> ShardTimers:
        return ShardTimers(
            self._timer,
            lambda operation, failed: self._run_timer(context, operation, failed),
            context.leader_epoch,
        )

    # --- elections ---

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Replay the partition, which this broker leads from now on."""
        previous = self._contexts.get(partition)
        if previous is not None:
            if leader_epoch <= previous.leader_epoch:
                return
            previous.close()
        context: ShardContext[S] = ShardContext(TopicPartition(self.topic, partition), leader_epoch)
        self._contexts[partition] = context
        self._loads.begin(context)

    def resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Drop the partition, which this broker no longer leads as of `leader_epoch`, if that is known."""
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch < context.leader_epoch):
            return
        del self._contexts[partition]
        context.close()

    def answer_waiting(self) -> None:
        """Stop at shutdown: clients of waiting requests must find another coordinator."""
        for context in self._contexts.values():
            context.close()

    def close(self) -> None:
        for partition in list(self._contexts):
            self.resigned(partition)

    # --- operations ---

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
        producer: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> None:
        """Run an operation on the shard of `partition`. Exactly one of `respond` and `refuse` is called,
        unless the decision's response is None: then the request waits in the shard.

        With a `producer`, the records belong to its transaction.
        """
        try:
            context = self._active(partition)
            decision = decide(context.shard)
        except Exception as error:  # noqa: BLE001 - logged, and answered
            refuse(self._expected(error, partition))
            return
        self._carry_out(context, decision, respond, refuse, producer)

    def run_everywhere(
        self,
        decide: Callable[[S], Decision[R]],
        respond: Callable[[list[R]], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Run an operation on every shard. One error refuses the whole; a shard that is no longer coordinated
        here is left out."""
        partitions = self.partitions()
        errors: list[KafkaError] = []

        def done(parts: list[list[R]]) -> None:
            refuse(errors[0]) if errors else respond([each for part in parts for each in part])

        gathering: Gathering[list[R]] = Gathering(len(partitions), done)

        def run(index: int, partition: int) -> None:
            def refused(error: KafkaError) -> None:
                if not isinstance(error, NotCoordinator):
                    errors.append(error)
                gathering.put(index, [])

            self.run(partition, decide, lambda part: gathering.put(index, [part]), refused)

        for index, partition in enumerate(partitions):
            run(index, partition)

    def carry_through(self, decide: Callable[[S, int], Decision[bool]]) -> None:
        """Run an operation without a client on every shard, once it is loaded, and again until it returns
        True. False repeats it at once, a failure after a pause.

        `decide` gets the log end offset of its first turn: records after that, however late it runs, do not
        concern it.
        """
        for context in list(self._contexts.values()):
            self._when_active(context, decide)

    def _when_active(self, context: ShardContext[S], decide: Callable[[S, int], Decision[bool]]) -> None:
        if context.state is ShardState.ACTIVE:
            self._insist(context, decide, context.written_to, CARRY_THROUGH_BACKOFF.first_ms)
        elif context.state is not ShardState.CLOSED:
            context.when_loaded(lambda: self._when_active(context, decide))

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
            context.when_loaded(lambda: self._insist(context, decide, end_offset, retry_ms))
            return

        def respond(is_done: bool) -> None:
            if not is_done:
                first_ms = CARRY_THROUGH_BACKOFF.first_ms
                self._scheduler.after(0, lambda: self._insist(context, decide, end_offset, first_ms))

        def refuse(error: KafkaError) -> None:
            self._limited_log.warn(
                "again",
                "partition %s: a coordinator operation failed and is retried: %s",
                context.topic_partition,
                cut(error.message),
            )
            next_ms = CARRY_THROUGH_BACKOFF.following_ms(retry_ms)
            self._scheduler.after(retry_ms, lambda: self._insist(context, decide, end_offset, next_ms))

        try:
            decision = decide(context.shard, end_offset)
        except Exception as error:  # noqa: BLE001 - logged, and retried
            refuse(self._expected(error, context.topic_partition.partition))
            return
        self._carry_out(context, decision, respond, refuse)

    def complete_transaction(
        self,
        partition: int,
        producer: ProducerIdAndEpoch,
        marker: EndTransactionMarker,
        respond: Callable[[None], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Append the marker that ends a producer's transaction here, and replay it."""
        try:
            context = self._active(partition)
        except KafkaError as error:
            refuse(error)
            return
        try:
            self._writer.write_marker(context, producer, marker)
        except Exception as error:  # noqa: BLE001 - logged, and answered
            refuse(self._write_failed(context, error))
            return

        def done(error: KafkaError | None) -> None:
            respond(None) if error is None else refuse(as_coordinator_error(error))

        self._writer.await_replication(context, done)
        self._writer.wake(context)

    def _active(self, partition: int) -> ShardContext[S]:
        context = self._contexts.get(partition)
        if context is None:
            raise NotCoordinator(f"this broker does not coordinate {self.topic}-{partition}")
        context.check_active()
        return context

    def _run_timer(self, context: ShardContext[S], operation: Operation, failed: Callable[[], None]) -> None:
        if context.state is not ShardState.ACTIVE:
            return

        def refuse(error: KafkaError) -> None:
            self._limited_log.warn(
                "timer",
                "partition %s: a coordinator timer failed: %s",
                context.topic_partition,
                cut(error.message),
            )
            failed()

        try:
            decision = operation()
        except Exception as error:  # noqa: BLE001 - logged
            refuse(self._expected(error, context.topic_partition.partition))
            return
        self._carry_out(context, decision, _ignore, refuse)

    def _carry_out(
        self,
        context: ShardContext[S],
        decision: Decision[R],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
        producer: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> None:
        if decision.answers:
            deliver(decision.answers)
        if not decision.records:
            # Without a response, nothing waits for replication.
            if decision.response is not None or decision.later_answers:
                self._await_replication(context, decision, respond, refuse)
            return
        try:
            self._writer.write(context, decision, producer)
        except Exception as error:  # noqa: BLE001 - logged, and answered
            _refuse(decision, self._write_failed(context, error), refuse)
            if not decision.is_atomic:
                self._writer.wake(context)
            return
        self._await_replication(context, decision, respond, refuse)
        self._writer.wake(context)

    def _write_failed(self, context: ShardContext[S], error: Exception) -> KafkaError:
        if not isinstance(error, ReplayFailed):
            return as_coordinator_error(self._expected(error, context.topic_partition.partition))
        logger.error(
            "partition %s: replaying appended records failed; the partition is loaded again",
            context.topic_partition,
            exc_info=error,
        )
        self._writer.wake(context)
        try:
            context.close()
        except Exception:
            logger.exception(
                "partition %s: unloading the coordinator's state failed", context.topic_partition
            )
        self._loads.begin(context)
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
                _refuse(decision, as_coordinator_error(error), refuse)
                return
            if decision.later_answers:
                deliver(decision.later_answers)
            if decision.response is not None:
                respond(decision.response)

        self._writer.await_replication(context, done)

    def _expected(self, error: Exception, partition: int) -> KafkaError:
        """Error for the client; an unexpected one is logged, too."""
        if isinstance(error, KafkaError):
            return error
        self._limited_log.error(
            "unforeseen",
            "partition %s-%d: a coordinator operation failed",
            self.topic,
            partition,
            cause=error,
        )
        return UnknownServerError("the broker met an unexpected error; its log says more")


def _refuse(decision: Decision[Any], error: KafkaError, refuse: Callable[[KafkaError], None]) -> None:
    for waiter, _ in decision.later_answers:
        waiter.refuse(error)
    refuse(error)


def _ignore(_: object) -> None:
    """A timer's operation has no client."""
