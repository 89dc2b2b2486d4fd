"""DeleteTopics (20): delete topics.

v4 is flexible; v5 returns error messages; v6 takes topic ids, in a list of (name or id) instead of names.
"""

from __future__ import annotations

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int16, int32, string, uuid
from barnabas.protocol.schema.message import Message


class DeleteTopicState(Message):
    name: str | None = string(nullable="6+", default=None)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Message):
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api=ApiKey.DELETE_TOPICS):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
