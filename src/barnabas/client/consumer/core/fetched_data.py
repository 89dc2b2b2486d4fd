"""Batches of one partition from one Fetch answer, decoded when the application takes them.

A chunk keeps the bytes of the answer until its last record is taken. Under read_committed it drops the
batches of aborted transactions, by the list of the answer. Control batches are always dropped. Checksums are
verified when a batch is decoded.

Messages of formats 0 and 1, from logs of old brokers, come before batches of format 2 in an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.client.consumer.core.decoding import decode_records
from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.client.extensions.records import NO_TIMESTAMP_TYPE, Record
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_EPOCH, TopicPartition
from barnabas.records.batch import MAGIC, MAGIC_AT, RecordBatch, iterate_whole_batches, whole_batches
from barnabas.records.legacy import iterate_message_records, iterate_messages


class Chunk:
    def __init__(
        self,
        at: TopicPartition,
        data: memoryview,
        aborted: Iterable[tuple[int, int]] = (),
        *,
        checks_crc: bool = True,
    ) -> None:
        """CORRUPT_MESSAGE when the headers of the batches are damaged."""
        self.at = at
        self.size_bytes = len(data)
        self.is_legacy = len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC
        self.next_offset = -1
        self.last_epoch = NO_EPOCH
        self.batches: list[RecordBatch] = []
        self._kept = AbortedFilter(aborted)
        self._checks_crc = checks_crc
        self._data = data
        self._decoded: list[Record[Any, Any]] = []
        self._taken = 0
        if self.is_legacy:
            self._data = _legacy_prefix(data)
            for message in iterate_messages(self._data):
                self.next_offset = message.next_offset
        else:
            self.batches = list(iterate_whole_batches(data))
            if self.batches:
                self.next_offset = self.batches[-1].next_offset
                self.last_epoch = self.batches[-1].leader_epoch
            self.batches.reverse()

    @property
    def is_empty(self) -> bool:
        """True when the answer held no whole batch."""
        return self.next_offset < 0

    def next_batch(self) -> RecordBatch | None:
        """Next batch with data for this reader, its checksum verified; None at the end."""
        batches = self.batches
        while batches:
            batch = batches[-1]
            if self._checks_crc:
                batch.check_crc()
            batches.pop()
            if self._kept.keeps(batch):
                return batch
        return None

    def take(self, position: int, most: int) -> list[Record[Any, Any]]:
        """Up to `most` records from `position` on; none at the end of the chunk."""
        if self._taken >= len(self._decoded):
            self._decoded = self.records(position) or []
            self._taken = 0
        found = self._decoded[self._taken : self._taken + most]
        self._taken += len(found)
        return found

    @property
    def is_begun(self) -> bool:
        """True when records of a decoded batch are left."""
        return self._taken < len(self._decoded)

    @property
    def legacy_data(self) -> memoryview:
        """The messages of formats 0 and 1."""
        return self._data

    def give_back(self, count: int) -> None:
        """Take the last `count` records again next time."""
        self._taken -= count

    def records(self, position: int) -> list[Record[Any, Any]] | None:
        """Records of the next batch from `position` on; None at the end of the chunk."""
        if self.is_legacy:
            return self._legacy_records(position)
        while (batch := self.next_batch()) is not None:
            if batch.next_offset <= position:
                continue
            try:
                found = decode_records(batch, self.at.topic, self.at.partition, position)
            except KafkaError:
                self.batches.append(batch)  # the fault stays until the application seeks past it
                raise
            if found:
                return found
        return None

    def _legacy_records(self, position: int) -> list[Record[Any, Any]] | None:
        data, self._data = self._data, memoryview(b"")
        topic, partition = self.at
        found: list[Record[Any, Any]] = []
        for message in iterate_messages(data):
            if self._checks_crc:
                message.check_crc()
            kind = NO_TIMESTAMP_TYPE if message.magic == 0 else int(message.is_log_append_time)
            found += [
                Record(topic, partition, each.offset, each.timestamp, each.key, each.value, (), kind)
                for each in iterate_message_records(message)
                if each.offset >= position
            ]
        return found or None


def _legacy_prefix(data: memoryview) -> memoryview:
    """The old messages at the front, whole ones only."""
    end = 0
    while len(message := whole_batches(data[end:], 1)) and message[MAGIC_AT] < MAGIC:  # type: ignore[arg-type]
        end += len(message)
    return data[:end]
