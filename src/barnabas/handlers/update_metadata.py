"""UpdateMetadata (6), v0-8. Gaps: the migration to KRaft.

The controller publishes live brokers and partition leaders, for this broker's Metadata responses.
"""

from __future__ import annotations

from barnabas.cluster.metadata.updates import apply_update
from barnabas.core.limits import ORDER_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.requests.services import Services


def update_metadata(request: UpdateMetadataRequest, broker: Services) -> UpdateMetadataResponse:
    broker.replicas.check_controller(request.controller_epoch, request.broker_epoch)
    for topic in apply_update(broker.metadata, request):
        broker.replicas.table.forget_topic(topic)
    return UpdateMetadataResponse()


def handle_update_metadata(request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    return update_metadata(request, context.broker)


UPDATE_METADATA = Api(ApiKey.UPDATE_METADATA, handle=handle_update_metadata, elements_max=ORDER_ELEMENTS_MAX)
