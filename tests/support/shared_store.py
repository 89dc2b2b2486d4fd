"""A shared store in the test's own process, served over a real unix socket.

    async with serving(tmp_path) as store, store.session() as znodes:
        await store.restart()

`crash` stops serving as a killed process does: nothing is answered, and sessions stay as they are on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.cluster.shared import unix_socket
from barnabas.cluster.shared.server import StoreServer
from barnabas.cluster.shared.session import Connect, SharedSession, connect_to, open_shared
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.files import RealFiles

T = TypeVar("T")

SESSION_TIMEOUT_MS = 60_000
"""Long: a test that wants an expiry says so."""


class ThreadBackground:
    """Work in a thread, its outcome on the loop, as in a running broker."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def submit(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if error is not None:
                failed(error)
            else:
                then(future.result())

        asyncio.get_running_loop().run_in_executor(self._pool, work).add_done_callback(done)


class SharedStore:
    """A store on a directory; the server is another one after each start."""

    server: StoreServer

    def __init__(self, directory: Path, pool: ThreadPoolExecutor, clock: Clock) -> None:
        self.directory = directory
        self._pool = pool
        self._clock = clock
        self._store: EmbeddedStore | None = None
        self._listener: asyncio.Server | None = None

    @property
    def socket(self) -> Path:
        return self.directory / unix_socket.SOCKET_NAME

    @property
    def connect(self) -> Connect:
        return connect_to(self.socket)

    @property
    def store(self) -> EmbeddedStore:
        assert self._store is not None
        return self._store

    @asynccontextmanager
    async def session(
        self, timeout_ms: int = SESSION_TIMEOUT_MS, process: str = "", connect: Connect | None = None
    ) -> AsyncIterator[SharedSession]:
        async with open_shared(
            connect or self.connect,
            str(self.socket),
            session_timeout_ms=timeout_ms,
            connection_timeout_ms=60_000,
            clock=SystemClock(),
            process=process,
        ) as session:
            yield session

    async def start(self) -> None:
        self._store = EmbeddedStore.open(
            RealFiles(), str(self.directory), self._clock, ThreadBackground(self._pool)
        )
        self.server = StoreServer(self._store, self._clock)
        await self.server.start()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(
            self.server.accept, sock=unix_socket.listen(self.socket)
        )

    async def crash(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self.server.stop()
            await self.store.close()

    async def restart(self) -> None:
        await self.crash()
        await self.start()


@asynccontextmanager
async def serving(directory: Path, clock: Clock | None = None) -> AsyncIterator[SharedStore]:
    with ThreadPoolExecutor(1) as pool:
        store = SharedStore(directory, pool, clock or SystemClock())
        await store.start()
        try:
            yield store
        finally:
            await store.crash()
