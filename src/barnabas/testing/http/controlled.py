"""`barnabas start --control`: brokers whose faults, time and lives a test controls over HTTP.

One broker, or all brokers of a cluster, run on threads of this process (`testing.broker`, `testing.cluster`).
The control interface has the process's main loop, so it answers while a broker is stalled, paused or dead.
A broker that ends is not the end of the process: the test can look at it, and start it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.derived import default_cluster_directory
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.metrics import Metrics
from barnabas.localcluster.local_cluster import READY_PREFIX, broker_properties, counted
from barnabas.localcluster.shared_store import HomeInUse, SharedStore, uses_zookeeper
from barnabas.localcluster.start_checks import check_ports_differ
from barnabas.network.http.server import HttpServer, bind_http
from barnabas.network.listener import is_loopback
from barnabas.node.gc_tuning import settle_memory
from barnabas.node.log_output import configure_logging
from barnabas.node.main import (
    START_ERRORS,
    StartupFailed,
    as_startup_failed,
    raise_open_files_limit,
    serve_beside,
)
from barnabas.node.runtime import LoopScheduler
from barnabas.node.stop_signals import StopSignals
from barnabas.security.http.settings import http_security
from barnabas.storage.directory.directory_properties import META_PROPERTIES
from barnabas.testing.broker import QUICK_SETTINGS, RunningBroker, open_broker
from barnabas.testing.cluster import BROKERS_MAX, RunningCluster, quick_settings, running
from barnabas.testing.http.control import ControlEndpoint
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.virtual_time import VirtualClock

LISTENER_NAME: Final = "control"

Tested = RunningBroker | RunningCluster


def run_controlled(
    config: BrokerConfig,
    control_address: Endpoint,
    metrics_address: Endpoint | None = None,
    welcome: Sequence[str] = (),
    *,
    brokers: int | None = None,
) -> int:
    """Serve one broker, or a cluster of so many, until a stop signal; returns the exit code."""
    if not is_loopback(control_address.host):
        raise InvalidConfig(
            f"--control {control_address}: it breaks the broker on purpose, so only loopback may reach it"
        )
    tested: AbstractContextManager[Tested]
    if brokers is None:
        tested = _one_broker(config, metrics_address)
    else:
        tested = _cluster(config, brokers, metrics_address)
    configure_logging("info", config.state_change_log_file)
    raise_open_files_limit()
    asyncio.run(_serve(tested, config, control_address, welcome))
    return 0


def cluster_config(properties: dict[str, str]) -> BrokerConfig:
    """Configuration that all brokers of a cluster have in common."""
    for mine in ("broker.id", "zookeeper.connect", "coordination.socket"):
        if mine in properties:
            raise InvalidConfig(f"{mine} is set by the cluster itself with --control; leave it out")
    return BrokerConfig.load({"log.dirs": str(default_cluster_directory()), **properties})


@contextmanager
def _one_broker(config: BrokerConfig, metrics_address: Endpoint | None) -> Iterator[Tested]:
    properties = {
        "listeners": ",".join(map(str, config.listeners)),
        "log.dirs": ",".join(map(str, config.log_dirs)),
        **QUICK_SETTINGS,
        **config.given,
    }
    with open_broker(
        properties,
        config.log_dirs[0],
        Kit(),
        time="virtual",
        metrics_address=metrics_address,
        beside=serve_beside,
    ) as broker:
        yield broker


def _cluster(
    config: BrokerConfig, brokers: int, metrics_address: Endpoint | None
) -> AbstractContextManager[Tested]:
    if brokers > BROKERS_MAX:
        raise InvalidConfig(f"--brokers {brokers}: with --control, write a number up to {BROKERS_MAX}")
    home = config.log_dirs[0].absolute()
    base = BrokerConfig.load({**quick_settings(brokers), **config.given, "log.dirs": str(home)})
    properties = {number: broker_properties(base, number, brokers, {}) for number in range(1, brokers + 1)}
    check_ports_differ([BrokerConfig.load(each) for each in properties.values()])
    addresses = {number: counted(metrics_address, number) for number in properties} if metrics_address else {}
    cluster = RunningCluster(
        properties,
        home,
        VirtualClock(),
        is_virtual=True,
        is_lasting=True,
        metrics_addresses=addresses,
        beside=serve_beside,
    )
    return _run_cluster(cluster, home)


@contextmanager
def _run_cluster(cluster: RunningCluster, home: Path) -> Iterator[Tested]:
    if (home / META_PROPERTIES).exists():
        raise StartupFailed(f"{home} is the log directory of a single broker; choose another --data-dir")
    if uses_zookeeper(home):
        raise StartupFailed(f"the metadata of {home} is in a ZooKeeper; choose another --data-dir")
    try:
        with SharedStore(home).locked(), running(cluster):
            yield cluster
    except HomeInUse as error:
        raise StartupFailed(str(error)) from error


async def _serve(
    tested: AbstractContextManager[Tested],
    config: BrokerConfig,
    control_address: Endpoint,
    welcome: Sequence[str],
) -> None:
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(StopSignals(stopped))
        found = await stack.enter_async_context(_on_threads(tested))
        line = await stack.enter_async_context(_control(found, config, control_address))
        settle_memory()
        ready = _ready_line(found, config)
        print("\n".join((ready, line, *welcome)), flush=True)  # noqa: T201 - scripts wait for this line
        await stopped.wait()


@asynccontextmanager
async def _on_threads(tested: AbstractContextManager[Tested]) -> AsyncIterator[Tested]:
    """Start and stop what is tested; both wait for its threads. Raises StartupFailed."""
    try:
        found = await asyncio.to_thread(tested.__enter__)
    except START_ERRORS as error:
        raise as_startup_failed(error) from error
    try:
        yield found
    finally:
        await asyncio.to_thread(tested.__exit__, None, None, None)


@asynccontextmanager
async def _control(tested: Tested, config: BrokerConfig, address: Endpoint) -> AsyncIterator[str]:
    """Serve the control interface; yields the line that tells where."""
    clock = SystemClock()
    security = http_security(config.values, LISTENER_NAME, address, clock, Metrics(), is_local=True)
    scheduler = LoopScheduler(asyncio.get_running_loop())
    endpoint = ControlEndpoint(tested)
    async with AsyncExitStack() as stack:
        stack.callback(scheduler.close)
        server = HttpServer(endpoint.answer, security, clock, scheduler)
        try:
            listener = bind_http(address)
        except OSError as error:
            raise StartupFailed(f"cannot serve control on {address}: {error.strerror}") from error
        await stack.enter_async_context(server.serve(listener))
        yield f"control on {security.scheme}://{listener.bound.endpoint}/openapi.json"


def _ready_line(tested: Tested, config: BrokerConfig) -> str:
    brokers = tested.brokers if isinstance(tested, RunningCluster) else [tested]
    ids = ",".join(str(each.broker_id) for each in brokers)
    listeners = ",".join(each.listeners for each in brokers)
    directories = ",".join(str(each) for each in config.log_dirs)
    noun = "brokers" if isinstance(tested, RunningCluster) else "broker"
    return f"{READY_PREFIX}: {noun} {ids}, listeners {listeners}, data in {directories}"
