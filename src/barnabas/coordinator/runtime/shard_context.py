"""Shard of a coordinator with its lifecycle.

A shard is LOADING until everything is replayed, and then ACTIVE: requests are served. A shard whose load
failed is FAILED, and is retried with growing pauses. It is CLOSED when the partition is led elsewhere, and
when memory may differ from the log: then it is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from barnabas.coordinator.runtime.decision import deliver
from barnabas.coordinator.runtime.replay import Shard
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.core.errors import CoordinatorLoadInProgress, NotCoordinator
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.transitions import Transitions
from barnabas.records.compression import Codec

S = TypeVar("S", bound=Shard)


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    load_buffer_bytes: int
    write_timeout_ms: float = 5_000.0
    codec: Codec = Codec.NONE


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
        """Offset after the last record that the state reflects."""
        self._waiting: list[Callable[[], None]] = []
        self.timers: ShardTimers
        self.shard: S

    def begin(self, shard: S, timers: ShardTimers) -> None:
        """Load from nothing: the rest of a failed load must not be visible."""
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

    def when_loaded(self, notify: Callable[[], None]) -> None:
        """Call `notify` once the shard is loaded, before any request."""
        self._waiting.append(notify)

    def notify_loaded(self) -> None:
        waiting, self._waiting = self._waiting, []
        for notify in waiting:
            with sweeping("operations that waited for the loading of partition", self.topic_partition):
                notify()

    def check_active(self) -> None:
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self.topic_partition} is being loaded")
        if self.state is not ShardState.ACTIVE:
            why = "could not be loaded" if self.state is ShardState.FAILED else "is given up"
            raise NotCoordinator(f"{self.topic_partition} {why}")
