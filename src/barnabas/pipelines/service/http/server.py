"""Process of the pipeline service: opens store, supervisor, drivers and HTTP in order, closes in reverse."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from barnabas.client.admin.groups import Groups
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.scheduler import Cancellable
from barnabas.network.http.asgi import answer_by
from barnabas.network.http.server import HttpServer, bind_http
from barnabas.network.listener import Listener
from barnabas.pipelines.service.cluster_tables import ClusterTables
from barnabas.pipelines.service.config_provider_policy import Allowances
from barnabas.pipelines.service.declarative.log_ends import ClusterLogEnds
from barnabas.pipelines.service.declarative.trust import Trusted
from barnabas.pipelines.service.drivers import DriverProcesses
from barnabas.pipelines.service.hosting.hosting import Hosting
from barnabas.pipelines.service.hosting.routing import RoutedDrivers
from barnabas.pipelines.service.hosting.update_process import run_update
from barnabas.pipelines.service.http.rest import Rest
from barnabas.pipelines.service.http.rest_settings import protected_rest, rest_security
from barnabas.pipelines.service.lags import Lags
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import ClientConfig, PipelineStore
from barnabas.pipelines.service.supervisor import Supervisor
from barnabas.pipelines.service.topic_tables import Allowed, TopicTables
from barnabas.security.http.token import LocalToken


class OwnCluster(NamedTuple):
    """Cluster that stores the pipelines, with its security settings."""

    addresses: tuple[Endpoint, ...]
    security: SecuritySettings
    config: ClientConfig
    client_settings: Mapping[str, str]
    """Its security settings as properties, with secrets as references."""


class LoopTimers:
    """Timers of the running event loop."""

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        def guarded() -> None:
            with sweeping("a timer of the pipelines"):
                task()

        return asyncio.get_running_loop().call_later(delay_ms / 1_000, guarded)


@asynccontextmanager
async def open_service(
    own: OwnCluster,
    state_location: str,
    *,
    master: str | None,
    worker_id: str,
    allowances: Allowances,
    tables: Allowed,
    projects: Trusted,
) -> AsyncIterator[tuple[PipelineService, str]]:
    """Service with its drivers, and the id of its cluster."""
    clock = SystemClock()
    addresses = ",".join(map(str, own.addresses))
    cluster = ClusterClient(
        own.addresses,
        clock=clock,
        randomness=random.SystemRandom(),
        client_id="pipelines",
        security=own.security.secured(),
    )
    store = PipelineStore(own.config, uuid.uuid4().hex)
    async with cluster, store:
        await cluster.refresh(())
        ends = ClusterLogEnds(cluster)
        drivers = RoutedDrivers(
            DriverProcesses(addresses, state_location, master), Hosting(run_update, ends, clock, projects)
        )
        supervisor = Supervisor(drivers, LoopTimers(), clock)
        service = PipelineService(
            store,
            supervisor,
            Groups(cluster),
            state_location,
            worker_id,
            clock,
            allowances,
            projects,
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            await service.open()
            lags = Lags(service.positions, ends, service.supervised)
            kept = TopicTables(service, ClusterTables(cluster), clock, tables, own.client_settings)
            tasks = [
                asyncio.create_task(each)
                for each in (service.follow(), service.leadership.keep(), lags.keep(), kept.keep())
            ]
            yield service, cluster.state.cluster_id or ""
        finally:
            await drivers.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if tasks:
                await service.close()


class AddressTaken(Exception):
    """Another process listens at the address."""


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
    tables: Allowed,
    projects: Sequence[Path],
    ready: Callable[[str, LocalToken | None], None],
) -> None:
    """Serve until SIGINT or SIGTERM. After a restart, pipelines continue where they were.

    The address is bound first: a service without its address must not take the pipelines from one that has
    it. `ready` receives the URL and the token that it requires.
    """
    clock = SystemClock()
    rest_security(properties, endpoint, clock)  # refuse invalid settings before the address is bound
    allowances = Allowances.of(properties)
    listener = _listen(endpoint)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    with (
        closing(listener),
        protected_rest(properties, listener.bound.endpoint, clock) as (security, token),
    ):
        worker_id = str(listener.bound.endpoint)
        opening = open_service(
            cluster,
            state_location,
            master=master,
            worker_id=worker_id,
            allowances=allowances,
            tables=tables,
            projects=Trusted(tuple(projects), is_anywhere=not projects and token is not None),
        )
        async with opening as (service, cluster_id):
            application = Rest(service, cluster_id).application()
            server = HttpServer(partial(answer_by, application), security, clock, LoopTimers())
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stopped.set)
            async with server.serve(listener):
                ready(f"{security.scheme}://{listener.bound.endpoint}", token)
                await stopped.wait()
