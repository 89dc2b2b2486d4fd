"""Offset commit records and their codec: by far the most frequent record.

The layouts are those of `record_schemas`: OffsetCommitKey 1; OffsetCommitValue 4 with the topic id, 3 if that
is unknown, 1 when the commit names its expiry time. A name alone does not identify a topic: it may be deleted
and created again. An offset with another id counts for nothing. In memory a commit stays as it is in the log:
eight bytes of log offset, then the value. It is decoded when a request needs it. Most are never needed, and a
million byte strings do not concern the garbage collector.

`OffsetLoader` reads back a million of them in seconds. The key before its last four bytes names a group and a
topic. There are few of those, so each is decoded once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.coordinator.group.state.record_schemas import OffsetCommitKey, OffsetCommitValue
from barnabas.coordinator.runtime.replay import LoadStep, SetAside
from barnabas.core.errors import InvalidRecord, InvalidRequest
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.limits import STRING_BYTES_MAX
from barnabas.protocol.schema.primitives import unsigned_varint
from barnabas.records.batch import CODEC_MASK, HEADER_BYTES, RecordBatch
from barnabas.records.record import inflate_payload
from barnabas.records.varint import read_varint, read_varlong

NO_EXPIRY: Final = -1

_KEY_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_PLAIN: Final = struct.Struct(">qhqihq")
_PLAIN_BYTES: Final = _PLAIN.size
_VERSION_AT: Final = 9
_PLAIN_VALUE_BYTES: Final = _PLAIN_BYTES - 8
_NAMED: Final = struct.Struct(">qhqiBq3s16s")
_NAMED_BYTES: Final = _NAMED.size
_NAMED_VALUE_BYTES: Final = _NAMED_BYTES - 8
_NAMED_HEAD: Final = struct.Struct(">hqi")
_NO_METADATA: Final = 1
_METADATA_AT: Final = 14
"""Position of the metadata length, plus one, in a value of version 4."""
_TAGS_AT: Final = 23
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field, number 0, of 16 bytes."""
_VALUE_HEAD: Final = struct.Struct(">hqih")
_EXPIRING_HEAD: Final = struct.Struct(">hqh")
_TIMES: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">q")

RECORDS_PER_STEP: Final = 500


class OffsetAndMetadata(NamedTuple):
    """Committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1
    """Offset of the record in the log. The later of two commits counts, in whichever order they are read."""
    topic_id: Uuid = ZERO_UUID
    """Topic id of the commit, if known."""


Packed = bytes
"""Commit in memory: its log offset, then the value as written."""

Offsets = dict[str, dict[str, dict[int, Packed]]]
"""Group -> topic -> partition."""


class OffsetRecord:
    """Commit of one partition; without a `value`, its tombstone."""

    __slots__ = ("_encoded", "group", "partition", "topic", "value")

    def __init__(self, group: str, topic: str, partition: int, value: OffsetAndMetadata | None) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.value = value
        self._encoded: bytes | None = None

    @property
    def encoded_value(self) -> bytes | None:
        if self._encoded is None and self.value is not None:
            self._encoded = encode_value(self.value)
        return self._encoded

    def encode(self) -> tuple[bytes, bytes | None]:
        group = _bounded(self.group)
        topic = _bounded(self.topic)
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
        return key, self.encoded_value

    def __repr__(self) -> str:
        return f"OffsetRecord({self.group}, {self.topic}-{self.partition}, {self.value})"


def _bounded(text: str) -> bytes:
    """UTF-8 of bounded length. A record that no decoder reads would keep a coordinator from loading."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the commit has text that is not Unicode: {error}") from None
    if len(raw) > STRING_BYTES_MAX:
        raise InvalidRequest(f"a string has {len(raw)} bytes; the maximum is {STRING_BYTES_MAX}")
    return raw


