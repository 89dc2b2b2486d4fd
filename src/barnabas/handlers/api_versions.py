"""ApiVersions (18), v0-5. Gaps: none.

The first request of every modern client. The response is derived from the table by which requests are served
(`requests.served_versions`), so the broker advertises exactly what it serves. The response header is always
version 0. An unsupported version gets a version 0 response that holds only the range of this API. The client
retries with a version that both know.

Features: each is finalized at its highest level. `transaction.version` lets producers know that every
transaction gets an epoch of its own. `group.version` lets consumers know that the broker can assign
partitions. A feature that may be off (level 0) is not listed as supported before version 4.

From version 5 a client may name the cluster and the broker that it expects. A proxy or a reused address may
lead it elsewhere. The error then makes it rebootstrap, before it acts on metadata of another cluster
(KIP-1242).
"""

from __future__ import annotations

import re

from barnabas.core.errors import InvalidRequest, RebootstrapRequired
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_FEATURES = 3
VERSION_WITH_OPTIONAL_FEATURES = 4
VERSION_WITH_DESTINATION = 5
NO_NODE = -1
FEATURES_EPOCH = 0
"""The levels never change while a broker runs, so one epoch is enough."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    response = ApiVersionsResponse(api_keys=context.broker.apis.advertised())
    if context.api_version >= VERSION_WITH_FEATURES:
        _check_software(request)
        if context.api_version >= VERSION_WITH_DESTINATION:
            _check_destination(request, context)
        context.exchange.connection.software = (
            request.client_software_name[:NAME_CHARS_REMEMBERED_MAX],
            request.client_software_version[:NAME_CHARS_REMEMBERED_MAX],
        )
        _add_features(response, context)
    return response


def _add_features(response: ApiVersionsResponse, context: RequestContext) -> None:
    features = context.broker.features
    if context.api_version >= VERSION_WITH_OPTIONAL_FEATURES:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in features.items()
        ]
    if features:
        response.finalized_features_epoch = FEATURES_EPOCH
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.items()
        ]


def _check_software(request: ApiVersionsRequest) -> None:
    for what, text in (("name", request.client_software_name), ("version", request.client_software_version)):
        if not _SOFTWARE.fullmatch(text):
            raise InvalidRequest(f"the client software {what} is not one: {text[:64]!r}")


def _check_destination(request: ApiVersionsRequest, context: RequestContext) -> None:
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        raise InvalidRequest("a cluster id and a node id are named together, or not at all")
    if request.cluster_id is None:
        return
    broker = context.broker
    if (request.cluster_id, request.node_id) != (broker.cluster_id, broker.broker_id):
        raise RebootstrapRequired(
            f"this is node {broker.broker_id} of cluster {broker.cluster_id}, "
            f"not node {request.node_id} of cluster {request.cluster_id[:64]}"
        )


API_VERSIONS = Api(ApiKey.API_VERSIONS, handle=handle_api_versions)
