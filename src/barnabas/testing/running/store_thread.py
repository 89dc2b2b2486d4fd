"""Coordination store of a test's cluster: the embedded store, served on a thread of its own.

Brokers reach it through a real unix socket, as those of `barnabas start --brokers N` do. A broker that is
killed is reported to it, as the supervisor of a local cluster does, so its partitions move at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import EmbeddedStore, make_private
from barnabas.cluster.shared import unix_socket
from barnabas.cluster.shared.link import Link
from barnabas.cluster.shared.notices import report_ended
from barnabas.cluster.shared.server import StoreServer
from barnabas.cluster.shared.session import connect_to, open_shared
from barnabas.cluster.shared.session_table import TICK_MS
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.files import Files
from barnabas.core.scheduler import Background
from barnabas.node.membership.coordination_store import OpenCoordination
from barnabas.testing.running import broker_log
from barnabas.testing.running.broker_log import BrokerLog
from barnabas.testing.running.other_threads import KitThread, ask
from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")


class StoreThread(KitThread):
    """The store in `directory`, from `start` to `stop`."""

    def __init__(self, directory: Path, clock: VirtualClock, files: Files, *, tick_ms: int = TICK_MS) -> None:
        super().__init__("barnabas-store")
        self.socket = directory / unix_socket.SOCKET_NAME
        self.log = BrokerLog()
        self._directory = directory
        self._clock = clock
        self._files = files
        self._tick_ms = tick_ms
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stopped: asyncio.Event | None = None
        self._loop: VirtualLoop | None = None
        self._server: StoreServer | None = None

    @property
    def loop(self) -> VirtualLoop:
        assert self._loop is not None
        return self._loop

    def wait_started(self) -> None:
        self._ready.wait()
        if self._failure is not None:
            self.join()
            raise self._failure

    def stop(self) -> None:
        assert self._stopped is not None
        if self.is_alive():
            self.loop.call_soon_threadsafe(self._stopped.set)
        self.join()

    def ask(self, question: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop of the store, from another thread."""
        return ask(self, self.loop, question, timeout_s)

    def end_process(self, name: str) -> None:
        """End the sessions of a broker that was killed, and delete its ephemeral nodes."""
        self.ask(lambda: report_ended(connect_to(self.socket), name))

    async def expire_sessions(self, name: str) -> None:
        """End the sessions of a broker that lives. It runs on the loop of the store."""
        assert self._server is not None
        for each in self._server.sessions_of(name):
            await self._server.end_session(each)

    def opener(self, name: str, is_dead: Callable[[], bool]) -> OpenCoordination:
        """Opener of the session of the broker of this name. A dead broker connects no more."""
        reach = connect_to(self.socket)

        async def connect(link: Link) -> None:
            if is_dead():
                raise ConnectionRefusedError("the broker was killed")
            await reach(link)

        @asynccontextmanager
        async def open_store(
            config: BrokerConfig, clock: Clock, _: Background
        ) -> AsyncIterator[Coordination]:
            async with open_shared(
                connect,
                str(self.socket),
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms,
                clock=clock,
                process=name,
            ) as session:
                yield session

        return open_store

    def run(self) -> None:
        broker_log.begin(self.log)
        try:
            with asyncio.Runner(loop_factory=lambda: VirtualLoop(self._clock)) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error  # there was no loop; raised in the test
            self._ready.set()
        finally:
            broker_log.end()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._stopped = asyncio.Event()
        background = loop.threads(loop, 1)
        try:
            make_private(self._directory)
            store = EmbeddedStore.open(self._files, str(self._directory), self._clock, background)
            server = self._server = StoreServer(store, self._clock, self._tick_ms)
            await server.start()
            listener = await loop.create_unix_server(server.accept, sock=unix_socket.listen(self.socket))
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self._failure = error
            await background.close()
            return
        finally:
            self._ready.set()
        await self._stopped.wait()
        listener.close()
        server.stop()
        await store.close()
        await background.close()
