"""The service as a process: store, supervisor, drivers and HTTP, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import uvicorn

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.groups import Groups
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.scheduler import Cancellable
from barnabas.core.sweeping import sweeping
from barnabas.pipelines.service.drivers import DriverProcesses
from barnabas.pipelines.service.rest import Rest
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import PipelineStore
from barnabas.pipelines.service.supervisor import Supervisor

BACKLOG = 128


class LoopTimers:
    """Timers of the running event loop."""

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        def guarded() -> None:
            with sweeping("a timer of the pipelines"):
                task()

        return asyncio.get_running_loop().call_later(delay_ms / 1_000, guarded)


@asynccontextmanager
async def open_service(
    bootstrap: Sequence[Endpoint], state_location: str, *, master: str | None, worker_id: str
) -> AsyncIterator[tuple[PipelineService, str]]:
    """The service with its drivers, and the id of its cluster."""
    clock = SystemClock()
    addresses = ",".join(map(str, bootstrap))
    cluster = ClusterClient(bootstrap, clock=clock, randomness=random.SystemRandom(), client_id="pipelines")
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


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Two sockets may be bound to the same address until one of them listens.
        listener.listen(BACKLOG)
    except OSError as error:
        raise AddressTaken(
            f"cannot listen on {host}:{port}: {error.strerror}; is a pipeline service running there already?"
        ) from None
    return listener


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self._ready(self.servers[0].sockets[0].getsockname()[1])


async def serve(
    bootstrap: Sequence[Endpoint],
    state_location: str,
    *,
    host: str,
    port: int,
    master: str | None,
    ready: Callable[[int], None],
) -> None:
    """Serve until SIGINT or SIGTERM; pipelines go on where they were when it is started again.

    The address comes first: a service that cannot have it must not take the pipelines from one that has.
    """
    listener = _listen(host, port)
    worker_id = f"{host}:{listener.getsockname()[1]}"
    async with open_service(bootstrap, state_location, master=master, worker_id=worker_id) as (
        service,
        cluster_id,
    ):
        application = Rest(service, cluster_id).application()
        server = _Server(
            uvicorn.Config(application, host=host, port=port, log_level="warning", lifespan="off"), ready
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: setattr(server, "should_exit", True))
        await server._serve([listener])
