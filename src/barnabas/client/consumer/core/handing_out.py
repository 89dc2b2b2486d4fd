"""Records on their way to the application, and the positions that follow them.

`slice` is the part of a batch that `async for` walks; `index` counts its records that were handed out. The
position of the partition follows lazily (`settle`): a record that was handed out costs no more than the step
of an index. Code that moves positions calls `abandon` first, which gives the rest of the slice back.

`roll_back` undoes what the application was given last: a record whose processing failed is not committed. A
record that the application has committed itself is done, also if something fails after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.client.consumer.core.fetched_data import Chunk
from barnabas.client.consumer.core.positions import Need, PartitionState, Positions
from barnabas.client.core.client_errors import DeserializationFailed
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.extensions.interceptors import ConsumerInterceptors
from barnabas.client.extensions.records import Record
from barnabas.core.errors import CorruptMessage, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.records.batch import RecordBatch

AnyRecord: TypeAlias = Record[Any, Any]
Deserialize = Callable[[AnyRecord], AnyRecord]


class _Given(NamedTuple):
    """Position of a partition before records of it were handed out."""

    state: PartitionState
    version: int
    position: int
    epoch: int


class BatchesOfPartition(NamedTuple):
    at: TopicPartition
    start: int
    """Records below this offset were handed out before."""
    batches: list[RecordBatch]
    legacy: memoryview | None
    """Messages of formats 0 and 1, instead of batches."""


def _batches(chunk: Chunk, max_bytes: int) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    size_bytes = 0
    while size_bytes < max_bytes and (batch := chunk.next_batch()) is not None:
        found.append(batch)
        size_bytes += batch.size_bytes
    return found


class HandingOut:
    def __init__(
        self,
        positions: Positions,
        deserialize: Deserialize | None,
        interceptors: ConsumerInterceptors | None = None,
    ) -> None:
        self.slice: list[AnyRecord] = []
        self.index = 0
        self.attention = True
        """True when `async for` must look up before it hands out the next record."""
        self._raw: list[AnyRecord] = []
        """The slice before interceptors saw it."""
        self._positions = positions
        self._deserialize = deserialize
        self._interceptors = interceptors
        self._state: PartitionState | None = None
        self._chunk: Chunk | None = None
        self._version = 0
        self._given: list[_Given] = []
        self._committed: dict[TopicPartition, tuple[PartitionState, int, int]] = {}
        """State, version and offset of what the application has committed. A seek makes another version."""

    def settle(self) -> None:
        """Move the position past the records of the slice that were handed out."""
        state = self._state
        if state is None or not self.index or state.version != self._version:
            return
        last = self._raw[-1] if self.index >= len(self.slice) else self.slice[self.index - 1]
        state.position, state.epoch = last.offset + 1, last.leader_epoch

    def abandon(self) -> None:
        """Settle, and give the rest of the slice back."""
        self.settle()
        if self._state is not None and self._chunk is not None and self._state.version == self._version:
            left = len(self._raw) - self._handed_of_raw()
            self._chunk.give_back(left)
        self._clear()

    def _handed_of_raw(self) -> int:
        if self.index >= len(self.slice):
            return len(self._raw)
        if not self.index:
            return 0
        offset = self.slice[self.index - 1].offset
        return sum(each.offset <= offset for each in self._raw)

    def _clear(self) -> None:
        self.slice, self._raw, self.index = [], [], 0
        self._state = self._chunk = None

    def roll_back(self) -> None:
        """Undo what was handed out last: the record in hand, or the last batch."""
        self.settle()
        if self._state is not None and self.index and self._state.version == self._version:
            self._go_back(self._state, self.slice[self.index - 1].offset, self._state.epoch)
            self._clear()
        for state, version, position, epoch in self._given:
            if state.version == version:
                self._go_back(state, position, epoch)
        self._given = []

    def _go_back(self, state: PartitionState, position: int, epoch: int) -> None:
        known, version, committed = self._committed.get(state.at, (None, 0, 0))
        if known is state and version == state.version and position < committed:
            state.position = min(state.position, committed)
        else:
            state.position, state.epoch = position, epoch

    def committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The application has committed these offsets: `roll_back` goes no further."""
        for at, each in offsets.items():
            state = self._positions.get(at)
            if state is not None:
                self._committed[at] = (state, state.version, each.offset)

    def next_slice(self, most: int) -> bool:
        """Put the next records into `slice`; False when none are buffered."""
        self.abandon()
        self._given = []
        for state in list(self._positions):
            found = self._from(state, most)
            if found:
                self._state, self._chunk, self._version = state, state.chunks[0], state.version
                self._raw = found
                self.slice = self._intercepted(found)
                self.index = 0
                return True
        return False

    def take(self, most: int, *, raw: bool = False) -> list[AnyRecord]:
        """Up to `most` records of any partitions; all of them count as handed out."""
        self.abandon()
        self._given = []
        records: list[AnyRecord] = []
        for state in list(self._positions):
            before = _Given(state, state.version, state.position, state.epoch)
            count = len(records)
            while len(records) < most:
                try:
                    found = self._from(state, most - len(records), raw=raw)
                except (DeserializationFailed, KafkaError):
                    if records:
                        break  # raised again when the records before it are taken
                    raise
                if not found:
                    break
                records += found
                state.position, state.epoch = found[-1].offset + 1, found[-1].leader_epoch
            if len(records) > count:
                self._given.append(before)
        return records if raw else self._intercepted(records)

    def take_batches(self, max_bytes: int) -> BatchesOfPartition | None:
        """Whole batches of one partition, about `max_bytes` of them, undecoded. They count as handed out."""
        self.abandon()
        self._given = []
        for state in list(self._positions):
            if not state.is_given or state.need is not Need.NOTHING:
                continue
            while state.chunks:
                chunk = state.chunks[0]
                if chunk.is_begun:
                    state.refetch()  # its batch was decoded for another call
                    break
                found = _batches(chunk, max_bytes)
                taken = BatchesOfPartition(
                    state.at, state.position, found, chunk.legacy_data if chunk.is_legacy else None
                )
                before = _Given(state, state.version, state.position, state.epoch)
                if found:
                    state.position, state.epoch = found[-1].next_offset, found[-1].leader_epoch
                if chunk.is_legacy or not found:
                    state.chunk_done()
                if found or chunk.is_legacy:
                    self._given = [before]
                    self._positions.to_back(state.at)
                    return taken
        return None

    def _from(self, state: PartitionState, most: int, *, raw: bool = False) -> list[AnyRecord]:
        """Next records of one partition."""
        if not state.is_given or state.need is not Need.NOTHING:
            return []
        while state.chunks:
            chunk = state.chunks[0]
            try:
                found = chunk.take(state.position, most)
            except CorruptMessage as error:
                raise CorruptMessage(f"{state.at} at offset {state.position}: {error}") from None
            if found:
                self._positions.to_back(state.at)
                return found if raw or self._deserialize is None else self._deserialized(found, chunk)
            state.chunk_done()
        return []

    def _deserialized(self, records: list[AnyRecord], chunk: Chunk) -> list[AnyRecord]:
        assert self._deserialize is not None
        found: list[AnyRecord] = []
        for record in records:
            try:
                found.append(self._deserialize(record))
            except Exception as error:
                chunk.give_back(len(records) - len(found))
                if found:
                    return found
                raise DeserializationFailed(
                    f"the record at offset {record.offset} of {record.topic_partition} cannot be"
                    f" deserialized: {error}"
                ) from error
        return found

    def _intercepted(self, records: list[AnyRecord]) -> list[AnyRecord]:
        return list(self._interceptors.on_consume(records)) if self._interceptors else records

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Positions of all partitions, as they are committed."""
        self.settle()
        return {
            state.at: CommittedOffset(state.position, state.metadata, state.epoch)
            for state in self._positions
            if state.has_position
        }
