"""Metrics over HTTP for Prometheus: GET /metrics, and /health for a load balancer.

The settings have the prefix `listener.name.metrics.`, with TLS as for any other listener.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.limits import TURN_MS_MAX
from barnabas.core.reporting.metrics import Metrics, prometheus_lines
from barnabas.core.scheduler import Timers
from barnabas.network.http.messages import HttpResponse, text_response
from barnabas.network.http.server import HttpRequest, HttpServer, bind_http
from barnabas.network.listener import is_loopback
from barnabas.node.lifecycle import Lifecycle
from barnabas.security.http.settings import HttpSecurity, http_security

logger = logging.getLogger(__name__)

LISTENER_NAME: Final = "metrics"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(
    address: Endpoint,
    config: BrokerConfig,
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Clock,
    timers: Timers,
) -> AbstractAsyncContextManager[None]:
    """Serve the page inside this context; INVALID_CONFIG if the settings do not protect it."""
    security = http_security(
        config.values, LISTENER_NAME, address, clock, metrics, is_local=is_loopback(address.host)
    )
    server = HttpServer(MetricsEndpoint(metrics, lifecycle, clock).answer, security, clock, timers)
    return _served(server, security, address)


@asynccontextmanager
async def _served(server: HttpServer, security: HttpSecurity, address: Endpoint) -> AsyncIterator[None]:
    try:
        listener = bind_http(address)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise OSError(error.errno, f"cannot serve metrics on {address}: {reason}") from error
    async with server.serve(listener):
        logger.info("metrics on %s://%s/metrics", security.scheme, listener.bound.endpoint)
        yield


class MetricsEndpoint:
    """HTTP answers for /metrics and /health.

    One page is rendered at a time. Requests that wait for it share the next one, so that many of them take
    the memory and the time of two.
    """

    def __init__(self, metrics: Metrics, lifecycle: Lifecycle, clock: Clock) -> None:
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._clock = clock
        self._turn = asyncio.Lock()
        self._begun = self._rendered = 0
        """Numbers of the last rendering that began, and of the one that made the page."""
        self._page = b""
        self._waiting = 0

    async def answer(self, request: HttpRequest) -> HttpResponse:
        if request.head.method not in ("GET", "HEAD"):
            return text_response(405, "only GET is served here\n")
        match request.head.path:
            case b"/metrics":
                page = await self._next_page()
                return HttpResponse(200, page, ((b"content-type", PROMETHEUS.encode()),))
            case b"/health":
                return text_response(200, f"{self._lifecycle.state.name}\n")
        return text_response(404, "there are /metrics and /health here\n")

    async def _next_page(self) -> bytes:
        """A page whose rendering begins after this call."""
        wanted = self._begun + 1
        self._waiting += 1
        try:
            async with self._turn:
                if self._rendered < wanted:
                    self._begun += 1
                    self._page = await self._render()
                    self._rendered = self._begun
                return self._page
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._page = b""

    async def _render(self) -> bytes:
        """Render the page in turns: the metrics of ten thousand topics take a second."""
        lines: list[bytes] = []
        monotonic_ms = self._clock.monotonic_ms
        turn_ends_ms = monotonic_ms() + TURN_MS_MAX
        for line in prometheus_lines(self._metrics):
            lines.append(line.encode())
            if monotonic_ms() > turn_ends_ms:
                await asyncio.sleep(0)
                turn_ends_ms = monotonic_ms() + TURN_MS_MAX
        return b"".join(lines)
