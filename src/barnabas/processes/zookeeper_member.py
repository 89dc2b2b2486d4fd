"""Local ZooKeeper as a supervised process: alone, beside one broker, or under a cluster."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from barnabas.core.clock import Clock, SystemClock
from barnabas.processes.child_process import Child, ChildEnded, Say
from barnabas.processes.supervisor import RESTART_BACKOFF, Supervisor
from barnabas.processes.zookeeper_process import (
    CannotRunZooKeeper,
    ZooKeeperServer,
    check_port_is_free,
    is_noise,
)

logger = logging.getLogger(__name__)

READY_TIMEOUT_S = 60.0
PROBE_INTERVAL_S = 0.01
LOCK_FILE = ".lock"


class ZooKeeperMember:
    """A `supervisor.Member`."""

    name = "zookeeper"
    restart_backoff = RESTART_BACKOFF

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server

    async def launch(self, say: Say) -> Child:
        try:
            check_port_is_free(self._server.host, self._server.port)
            command = self._server.prepare()
        except CannotRunZooKeeper as error:
            raise ChildEnded(str(error)) from error
        return await Child.start(self.name, command, lambda line: None if is_noise(line) else say(line))

    async def until_ready(self, child: Child) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not await asyncio.to_thread(self._server.is_serving):
                    if not child.is_running:
                        await child.wait()
                        raise ChildEnded(child.epitaph())
                    await asyncio.sleep(PROBE_INTERVAL_S)
        except TimeoutError:
            child.send(signal.SIGKILL)
            await child.wait()
            raise ChildEnded(f"zookeeper did not serve within {READY_TIMEOUT_S:.0f} s") from None

    def ended(self) -> None:
        """Its sessions stay in its files."""


@contextmanager
def locked(server: ZooKeeperServer) -> Iterator[None]:
    """Hold the lock of the data directory: two servers on one directory would destroy each other's files."""
    directory = server.data_directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CannotRunZooKeeper(f"cannot write to {directory}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise CannotRunZooKeeper(
            f"another ZooKeeper is running on {directory}; stop it, or choose another --data-dir"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def local_zookeeper(server: ZooKeeperServer, clock: Clock | None = None) -> AsyncIterator[None]:
    """Run a server during the block, and restart it if it dies."""
    with locked(server):
        supervisor = Supervisor([[ZooKeeperMember(server)]], _log, clock or SystemClock())
        try:
            try:
                await supervisor.start()
            except (ChildEnded, OSError) as error:
                raise CannotRunZooKeeper(str(error)) from error
            yield
        finally:
            await supervisor.stop()


def run_zookeeper(server: ZooKeeperServer, announce: Callable[[str], None]) -> None:
    """Serve in the foreground until a signal; a second one kills the server."""
    with locked(server):
        asyncio.run(_serve(server, announce))


async def _serve(server: ZooKeeperServer, announce: Callable[[str], None]) -> None:
    member = ZooKeeperMember(server)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    try:
        child = await member.launch(lambda line: _log(member.name, line))

        def stop() -> None:
            child.send(signal.SIGKILL if stopped.is_set() else signal.SIGTERM)
            stopped.set()

        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, stop)
        try:
            await member.until_ready(child)
        except ChildEnded:
            if not stopped.is_set():
                raise
        else:
            announce(f"zookeeper ready: {server.connect}, data in {server.data_directory}")
        await child.wait()
        if not stopped.is_set():
            raise ChildEnded(child.epitaph())
    except ChildEnded as error:
        raise CannotRunZooKeeper(str(error)) from error


def _log(name: str, line: str) -> None:
    logger.info("%s: %s", name, line)
