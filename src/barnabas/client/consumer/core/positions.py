"""Positions of the assigned partitions.

A partition has two positions. `position` is the next offset that the application gets, and the one that is
committed. `fetch_offset` is the next one to fetch; the batches between the two are buffered.

A partition is fetched only when it needs nothing:

    COMMITTED   the group's committed offset is not known yet
    RESET       there is no valid position: ListOffsets finds one by the strategy
    VALIDATION  the leader changed: its epochs show whether the log was truncated (KIP-320)
    NOTHING     the position is valid

`version` counts jumps of the position. An answer to an older version is dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator
from enum import Enum, auto

from barnabas.client.consumer.core.fetched_data import Chunk
from barnabas.client.consumer.core.reset_strategy import ResetStrategy
from barnabas.client.core.client_errors import IllegalState
from barnabas.client.core.metadata import Leader, Metadata
from barnabas.core.ids import NO_EPOCH, TopicPartition

UNKNOWN = -1


class Need(Enum):
    COMMITTED = auto()
    RESET = auto()
    VALIDATION = auto()
    NOTHING = auto()


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "_committed",
        "at",
        "buffered_bytes",
        "chunks",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_held",
        "is_in_flight",
        "is_paused",
        "is_revoked",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "need",
        "position",
        "preferred_replica",
        "preferred_until_ms",
        "reset_to",
        "retry_ms",
        "version",
    )

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.need = Need.COMMITTED
        self.position = UNKNOWN
        self.epoch = NO_EPOCH
        """Leader epoch of the last record that was handed out."""
        self.fetch_offset = UNKNOWN
        self.fetch_epoch = NO_EPOCH
        """Leader epoch of the last buffered batch."""
        self.leader_epoch = NO_EPOCH
        """Leader epoch for which the fetch position is valid."""
        self.reset_to: ResetStrategy | None = None
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self._committed = (UNKNOWN, "")
        """Committed offset from which the position was taken, and its text."""
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.preferred_replica = UNKNOWN
        self.preferred_until_ms = -math.inf
        self.is_paused = False
        self.is_held = False
        """True while `process` has enough records of the partition."""
        self.is_revoked = False
        """True while the group takes the partition away: nothing more is handed out."""
        self.is_in_flight = False
        self.retry_ms = -math.inf
        self.version = 0

    @property
    def is_given(self) -> bool:
        """True when records may be fetched and handed out."""
        return not (self.is_paused or self.is_held or self.is_revoked)

    @property
    def has_position(self) -> bool:
        return self.need in (Need.NOTHING, Need.VALIDATION)

    @property
    def metadata(self) -> str:
        """Text that belongs to the position: that of the commit which it was taken from."""
        offset, text = self._committed
        return text if offset == self.position else ""

    def continue_at(self, offset: int, epoch: int, metadata: str) -> None:
        """Continue at a committed offset, whose text is kept until the position moves."""
        self.seek(offset, epoch)
        self._committed = (offset, metadata)

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Continue at an offset. Buffered batches are dropped, unless they begin there."""
        self.drop_buffer()
        self._committed = (UNKNOWN, "")
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self.need = Need.NOTHING
        self.leader_epoch = NO_EPOCH
        self.retry_ms = -math.inf
        self.version += 1

    def reset(self, to: ResetStrategy) -> None:
        """Forget the position; ListOffsets finds a new one."""
        self.drop_buffer()
        self.need = Need.RESET
        self.reset_to = to
        self.retry_ms = -math.inf
        self.version += 1

    def refetch(self) -> None:
        """Drop the buffer and fetch again from the position."""
        self.drop_buffer()
        self.fetch_offset, self.fetch_epoch = self.position, self.epoch
        self.version += 1

    def drop_buffer(self) -> None:
        self.chunks.clear()
        self.buffered_bytes = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.buffered_bytes += chunk.size_bytes
        self.fetch_offset = chunk.next_offset
        self.fetch_epoch = chunk.last_epoch

    def chunk_done(self) -> None:
        """The first chunk has no more records: the position moves past its markers and gaps."""
        chunk = self.chunks.popleft()
        self.buffered_bytes -= chunk.size_bytes
        self.position = max(self.position, chunk.next_offset)

    def leader_changed(self, leader: Leader, *, can_validate: bool) -> None:
        """Take the leader of the metadata. An older position is validated with it first."""
        if leader.epoch == self.leader_epoch or not self.has_position:
            return
        if can_validate and NO_EPOCH not in (self.fetch_epoch, leader.epoch):
            self.need = Need.VALIDATION
            self.retry_ms = -math.inf
            return
        self.need = Need.NOTHING
        self.leader_epoch = leader.epoch

    def validated(self, leader_epoch: int) -> None:
        self.need = Need.NOTHING
        self.leader_epoch = leader_epoch


class Positions:
    """The assigned partitions, in the order of assignment."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __contains__(self, at: object) -> bool:
        return at in self._states

    def get(self, at: TopicPartition) -> PartitionState | None:
        return self._states.get(at)

    def of(self, at: TopicPartition) -> PartitionState:
        found = self._states.get(at)
        if found is None:
            raise IllegalState(f"partition {at} is not assigned to this consumer")
        return found

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    @property
    def buffered_bytes(self) -> int:
        return sum(each.buffered_bytes for each in self._states.values())

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for at in sorted(partitions):
            if at not in self._states:
                self._states[at] = PartitionState(at)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            state = self._states.pop(at, None)
            if state is not None:
                state.drop_buffer()
                state.version += 1

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        self.remove(self._states.keys() - set(partitions))

    def needing(self, need: Need, now_ms: float) -> list[PartitionState]:
        """Partitions with this need, whose pause after a failure is over."""
        return [each for each in self._states.values() if each.need is need and each.retry_ms <= now_ms]

    def retry_ms(self, *, except_for: Container[PartitionState] = ()) -> float:
        """End of the first pause after a failure."""
        pauses = (
            each.retry_ms
            for each in self._states.values()
            if each.need is not Need.NOTHING and each not in except_for
        )
        return min(pauses, default=math.inf)

    def to_back(self, at: TopicPartition) -> None:
        """Put a partition behind the others, so that each has its turn."""
        state = self._states.pop(at, None)
        if state is not None:
            self._states[at] = state

    def leaders_changed(self, metadata: Metadata, *, can_validate: bool) -> None:
        for state in self._states.values():
            leader = metadata.leader(*state.at)
            if leader is not None:
                state.leader_changed(leader, can_validate=can_validate)
