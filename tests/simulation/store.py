"""A ZooKeeper in the simulated world: one tree, sessions that expire, watches that come late.

The broker's side is its own code (`cluster.zookeeper.session`, with its lease) on a simulated link. The
server's side is the tree of the embedded store. Requests of a session take effect in their order; responses
and events come back in the order of the wire. A request may have taken effect although its response is lost
with the connection. The server ends a session after a timeout without requests, and the client learns of it
at its next connection.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import kazoo.protocol.serialization as jute
from kazoo.exceptions import RolledBackError, RuntimeInconsistency

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    EventType,
    NoNode,
    Operation,
    SetData,
    Stat,
    WatchEvent,
)
from barnabas.cluster.embedded.tree import Transaction, Tree, events_of
from barnabas.cluster.znodes.layout import PartitionStateZnode
from barnabas.cluster.zookeeper import open_zookeeper, wire
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Background
from tests.chaos.leaderships import Leaders, merge
from tests.simulation.loop import SimulatedLoop, current_process
from tests.simulation.network import Direction, Network
from tests.simulation.trace import Trace

HOST = "10.0.0.9"
TICK_S = 0.5
RETRY_S = (0.05, 1.0)
_ERRORS: dict[type[CoordinationError], type[Exception]] = {}
for _theirs, _ours in wire.ERRORS.items():
    _ERRORS.setdefault(_ours, _theirs)
_EVENT_NUMBERS = {kind: number for number, kind in wire.EVENT_TYPES.items()}
_EPHEMERAL, _SEQUENTIAL = 1, 2


class ServerSession:
    """A session, as the server knows it."""

    def __init__(self, session_id: int, timeout_s: float, now_s: float, owner: str) -> None:
        self.id = session_id
        self.owner = owner
        self.timeout_s = timeout_s
        self.heard_s = now_s
        self.connection: Connection | None = None


class Connection:
    """The server's end of a link, with the watches that were left through it."""

    def __init__(self, owner: str, answer: Callable[..., None], break_off: Callable[[], None]) -> None:
        self.owner = owner
        self.answer = answer
        self.break_off = break_off
        """At once: answers that are under way are lost with it."""
        self.session: ServerSession | None = None
        self.data_watches: dict[str, None] = {}
        self.child_watches: dict[str, None] = {}
        self.is_open = True

    def fire(self, event: WatchEvent) -> None:
        if event.type is EventType.CHILD:
            is_watched = self.child_watches.pop(event.path, 0) is None
        else:
            is_watched = self.data_watches.pop(event.path, 0) is None
            if event.type is EventType.DELETED:
                is_watched |= self.child_watches.pop(event.path, 0) is None
        if is_watched:
            self.answer("event", _EVENT_NUMBERS[event.type], event.path)


