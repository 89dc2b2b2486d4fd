"""The pipeline service on a real broker and a real socket, with drivers that only remember."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from barnabas.client.admin.groups import Groups
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.network.http.asgi import answer_by
from barnabas.network.http.server import HttpServer, bind_http
from barnabas.pipelines.service.declarative.trust import NOTHING_TRUSTED, Trusted
from barnabas.pipelines.service.http.rest import Rest
from barnabas.pipelines.service.http.rest_settings import rest_security
from barnabas.pipelines.service.http.server import LoopTimers
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import PipelineStore
from barnabas.pipelines.service.supervisor import Observer, Supervisor
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.testing.broker import run_broker


class ScriptedDrivers:
    """Every pipeline runs at once, and stops at once."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int, str | None]] = []
        self.running: dict[str, tuple[int, Observer]] = {}
        self.error: str | None = None

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:
        self.started.append((spec.name, generation, spec.source.get("starting_offsets")))
        self.running[spec.name] = (attempt, observer)
        loop = asyncio.get_running_loop()
        if self.error is not None:
            loop.call_soon(observer.on_ended, spec.name, attempt, self.error)
        else:
            loop.call_soon(observer.on_running, spec.name, attempt)

    def stop(self, name: str) -> None:
        attempt, observer = self.running[name]
        asyncio.get_running_loop().call_soon(observer.on_ended, name, attempt, None)


class RunningService(threading.Thread):
    """The service on a thread of its own, as `serve` puts it together, but for the drivers."""

    def __init__(
        self,
        bootstrap: str,
        state: Path,
        worker_id: str = "worker:1",
        properties: Mapping[str, str] | None = None,
        projects: Trusted = NOTHING_TRUSTED,
    ) -> None:
        super().__init__(daemon=True)
        self._projects = projects
        self.worker_id = worker_id
        self.bootstrap = bootstrap
        self.drivers = ScriptedDrivers()
        self.ready = threading.Event()
        self.url = ""
        self._state = state
        self._properties = dict(properties or {})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    def finish(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        clock = SystemClock()
        cluster = ClusterClient([Endpoint.parse(self.bootstrap)], clock=clock, randomness=random.Random(1))
        store = PipelineStore(lambda _: {"bootstrap.servers": self.bootstrap}, self.worker_id)
        async with cluster, store:
            supervisor = Supervisor(self.drivers, LoopTimers(), clock)
            service = PipelineService(
                store,
                supervisor,
                Groups(cluster),
                str(self._state),
                self.worker_id,
                clock,
                projects=self._projects,
            )
            await service.open()
            following = asyncio.create_task(service.follow())
            endpoint = Endpoint("127.0.0.1", 0)
            security = rest_security(self._properties, endpoint, clock)
            application = Rest(service, "cluster").application()
            server = HttpServer(partial(answer_by, application), security, clock, LoopTimers())
            listener = bind_http(endpoint)
            async with server.serve(listener):
                self.url = f"{security.scheme}://{listener.bound.endpoint}"
                self.ready.set()
                await self._stopped.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await service.close()


@contextmanager
def running_service(
    bootstrap: str,
    state: Path,
    worker_id: str = "worker:1",
    properties: Mapping[str, str] | None = None,
    projects: Trusted = NOTHING_TRUSTED,
) -> Iterator[RunningService]:
    service = RunningService(bootstrap, state, worker_id, properties, projects)
    service.start()
    assert service.ready.wait(60)
    try:
        yield service
    finally:
        service.finish()


@pytest.fixture
def pipelines_broker() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def service(pipelines_broker: str, tmp_path: Path) -> Iterator[RunningService]:
    with running_service(pipelines_broker, tmp_path) as running:
        yield running
