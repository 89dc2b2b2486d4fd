"""The service as a process: store, supervisor, drivers and HTTP, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import NamedTuple

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.groups import Groups
from barnabas.client.security_settings import SecuritySettings
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.scheduler import Cancellable
from barnabas.core.sweeping import sweeping
from barnabas.network.http_server import HttpServer, bind_http
from barnabas.network.listener import Listener
from barnabas.pipelines.service.allowances import Allowances
from barnabas.pipelines.service.asgi import answer_by
from barnabas.pipelines.service.drivers import DriverProcesses
from barnabas.pipelines.service.rest import Rest
from barnabas.pipelines.service.rest_settings import rest_security
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import PipelineStore
from barnabas.pipelines.service.supervisor import Supervisor


class OwnCluster(NamedTuple):
    """Where the service keeps its pipelines, and how it gets there."""

    addresses: tuple[Endpoint, ...]
    security: SecuritySettings = SecuritySettings()


class LoopTimers:
    """Timers of the running event loop."""

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        def guarded() -> None:
            with sweeping("a timer of the pipelines"):
                task()

        return asyncio.get_running_loop().call_later(delay_ms / 1_000, guarded)


@asynccontextmanager
async def open_service(
    own: OwnCluster, state_location: str, *, master: str | None, worker_id: str, allowances: Allowances
) -> AsyncIterator[tuple[PipelineService, str]]:
    """The service with its drivers, and the id of its cluster."""
    clock = SystemClock()
    addresses = ",".join(map(str, own.addresses))
    cluster = ClusterClient(
        own.addresses,
        clock=clock,
        randomness=random.SystemRandom(),
        client_id="pipelines",
        security=own.security.secured(),
    )
    async with cluster:
        await cluster.refresh(())
        drivers = DriverProcesses(addresses, state_location, master)
        supervisor = Supervisor(drivers, LoopTimers(), clock)
        service = PipelineService(
            PipelineStore(cluster, uuid.uuid4().hex),
            supervisor,
            Groups(cluster),
            state_location,
            worker_id,
            clock,
            allowances,
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            await service.open()
            tasks = [asyncio.create_task(service.follow()), asyncio.create_task(service.leadership.keep())]
            yield service, cluster.state.cluster_id or ""
        finally:
            await drivers.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if tasks:
                await service.close()


class AddressTaken(Exception):
    """Somebody else listens there; the message is for a person."""


def _listen(endpoint: Endpoint) -> Listener:
    try:
        return bind_http(endpoint)
    except OSError as error:
        raise AddressTaken(f"{error.strerror}; is a pipeline service running there already?") from None


async def serve(
    cluster: OwnCluster,
    state_location: str,
    *,
    endpoint: Endpoint,
    properties: Mapping[str, str],
    master: str | None,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; pipelines go on where they were when it is started again.

    The address comes first: a service that cannot have it, or not as its `properties` have it, must not take
    the pipelines from one that has. `ready` is told the URL.
    """
    clock = SystemClock()
    security = rest_security(properties, endpoint, clock)
    allowances = Allowances.of(properties)
    listener = _listen(endpoint)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    with closing(listener):
        worker_id = str(listener.bound.endpoint)
        opening = open_service(
            cluster, state_location, master=master, worker_id=worker_id, allowances=allowances
        )
        async with opening as (service, cluster_id):
            application = Rest(service, cluster_id).application()
            server = HttpServer(partial(answer_by, application), security, clock, LoopTimers())
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stopped.set)
            async with server.serve(listener):
                ready(f"{security.scheme}://{listener.bound.endpoint}")
                await stopped.wait()
