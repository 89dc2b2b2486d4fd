"""AddOffsetsToTxn (25), v0-4: add a group's offsets partition to a transaction. v3 is flexible."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, int64, string
from barnabas.protocol.schema import Message


class AddOffsetsToTxnRequest(Message, api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
