"""InitProducerId (22): get a producer id, or a new epoch for a transactional id.

v2 is flexible; v3 lets a producer bump its own epoch; v4 can answer PRODUCER_FENCED, v5
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class InitProducerIdRequest(Message, api=ApiKey.INIT_PRODUCER_ID):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api=ApiKey.INIT_PRODUCER_ID):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
