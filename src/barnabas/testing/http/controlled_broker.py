"""`barnabas start --control`: a broker whose faults and time a test controls over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from barnabas.client.sync.loop_thread import LoopThread
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.http.server import HttpServer, bind_http
from barnabas.network.listener import is_loopback
from barnabas.node.broker import Broker
from barnabas.node.log_output import configure_logging
from barnabas.node.main import StartupFailed, raise_open_files_limit, serve_broker
from barnabas.node.runtime import LoopScheduler
from barnabas.node.stop_signals import StopSignals
from barnabas.security.http.settings import http_security
from barnabas.testing.http.control import ControlEndpoint
from barnabas.testing.running import broker_log
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop

logger = logging.getLogger(__name__)

LISTENER_NAME: Final = "control"


def run_controlled(
    config: BrokerConfig,
    control_address: Endpoint,
    metrics_address: Endpoint | None = None,
    welcome: Sequence[str] = (),
) -> int:
    """Serve until a stop signal; returns the exit code."""
    if not is_loopback(control_address.host):
        raise InvalidConfig(
            f"--control {control_address}: it breaks the broker on purpose, so only loopback may reach it"
        )
    configure_logging("info", config.state_change_log_file)
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(VirtualClock())) as runner:
        runner.run(_serve(config, control_address, metrics_address, welcome))
    return 0


async def _serve(
    config: BrokerConfig, control_address: Endpoint, metrics_address: Endpoint | None, welcome: Sequence[str]
) -> None:
    stopped, kit = asyncio.Event(), Kit()
    broker_log.begin(kit.log)
    broker = kit.make_broker(config, metrics_address)
    async with AsyncExitStack() as stack:
        stack.enter_context(StopSignals(stopped))
        line = await stack.enter_async_context(_control(kit, broker, config, control_address))
        await serve_broker(broker, stopped, (line, *welcome))


@asynccontextmanager
async def _control(kit: Kit, broker: Broker, config: BrokerConfig, address: Endpoint) -> AsyncIterator[str]:
    """Serve the control interface; yields the line that tells where.

    It has a thread and a loop of its own: a stalled disk holds the broker's loop, and the interface must be
    able to heal it.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    thread = LoopThread("barnabas-control")
    server = _ControlServer(ControlEndpoint(kit, broker, loop), config, address)
    try:
        yield await asyncio.to_thread(thread.run, server.open())
    finally:
        kit.heal()
        await asyncio.to_thread(thread.run, server.close())
        await asyncio.to_thread(thread.stop)


class _ControlServer:
    """HTTP server of the control interface, on the loop that opens it."""

    def __init__(self, endpoint: ControlEndpoint, config: BrokerConfig, address: Endpoint) -> None:
        self._endpoint = endpoint
        self._config = config
        self._address = address
        self._exits = AsyncExitStack()

    async def open(self) -> str:
        """The line that tells where it is served. Raises StartupFailed if the address is taken."""
        clock = SystemClock()
        security = http_security(
            self._config.values, LISTENER_NAME, self._address, clock, Metrics(), is_local=True
        )
        scheduler = LoopScheduler(asyncio.get_running_loop())
        self._exits.callback(scheduler.close)
        server = HttpServer(self._endpoint.answer, security, clock, scheduler)
        try:
            listener = bind_http(self._address)
        except OSError as error:
            raise StartupFailed(f"cannot serve control on {self._address}: {error.strerror}") from error
        await self._exits.enter_async_context(server.serve(listener))
        return f"control on {security.scheme}://{listener.bound.endpoint}/openapi.json"

    async def close(self) -> None:
        await self._exits.aclose()
