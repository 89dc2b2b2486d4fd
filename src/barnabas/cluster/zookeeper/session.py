"""ZooKeeper session on the event loop.

Everything here runs on the loop; `wire` posts messages in the order of the wire. A watch is registered when
its response is delivered, not when the caller wakes up. Otherwise an event right behind the response would
find no watch.

While the connection is down (SUSPENDED) operations fail at once. Those in flight fail with ConnectionLoss.
Nothing is retried here: only the caller knows what a second attempt would mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    BadArguments,
    ConnectionLoss,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    EventType,
    NoAuth,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionClosed,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StateListener,
    Watch,
    WatchEvent,
    check_data,
    check_path,
    parent_of,
)
from barnabas.cluster.coordination.first_connection import connected_within
from barnabas.cluster.coordination.session_lease import SessionLease
from barnabas.cluster.coordination.session_status import SessionStatus
from barnabas.cluster.coordination.watches import Watches
from barnabas.cluster.zookeeper import wire
from barnabas.cluster.zookeeper.acls import access_to
from barnabas.cluster.zookeeper.in_flight import InFlight
from barnabas.cluster.zookeeper.wire import ServerAccess
from barnabas.config.connect_string import ConnectString
from barnabas.core.clock import Clock

logger = logging.getLogger(__name__)

SET_WATCHES_BYTES_MAX = 128 * 1024
CLOSE_TIMEOUT_S = 5.0
ANONYMOUS = ServerAccess()


@asynccontextmanager
async def open_zookeeper(
    connect: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    clock: Clock,
    access: ServerAccess = ANONYMOUS,
    set_acl: bool = False,
    owns_server: bool = False,
    make_link: wire.MakeLink = wire.Link,
) -> AsyncIterator[ZooKeeperSession]:
    """Open a session with the ensemble at `connect` (`host:port,host:port/chroot`; the chroot is created).

    With `set_acl`, created nodes and the chroot belong to the identity in `access`. With `owns_server`, when
    the ensemble serves this cluster alone, `/` does too. Raises ConnectionLoss if no server answers within
    `connection_timeout_ms`.
    """
    where = ConnectString.parse(connect)
    if set_acl and access.credentials is None and access.login is None:
        raise BadArguments(
            "zookeeper.set.acl needs credentials: configure SASL or a client certificate for ZooKeeper"
        )
    session = ZooKeeperSession(
        where,
        session_timeout_ms,
        clock,
        access,
        is_secure=set_acl,
        owns_server=owns_server,
        make_link=make_link,
    )
    try:
        await session.start(connection_timeout_ms)
        yield session
    finally:
        await session.close()


class ZooKeeperSession(Coordination):
    """Session with a ZooKeeper ensemble, made by `open_zookeeper`."""

    def __init__(
        self,
        where: ConnectString,
        session_timeout_ms: int,
        clock: Clock,
        access: ServerAccess,
        *,
        is_secure: bool,
        owns_server: bool,
        make_link: wire.MakeLink,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._where = where
        self._chroot = where.chroot
        self._is_secure = is_secure
        self._owns_server = owns_server
        self._posted: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._will_run = False
        self._link = make_link(where.hosts, session_timeout_ms, access, clock, self._post, self)
        self._status = SessionStatus(SessionState.SUSPENDED)
        self._session_id = 0
        self._session_timeout_ms = session_timeout_ms
        self._in_flight = InFlight(self._loop, self._link.send, self._post)
        self._lease = SessionLease(self._loop, clock, self._ask_for_life, self._link.drop)
        self._connected = asyncio.Event()
        self._watches = Watches()
        self._awaited: set[str] = set()
        """Paths with a data watch on a missing node; SetWatches lists them separately."""
        self._last_zxid = 0

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Timeout that the server granted, which may be less than requested."""
        return self._session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._status.state

    @property
    def lease_expires_ms(self) -> float:
        return self._lease.expires_ms

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return self._link.client_id

    def add_listener(self, listener: StateListener) -> None:
        self._status.add_listener(listener)

    async def start(self, connection_timeout_ms: float) -> None:
        self._link.start()
        hosts = ",".join(self._where.hosts)
        try:
            await connected_within(self._connected, connection_timeout_ms, f"ZooKeeper at {hosts}")
        except TimeoutError:
            refusal = self._link.refusal
            hint = "is it running?" if refusal is None else refusal
            raise ConnectionLoss(
                f"no ZooKeeper answers at {hosts} within {connection_timeout_ms:.0f} ms; {hint}"
            ) from None
        if self._chroot:
            await self._make_chroot()
        if self._is_secure:
            await self._look_at_root()

    async def close(self) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        self._status.become(SessionState.CLOSED)
        self._lease.end()
        self._watches.clear()
        self._in_flight.fail_queue(SessionClosed)
        stopped = asyncio.Event()
        self._link.stop(lambda: self._post(stopped.set))
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await stopped.wait()
        self._in_flight.fail(SessionClosed)

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
        request = self._request(operation)
        if not make_parents:
            return self._own(await self._ask(request, path))
        # All are sent at once, so that no later request comes between them.
        asked = [*self._ask_for_parents(path), self._ask(request, path)]
        made = (await asyncio.gather(*asked, return_exceptions=True))[-1]
        if isinstance(made, BaseException):
            raise made
        return self._own(made)

    async def make_paths(self, paths: Iterable[str]) -> None:
        asked = [
            future
            for path in paths
            for future in (*self._ask_for_parents(path), self._ask(self._request(Create(path)), path))
        ]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, NodeExists):
                raise outcome

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return wire.stat_of(await self._ask(self._request(SetData(path, data, version)), path))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask(self._request(Delete(path, version)), path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if not operations:
            return []
        requests = []
        for index, operation in enumerate(operations):
            try:
                requests.append(self._request(operation))
            except CoordinationError as error:
                error.index = index
                raise
        check_data(operations)
        answers = await self._ask(wire.transaction(requests), operations[0].path)
        failure = wire.first_failure(answers)
        if failure is not None:
            index, reason = failure
            translated = wire.translate(reason, operations[index].path)
            translated.index = index
            raise translated
        return [self._result(*each) for each in zip(operations, answers, strict=True)]

    # --- reads ---

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        request = wire.read_data(self._whole(path), watched=watch is not None)
        data, stat = await self._ask(request, path, watch and (lambda _: self._watches.on_data(path, watch)))
        return data, wire.stat_of(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            check_path(path)
        asked = [self._ask(wire.read_data(self._whole(path)), path) for path in paths]
        found: list[tuple[bytes, Stat] | None] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, NoNode):
                found.append(None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((answer[0], wire.stat_of(answer[1])))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._ask_for_stat(path, watch)
        return None if stat is None else wire.stat_of(stat)

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        await asyncio.gather(*(self._ask_for_stat(path, watch) for path, watch in watches.items()))

    def _ask_for_stat(self, path: str, watch: Watch | None) -> asyncio.Future[Any]:
        check_path(path)
        request = wire.read_stat(self._whole(path), watched=watch is not None)

        def enter(stat: Any) -> None:
            assert watch is not None
            self._watches.on_data(path, watch)
            if stat is None:
                self._awaited.add(path)

        return self._ask(request, path, None if watch is None else enter)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        request = wire.read_children(self._whole(path), watched=watch is not None)
        found: list[str] = await self._ask(
            request, path, watch and (lambda _: self._watches.on_children(path, watch))
        )
        return sorted(found)

    # --- messages from the wire ---

    def on_state(self, state: Any, handshake: wire.Handshake | None, last_zxid: int) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        if state == wire.CONNECTED:
            assert handshake is not None
            self._enter_connection(handshake)
            return
        self._last_zxid = last_zxid
        if state == wire.SUSPENDED:
            logger.warning(
                "connection to ZooKeeper is lost; session 0x%x expires unless a server is reached",
                self._session_id,
            )
            self._lease.pause()
            self._in_flight.fail(ConnectionLoss)
            self._status.become(SessionState.SUSPENDED)
        else:
            logger.warning("ZooKeeper session 0x%x has expired; a new session follows", self._session_id)
            self._lease.end()
            self._in_flight.fail(SessionExpired)
            self._watches.clear()
            self._awaited.clear()
            self._status.become(SessionState.LOST)

    def on_event(self, event_type: int, path: str) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        kind = wire.EVENT_TYPES.get(event_type)
        if kind is not None:
            own = self._own(path)
            if kind is not EventType.CHILD:
                self._awaited.discard(own)
            self._watches.fire((WatchEvent(kind, own),))

    def _enter_connection(self, handshake: wire.Handshake) -> None:
        is_new = handshake.session_id != self._session_id
        self._session_id = handshake.session_id
        self._session_timeout_ms = handshake.session_timeout_ms
        logger.info(
            "connected to ZooKeeper at %s, session 0x%x, timeout %d ms",
            self._where, handshake.session_id, handshake.session_timeout_ms,
        )  # fmt: skip
        if not is_new:
            self._set_watches_again()
        self._lease.begin(handshake.sent_ms, handshake.session_timeout_ms)
        self._status.become(SessionState.CONNECTED)
        self._connected.set()

    # --- requests ---

    def _ask(
        self, request: Any, path: str, effect: Callable[[Any], None] | None = None
    ) -> asyncio.Future[Any]:
        self._status.check_connected()
        return self._in_flight.ask(request, path, effect)

    def _ask_for_life(self, answered: Callable[[], None]) -> None:
        self._in_flight.ask(wire.read_stat(self._chroot or "/"), "/", lambda _: answered(), is_urgent=True)

    def _request(self, operation: Operation) -> Any:
        """Encode an operation, with the checks that the server would answer differently because of the
        chroot.
        """
        path = operation.path
        is_create = isinstance(operation, Create)
        check_path(path, sequential=isinstance(operation, Create) and operation.sequential)
        if path == "/":
            if is_create:
                raise NodeExists(path)
            if isinstance(operation, Delete):
                raise BadArguments(path)
        check_data((operation,))
        return wire.write(operation, self._whole(path), access_to(path, is_secure=self._is_secure))

    def _ask_for_parents(self, path: str) -> list[asyncio.Future[Any]]:
        parents = []
        while (path := parent_of(path)) != "/":
            parents.append(path)
        return [self._ask(self._request(Create(parent)), parent) for parent in reversed(parents)]

    def _result(self, operation: Operation, answer: Any) -> Result:
        if isinstance(operation, Create):
            return self._own(answer)
        return wire.stat_of(answer) if isinstance(operation, SetData) else None

    def _whole(self, path: str) -> str:
        """Path with the chroot, as the server knows it."""
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path

    def _own(self, path: str) -> str:
        """Path without the chroot."""
        return path[len(self._chroot) :] or "/"

    async def _make_chroot(self) -> None:
        """Create all ancestors of the chroot at once; existing ones are left as they are."""
        names = self._chroot.strip("/").split("/")
        asked = []
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            access = access_to("/", is_secure=self._is_secure and depth == len(names))
            asked.append(self._ask(wire.write(Create(path), path, access), path))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(outcomes[-1], BaseException) and not isinstance(outcomes[-1], NodeExists):
            raise outcomes[-1]

    async def _look_at_root(self) -> None:
        """Restrict the root of the tree to the brokers' identity.

        A client that may create and delete there can replace `/controller` and every other node without
        children, even those of another owner. The chroot belongs to this cluster alone. In the `/` of a
        shared server, other clients may have to create nodes of their own.
        """
        root = self._chroot or "/"
        try:
            if not wire.is_open_to_all(await self._ask(wire.read_access(root), "/")):
                return
            if self._chroot or self._owns_server:
                await self._ask(wire.set_access(root, access_to("/", is_secure=True)), "/")
            else:
                logger.warning(
                    "ZooKeeper: every client may create and delete nodes in /, including those of this"
                    " cluster; give zookeeper.connect a chroot, or run Kafka's zookeeper-security-migration"
                    " if no other client needs /"
                )
        except NoAuth:
            logger.warning("ZooKeeper: %s belongs to another identity, which decides who may change it", root)

    def _set_watches_again(self) -> None:
        awaited = self._awaited
        kinds = (
            [path for path in self._watches.data_paths if path not in awaited],
            [path for path in self._watches.data_paths if path in awaited],
            self._watches.child_paths,
        )
        whole = [list(map(self._whole, kind)) for kind in kinds]
        for request in set_watches_requests(self._last_zxid, whole):
            self._in_flight.ask(request, "/", is_urgent=True)

    # --- threads ---

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Post a call from any thread to the loop, in order. Calls after the end of the loop are dropped."""
        self._posted.append((call, arguments))
        if not self._will_run:
            self._will_run = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._run_posted)

    def _run_posted(self) -> None:
        self._will_run = False  # first, so that later posts schedule another run
        posted = self._posted
        while posted:
            call, arguments = posted.popleft()
            try:
                call(*arguments)
            except Exception:
                logger.exception("a message from ZooKeeper could not be delivered")


def set_watches_requests(zxid: int, kinds: Sequence[Sequence[str]]) -> list[wire.SetWatches]:
    """SetWatches requests of bounded size for all of these watches."""
    requests: list[wire.SetWatches] = []
    pages: list[list[str]] = [[], [], []]
    size = 0
    for kind, paths in enumerate(kinds):
        for path in paths:
            pages[kind].append(path)
            size += len(path.encode()) + 4
            if size >= SET_WATCHES_BYTES_MAX:
                requests.append(wire.SetWatches(zxid, *pages))
                pages, size = [[], [], []], 0
    if size:
        requests.append(wire.SetWatches(zxid, *pages))
    return requests
