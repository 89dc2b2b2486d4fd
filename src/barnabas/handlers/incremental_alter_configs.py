"""IncrementalAlterConfigs (44), v0-1. Gaps: none.

Single keys are set or deleted; lists are appended to or subtracted from. Other keys keep their values.
"""

from __future__ import annotations

from barnabas.config.dynamic.changes import parse_changes
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.handlers.shared.config_resources import alter_each
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.requests.bounded_loops import each
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

    def answer(outcome: tuple[AlterConfigsResource, int, str | None]) -> AlterConfigsResourceResponse:
        asked, code, message = outcome
        return AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    outcomes = await alter_each(request.resources, alter, context)
    return IncrementalAlterConfigsResponse(responses=await context.spread(each(outcomes, answer)))


INCREMENTAL_ALTER_CONFIGS = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle=handle_incremental_alter_configs)
