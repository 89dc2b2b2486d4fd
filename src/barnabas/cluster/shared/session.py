"""Session of a broker with the shared store of its machine.

It behaves as a ZooKeeper session does. While the connection is down (SUSPENDED) operations fail at once, and
those in flight fail with ConnectionLoss. Nothing is retried here: only the caller knows what a second attempt
would mean. The session connects again until the store answers, and then continues under its id, with its
ephemeral nodes and watches. It is LOST when the store says so, and never before: a store that is started
again remembers it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    ConnectionLoss,
    Coordination,
    Create,
    Delete,
    EventType,
    Operation,
    Result,
    SessionClosed,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StateListener,
    Watch,
    check_data,
    check_path,
)
from barnabas.cluster.coordination.first_connection import connected_within
from barnabas.cluster.coordination.session_lease import SessionLease
from barnabas.cluster.coordination.session_status import SessionStatus
from barnabas.cluster.coordination.watches import Watches
from barnabas.cluster.shared import unix_socket
from barnabas.cluster.shared.link import Effect, Link
from barnabas.cluster.shared.messages import (
    VERSION,
    Children,
    Close,
    Event,
    Exists,
    Expired,
    Get,
    GetMany,
    Hello,
    MakePaths,
    Ping,
    Request,
    SetWatches,
    WatchMany,
    Welcome,
    Write,
    watch_event_of,
)
from barnabas.core.clock import Clock

logger = logging.getLogger(__name__)

RECONNECT_S: Final = 0.05
CLOSE_TIMEOUT_S: Final = 5.0
PATHS_MAX: Final = 1_000
"""Paths in one request; larger questions are asked in pieces."""

Connect = Callable[[Link], Awaitable[None]]
"""Connects the protocol to the store; OSError if there is none."""


def connect_to(path: Path) -> Connect:
    """Connection to the socket at `path`."""

    async def connect(link: Link) -> None:
        connected = unix_socket.connect(path)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=connected)

    return connect


@asynccontextmanager
async def open_shared(
    connect: Connect,
    where: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    clock: Clock,
    process: str = "",
) -> AsyncIterator[SharedSession]:
    """Open a session with the store at `where`. `process` is the name that a supervisor gave to this process.

    Raises ConnectionLoss if no store answers within `connection_timeout_ms`.
    """
    session = SharedSession(connect, where, session_timeout_ms, clock, process)
    try:
        await session.start(connection_timeout_ms)
        yield session
    finally:
        await session.close()


class SharedSession(Coordination):
    """Session with a shared store, made by `open_shared`."""

    def __init__(
        self, connect: Connect, where: str, session_timeout_ms: int, clock: Clock, process: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._where = where
        self._now_ms = clock.monotonic_ms
        self._process = process
        self._status = SessionStatus(SessionState.SUSPENDED)
        self._session_id = 0
        self._resumed_id = 0
        """Session that the next connection asks for; 0 for a new one."""
        self._session_timeout_ms = session_timeout_ms
        self._lease = SessionLease(self._loop, clock, self._ask_for_life, self._drop)
        self._watches = Watches()
        self._awaited: set[str] = set()
        """Paths with a data watch on a missing node; SetWatches lists them separately."""
        self._last_zxid = 0
        self._link: Link | None = None
        self._is_lost = asyncio.Event()
        """Whether the connection is gone."""
        self._connected = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Timeout that the store granted, which may differ from the requested one."""
        return self._session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._status.state

    @property
    def lease_expires_ms(self) -> float:
        return self._lease.expires_ms

    def add_listener(self, listener: StateListener) -> None:
        self._status.add_listener(listener)

    async def start(self, connection_timeout_ms: float) -> None:
        self._keeping = asyncio.create_task(self._keep_connected())
        store = f"the coordination store at {self._where}"
        try:
            await connected_within(self._connected, connection_timeout_ms, store)
        except TimeoutError:
            raise ConnectionLoss(
                f"no coordination store answers at {self._where} within {connection_timeout_ms:.0f} ms;"
                " is its cluster running? `barnabas start --brokers N` runs the store too"
            ) from None

    async def close(self) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        was_connected = self._status.state is SessionState.CONNECTED
        self._status.become(SessionState.CLOSED)
        self._lease.end()
        self._watches.clear()
        link = self._link
        if was_connected and link is not None:
            with suppress(TimeoutError, ConnectionLoss, SessionExpired):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await link.ask(Close())
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if link is not None:
            link.fail(SessionClosed)
            link.drop()

    # --- writes ---

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        (made,) = await self._write([operation], make_parents=make_parents)
        assert isinstance(made, str)
        return made

    async def make_paths(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            check_path(path)
        await self._gather([self._ask(MakePaths(page), page[0]) for page in _pages(paths)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._write([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._write(operations) if operations else []

    async def _write(self, operations: Sequence[Operation], *, make_parents: bool = False) -> list[Result]:
        check_data(operations)
        answer = await self._ask(Write(operations, make_parents), operations[0].path)
        return list(answer.results)

    # --- reads ---

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        effect = None if watch is None else (lambda _: self._watches.on_data(path, watch))
        answer = await self._ask(Get(path, watch is not None), path, effect)
        return answer.data, answer.stat

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        pages = await self._gather([self._ask(GetMany(page), page[0]) for page in _pages(paths)])
        found: list[tuple[bytes, Stat] | None] = []
        for page, answer in zip(_pages(paths), pages, strict=True):
            nodes = list(answer.found)
            while len(nodes) < len(page):  # the store ends an answer before it is too large
                more = await self._ask(GetMany(page[len(nodes) :]), page[0])
                nodes += more.found
            found += [None if node is None else (node.data, node.stat) for node in nodes]
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def enter(answer: Any) -> None:
            assert watch is not None
            self._watch_data({path: watch}, () if answer.stat is not None else (path,))

        answer = await self._ask(Exists(path, watch is not None), path, None if watch is None else enter)
        stat: Stat | None = answer.stat
        return stat

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        def asked(page: Sequence[str]) -> asyncio.Future[Any]:
            own = {path: watches[path] for path in page}
            return self._ask(WatchMany(page), page[0], lambda answer: self._watch_data(own, answer.paths))

        await self._gather([asked(page) for page in _pages(list(watches))])

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        effect = None if watch is None else (lambda _: self._watches.on_children(path, watch))
        answer = await self._ask(Children(path, watch is not None), path, effect)
        return list(answer.names)

    def _watch_data(self, watches: Mapping[str, Watch], missing: Iterable[str]) -> None:
        for path, watch in watches.items():
            self._watches.on_data(path, watch)
        self._awaited.update(missing)

    # --- requests ---

    def _ask(self, request: Request, path: str, effect: Effect | None = None) -> asyncio.Future[Any]:
        self._status.check_connected()
        assert self._link is not None
        return self._link.ask(request, path, effect)

    async def _gather(self, asked: Sequence[asyncio.Future[Any]]) -> list[Any]:
        return list(await asyncio.gather(*asked))

    def _ask_for_life(self, answered: Callable[[], None]) -> None:
        if self._link is not None:
            self._link.ask(Ping(), effect=lambda _: answered())

    def _drop(self) -> None:
        if self._link is not None:
            self._link.drop()

    # --- the connection ---

    async def _keep_connected(self) -> None:
        while self._status.state is not SessionState.CLOSED:
            try:
                await self._run_connection()
            except OSError as error:
                logger.debug("coordination store at %s: %s", self._where, error)
            await asyncio.sleep(RECONNECT_S)

    async def _run_connection(self) -> None:
        """Connect, and wait until the connection is gone."""
        is_lost = self._is_lost = asyncio.Event()
        link = self._link = Link(self._on_event, is_lost.set)
        try:
            await self._connect(link)
            self._greet(link)
            silent = self._loop.call_later(self._session_timeout_ms / 3_000, self._give_up, link)
            try:
                await is_lost.wait()
            finally:
                silent.cancel()
        finally:
            link.drop()
            if self._status.state is not SessionState.CLOSED:
                self._suspend(link)

    def _give_up(self, link: Link) -> None:
        """Close a connection on which the store does not answer `Hello`."""
        if self._status.state is not SessionState.CONNECTED:
            link.drop()

    def _greet(self, link: Link) -> None:
        sent_ms = self._now_ms()
        hello = Hello(VERSION, self._resumed_id, self._session_timeout_ms, self._process)
        link.ask(hello, effect=lambda answer: self._greeted(link, answer, sent_ms))

    def _greeted(self, link: Link, answer: Any, sent_ms: float) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        if isinstance(answer, Expired):
            self._lose()
            self._greet(link)
            return
        assert isinstance(answer, Welcome)
        is_new = answer.session_id != self._session_id
        self._session_id, self._session_timeout_ms = answer
        self._resumed_id = self._session_id
        logger.info(
            "coordination store at %s: %s session 0x%x, timeout %d ms",
            self._where, "new" if is_new else "resumed", answer.session_id, answer.timeout_ms,
        )  # fmt: skip
        if not is_new:
            self._set_watches_again(link)
        self._lease.begin(sent_ms, answer.timeout_ms)
        self._status.become(SessionState.CONNECTED)
        self._connected.set()

    def _suspend(self, link: Link) -> None:
        self._last_zxid = max(self._last_zxid, link.last_zxid)
        self._lease.pause()
        if self._status.state is SessionState.CONNECTED:
            logger.warning(
                "coordination store at %s: connection lost; session 0x%x continues when the store is back",
                self._where, self._session_id,
            )  # fmt: skip
        link.fail(ConnectionLoss)
        if self._status.state is SessionState.CONNECTED:
            self._status.become(SessionState.SUSPENDED)

    def _lose(self) -> None:
        logger.warning(
            "coordination store at %s: session 0x%x has ended; a new session follows",
            self._where, self._session_id,
        )  # fmt: skip
        self._resumed_id = 0
        self._lease.end()
        self._watches.clear()
        self._awaited.clear()
        self._status.become(SessionState.LOST)

    def _set_watches_again(self, link: Link) -> None:
        data, awaited = self._watches.data_paths, self._awaited
        kinds = (
            [path for path in data if path not in awaited],
            [path for path in data if path in awaited],
            self._watches.child_paths,
        )
        for kind, paths in enumerate(kinds):
            for page in _pages(paths):
                named: list[Sequence[str]] = [(), (), ()]
                named[kind] = page
                link.ask(SetWatches(self._last_zxid, *named))

    def _on_event(self, event: Event) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        fired = watch_event_of(event)
        if fired.type is not EventType.CHILD:
            self._awaited.discard(fired.path)
        self._watches.fire((fired,))


def _pages(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    left = iter(paths)
    while page := list(islice(left, PATHS_MAX)):
        yield page
