"""AlterConfigs (33), v0-2. Gaps: client metrics have no configs.

The older way: what the request carries replaces everything that was set before.
"""

from __future__ import annotations

from barnabas.config.changes import parse_replacement
from barnabas.config.repository import ConfigResource
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.requests.config_requests import alter_each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


async def handle_alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    configs = context.broker.configs

    async def alter(asked: AlterConfigsResource) -> None:
        overrides = parse_replacement([(config.name, config.value) for config in asked.configs])
        resource = ConfigResource(asked.resource_type, asked.resource_name)
        await configs.replace(resource, overrides, validate_only=request.validate_only)

    return AlterConfigsResponse(
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


ALTER_CONFIGS = Api(ApiKey.ALTER_CONFIGS, handle=handle_alter_configs)
