"""The metrics over HTTP, for Prometheus to scrape: GET /metrics, and /health for a load balancer.

Their settings stand under `listener.name.metrics.`, TLS as for any other listener.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.metrics import Metrics, render_prometheus
from barnabas.core.scheduler import Timers
from barnabas.network.http_messages import HttpResponse, text_response
from barnabas.network.http_server import HttpRequest, HttpServer, bind_http
from barnabas.network.listener import is_loopback
from barnabas.node.lifecycle import Lifecycle
from barnabas.security.http_security import HttpSecurity, http_security

logger = logging.getLogger(__name__)

LISTENER_NAME: Final = "metrics"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(
    address: Endpoint | None,
    config: BrokerConfig,
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Clock,
    timers: Timers,
) -> AbstractAsyncContextManager[None]:
    """What serves the page while it is entered; INVALID_CONFIG if the settings do not protect it."""
    if address is None:
        return nullcontext()
    security = http_security(
        config.values, LISTENER_NAME, address, clock, metrics, is_local=is_loopback(address.host)
    )
    server = HttpServer(MetricsEndpoint(metrics, lifecycle).answer, security, clock, timers)
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
    """`answer` is what the HTTP server asks."""

    def __init__(self, metrics: Metrics, lifecycle: Lifecycle) -> None:
        self._metrics = metrics
        self._lifecycle = lifecycle

    async def answer(self, request: HttpRequest) -> HttpResponse:
        if request.head.method not in ("GET", "HEAD"):
            return text_response(405, "only GET is served here\n")
        match request.head.path:
            case b"/metrics":
                return text_response(200, render_prometheus(self._metrics), PROMETHEUS)
            case b"/health":
                return text_response(200, f"{self._lifecycle.state.name}\n")
        return text_response(404, "there are /metrics and /health here\n")
