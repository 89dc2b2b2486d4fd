"""Heartbeat (12), v0-4. Gaps: none."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest


def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> None:
    context.broker.groups.heartbeat(request, context.respond)


HEARTBEAT = Api(ApiKey.HEARTBEAT, versions=range(5), handle=handle_heartbeat)
