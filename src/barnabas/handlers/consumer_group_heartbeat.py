"""ConsumerGroupHeartbeat (68), v0-1. Gaps: none."""

from __future__ import annotations

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Sliced[None]:
    groups = context.broker.groups
    if "consumer" not in groups.settings.protocols:
        raise UnsupportedVersion("group.coordinator.rebalance.protocols lacks the consumer protocol")
    for topic in request.subscribed_topic_names or ():
        yield
        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    caller = context.caller()
    groups.run(
        request.group_id,
        lambda shard: shard.consumer_heartbeats.heartbeat(request, caller),
        context.respond,
        context.fail,
    )


CONSUMER_GROUP_HEARTBEAT = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    handle=handle_consumer_group_heartbeat,
    elements_max=DECISION_ELEMENTS_MAX,
)
