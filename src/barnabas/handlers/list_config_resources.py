"""ListConfigResources (74), v0-1. Gaps: none.

Version 0 of this key was ListClientMetricsResources, and still means that.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> Sliced[ListConfigResourcesResponse]:
    known = {int(each) for each in ResourceType}
    wanted = set(request.resource_types) or known
    if context.api_version == 0:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    if not wanted <= known:
        raise UnsupportedVersion(f"config resource types {sorted(wanted - known)} are not known here")
    metadata = context.broker.metadata
    brokers = [str(broker.id) for broker in metadata.brokers()]
    names: dict[int, Sequence[str]] = {
        ResourceType.TOPIC: sorted(metadata.topic_names()),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: context.broker.configs.client_metrics.names(),
        ResourceType.GROUP: context.broker.configs.groups.names(),
    }
    resources = []
    for kind in sorted(wanted):
        for name in names.get(kind, []):
            resources.append(ConfigResource(resource_name=name, resource_type=int(kind)))
            yield
    return ListConfigResourcesResponse(config_resources=resources)


LIST_CONFIG_RESOURCES = Api(ApiKey.LIST_CONFIG_RESOURCES, handle=handle_list_config_resources)
