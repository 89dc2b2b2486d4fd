"""IncrementalAlterConfigs (44), v0-1. Gaps: client metrics have no configs.

Single keys are set or deleted, and lists are appended to or subtracted from; what the request
does not name stays as it is.
"""

from __future__ import annotations

from barnabas.config.changes import parse_changes
from barnabas.config.repository import ConfigResource
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.requests.config_requests import alter_each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    configs = context.broker.configs

    async def alter(asked: AlterConfigsResource) -> None:
        changes = parse_changes([(c.name, c.config_operation, c.value) for c in asked.configs])
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        await configs.change(resource, changes, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, code, message in await alter_each(request.resources, alter, context)
        ]
    )


INCREMENTAL_ALTER_CONFIGS = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle=handle_incremental_alter_configs)
