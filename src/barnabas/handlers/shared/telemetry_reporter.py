"""The client of a telemetry request, as telemetry knows it."""

from __future__ import annotations

from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.requests.context import RequestContext
from barnabas.telemetry.client_instances import Reporter


def reporter_of(context: RequestContext) -> Reporter:
    connection = context.exchange.connection
    _, _, peer = connection.connection_id.rpartition("-")[0].rpartition("-")
    return Reporter(
        context.memory_owner(),
        (context.client_id or "")[:NAME_CHARS_REMEMBERED_MAX],
        connection.peer_host,
        peer.rpartition(":")[2],
        connection.software,
        connection.when_closed,
    )
