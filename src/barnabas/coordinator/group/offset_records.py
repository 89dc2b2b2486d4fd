"""Committed offsets as bytes: by far the most frequent record, so it has a codec of its own.

The layouts are those of `record_schemas` (OffsetCommitKey 1, OffsetCommitValue 3, or 1 when the commit
names the time it expires at).

`OffsetLoader` reads back a million of them in seconds. Two observations make that possible: the key
before its last four bytes names a group and a topic, of which there are few, so it is decoded once; and
most values have no metadata and thus one fixed layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.coordinator.group.record_schemas import OffsetCommitKey, OffsetCommitValue
from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import RecordBatch
from barnabas.records.record import inflate_payload
from barnabas.records.varint import read_varint, read_varlong

NO_EXPIRY: Final = -1

_KEY_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_PLAIN_VALUE: Final = struct.Struct(">hqihq")
_VALUE_HEAD: Final = struct.Struct(">hqih")
_EXPIRING_HEAD: Final = struct.Struct(">hqh")
_TIMES: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">q")

RECORDS_PER_STEP: Final = 500


class OffsetAndMetadata(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1
    """Where in the log it stands: of two commits the later one counts, in whatever order they are seen."""


class OffsetRecord:
    """A commit of one partition, or with no `value` its removal."""

    __slots__ = ("group", "partition", "topic", "value")

    def __init__(self, group: str, topic: str, partition: int, value: OffsetAndMetadata | None) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.value = value

    def encode(self) -> tuple[bytes, bytes | None]:
        group = self.group.encode()
        topic = self.topic.encode()
        key = b"".join(
            (
                b"\0\1",
                _LENGTH.pack(len(group)),
                group,
                _LENGTH.pack(len(topic)),
                topic,
                _PARTITION.pack(self.partition),
            )
        )
        value = self.value
        return key, None if value is None else encode_value(value)

    def __repr__(self) -> str:
        return f"OffsetRecord({self.group}, {self.topic}-{self.partition}, {self.value})"


def encode_value(value: OffsetAndMetadata) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms != NO_EXPIRY:
        return (
            _EXPIRING_HEAD.pack(1, value.offset, len(metadata))
            + metadata
            + _TIMES.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    return (
        _VALUE_HEAD.pack(3, value.offset, value.leader_epoch, len(metadata))
        + metadata
        + _TIME.pack(value.commit_timestamp_ms)
    )


def decode_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of a key of version 0 or 1."""
    decoded, _ = OffsetCommitKey.decode(key, _KEY_VERSION, 2)
    return decoded.group, decoded.topic, decoded.partition


def decode_value(value: bytes, record_offset: int) -> OffsetAndMetadata:
    (version,) = _LENGTH.unpack_from(value)
    decoded, _ = OffsetCommitValue.decode(value, version, 2)
    return OffsetAndMetadata(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        record_offset,
    )


class RawRecord(NamedTuple):
    """A record of another kind, met between offsets."""

    key: bytes
    value: bytes | None


class OffsetLoader:
    """Replays offsets from batches into `offsets`: group -> topic -> partition -> commit.

    A removal is reported to `removed` as well: it may concern what an open transaction has staged. The
    tables of `offsets` must stay the same objects while this is in use.
    """

    __slots__ = ("_by_prefix", "_offsets", "_removed")

    def __init__(
        self,
        offsets: dict[str, dict[str, dict[int, OffsetAndMetadata]]],
        removed: Callable[[str, str, int], None],
    ) -> None:
        self._offsets = offsets
        self._removed = removed
        self._by_prefix: dict[bytes, dict[int, OffsetAndMetadata]] = {}

    def load(self, batch: RecordBatch) -> Iterator[RawRecord | None]:
        """Take in the offsets of a batch; yields what else is in it, and None now and then as a pause."""
        payload = bytes(inflate_payload(batch))
        position = 0
        left = RECORDS_PER_STEP
        for _ in range(batch.record_count):
            position, offset_delta, key, value = _next_record(payload, position)
            if key[:2] > b"\0\1":
                yield RawRecord(key, value)
                continue
            self.put(key, value, batch.base_offset + offset_delta)
            left -= 1
            if not left:
                left = RECORDS_PER_STEP
                yield None

    def put(self, key: bytes, value: bytes | None, record_offset: int) -> None:
        partitions = self._by_prefix.get(key[:-4])
        if partitions is None:
            partitions = self._find(key)
        (partition,) = _PARTITION.unpack_from(key, len(key) - 4)
        if value is None:
            partitions.pop(partition, None)
            self._removed(*decode_key(key))
        elif len(value) == 24 and value[1] == 3:
            _, offset, leader_epoch, _, commit_timestamp = _PLAIN_VALUE.unpack(value)
            partitions[partition] = _new(
                OffsetAndMetadata, (offset, leader_epoch, "", commit_timestamp, NO_EXPIRY, record_offset)
            )
        else:
            partitions[partition] = decode_value(value, record_offset)

    def _find(self, key: bytes) -> dict[int, OffsetAndMetadata]:
        group, topic, _ = decode_key(key)
        partitions = self._offsets.setdefault(group, {}).setdefault(topic, {})
        self._by_prefix[key[:-4]] = partitions
        return partitions


_new = tuple.__new__


def _next_record(payload: bytes, position: int) -> tuple[int, int, bytes, bytes | None]:
    """The record at `position`: the position after it, its offset delta, key and value."""
    length, at = read_varint(payload, position)
    end = at + length
    _, at = read_varlong(payload, at + 1)
    offset_delta, at = read_varint(payload, at)
    key_length, at = read_varint(payload, at)
    value_at = at + key_length
    value_length, start = read_varint(payload, value_at)
    if key_length < 2 or start + value_length > end or end > len(payload) or length < 0:
        raise InvalidRecord("A coordinator's record is malformed")
    key = payload[at:value_at]
    return end, offset_delta, key, None if value_length < 0 else payload[start : start + value_length]
