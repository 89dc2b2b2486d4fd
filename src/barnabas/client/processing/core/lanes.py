"""Lanes: records that must be handled one after the other share a lane; lanes run beside each other.

    order="key"        a lane for each key of a partition; a record without a key has its own
    order="partition"  a lane for each partition
    order="none"       a lane for each record

At most `concurrency` records run at a time. A lane whose record waits for another attempt is blocked, which
keeps its order, but takes no place of the others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from barnabas.client.extensions.records import Record
from barnabas.client.processing.core.offset_ledger import OffsetLedger
from barnabas.core.ids import TopicPartition

Order: TypeAlias = Literal["key", "partition", "none"]
ORDERS: Final = ("key", "partition", "none")


@dataclass(slots=True, eq=False)
class Job:
    """One record to handle."""

    at: TopicPartition
    record: Record[Any, Any]
    ledger: OffsetLedger
    failures: int = 0
    lane: Hashable = None


@dataclass(slots=True)
class _Lane:
    jobs: deque[Job] = field(default_factory=deque)
    """The first is running, or waits for another attempt."""
    is_busy: bool = False


class Lanes:
    def __init__(self, concurrency: int, order: Order) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, but at least one record is handled at a time")
        if order not in ORDERS:
            raise ValueError(f"order is one of {', '.join(ORDERS)}, not {order!r}")
        self.running: set[Job] = set()
        self._concurrency = concurrency
        self._order = order
        self._lanes: dict[Hashable, _Lane] = {}
        self._ready: deque[Hashable] = deque()
        """Lanes whose first job may run."""
        self._delayed: list[tuple[float, int, Job]] = []
        self._count = 0

    @property
    def queued(self) -> int:
        """Jobs that were added and are not done."""
        return sum(len(lane.jobs) for lane in self._lanes.values())

    def add(self, job: Job) -> None:
        job.lane = self._lane_of(job)
        lane = self._lanes.setdefault(job.lane, _Lane())
        lane.jobs.append(job)
        if len(lane.jobs) == 1:
            self._ready.append(job.lane)

    def _lane_of(self, job: Job) -> Hashable:
        self._count += 1
        if self._order == "partition":
            return job.at
        if self._order == "key" and job.record.key is not None:
            return (job.at, job.record.key)
        return self._count

    def start(self) -> Iterator[Job]:
        """Jobs to run now, within the concurrency."""
        while self._ready and len(self.running) < self._concurrency:
            lane = self._lanes.get(self._ready.popleft())
            if lane is None or lane.is_busy:
                continue
            lane.is_busy = True
            job = lane.jobs[0]
            self.running.add(job)
            yield job

    def finish(self, job: Job) -> None:
        """A job is done for good: the next of its lane may run."""
        self.running.discard(job)
        lane = self._lanes.get(job.lane)
        if lane is None or not lane.jobs or lane.jobs[0] is not job:
            return  # its partition was taken away
        lane.jobs.popleft()
        lane.is_busy = False
        if lane.jobs:
            self._ready.append(job.lane)
        else:
            del self._lanes[job.lane]

    def delay(self, job: Job, due_ms: float) -> None:
        """A job failed, and runs again at `due_ms`. Its lane waits."""
        self.running.discard(job)
        self._count += 1
        heapq.heappush(self._delayed, (due_ms, self._count, job))

    def wakes_ms(self) -> float:
        return self._delayed[0][0] if self._delayed else float("inf")

    def wake(self, now_ms: float) -> None:
        """Make delayed jobs ready whose time has come."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, _, job = heapq.heappop(self._delayed)
            lane = self._lanes.get(job.lane)
            if lane is not None and lane.jobs and lane.jobs[0] is job:
                lane.is_busy = False
                self._ready.append(job.lane)

    def jobs_of(self, at: TopicPartition) -> Iterator[Job]:
        """Jobs of a partition, those that run among them."""
        for lane in self._lanes.values():
            if lane.jobs[0].at == at:
                yield from lane.jobs

    def drop_queued(self, partitions: frozenset[TopicPartition], first_offset: int = 0) -> list[Job]:
        """Drop the jobs from `first_offset` on that do not run; returns those that run."""
        running = [job for job in self.running if job.at in partitions]
        for name, lane in list(self._lanes.items()):
            if lane.jobs[0].at not in partitions:
                continue
            first = lane.jobs[0]
            kept = (job for job in lane.jobs if job in self.running or job.record.offset < first_offset)
            lane.jobs = deque(kept)
            if not lane.jobs:
                del self._lanes[name]
            elif lane.jobs[0] is not first:
                lane.is_busy = False
                self._ready.append(name)
        return running
