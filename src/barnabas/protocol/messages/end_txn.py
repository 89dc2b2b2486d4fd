"""EndTxn (26): commit or abort a transaction.

v3 is flexible; v5 returns the next producer id and epoch.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import boolean, int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class EndTxnRequest(Message, api=ApiKey.END_TXN):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api=ApiKey.END_TXN):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
