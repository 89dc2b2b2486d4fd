"""Records of the group coordinator: encoding and decoding.

A `GroupRecord` is a key and a value of `record_schemas`, or a key alone: a tombstone. Values have the newest
version that every broker since Kafka 2.1 reads; offsets with a topic id need Kafka 3.5. A key of an unknown
version comes from a newer broker and is left alone.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.coordinator.group.state import record_schemas as schemas
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.protocol.schema.message import Message

_VERSION: Final = struct.Struct(">h")

KEY_CLASSES: Final[dict[int, type[Message]]] = {
    0: schemas.OffsetCommitKey,
    1: schemas.OffsetCommitKey,
    2: schemas.GroupMetadataKey,
    3: schemas.ConsumerGroupMetadataKey,
    4: schemas.ConsumerGroupPartitionMetadataKey,
    5: schemas.ConsumerGroupMemberMetadataKey,
    6: schemas.ConsumerGroupTargetAssignmentMetadataKey,
    7: schemas.ConsumerGroupTargetAssignmentMemberKey,
    8: schemas.ConsumerGroupCurrentMemberAssignmentKey,
    16: schemas.ConsumerGroupRegularExpressionKey,
}

VALUE_CLASSES: Final[dict[type[Message], type[Message]]] = {
    schemas.OffsetCommitKey: schemas.OffsetCommitValue,
    schemas.GroupMetadataKey: schemas.GroupMetadataValue,
    schemas.ConsumerGroupMetadataKey: schemas.ConsumerGroupMetadataValue,
    schemas.ConsumerGroupPartitionMetadataKey: schemas.ConsumerGroupPartitionMetadataValue,
    schemas.ConsumerGroupMemberMetadataKey: schemas.ConsumerGroupMemberMetadataValue,
    schemas.ConsumerGroupTargetAssignmentMetadataKey: schemas.ConsumerGroupTargetAssignmentMetadataValue,
    schemas.ConsumerGroupTargetAssignmentMemberKey: schemas.ConsumerGroupTargetAssignmentMemberValue,
    schemas.ConsumerGroupCurrentMemberAssignmentKey: schemas.ConsumerGroupCurrentMemberAssignmentValue,
    schemas.ConsumerGroupRegularExpressionKey: schemas.ConsumerGroupRegularExpressionValue,
}

_KEY_VERSIONS: Final = {cls: version for version, cls in KEY_CLASSES.items()}
_WRITTEN_VERSIONS: Final[dict[type[Message], int]] = {
    schemas.OffsetCommitValue: 3,
    schemas.GroupMetadataValue: 3,
}


class UnknownRecord(Exception):
    """Key of a version that this broker does not know."""


class GroupRecord:
    __slots__ = ("key", "memory", "value")

    def __init__(self, key: Message, value: Message | None = None, memory: Reservation | None = None) -> None:
        self.key = key
        self.value = value
        self.memory = memory
        """Reserved for the state of the record; None for one read back from the log."""

    def encode(self) -> tuple[bytes, bytes | None]:
        key_version = _KEY_VERSIONS[type(self.key)]
        key = _VERSION.pack(key_version) + self.key.encode(key_version)
        value = self.value
        if value is None:
            return key, None
        version = _WRITTEN_VERSIONS.get(type(value), 0)
        return key, _VERSION.pack(version) + value.encode(version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupRecord) and (self.key, self.value) == (other.key, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"GroupRecord({self.key!r}, {self.value!r})"


def decode_record(key: bytes, value: bytes | None) -> GroupRecord:
    """Decode a record; UnknownRecord for a key of a newer version."""
    (version,) = _VERSION.unpack_from(key)
    key_class = KEY_CLASSES.get(version)
    if key_class is None:
        raise UnknownRecord(f"the record has a key of unknown version {version}")
    decoded_key, _ = key_class.decode(key, version, 2)
    if value is None:
        return GroupRecord(decoded_key)
    (value_version,) = _VERSION.unpack_from(value)
    decoded_value, _ = VALUE_CLASSES[key_class].decode(value, value_version, 2)
    return GroupRecord(decoded_key, decoded_value)
