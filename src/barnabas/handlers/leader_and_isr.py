"""LeaderAndIsr (4), v0-7. Gaps: the migration to KRaft.

The controller assigns the partitions that this broker leads and follows. The configs of their topics are read
first: a log is created with its topic's configs.
"""

from __future__ import annotations

from barnabas.core.limits import ORDER_ELEMENTS_MAX
from barnabas.handlers.shared.controller_orders import carried_out
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.requests.services import Services

VERSION_WITH_TOPIC_IDS = 5


async def lead_and_follow(request: LeaderAndIsrRequest, broker: Services) -> LeaderAndIsrResponse:
    """Apply the request; the response has the form of the newest version."""
    broker.replicas.check_controller(request.controller_epoch, request.broker_epoch)
    names = {state.topic_name for state in request.ungrouped_partition_states}
    names.update(topic.topic_name for topic in request.topic_states)
    await broker.configs.load_topics(names)
    return await carried_out(broker.replicas.become_leader_or_follower, request)


async def handle_leader_and_isr(
    request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    response = await lead_and_follow(request, context.broker)
    if context.api_version < VERSION_WITH_TOPIC_IDS:
        response.partition_errors = [each for topic in response.topics for each in topic.partition_errors]
        response.topics = []
    return response


LEADER_AND_ISR = Api(ApiKey.LEADER_AND_ISR, handle=handle_leader_and_isr, elements_max=ORDER_ELEMENTS_MAX)
