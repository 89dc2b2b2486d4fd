"""`barnabas start`: run one broker in the foreground until it is told to stop.

Standard output gets one line when the broker accepts connections; everything else goes to the
log on standard error. SIGTERM and SIGINT shut down cleanly; a second one is a plain kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from barnabas.cluster.coordination import ConnectionLoss, CoordinationError, SessionExpired, StoreLocked
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.config.agreement import LOCAL_ZOOKEEPER
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError
from barnabas.handlers import APIS
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.coordination_store import protect_own_zookeeper
from barnabas.node.log_output import configure_logging
from barnabas.node.memory import settle_memory
from barnabas.storage.log_manager import DuplicateLog

logger = logging.getLogger(__name__)

IMPORT_PAUSE_S = 0.01


class StartupFailed(Exception):
    """The broker did not come up; the message is for the person who started it."""


class BrokerHalted(StartupFailed):
    """It came up, and could not go on."""


def run(
    config: BrokerConfig,
    metrics_address: Endpoint | None = None,
    welcome: Sequence[str] = (),
    log_level: str = "info",
) -> int:
    """Serve until a signal comes; returns the exit code. `welcome` is said after the ready line."""
    configure_logging(log_level)
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(config, metrics_address, welcome))
    return 0


async def serve(config: BrokerConfig, metrics_address: Endpoint | None, welcome: Sequence[str] = ()) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, _stop, loop, signum, stopped)
    async with AsyncExitStack() as stack:
        config = await start_zookeeper(config, stack)
        await serve_broker(Broker(config, metrics_address=metrics_address), stopped, welcome)


async def start_zookeeper(config: BrokerConfig, stack: AsyncExitStack) -> BrokerConfig:
    """With `zookeeper.connect=local`: one beside the broker, which the settings returned name."""
    if config.zookeeper_connect != LOCAL_ZOOKEEPER:
        return config
    # Imported here because no other broker starts processes.
    from barnabas.node.zookeeper_member import local_zookeeper  # noqa: PLC0415
    from barnabas.node.zookeeper_server import CannotRunZooKeeper, beside  # noqa: PLC0415

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


async def serve_broker(broker: Broker, stopped: asyncio.Event, welcome: Sequence[str] = ()) -> None:
    stopping = asyncio.create_task(_shut_down_when(stopped, broker))
    try:
        await broker.startup()
    except StartAbandoned:
        await stopping
        return
    except (KafkaError, CoordinationError, MalformedZnode, DuplicateLog, OSError) as error:
        stopped.set()
        await stopping
        if isinstance(error, StoreLocked):
            raise  # the message needs the directory that the user named
        raise StartupFailed(_told(error)) from error
    settle_memory()
    print("\n".join((ready_line(broker), *welcome)), flush=True)  # noqa: T201 - scripts wait for this line
    beside = [
        asyncio.create_task(_stop_when_halted(broker, stopped)),
        asyncio.create_task(_import_handlers()),
    ]
    await stopping
    for each in beside:
        each.cancel()
    if broker.halted.is_set():
        raise BrokerHalted(f"the broker has stopped: {broker.halt_reason}")


def _told(error: Exception) -> str:
    said = str(error)
    if isinstance(error, ConnectionLoss | SessionExpired) and (not said or said.startswith("/")):
        # All that such an error knows by itself is the node that was asked for.
        return "the coordination store went out of reach while the broker started"
    return said or repr(error)


async def _shut_down_when(stopped: asyncio.Event, broker: Broker) -> None:
    await stopped.wait()
    await broker.shutdown()


async def _stop_when_halted(broker: Broker, stopped: asyncio.Event) -> None:
    """A broker without a log directory leads nothing and can take nothing: clients are better off without."""
    await broker.halted.wait()
    stopped.set()


async def _import_handlers() -> None:
    """Those that no request has asked for yet, one at a time, so that nobody waits for them. Who is updated
    while it runs goes on with the code that it began with."""
    try:
        for _ in APIS:
            await asyncio.sleep(IMPORT_PAUSE_S)
    except (ImportError, OSError) as error:
        logger.warning("a handler cannot be imported; its first request tries again: %s", error)


def ready_line(broker: Broker) -> str:
    listeners = ",".join(str(listener) for listener in broker.bound_listeners)
    directories = ",".join(str(directory) for directory in broker.config.log_dirs)
    return f"barnabas ready: broker {broker.broker_id}, listeners {listeners}, data in {directories}"


def _stop(loop: asyncio.AbstractEventLoop, signum: signal.Signals, stopped: asyncio.Event) -> None:
    logger.info("%s: shutting down", signum.name)
    loop.remove_signal_handler(signum)
    stopped.set()


def raise_open_files_limit() -> None:
    """Each partition and each connection takes a descriptor: use all that the system allows."""
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
