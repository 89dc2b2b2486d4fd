"""`Consumer.process`: records handled concurrently, each acknowledged individually.

The loop takes records, gives them to lanes (`core.lanes`), and runs the handler as tasks. A record is done
when its handler returned, or when its dead letter is acknowledged. The ledger of its partition
(`core.offset_ledger`) then knows it. Commits carry the contiguous end, and the finished records above it.

- **Back-pressure.** A partition whose ledger is full is held: nothing more of it is taken or fetched. So are
  all partitions while twice the concurrency is queued.
- **Revoked partitions.** Queued records are dropped, handlers that run get `drain_ms` to finish, the ledger
  is committed, and then the partition is given up. A handler that is late is cancelled; its record is not
  acknowledged, so that the next owner handles it.
- **Lost partitions.** Handlers are cancelled: another member may handle their records already.
- **A failure without a policy.** The record fails, `process` commits what is done and raises the error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from barnabas.client.core.client_errors import DeserializationFailed, IllegalState
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.extensions.records import Record
from barnabas.client.processing.core.lanes import Job, Lanes, Order
from barnabas.client.processing.core.offset_ledger import UNFINISHED_MIN, OffsetLedger
from barnabas.client.processing.core.retry_policy import NO_RETRY, Retry
from barnabas.client.processing.dead_letters import Publish, letter_headers
from barnabas.core.clock import Clock
from barnabas.core.ids import NO_EPOCH, TopicPartition

logger = logging.getLogger(__name__)

AnyRecord: TypeAlias = Record[Any, Any]
Handler: TypeAlias = Callable[[AnyRecord], Awaitable[object] | object]

DRAIN_MS = 30_000
COMMIT_INTERVAL_MIN_MS = 10
"""An `auto.commit.interval.ms` of 0 must not make the loop spin."""
QUEUED_FACTOR = 2
"""Records are taken until this many times the concurrency is queued."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    concurrency: int = 64
    order: Order = "key"
    retry: Retry = NO_RETRY
    dead_letters: str | None = None
    commit_interval_ms: float = 5_000
    drain_ms: float = DRAIN_MS
    name: str = ""
    """Group, for the headers of dead letters."""


