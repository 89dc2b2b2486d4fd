"""Inspection socket of a running broker, imported after the ready line."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.coordinator.group.lags import GroupLags
from barnabas.coordinator.group.offsets.remote_end_offsets import RemoteEndOffsets
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.serving.server import InspectionServer
from barnabas.inspection.wire import SOCKET_NAME
from barnabas.node.inspected_parts import InspectedParts
from barnabas.requests.time_slicing import Slices

logger = logging.getLogger(__name__)


@asynccontextmanager
async def serve_inspection(parts: InspectedParts) -> AsyncIterator[None]:
    """Answer questions inside this context."""
    services, clock = parts.services, parts.services.clock
    remote = RemoteEndOffsets(services.metadata, parts.peers, clock, parts.tasks.start)
    inspected = Inspected(services, parts.metrics, lambda: len(list(parts.server)), remote)
    lags = GroupLags(services.groups.runtime, services.metadata, services.replicas.table.find, remote, clock)
    slices = Slices(clock)

    def failed(error: Exception) -> None:
        logger.warning("cannot list the remote partitions of group lags: %r", error)

    def refresh() -> None:
        """Ask for the end offsets of partitions without a replica here, while there is a viewer."""
        if server.has_viewers and not slices.waiting:
            work = lags.remote_partitions(services.config.metrics_series_max)
            slices.run(work, remote.refresh, failed, waits=lambda: None)

    counters = parts.server.counters
    server = InspectionServer(
        inspected, clock, received=lambda: counters.received.value, viewer_arrived=refresh
    )
    timer = parts.scheduler.every(services.config.metrics_group_lag_interval_ms, refresh)
    try:
        async with server.serving(services.config.log_dirs[0] / SOCKET_NAME):
            yield
    finally:
        timer.cancel()
        slices.close()
