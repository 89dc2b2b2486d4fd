"""Hierarchical timing wheels: insert and cancel cost the same with ten tasks or a million.

One wheel is a ring of `wheel_size` buckets, each `tick_ms` wide. It covers the next `tick_ms * wheel_size`
milliseconds. A task further ahead overflows into the next wheel, whose tick is this wheel's whole span: 1 ms
x 20, 20 ms x 20, 400 ms x 20, and so on. Each wheel is made when it is first needed and starts at the lower
wheel's present. A bucket falls due at its *beginning*; its tasks then drop to a finer wheel, or are due. So a
task of 350 ms sits in slot 17 of the second wheel and drops a level at 340 ms.

Buckets are doubly linked rings through the tasks themselves: joining and leaving are four assignments and no
allocation. The heap holds non-empty buckets, never tasks. Its size is therefore bounded by the number of
buckets, however many tasks there are.

Invariant: a bucket holds tasks of one turn of the wheel only. It holds because a wheel moves past a bucket
only after that bucket has been emptied. Emptying is the owner's duty (`Timer.advance`).
"""

from __future__ import annotations

from heapq import heappush


class Link:
    """Position in a ring. A lone link is its own neighbour; a task outside every ring has none."""

    __slots__ = ("following", "previous")

    following: Link | None
    previous: Link | None


class TimerTask(Link):
    """Task that runs once at `expiration_ms` unless it is cancelled before. `Timer.add` sets the time."""

    __slots__ = ("delay_ms", "expiration_ms", "pending_count")

    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self.expiration_ms = 0
        self.following = None
        self.previous = None
        self.pending_count: PendingCount | None = None

    def run(self) -> None:
        """Called once, when the task is due."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Leave the wheel; does nothing for a task outside every wheel."""
        previous = self.previous
        if previous is not None:
            following = self.following
            assert following is not None
            previous.following = following
            following.previous = previous
            self.previous = self.following = None
            count = self.pending_count
            assert count is not None
            count.value -= 1


class PendingCount:
    """Number of tasks in a timer. A task lowers it on leaving, by expiry or by cancellation."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Bucket(Link):
    """A ring of tasks; the bucket is the link where the ring begins and ends."""

    __slots__ = ("expiration_ms", "serial")

    NOT_QUEUED = -1

    def __init__(self, serial: int) -> None:
        self.following = self
        self.previous = self
        self.expiration_ms = Bucket.NOT_QUEUED
        self.serial = serial

    @property
    def is_empty(self) -> bool:
        return self.following is self

    def append(self, task: TimerTask) -> None:
        last = self.previous
        assert last is not None
        task.previous = last
        task.following = self
        last.following = task
        self.previous = task

    def pop_first(self) -> TimerTask | None:
        task = self.following
        if task is self:
            return None
        assert isinstance(task, TimerTask)
        following = task.following
        assert following is not None
        self.following = following
        following.previous = self
        task.previous = task.following = None
        return task


BucketQueue = list[tuple[int, int, Bucket]]
"""A heap of (expiration, serial, bucket); the serial only breaks ties."""


class TimingWheel:
    """One level of the hierarchy. Times are whole milliseconds of the owner's monotonic clock."""

    __slots__ = (
        "buckets",
        "current_ms",
        "interval_ms",
        "level",
        "overflow",
        "queue",
        "tick_ms",
        "wheel_size",
    )

    def __init__(
        self, tick_ms: int, wheel_size: int, start_ms: int, queue: BucketQueue, level: int = 1
    ) -> None:
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.current_ms = start_ms - start_ms % tick_ms
        self.level = level
        self.queue = queue
        self.buckets = [Bucket(level * wheel_size + slot) for slot in range(wheel_size)]
        self.overflow: TimingWheel | None = None

    def add(self, task: TimerTask) -> bool:
        """Put the task into its bucket; False if it is due already."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self.current_ms + self.tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.current_ms + wheel.interval_ms:
            wheel = wheel.overflow or wheel._make_overflow()
        tick = expiration_ms // wheel.tick_ms
        bucket = wheel.buckets[tick % wheel.wheel_size]
        bucket.append(task)
        bucket_ms = tick * wheel.tick_ms
        if bucket.expiration_ms != bucket_ms:
            assert bucket.expiration_ms == Bucket.NOT_QUEUED, (
                "the wheel moved past a bucket that was not emptied"
            )
            bucket.expiration_ms = bucket_ms
            heappush(self.queue, (bucket_ms, bucket.serial, bucket))
        return True

    def advance(self, time_ms: int) -> None:
        """Move the present to `time_ms`, in whole ticks, on this level and those above."""
        wheel: TimingWheel | None = self
        while wheel is not None and time_ms >= wheel.current_ms + wheel.tick_ms:
            wheel.current_ms = time_ms - time_ms % wheel.tick_ms
            wheel = wheel.overflow

    def _make_overflow(self) -> TimingWheel:
        made = TimingWheel(self.interval_ms, self.wheel_size, self.current_ms, self.queue, self.level + 1)
        self.overflow = made
        return made
