"""Record of the transaction coordinator: a transactional id and its metadata."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Final

from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.record_schemas import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.coordinator.transaction.state.states import EMPTY, TransactionState
from barnabas.core.bounds.kept_memory import Reservation
from barnabas.core.ids import TopicPartition

_VERSION: Final = struct.Struct(">h")
_KEY_VERSION: Final = 0
_CLASSIC_VALUE_VERSION: Final = 0
_FLEXIBLE_VALUE_VERSION: Final = 1


class UnknownRecord(Exception):
    """Key or value of a version that this broker does not know."""


class TransactionRecord:
    """`metadata` None is a tombstone."""

    __slots__ = ("memory", "metadata", "transactional_id", "value_version")

    def __init__(
        self,
        transactional_id: str,
        metadata: TransactionMetadata | None,
        *,
        is_flexible: bool = True,
        memory: Reservation | None = None,
    ) -> None:
        self.memory = memory
        """Reserved for a new id."""
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.value_version = _FLEXIBLE_VALUE_VERSION if is_flexible else _CLASSIC_VALUE_VERSION

    def encode(self) -> tuple[bytes, bytes | None]:
        name = TransactionLogKey(transactional_id=self.transactional_id)
        key = _VERSION.pack(_KEY_VERSION) + name.encode(_KEY_VERSION)
        if self.metadata is None:
            return key, None
        version = self.value_version
        return key, _VERSION.pack(version) + _value_of(self.metadata).encode(version)

    def __repr__(self) -> str:
        return f"TransactionRecord({self.metadata or self.transactional_id + ': removed'})"


def _value_of(metadata: TransactionMetadata) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is EMPTY else _by_topic(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
        client_transaction_version=metadata.client_transaction_version,
    )


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord:
    (key_version,) = _VERSION.unpack_from(key)
    if key_version != _KEY_VERSION:
        raise UnknownRecord(f"the record has a key of unknown version {key_version}")
    transactional_id = TransactionLogKey.decode(key, key_version, 2)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    (version,) = _VERSION.unpack_from(value)
    if version not in TransactionLogValue.supported_versions():
        raise UnknownRecord(f"transactional id {transactional_id} has a value of unknown version {version}")
    decoded, _ = TransactionLogValue.decode(value, version, 2)
    metadata = TransactionMetadata(
        transactional_id,
        decoded.producer_id,
        decoded.producer_epoch,
        decoded.transaction_timeout_ms,
        TransactionState(decoded.transaction_status),
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in decoded.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        decoded.previous_producer_id,
        decoded.next_producer_id,
        decoded.client_transaction_version,
    )
    return TransactionRecord(transactional_id, metadata, is_flexible=version >= _FLEXIBLE_VALUE_VERSION)