class Store:
    """The server."""

    def __init__(self, loop: SimulatedLoop, network: Network, epoch_ms: int = 0) -> None:
        """`epoch_ms` is what its wall clock says at first: notes are old by it, and brokers remove those."""
        self.tree = Tree()
        self.is_up = True
        self._epoch_ms = epoch_ms
        self.forced_s = -math.inf
        """When a session was last ended before its time, which no lease foresees."""
        self.forced_moments_s: list[float] = []
        """All such moments."""
        self.leaders: Leaders = {}
        """The leader of every epoch that was ever written, by topic and partition."""
        self._loop = loop
        self._network = network
        self._sessions: dict[int, ServerSession] = {}
        self._session_ids = 0x1000
        self._connections: dict[Connection, None] = {}
        loop.later(TICK_S, self._tick)

    def connect(self, connection: Connection, session_id: int, timeout_s: float) -> None:
        """A new session, or an old one; one that is over is refused."""
        if not self.is_up:
            return
        if session_id:
            session = self._sessions.get(session_id)
            if session is None:
                connection.answer("expired")
                return
        else:
            self._session_ids += 1
            session = ServerSession(self._session_ids, timeout_s, self._loop.now_s, connection.owner)
            self._sessions[session.id] = session
        if session.connection is not None:
            self.disconnect(session.connection)
        session.heard_s = self._loop.now_s
        session.connection, connection.session = connection, session
        self._connections[connection] = None
        connection.answer("connected", session.id, int(session.timeout_s * 1_000))

    def disconnect(self, connection: Connection) -> None:
        connection.is_open = False
        self._connections.pop(connection, None)
        if connection.session is not None and connection.session.connection is connection:
            connection.session.connection = None

    def ask(self, connection: Connection, request: Any, ticket: int) -> None:
        session = connection.session
        if not self.is_up or not connection.is_open or session is None:
            return
        session.heard_s = self._loop.now_s
        if request is None:
            self._end(session)
            connection.answer("closed")
            return
        self._network.trace.note("store", session.id, type(request).__name__, getattr(request, "path", ""))
        try:
            answer, error = self._carry_out(connection, request), None
        except CoordinationError as failure:
            answer, error = None, _as_theirs(failure)
        connection.answer("answer", ticket, answer, error, self.tree.zxid)

    def restart(self, outage_s: float) -> None:
        """Away for a while. Sessions are given their whole time again, as by a new leader."""
        self.is_up = False
        self._loop.later(outage_s, self._come_back)

    def elect(self, outage_s: float) -> None:
        """The servers elect a new leader: connections break, and no request is served for a while. The last
        requests may have taken effect, and their responses are lost. Sessions survive."""
        for connection in list(self._connections):
            self.disconnect(connection)
            connection.break_off()
        self.restart(outage_s)

    def expire(self, session_id: int) -> None:
        self.forced_s = self._loop.now_s
        self.forced_moments_s.append(self.forced_s)
        session = self._sessions.get(session_id)
        if session is not None:
            self._network.trace.tell(f"the store is made to end the session of {session.owner}")
            self._end(session)

    @property
    def session_ids(self) -> list[int]:
        return list(self._sessions)

    def _come_back(self) -> None:
        self.is_up = True
        for connection in list(self._connections):
            self.disconnect(connection)
            connection.answer("dropped")
        for session in self._sessions.values():
            session.heard_s = self._loop.now_s

    def _tick(self) -> None:
        self._loop.later(TICK_S, self._tick)
        if self.is_up:
            now_s = self._loop.now_s
            for session in list(self._sessions.values()):
                if now_s - session.heard_s > session.timeout_s:
                    self._network.trace.tell(
                        f"the store has not heard of {session.owner} and ends its session"
                    )
                    self._end(session)

    def _end(self, session: ServerSession) -> None:
        del self._sessions[session.id]
        self._write([Delete(path) for path in self.tree.owned_by(session.id)], session.id)
        if session.connection is not None:
            session.connection.answer("dropped")
            self.disconnect(session.connection)

    def _carry_out(self, connection: Connection, request: Any) -> Any:
        assert connection.session is not None
        if isinstance(request, wire.SetWatches):
            self._set_watches(connection, request)
            return None
        if isinstance(request, wire.Read):
            return self._read(connection, request)
        if isinstance(request, jute.Transaction):
            return self._transaction(request.operations, connection.session.id)
        (result,) = self._write([_operation(request)], connection.session.id)
        return _as_stat(result) if isinstance(result, Stat) else result

    def _transaction(self, requests: Sequence[Any], session_id: int) -> list[Any]:
        try:
            results = self._write([_operation(each) for each in requests], session_id)
        except CoordinationError as failure:
            place = failure.index or 0
            after = len(requests) - place - 1
            return [RolledBackError()] * place + [_as_theirs(failure)] + [RuntimeInconsistency()] * after
        return [
            _as_stat(each) if isinstance(each, Stat) else True if each is None else each for each in results
        ]

    def _now_ms(self) -> int:
        return self._epoch_ms + int(self._loop.now_s * 1_000)

    def jump(self, ms: int) -> None:
        """The servers have another leader, whose wall clock is another."""
        self._network.trace.tell(f"the clock of the store jumps by {ms} ms")
        self._epoch_ms += ms

    def _write(self, operations: Sequence[Operation], session_id: int) -> list[Any]:
        transaction = self.tree.prepare(operations, session_id, self._now_ms())
        results = self.tree.commit(transaction)
        for operation in operations:
            self._tell(operation)
        self._fire(transaction)
        return results

    def spoil(self, path: str, data: bytes) -> None:
        """Another client overwrites a node, if it exists."""
        if path in self.tree.nodes:
            self._network.trace.tell(f"somebody writes {data!r} into {path}")
            transaction = self.tree.prepare([SetData(path, data, ANY_VERSION)], 0, self._now_ms())
            self.tree.commit(transaction)
            self._fire(transaction)

    def _fire(self, transaction: Transaction) -> None:
        for event in events_of(transaction):
            for connection in list(self._connections):
                connection.fire(event)

    def _tell(self, operation: Operation) -> None:
        if isinstance(operation, Create | SetData):
            tell_of_write(operation.path, operation.data, self.leaders, self._network.trace)

    def _read(self, connection: Connection, request: wire.Read) -> Any:
        path = request.path
        node = self.tree.nodes.get(path)
        watches = connection.child_watches if request.kind is jute.GetChildren else connection.data_watches
        if node is None and request.kind is not jute.Exists:
            raise NoNode(path)
        if request.watched:
            watches[path] = None
        if request.kind is jute.GetChildren:
            assert node is not None
            return sorted(node.children or ())
        if node is None:
            return None
        stat = _as_stat(node.stat())
        return (node.data, stat) if request.kind is jute.GetData else stat

    def _set_watches(self, connection: Connection, request: wire.SetWatches) -> None:
        """Fire at once what has changed since; leave the others."""
        nodes = self.tree.nodes
        for path in request.data:
            connection.data_watches[path] = None
            if path not in nodes:
                connection.fire(WatchEvent(EventType.DELETED, path))
            elif nodes[path].mzxid > request.zxid:
                connection.fire(WatchEvent(EventType.CHANGED, path))
        for path in request.exists:
            connection.data_watches[path] = None
            if path in nodes:
                connection.fire(WatchEvent(EventType.CREATED, path))
        for path in request.children:
            connection.child_watches[path] = None
            if path not in nodes:
                connection.fire(WatchEvent(EventType.DELETED, path))
            elif nodes[path].pzxid > request.zxid:
                connection.fire(WatchEvent(EventType.CHILD, path))


