"""`barnabas start`: run one broker in the foreground until a stop signal.

Standard output gets one line when the broker accepts connections; the log goes to standard error. SIGTERM and
SIGINT shut down cleanly, within a deadline (`stop_signals`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib import import_module

from barnabas.cluster.coordination.contract import (
    ConnectionLoss,
    CoordinationError,
    SessionExpired,
    StoreLocked,
)
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cross_checks import LOCAL_ZOOKEEPER
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.handlers import APIS
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.gc_tuning import settle_memory
from barnabas.node.log_output import configure_logging
from barnabas.node.membership.coordination_store import protect_own_zookeeper
from barnabas.node.stop_signals import StopSignals
from barnabas.storage.log_manager import DuplicateLog

logger = logging.getLogger(__name__)

IMPORT_PAUSE_S = 0.01
LATER = (
    "barnabas.client.aio.channel",
    "barnabas.replication.follower.fetcher_driver",
    "barnabas.telemetry.otlp",
)
"""Modules that a broker alone needs for no request of its start. The code that uses them imports them too."""
START_ERRORS = (KafkaError, CoordinationError, MalformedZnode, DuplicateLog, OSError)
"""Errors with which a start fails for a reason outside of the broker."""

Beside = Callable[[Sequence[ListenerEndpoint]], AbstractAsyncContextManager[None]]
"""Part that runs beside a broker with these listeners, such as the console."""


class StartupFailed(Exception):
    """The broker did not start; the message is for the operator."""


class BrokerHalted(StartupFailed):
    """The broker started, and stopped on a fault."""


def run(
    config: BrokerConfig,
    metrics_address: Endpoint | None = None,
    welcome: Sequence[str] = (),
    log_level: str = "info",
    beside: Beside | None = None,
) -> int:
    """Serve until a stop signal; returns the exit code. `welcome` follows the ready line, and then `beside`
    runs as long as the broker.
    """
    try:
        configure_logging(log_level, config.state_change_log_file)
    except OSError as error:
        raise StartupFailed(f"state.change.log.file: {error}") from error
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(config, metrics_address, welcome, beside))
    return 0


async def serve(
    config: BrokerConfig,
    metrics_address: Endpoint | None,
    welcome: Sequence[str] = (),
    beside: Beside | None = None,
) -> None:
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(StopSignals(stopped))
        config = await start_zookeeper(config, stack)
        broker = Broker(config, metrics_address=metrics_address)
        with_others = _BesideBroker(broker, stack, beside)
        await serve_broker(broker, stopped, welcome, with_others.start)


async def start_zookeeper(config: BrokerConfig, stack: AsyncExitStack) -> BrokerConfig:
    """With `zookeeper.connect=local`, start a ZooKeeper beside the broker. The returned config names it."""
    if config.zookeeper_connect != LOCAL_ZOOKEEPER:
        return config
    # Imported here: no other broker starts processes.
    from barnabas.processes.zookeeper_member import local_zookeeper  # noqa: PLC0415
    from barnabas.processes.zookeeper_process import CannotRunZooKeeper, beside  # noqa: PLC0415

    server = beside(config.log_dirs[0])
    try:
        await stack.enter_async_context(local_zookeeper(server))
    except CannotRunZooKeeper as error:
        raise StartupFailed(str(error)) from error
    config = config.with_changes({"zookeeper.connect": server.connect})
    try:
        await protect_own_zookeeper(config, SystemClock())
    except (KafkaError, CoordinationError) as error:
        raise StartupFailed(_told(error)) from error
    return config


class _BesideBroker:
    """Part beside the broker. It starts after the ready line, and ends after the broker has stopped."""

    def __init__(self, broker: Broker, stack: AsyncExitStack, beside: Beside | None) -> None:
        self._broker = broker
        self._stack = stack
        self._beside = beside

    async def start(self) -> None:
        if self._beside is not None:
            await self._stack.enter_async_context(self._beside(self._broker.bound_listeners))


async def serve_broker(
    broker: Broker,
    stopped: asyncio.Event,
    welcome: Sequence[str] = (),
    started: Callable[[], Awaitable[None]] | None = None,
) -> None:
    stopping = asyncio.create_task(_shut_down_when(stopped, broker))
    try:
        await broker.startup()
    except StartAbandoned:
        await stopping
        return
    except START_ERRORS as error:
        stopped.set()
        await stopping
        raise as_startup_failed(error) from error
    settle_memory()
    try:
        print("\n".join((ready_line(broker), *welcome)), flush=True)  # noqa: T201 - scripts wait for this line
    except OSError as error:
        stopped.set()
        await stopping
        raise StartupFailed(f"cannot write the ready line: {error.strerror}") from error
    if started is not None:
        await started()
    beside = [
        asyncio.create_task(_stop_when_halted(broker, stopped)),
        asyncio.create_task(serve_beside(broker)),
    ]
    await stopping
    for each in beside:
        each.cancel()
    if broker.halted.is_set():
        raise BrokerHalted(f"the broker has stopped: {broker.halt_reason}")


def as_startup_failed(error: Exception) -> Exception:
    """The error of a start with a message for the operator."""
    if isinstance(error, StoreLocked):
        return error  # the message needs the directory that the user named
    return StartupFailed(_told(error))


def _told(error: Exception) -> str:
    said = str(error)
    if isinstance(error, ConnectionLoss | SessionExpired) and (not said or said.startswith("/")):
        # The error itself names only the znode of the request.
        return "lost the connection to the coordination store while the broker started"
    return said or repr(error)


async def _shut_down_when(stopped: asyncio.Event, broker: Broker) -> None:
    await stopped.wait()
    await broker.shutdown()


async def _stop_when_halted(broker: Broker, stopped: asyncio.Event) -> None:
    """Stop a broker without a log directory: it can lead no partition, and clients do better without it."""
    await broker.halted.wait()
    stopped.set()


async def serve_beside(broker: Broker) -> None:
    """Serve the local view of a broker that has started, and import the rest of its handlers."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_serve_inspection(broker))
        group.create_task(_import_handlers())


async def _serve_inspection(broker: Broker) -> None:
    try:
        await broker.serve_inspection()
    except (ImportError, OSError) as error:
        logger.warning("no local view of this broker: %s", error)


async def _import_handlers() -> None:
    """Import the handlers that no request has used yet, and `LATER`, one at a time, so that no request waits
    for them. A broker that is updated on disk keeps the code that it started with."""
    try:
        for _ in APIS:
            await asyncio.sleep(IMPORT_PAUSE_S)
        for name in LATER:
            import_module(name)
            await asyncio.sleep(IMPORT_PAUSE_S)
    except (ImportError, OSError) as error:
        logger.warning("cannot import a handler; its first request tries again: %s", error)


def ready_line(broker: Broker) -> str:
    listeners = ",".join(str(listener) for listener in broker.bound_listeners)
    directories = ",".join(str(directory) for directory in broker.config.log_dirs)
    return f"barnabas ready: broker {broker.broker_id}, listeners {listeners}, data in {directories}"


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one: each partition and each connection takes a
    descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed, asyncio's own loop elsewhere."""
    try:
        import uvloop  # noqa: PLC0415 - an optional accelerator
    except ImportError:
        return asyncio.new_event_loop
    else:
        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