def encode_value(value: OffsetAndMetadata) -> bytes:
    metadata = _bounded(value.metadata)
    if value.expire_timestamp_ms != NO_EXPIRY:
        return (
            _EXPIRING_HEAD.pack(1, value.offset, len(metadata))
            + metadata
            + _TIMES.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
        )
    if value.topic_id != ZERO_UUID:
        head = _NAMED_HEAD.pack(4, value.offset, value.leader_epoch) + unsigned_varint(len(metadata) + 1)
        return b"".join(
            (head, metadata, _TIME.pack(value.commit_timestamp_ms), _TOPIC_ID_TAG, value.topic_id)
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


def decode_value(value: bytes) -> OffsetAndMetadata:
    return unpack(pack(value, -1))


def pack(value: bytes, record_offset: int) -> Packed:
    return _TIME.pack(record_offset) + value


def record_offset_of(packed: Packed) -> int:
    offset: int = _TIME.unpack_from(packed)[0]
    return offset


def unpack(packed: Packed) -> OffsetAndMetadata:
    if len(packed) == _PLAIN_BYTES and packed[_VERSION_AT] == 3:
        record_offset, _, offset, leader_epoch, _, commit_timestamp = _PLAIN.unpack(packed)
        return OffsetAndMetadata(offset, leader_epoch, "", commit_timestamp, NO_EXPIRY, record_offset)
    if _is_named(packed, _TIME.size):
        record_offset, _, offset, leader_epoch, _, commit_timestamp, _, topic_id = _NAMED.unpack(packed)
        return OffsetAndMetadata(
            offset, leader_epoch, "", commit_timestamp, NO_EXPIRY, record_offset, Uuid(topic_id)
        )
    (record_offset,) = _TIME.unpack_from(packed)
    (version,) = _LENGTH.unpack_from(packed, _TIME.size)
    decoded, _ = OffsetCommitValue.decode(packed, version, _TIME.size + _LENGTH.size)
    return OffsetAndMetadata(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        record_offset,
        decoded.topic_id,
    )


def _is_named(data: bytes, value_at: int) -> bool:
    """Whether the value has the usual layout: no metadata, and a topic id."""
    return (
        len(data) - value_at == _NAMED_VALUE_BYTES
        and data[value_at + 1] == 4
        and data[value_at + _METADATA_AT] == _NO_METADATA
        and data.startswith(_TOPIC_ID_TAG, value_at + _TAGS_AT)
    )


def is_of_another_topic(packed: Packed, topic_id: Uuid) -> bool:
    """Whether the commit belongs to another topic id; False if either is unknown."""
    return topic_id != ZERO_UUID and topic_id_of(packed) not in (topic_id, ZERO_UUID)


def topic_id_of(packed: Packed) -> bytes:
    """Topic id of the commit; ZERO_UUID if unknown."""
    if packed[_VERSION_AT] != 4:
        return ZERO_UUID
    return packed[-16:] if _is_named(packed, _TIME.size) else unpack(packed).topic_id


class RawRecord(NamedTuple):
    """Record of another kind, found between offsets."""

    offset: int
    key: bytes
    value: bytes | None


class OffsetLoader:
    """Replays offsets from batches into `offsets`.

    A tombstone is reported to `removed` as well: an open transaction may have staged the offset. The tables
    of `offsets` must stay the same objects while this is in use.
    """

    __slots__ = ("_by_prefix", "_offsets", "_removed")

    def __init__(self, offsets: Offsets, removed: Callable[[str, str, int], None]) -> None:
        self._offsets = offsets
        self._removed = removed
        self._by_prefix: dict[bytes, dict[int, Packed]] = {}

    def load(self, batch: RecordBatch) -> Iterator[RawRecord | LoadStep]:
        """Replay the offsets of a batch; yields records of other kinds, and steps of loading."""
        if batch.attributes & CODEC_MASK or not isinstance(batch.buffer, bytes):
            payload, position = bytes(inflate_payload(batch)), 0
        else:
            payload, position = batch.buffer, batch.position + HEADER_BYTES
        base_offset = batch.base_offset
        by_prefix = self._by_prefix
        left = RECORDS_PER_STEP
        for _ in range(batch.record_count):
            position, offset_delta, key, value = _next_record(payload, position)
            if key[1] > 1 or key[0]:
                yield RawRecord(base_offset + offset_delta, key, value)
                continue
            try:
                if value is not None and (
                    not _is_named(value, 0) and (len(value) != _PLAIN_VALUE_BYTES or value[1] != 3)
                ):
                    decode_value(value)
                partitions = by_prefix.get(key[:-4])
                if partitions is None:
                    partitions = self._find(key)
                partition = _read_partition(key, len(key) - 4)[0]
                if value is None:
                    partitions.pop(partition, None)
                    self._removed(*decode_key(key))
                else:
                    partitions[partition] = _pack_offset(base_offset + offset_delta) + value
            except Exception as error:  # noqa: BLE001 - the loader counts and logs it
                yield SetAside(base_offset + offset_delta, error)
            left -= 1
            if not left:
                left = RECORDS_PER_STEP
                yield None

    def _find(self, key: bytes) -> dict[int, Packed]:
        group, topic, _ = decode_key(key)
        partitions = self._offsets.setdefault(group, {}).setdefault(topic, {})
        self._by_prefix[key[:-4]] = partitions
        return partitions


_pack_offset = _TIME.pack
_read_partition = _PARTITION.unpack_from


def _next_record(payload: bytes, position: int) -> tuple[int, int, bytes, bytes | None]:
    """Record at `position`: the position after it, its offset delta, key and value.

    Nearly every number here fits into one byte, so that case is written out.
    """
    try:
        byte = payload[position]
        if byte < 0x80:
            length, at = byte >> 1, position + 2
        else:
            length, at = read_varint(payload, position)
            at += 1
        end = at + length - 1
        if payload[at] < 0x80:
            at += 1
        else:
            _, at = read_varlong(payload, at)
        byte = payload[at]
        if byte < 0x80:
            offset_delta, at = byte >> 1, at + 1
        else:
            offset_delta, at = read_varint(payload, at)
        key_length, at = read_varint(payload, at)
        value_at = at + key_length
        byte = payload[value_at]
        if byte < 0x80 and not byte & 1:
            value_length, start = byte >> 1, value_at + 1
        else:
            value_length, start = read_varint(payload, value_at)
    except IndexError:
        raise InvalidRecord("A coordinator's record runs past the end of its batch") from None
    if key_length < 2 or start + value_length > end or end > len(payload):
        raise InvalidRecord("A coordinator's record is malformed")
    key = payload[at:value_at]
    return end, offset_delta, key, None if value_length < 0 else payload[start : start + value_length]