class Source(Protocol):
    """The consumer, as far as processing needs it."""

    async def take(self, most: int, timeout_ms: float) -> list[AnyRecord]:
        """Records as bytes, of partitions that are not held; rebalances happen inside."""
        ...

    def start_of(self, at: TopicPartition) -> CommittedOffset:
        """Position of a partition before its first record was taken, with the committed text."""
        ...

    def position_of(self, at: TopicPartition) -> int | None: ...
    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Take nothing of these partitions, and of no others."""
        ...

    def wake(self) -> None:
        """End a `take` that waits."""
        ...

    async def commit(self, offsets: dict[TopicPartition, CommittedOffset]) -> None: ...
    def deserialized(self, record: AnyRecord) -> AnyRecord: ...


class Processing:
    """One call of `process`. It owns the partitions of the consumer meanwhile."""

    def __init__(
        self,
        source: Source,
        handler: Handler,
        options: ProcessOptions,
        clock: Clock,
        publish: Publish | None,
    ) -> None:
        self._source = source
        self._handler = handler
        self._options = options
        self._clock = clock
        self._publish = publish
        self._lanes = Lanes(options.concurrency, options.order)
        self._ledgers: dict[TopicPartition, OffsetLedger] = {}
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._lost: set[asyncio.Task[None]] = set()
        """Handlers of lost partitions, which were cancelled and may still clean up."""
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._is_ending = False
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._committing: asyncio.Task[None] | None = None
        self._commit_ms = clock.monotonic_ms() + options.commit_interval_ms

    async def run(self, stop: asyncio.Event | None) -> None:
        """Handle records until `stop` is set, a record fails for good, or the task is cancelled."""
        watcher = None
        self._stop = stop
        if stop is not None:
            watcher = asyncio.get_running_loop().create_task(self._wake_at(stop))
        try:
            while self._failure is None and not self._is_stopped:
                await self._step()
            if self._failure is None:
                self._is_ending = True
                self._lanes.drop_queued(frozenset(self._ledgers))
                await self._drain(frozenset(self._ledgers))
        finally:
            self._is_ending = True
            if watcher is not None:
                watcher.cancel()
            await self._cancel(list(self._tasks.values()))
            if self._lost:
                await asyncio.wait(self._lost, timeout=self._options.drain_ms / 1_000)
            await asyncio.shield(self._last_commit())
        if self._failure is not None:
            raise self._failure

    @property
    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._source.wake()

    async def _step(self) -> None:
        lanes, now_ms = self._lanes, self._clock.monotonic_ms()
        lanes.wake(now_ms)
        self._start_jobs()
        if now_ms >= self._commit_ms:
            self._commit_ms = now_ms + max(COMMIT_INTERVAL_MIN_MS, self._options.commit_interval_ms)
            if self._committing is None or self._committing.done():
                self._committing = asyncio.get_running_loop().create_task(self._commit_quietly())
        room = self._options.concurrency * QUEUED_FACTOR - lanes.queued
        self._source.hold(at for at, ledger in self._ledgers.items() if room <= 0 or not ledger.room)
        # All records of one call may be of one partition.
        most = min([room, UNFINISHED_MIN, *(each.room for each in self._ledgers.values() if each.room)])
        wait_ms = min(lanes.wakes_ms(), self._commit_ms) - self._clock.monotonic_ms()
        for record in await self._source.take(max(1, most), max(0.0, wait_ms)):
            self._take(record)
        for at, ledger in self._ledgers.items():
            position = self._source.position_of(at)
            if position is not None:
                ledger.moved_to(position)
        self._start_jobs()

    def _take(self, record: AnyRecord) -> None:
        at = record.topic_partition
        ledger = self._ledgers.get(at)
        if ledger is None:
            ledger = self._ledgers[at] = self._first_ledger(at, record.offset)
        elif not ledger.follows(record.offset):
            ledger = self._ledgers[at] = self._ledger_after_jump(at, record.offset, ledger)
        if ledger.take(record.offset):
            self._lanes.add(Job(at, record, ledger))

    def _first_ledger(self, at: TopicPartition, offset: int) -> OffsetLedger:
        start = self._source.start_of(at)
        if start.offset <= offset:
            return OffsetLedger(start.offset, start.metadata)
        # The position was reset below the committed offset, and the runs count from that one.
        return OffsetLedger(offset)

    def _ledger_after_jump(self, at: TopicPartition, offset: int, before: OffsetLedger) -> OffsetLedger:
        """Ledger of a partition whose position jumped back: records from `offset` on are taken again.

        Those below it are not, so that their jobs stay and hold the commit back.
        """
        ledger = before.cut(offset)
        self._lanes.drop_queued(frozenset((at,)), offset)
        for job in self._lanes.jobs_of(at):
            if job.record.offset < offset:
                job.ledger = ledger
        return ledger

    def _start_jobs(self) -> None:
        if self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        for job in self._lanes.start():
            task = loop.create_task(self._handle(job))
            self._tasks[job] = task
            task.add_done_callback(lambda done, job=job: self._ended(job, done))  # type: ignore[misc]

    async def _handle(self, job: Job) -> None:
        try:
            record = self._source.deserialized(job.record)
        except Exception as error:
            raise DeserializationFailed(f"{job.at}@{job.record.offset}: {error}") from error
        outcome = self._handler(record)
        if inspect.isawaitable(outcome):
            await outcome

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        if self._tasks.get(job) is not task:
            return
        del self._tasks[job]
        if task.cancelled():
            self._lanes.running.discard(job)
            if not self._is_ending:
                self._failure = IllegalState(f"the handler of {job.at}@{job.record.offset} was cancelled")
        elif (error := task.exception()) is None:
            self._done(job)
        else:
            self._failed(job, error)
        self._source.wake()

    def _done(self, job: Job) -> None:
        job.ledger.finish(job.record.offset)
        self._lanes.finish(job)
        if not self._is_ending:
            self._start_jobs()

    def _failed(self, job: Job, error: BaseException) -> None:
        job.failures += 1
        pause_ms = None
        if isinstance(error, Exception) and not isinstance(error, DeserializationFailed):
            pause_ms = self._options.retry.pause_ms(job.failures, error)
        if pause_ms is not None:
            logger.info(
                "record %s@%d failed %d times, again in %.0f ms: %r",
                job.at,
                job.record.offset,
                job.failures,
                pause_ms,
                error,
            )
            self._lanes.delay(job, self._clock.monotonic_ms() + pause_ms)
        elif self._publish is not None and self._options.dead_letters and isinstance(error, Exception):
            task = asyncio.get_running_loop().create_task(self._bury(job, error))
            self._tasks[job] = task
            task.add_done_callback(lambda done: self._buried(job, done))
        else:
            self._lanes.running.discard(job)
            self._failure = error

    async def _bury(self, job: Job, error: Exception) -> None:
        assert self._publish is not None
        assert self._options.dead_letters is not None
        record = job.record
        headers = letter_headers(record, error, self._options.name)
        logger.warning("record %s@%d goes to the dead letters: %r", job.at, record.offset, error)
        await self._publish(self._options.dead_letters, record.key, record.value, headers)

    def _buried(self, job: Job, task: asyncio.Task[None]) -> None:
        if self._tasks.get(job) is not task:
            return
        del self._tasks[job]
        if task.cancelled() or (error := task.exception()) is None:
            if not task.cancelled():
                self._done(job)
        else:
            self._lanes.running.discard(job)
            self._failure = error
        self._source.wake()

    # --- the consumer's side: rebalances and commits ---

    def check_closing(self) -> None:
        if asyncio.current_task() in self._tasks.values():
            raise IllegalState("a handler cannot close its consumer: set the event `stop` of process()")

    async def release(self, partitions: frozenset[TopicPartition]) -> None:
        """Finish what runs on these partitions, within the drain time, and drop what is queued."""
        self._lanes.drop_queued(partitions)
        await self._drain(partitions)
        self._lanes.drop_queued(partitions)  # a record that failed meanwhile waits for another attempt
        late = self._forget_tasks(partitions)
        if late:
            logger.warning("%d handlers are cancelled: their partitions go to another member", len(late))
        await self._cancel(late)
        await self._previous_commit()

    def lose(self, partitions: frozenset[TopicPartition]) -> None:
        self._lanes.drop_queued(partitions)
        for task in self._forget_tasks(partitions):
            task.cancel()
            self._lost.add(task)
            task.add_done_callback(self._lost.discard)
        for at in partitions:
            self._ledgers.pop(at, None)
            self._committed.pop(at, None)

    def _forget_tasks(self, partitions: frozenset[TopicPartition]) -> list[asyncio.Task[None]]:
        """Ignore the outcome of handlers of these partitions."""
        gone = [job for job in self._tasks if job.at in partitions]
        for job in gone:
            self._lanes.finish(job)
        return [self._tasks.pop(job) for job in gone]

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """The partitions are given up, after their last commit."""
        for at in partitions:
            self._ledgers.pop(at, None)
            self._committed.pop(at, None)

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Offsets to commit, for partitions of which a record was taken."""
        return {
            at: CommittedOffset(ledger.committable, ledger.metadata(), NO_EPOCH)
            for at, ledger in self._ledgers.items()
        }

    async def _commit(self) -> None:
        offsets = {at: each for at, each in self.offsets().items() if self._committed.get(at) != each}
        if offsets:
            await self._source.commit(offsets)
            self._committed |= {at: each for at, each in offsets.items() if at in self._ledgers}

    async def _previous_commit(self) -> None:
        """Wait for a commit under way: a later one must not arrive before it."""
        if self._committing is not None and not self._committing.done():
            await asyncio.wait((self._committing,))

    async def _last_commit(self) -> None:
        await self._previous_commit()
        await self._commit_quietly()

    async def _commit_quietly(self) -> None:
        try:
            await self._commit()
        except Exception as error:  # noqa: BLE001 - the next commit repeats it
            logger.warning("the commit of processed records failed: %s", error)

    async def _drain(self, partitions: frozenset[TopicPartition]) -> None:
        """Wait for handlers, and for the dead letters of those that fail, within the drain time."""
        deadline_ms = self._clock.monotonic_ms() + self._options.drain_ms
        while tasks := [task for job, task in self._tasks.items() if job.at in partitions]:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            await asyncio.wait(tasks, timeout=left_ms / 1_000)
            await asyncio.sleep(0)  # their outcomes are noted by callbacks

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
