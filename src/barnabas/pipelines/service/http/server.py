"""Process of the pipeline service: opens store, supervisor, drivers and HTTP in order, closes in reverse."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import NamedTuple

from barnabas.client.admin.groups import Groups
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.scheduler import Cancellable
from barnabas.network.http.asgi import answer_by
from barnabas.network.http.server import HttpServer, bind_http
from barnabas.network.listener import Listener
from barnabas.pipelines.service.cluster_tables import ClusterTables
from barnabas.pipelines.service.config_provider_policy import Allowances
from barnabas.pipelines.service.drivers import DriverProcesses
from barnabas.pipelines.service.http.rest import Rest
from barnabas.pipelines.service.http.rest_settings import protected_rest, rest_security
from barnabas.pipelines.service.lags import Lags
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import ClientConfig, PipelineStore
from barnabas.pipelines.service.supervisor import Supervisor
from barnabas.pipelines.service.topic_tables import Allowed, TopicTables
from barnabas.protocol.offset_numbers import READ_COMMITTED
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


class ClusterEnds:
    """End offsets of topics in the service's own cluster (`lags.Ends`)."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        count = len((await self._cluster.topic(topic, auto_create=False)).partitions)
        wanted = {TopicPartition(topic, partition): timestamp for partition in range(count)}
        return await self._cluster.run_with_retries(
            lambda: self._cluster.state.list_offsets(wanted, isolation=READ_COMMITTED)
        )


@asynccontextmanager
async def open_service(
    own: OwnCluster,
    state_location: str,
    *,
    master: str | None,
    worker_id: str,
    allowances: Allowances,
    tables: Allowed,
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
        drivers = DriverProcesses(addresses, state_location, master)
        supervisor = Supervisor(drivers, LoopTimers(), clock)
        service = PipelineService(
            store,
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
            lags = Lags(service.positions, ClusterEnds(cluster), service.supervised)
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
        )
        async with opening as (service, cluster_id):
            application = Rest(service, cluster_id).application()
            server = HttpServer(partial(answer_by, application), security, clock, LoopTimers())
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stopped.set)
            async with server.serve(listener):
                ready(f"{security.scheme}://{listener.bound.endpoint}", token)
                await stopped.wait()
