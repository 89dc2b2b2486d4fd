"""Record schemas of `__transaction_state`, as Apache Kafka declares them.

Keys and values are preceded by their version as an int16. Version 1 of the value is flexible; brokers write
it from `transaction.version` 1 on.
"""

from __future__ import annotations

from barnabas.protocol.schema.fields import array, int8, int16, int32, int64, string
from barnabas.protocol.schema.message import Message

__all__ = ["PartitionsSchema", "TransactionLogKey", "TransactionLogValue"]


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(Message):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, ignorable=True, tag=0)
    next_producer_id: int = int64("1+", default=-1, ignorable=True, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, ignorable=True, tag=2)