class Link:
    """A `wire.SessionLink` of one broker process."""

    def __init__(
        self, store: Store, network: Network, chance: random.Random, timeout_ms: int, clock: Clock,
        post: wire.Post, owner: wire.Owner,
    ) -> None:  # fmt: skip
        self._store = store
        self._network = network
        self._chance = chance
        self._timeout_s = timeout_ms / 1_000
        self._now_ms = clock.monotonic_ms
        self._post = post
        self._owner = owner
        self._process = current_process()
        self._session_id = 0
        self._last_zxid = 0
        self._attempt = 0
        self._sent_ms = 0.0
        self._is_connected = False
        self._up: Direction | None = None
        self._down: Direction | None = None
        self._server: Connection | None = None
        self._tickets = 0
        self._asked: dict[int, wire.Asked] = {}
        self._stopped: Callable[[], None] | None = None

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self._session_id, b"") if self._session_id else None

    @property
    def refusal(self) -> str | None:
        """Every session may connect."""
        return None

    def start(self) -> None:
        self._connect()

    def send(self, request: Any, asked: wire.Asked) -> None:
        if self._is_connected and self._up is not None:
            self._tickets += 1
            self._asked[self._tickets] = asked
            self._up.put((request, self._tickets))

    def drop(self) -> None:
        if self._up is not None:
            self._lost(self._attempt)

    def stop(self, stopped: Callable[[], None]) -> None:
        self._stopped = stopped
        if self._is_connected and self._up is not None:
            self._up.put((None, 0))
        else:
            stopped()

    def _connect(self) -> None:
        self._attempt += 1
        attempt = self._attempt
        store, here = self._store, self._process.host

        def lost() -> None:
            """Told by either direction."""
            self._process.call_soon(self._lost, attempt)

        self._down = self._network.direction(
            HOST, here, lambda told: self._process.call_soon(self._hear, attempt, *told), lost
        )
        down = self._down

        def break_off() -> None:
            down.close()
            lost()

        server = self._server = Connection(self._process.name, lambda *told: down.put(told), break_off)
        self._up = self._network.direction(here, HOST, lambda asked: self._reach(store, server, asked), lost)
        self._sent_ms = self._now_ms()
        self._up.put((self._session_id, self._timeout_s))
        loop = self._network.loop
        loop.call_later(self._timeout_s / 3, self._give_up, attempt, context=self._process.context)

    @staticmethod
    def _reach(store: Store, server: Connection, asked: tuple[Any, Any]) -> None:
        if server.session is None:
            store.connect(server, *asked)
        else:
            store.ask(server, *asked)

    def _give_up(self, attempt: int) -> None:
        if attempt == self._attempt and not self._is_connected:
            self._lost(attempt)

    def _hear(self, attempt: int, kind: str, *told: Any) -> None:
        if attempt != self._attempt or self._up is None:
            return
        if kind == "answer":
            ticket, answer, error, zxid = told
            self._last_zxid = max(zxid, self._last_zxid)
            asked = self._asked.pop(ticket)
            if error is None:
                asked.set(answer)
            else:
                asked.set_exception(error)
        elif kind == "event":
            self._post(self._owner.on_event, *told)
        elif kind == "connected":
            self._session_id, timeout_ms = told
            self._is_connected = True
            self._tell(wire.CONNECTED, wire.Handshake(self._session_id, timeout_ms, self._sent_ms))
        elif kind == "expired":
            self._session_id = self._last_zxid = 0
            self._tell(wire.LOST, None)
            self._lost(attempt)
        elif kind == "closed" and self._stopped is not None:
            self._stopped()
        else:
            self._lost(attempt)

    def _lost(self, attempt: int) -> None:
        """Without this connection; another is made, unless the owner has had enough."""
        if attempt != self._attempt or self._up is None or self._down is None:
            return
        server = self._server
        assert server is not None
        self._network.message(self._process.host, HOST, lambda: self._store.disconnect(server))
        self._up.close()
        self._down.close()
        self._up = self._down = None
        self._asked.clear()
        if self._is_connected:
            self._is_connected = False
            self._tell(wire.SUSPENDED, None)
        if self._stopped is None:
            delay_s = self._chance.uniform(*RETRY_S)
            self._network.loop.call_later(delay_s, self._connect, context=self._process.context)

    def _tell(self, state: Any, handshake: wire.Handshake | None) -> None:
        self._post(self._owner.on_state, state, handshake, self._last_zxid)


