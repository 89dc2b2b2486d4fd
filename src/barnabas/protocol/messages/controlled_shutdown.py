"""ControlledShutdown (7): a broker asks the controller to move its leaderships before it stops. Between
brokers only.

v0 predates client ids: its request header has none. v2 carries the broker epoch, v3 is flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int16, int32, int64, string
from barnabas.protocol.schema.message import Message


class ControlledShutdownRequest(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Message):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
