"""A shard of a coordinator, and what the runtime knows about it.

It is LOADING until everything is replayed, and then ACTIVE: requests are served. One that could not be loaded
is FAILED, and is tried again, later and later. It is CLOSED when the partition is led elsewhere, and when
memory may differ from the log: then it is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinator.decision import deliver
from barnabas.coordinator.loading import Shard
from barnabas.coordinator.timers import ShardTimers
from barnabas.core.errors import CoordinatorLoadInProgress, NotCoordinator
from barnabas.core.ids import TopicPartition
from barnabas.core.sweeping import sweeping
from barnabas.core.transitions import Transitions
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.compression import Codec

S = TypeVar("S", bound=Shard)


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


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


TRANSITIONS = Transitions(
    {
        ShardState.LOADING: frozenset({ShardState.LOADING, ShardState.FAILED, ShardState.CLOSED}),
        ShardState.ACTIVE: frozenset({ShardState.LOADING}),
        ShardState.FAILED: frozenset({ShardState.LOADING}),
        ShardState.CLOSED: frozenset(ShardState),
    }
)


class ShardContext(Generic[S]):
    __slots__ = ("_waiting", "leader_epoch", "shard", "state", "timers", "topic_partition", "written_to")

    def __init__(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.written_to = 0
        """The offset after the last record that the state reflects."""
        self._waiting: list[Callable[[], None]] = []
        self.timers: ShardTimers
        self.shard: S

    def begin(self, shard: S, timers: ShardTimers) -> None:
        """Load from nothing: what a load that failed has left must not be seen."""
        self._move_to(ShardState.LOADING)
        self.shard = shard
        self.timers = timers

    def loaded(self, end_offset: int) -> None:
        self.written_to = end_offset
        self.shard.loaded()
        self._move_to(ShardState.ACTIVE)

    def load_failed(self) -> None:
        self._move_to(ShardState.FAILED)
        self.timers.close()

    def wrote(self, end_offset: int) -> None:
        self.written_to = end_offset

    def close(self) -> None:
        was_active = self.state is ShardState.ACTIVE
        self._move_to(ShardState.CLOSED)
        self.timers.close()
        if was_active:
            deliver(self.shard.unloaded())

    def _move_to(self, target: ShardState) -> None:
        TRANSITIONS.check(self.state, target)
        self.state = target

    def when_loaded(self, told: Callable[[], None]) -> None:
        """Call `told` once the shard is loaded, before any request."""
        self._waiting.append(told)

    def tell_loaded(self) -> None:
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            with sweeping("going on with a loaded partition", self.topic_partition):
                told()

    def check_active(self) -> None:
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self.topic_partition} is being loaded")
        if self.state is not ShardState.ACTIVE:
            why = "could not be loaded" if self.state is ShardState.FAILED else "is given up"
            raise NotCoordinator(f"{self.topic_partition} {why}")
