"""AddOffsetsToTxn (25): add a group's offsets partition to a transaction. v3 is flexible."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class AddOffsetsToTxnRequest(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    throttle_time_ms: int = int32()
    error_code: int = int16()
