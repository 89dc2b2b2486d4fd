"""DescribeCluster (60), v0-2. Gaps: none; brokers are never fenced here, they are live or unregistered."""

from __future__ import annotations

from barnabas.core.errors import MismatchedEndpointType, UnsupportedEndpointType
from barnabas.handlers.shared.authorized_operations import NOT_ASKED, cluster_operations
from barnabas.handlers.shared.endpoints import live_endpoints
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

_BROKERS, _CONTROLLERS = 1, 2


def handle_describe_cluster(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        raise MismatchedEndpointType("this is the endpoint of a broker, not of a controller")
    if request.endpoint_type != _BROKERS:
        raise UnsupportedEndpointType(f"endpoint type {request.endpoint_type} is not known")
    broker = context.broker
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, (host, port), rack in live_endpoints(broker, context.exchange.connection)
        ],
        cluster_authorized_operations=cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


DESCRIBE_CLUSTER = Api(ApiKey.DESCRIBE_CLUSTER, handle=handle_describe_cluster)
