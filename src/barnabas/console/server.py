"""Process of the console: one listener, one console for each cluster, until a stop signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp

from barnabas.console.clusters import Clusters
from barnabas.console.mcp.endpoint import PATH, McpEndpoint
from barnabas.console.pages import SECTIONS
from barnabas.console.views import Views
from barnabas.console.web.api import openapi
from barnabas.console.web.application import application
from barnabas.console.web.connections import Connections, SignIn, has_own_identity
from barnabas.console.web.console import Console, ConsoleSettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.scheduler import Cancellable
from barnabas.network.http.asgi import answer_by
from barnabas.network.http.server import HttpServer, Limits, bind_http
from barnabas.network.listener import Listener
from barnabas.security.http.settings import HttpSecurity

LIMITS: Final = Limits(connections=512, connections_per_host=256, idle_s=75.0)
"""A browser keeps up to six connections, and each of its tabs that follows something takes one more."""


class AddressTaken(Exception):
    """The console cannot listen at its address; the message says why."""


@dataclass(frozen=True, slots=True)
class Served:
    """Listener, access rules and cluster of a console."""

    properties: Mapping[str, Any]
    """Client properties: `bootstrap.servers`, TLS, and perhaps a login."""
    settings: ConsoleSettings
    security: HttpSecurity
    broker_directories: tuple[Path, ...] = ()
    """Directories of brokers of this machine."""
    sign_in: SignIn | None = None


class LoopTimers:
    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        def guarded() -> None:
            with sweeping("a timer of the console"):
                task()

        return asyncio.get_running_loop().call_later(delay_ms / 1_000, guarded)


def listen(endpoint: Endpoint) -> Listener:
    """Bind the address, before anything else is opened."""
    try:
        return bind_http(endpoint)
    except OSError as error:
        raise AddressTaken(str(error.strerror or error)) from None


async def serve(listener: Listener, served: Sequence[Served], *, ready: Callable[[], None]) -> None:
    """Serve one cluster, or several, until SIGINT or SIGTERM."""
    clock = SystemClock()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    security = served[0].security
    with closing(listener):
        async with AsyncExitStack() as stack:
            consoles = [await stack.enter_async_context(_console(each, clock)) for each in served]
            app: ASGIApp = Clusters(consoles) if served[0].settings.name else consoles[0][1]
            answer = partial(answer_by, app, scheme=security.scheme)
            server = HttpServer(answer, security, clock, LoopTimers(), limits=LIMITS)
            await stack.enter_async_context(server.serve(listener))
            ready()
            await stopped.wait()


@asynccontextmanager
async def _console(served: Served, clock: Clock) -> AsyncIterator[tuple[Console, ASGIApp]]:
    # A login of the console's own is a user whom only the brokers know by name: it asks as a client.
    directories = () if has_own_identity(served.properties) else served.broker_directories
    views = Views(directories, clock)
    connections = Connections(served.properties, clock, views, served.sign_in)
    places = [each.place for each in SECTIONS]
    console = Console(served.settings, connections, places, openapi(SECTIONS, served.settings.base), clock)
    app = application(console, SECTIONS)
    if served.settings.mcp_tools:
        app.add_route(PATH, McpEndpoint(console).respond, methods=["POST"])
    try:
        async with console.opened():
            yield console, app
    finally:
        await views.close()