def opener(store: Store, network: Network, chance: random.Random) -> Any:
    """A `node.membership.coordination_store.OpenCoordination` on the simulated store."""

    @asynccontextmanager
    async def open_store(config: BrokerConfig, clock: Clock, _: Background) -> AsyncIterator[Coordination]:
        def make_link(
            _hosts: Sequence[str], timeout_ms: int, _access: Any, clock: Clock, post: wire.Post,
            owner: wire.Owner,
        ) -> Link:  # fmt: skip
            return Link(store, network, chance, timeout_ms, clock, post, owner)

        async with open_zookeeper(
            config.zookeeper_connect or "",
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            clock=clock,
            make_link=make_link,
        ) as session:
            yield session

    return open_store


def tell_of_write(path: str, data: bytes, leaders: Leaders, trace: Trace) -> None:
    """State for the transcript: the leaders and the controller."""
    parts = path.split("/")
    if parts[-1] == "state" and parts[1:3] == ["brokers", "topics"]:
        state = PartitionStateZnode.decode(data, 0)
        merge(leaders, {(parts[3], int(parts[5])): {state.leader_epoch: state.leader}})
        trace.tell(
            f"{parts[3]}-{parts[5]}: {_leader(state.leader)} in epoch {state.leader_epoch}, in sync"
            f" {', '.join(map(str, state.isr))}"
        )
    elif path == "/controller" and data.startswith(b'{"version'):
        trace.tell(f"broker {json.loads(data)['brokerid']} is the controller")


def _leader(number: int) -> str:
    return f"broker {number} is to lead" if number >= 0 else "nobody is to lead"


def _operation(request: Any) -> Operation:
    if isinstance(request, jute.Create):
        flags = request.flags
        return Create(request.path, request.data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
    if isinstance(request, jute.SetData):
        return SetData(request.path, request.data, request.version)
    if isinstance(request, jute.Delete):
        return Delete(request.path, request.version)
    return Check(request.path, request.version)


def _as_theirs(error: CoordinationError) -> Exception:
    return _ERRORS[type(error)]()


def _as_stat(stat: Stat) -> tuple[int, ...]:
    """With the version of the ACL, which ours does not have."""
    return (*stat[:6], 0, *stat[6:])
