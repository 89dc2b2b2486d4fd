"""Who asks, as the group coordinator notes it down."""

from __future__ import annotations

from barnabas.coordinator.group.callers import Caller
from barnabas.requests.context import RequestContext


def caller_of(context: RequestContext) -> Caller:
    """Kafka shows a client's address the Java way, with a slash before it."""
    return Caller(context.client_id or "", f"/{context.exchange.connection.peer_host}", context.api_version)
