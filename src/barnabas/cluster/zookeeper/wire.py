"""ZooKeeper wire: kazoo, reduced to one thread that reads the socket and posts to the event loop.

kazoo runs the callbacks of responses and of watches on two threads of its own. A response may therefore
overtake the event that preceded it on the wire. Here neither thread exists. The thread that reads the socket
posts responses, events and states to the loop. They arrive in the order of the wire, which is the order that
ZooKeeper promises.

kazoo's own bookkeeping of watches is bypassed too. It forgets them when the connection breaks, although the
session and its watches live on. The session keeps them and sets them again with `SetWatches`, as ZooKeeper's
own client does. The server then fires at once the watches whose event was missed.

This uses private names of kazoo, so its version is pinned (ADR 33).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import kazoo.protocol.serialization as jute
from kazoo import exceptions, security
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from barnabas.cluster.coordination import contract as coordination
from barnabas.cluster.coordination.contract import (
    CoordinationError,
    Create,
    Delete,
    EventType,
    Operation,
    SetData,
    Stat,
)
from barnabas.cluster.zookeeper.acls import Access
from barnabas.cluster.zookeeper.digest_md5 import DigestLogin, LoginRefused
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig

SUSPENDED: Any = KazooState.SUSPENDED
CONNECTED: Any = KazooState.CONNECTED
LOST: Any = KazooState.LOST

EVENT_TYPES = {1: EventType.CREATED, 2: EventType.DELETED, 3: EventType.CHANGED, 4: EventType.CHILD}

ERRORS: dict[type[Exception], type[CoordinationError]] = {
    exceptions.NoNodeError: coordination.NoNode,
    exceptions.NodeExistsError: coordination.NodeExists,
    exceptions.BadVersionError: coordination.BadVersion,
    exceptions.NotEmptyError: coordination.NotEmpty,
    exceptions.NoChildrenForEphemeralsError: coordination.NoChildrenForEphemerals,
    exceptions.BadArgumentsError: coordination.BadArguments,
    exceptions.NoAuthError: coordination.NoAuth,
    exceptions.InvalidACLError: coordination.NoAuth,
    exceptions.AuthFailedError: coordination.NoAuth,
    exceptions.SessionExpiredError: coordination.SessionExpired,
    exceptions.ConnectionClosedError: coordination.SessionClosed,
    exceptions.ConnectionLoss: coordination.ConnectionLoss,
    exceptions.OperationTimeoutError: coordination.ConnectionLoss,
    exceptions.RequestTimeoutError: coordination.ConnectionLoss,
    exceptions.SessionMovedError: coordination.ConnectionLoss,
}

_ACLS = {
    Access.OPEN: security.OPEN_ACL_UNSAFE,
    Access.OWNED: security.CREATOR_ALL_ACL + security.READ_ACL_UNSAFE,
    Access.PRIVATE: security.CREATOR_ALL_ACL,
}
_EPHEMERAL, _SEQUENTIAL = 1, 2
_ROLLED_BACK = exceptions.RolledBackError
_RECONNECT_DELAY_S_MAX = 1.0
_READ_BYTES = 1 << 18

# The session logs what matters: kazoo warns of every lost connection and attempt. At DEBUG it prints
# requests, including credentials.
_logger = logging.getLogger(f"{__name__}.kazoo")
_logger.setLevel(logging.ERROR)


class Handshake(NamedTuple):
    """Result of a connection handshake; `sent_ms` is when the request was sent."""

    session_id: int
    session_timeout_ms: int
    sent_ms: float


class Asked(Protocol):
    """Receiver of a response; both methods are called on kazoo's thread."""

    def set(self, value: Any) -> None: ...
    def set_exception(self, error: Exception) -> None: ...


class Owner(Protocol):
    """Receiver of states and events, on the loop."""

    def on_state(self, state: Any, handshake: Handshake | None, last_zxid: int) -> None: ...
    def on_event(self, event_type: int, path: str) -> None: ...


Post = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Credentials and TLS for the ZooKeeper connection."""

    credentials: str | None = field(default=None, repr=False)
    """`user:password` for the digest scheme."""
    login: DigestLogin | None = None
    """Login with SASL."""
    make_tls_context: Callable[[], ssl.SSLContext] | None = None
    """Called for each connection, on kazoo's thread."""


class SessionLink(Protocol):
    """Operations that a session needs of its connection."""

    @property
    def client_id(self) -> tuple[int, bytes] | None: ...
    @property
    def refusal(self) -> str | None: ...
    def start(self) -> None: ...
    def send(self, request: Any, asked: Asked) -> None: ...
    def drop(self) -> None: ...
    def stop(self, stopped: Callable[[], None]) -> None: ...


MakeLink = Callable[[Sequence[str], int, ServerAccess, Clock, Post, Owner], SessionLink]


class Link:
    """`SessionLink` that reconnects whenever it breaks."""

    def __init__(
        self,
        hosts: Sequence[str],
        session_timeout_ms: int,
        access: ServerAccess,
        clock: Clock,
        post: Post,
        owner: Owner,
    ) -> None:
        self._post = post
        self._owner = owner
        self._last_state: Any = None
        self._handler = _NoThreads(access.make_tls_context)
        credentials = access.credentials
        self._client = KazooClient(
            hosts=",".join(hosts),
            timeout=session_timeout_ms / 1_000,
            handler=self._handler,
            auth_data=None if credentials is None else {("digest", credentials)},
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=2, max_delay=_RECONNECT_DELAY_S_MAX
            ),
            logger=_logger,
        )
        self._connection = self._client._connection = _Connection(
            self._client, access.login, clock, post, owner, self._on_authenticated
        )
        self._client.add_listener(self._on_state)

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """Session id and password, with which another connection can take the session over."""
        found: tuple[int, bytes] | None = self._client.client_id
        return found

    def start(self) -> None:
        self._client.start_async()

    def send(self, request: Any, asked: Asked) -> None:
        self._client._call(request, asked)  # bypasses kazoo's own callbacks

    def drop(self) -> None:
        """Close this connection, whose other end does not answer, and reconnect.

        `socket.shutdown` directly: the method of a TLS socket would make later reads return ciphertext.
        """
        connected = self._connection._socket
        with contextlib.suppress(OSError, TypeError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def stop(self, stopped: Callable[[], None]) -> None:
        """End the session. `stopped` is called on another thread, with or without a response."""
        threading.Thread(target=self._stop, args=(stopped,), daemon=True).start()

    def _stop(self, stopped: Callable[[], None]) -> None:
        with contextlib.suppress(exceptions.KazooException, OSError):
            self._client.stop()
            self._client.close()
        stopped()

    @property
    def refusal(self) -> str | None:
        """Reason why a reachable server was of no use, if known."""
        return self._connection.refusal or self._handler.refusal

    def _on_state(self, state: Any) -> None:
        """Post a new state. kazoo reports CONNECTED before the login; that state is held back."""
        is_early = state == CONNECTED and self._connection.must_log_in
        if not is_early and not (state == SUSPENDED and self._last_state == SUSPENDED):
            self._last_state = state
            self._post(self._owner.on_state, state, self._connection.handshake, self._client.last_zxid)

    def _on_authenticated(self) -> None:
        self._on_state(CONNECTED)


class _NoThreads(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its two queues, and with our own TLS."""

    def __init__(self, make_tls_context: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._make_tls_context = make_tls_context
        self.refusal: str | None = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        """Connect within a third of the session timeout, to leave time for another server."""
        if self._make_tls_context is None:
            return super().create_connection(*arguments, timeout=timeout / 3, **options)
        plain = socket.create_connection(options["address"], timeout / 3)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._make_tls_context().wrap_socket(plain, server_hostname=options["hostname"])
        except (OSError, InvalidConfig) as error:
            plain.close()
            self.refusal = f"TLS handshake failed: {_detail_of(error)}"
            raise exceptions.ConnectionDropped(self.refusal) from error
        self.refusal = None
        return tls


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, with hooks for handshake and events, and fewer system calls.

    kazoo sends and reads one message at a time and waits for the socket twice for each. Here one write sends
    all queued requests, and one read takes all responses that have arrived.
    """

    def __init__(
        self,
        client: Any,
        login: DigestLogin | None,
        clock: Clock,
        post: Post,
        owner: Owner,
        authenticated: Callable[[], None],
    ) -> None:
        """kazoo authenticates with SASL if it has options for it."""
        super().__init__(
            client, client._conn_retry.copy(), logger=_logger, sasl_options=None if login is None else {}
        )
        self._login = login
        self._authenticated = authenticated
        self.must_log_in = login is not None
        self.refusal: str | None = None
        self._now_ms = clock.monotonic_ms
        self._post = post
        self._owner = owner
        self._received = bytearray()
        self.handshake: Handshake | None = None

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._received.clear()
        self.must_log_in = self._login is not None
        return super()._connect(host, hostip, port)

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:  # noqa: ARG002 - kazoo's
        """Log in. A refusal counts as a broken connection: otherwise kazoo would never connect again."""
        assert self._login is not None
        try:
            exchange = self._login.exchange()
            token = next(exchange)
            for xid in itertools.count(1):
                self._submit(jute.SASL(token), timeout, xid)
                header, buffer, offset = self._read_header(timeout)
                if header.err:
                    raise LoginRefused("the server refuses the name or the password")
                token = exchange.send(jute.SASL.deserialize(buffer, offset)[0])
        except StopIteration:
            self.refusal, self.must_log_in = None, False
            self._authenticated()
        except LoginRefused as refused:
            self.refusal = f"login as {self._login.user} failed: {refused}"
            _logger.warning("ZooKeeper: %s", self.refusal)
            raise exceptions.ConnectionDropped(self.refusal) from None

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> Any:
        """Keep the thread alive on an unexpected error: without it the broker would never get a session
        again.

        kazoo has logged the error; the connection counts as broken.
        """
        try:
            return super()._connect_attempt(host, hostip, port, retry)
        except KazooRetry.RETRY_EXCEPTIONS:
            raise
        except Exception:  # noqa: BLE001
            self.client._session_callback(KeeperState.CONNECTING)
            return None

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, jute.Connect):
            return super()._invoke(timeout, request, xid)
        sent_ms = self._now_ms()
        answer = super()._invoke(timeout / 3, request, xid)
        if answer[0].time_out > 0:
            self.handshake = Handshake(answer[0].session_id, answer[0].time_out, sent_ms)
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        queue, pending = self.client._queue, self.client._pending
        count = len(queue)
        if count < 2:
            super()._send_request(read_timeout, connect_timeout)
            return
        parts: list[bytes] = []
        first_xid = self._xid + 1
        for index in range(count):
            # By index: the loop's thread appends to the queue meanwhile, which would end an iteration.
            request, _ = queue[index]
            body = request.serialize()
            head = jute.int_int_struct.pack(first_xid + index, request.type)
            parts += (jute.int_struct.pack(8 + len(body)), head, body)
        self._write(b"".join(parts), connect_timeout)
        for xid in range(first_xid, first_xid + count):
            pending.append((*queue.popleft(), xid))
        self._xid += count
        # Some of the bytes that announce them may still be on their way; they will find an empty queue.
        self._read_sock.recv(count)

    def _read_socket(self, read_timeout: float) -> Any:
        while True:
            response = super()._read_socket(read_timeout)
            if response is not None or not self._has_message():
                return response

    def _read(self, length: int, timeout: float) -> bytes:
        received = self._received
        while len(received) < length:
            with self._socket_error_handling():
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("no response in time")
                try:
                    chunk = self._socket.recv(_READ_BYTES)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue  # half a record, or one of the TLS protocol itself
            if not chunk:
                raise exceptions.ConnectionDropped("the server closed the connection")
            received += chunk
        taken = bytes(received[:length])
        del received[:length]
        return taken

    def _has_message(self) -> bool:
        received = self._received
        if len(received) < 4:
            return False
        length: int = jute.int_struct.unpack_from(received, 0)[0]
        return len(received) >= 4 + length

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = jute.Watch.deserialize(buffer, offset)
        self._post(self._owner.on_event, event.type, event.path)


class Read:
    """Read request that may leave a watch. Serializes as kazoo's, but hides the watch from it."""

    __slots__ = ("kind", "path", "type", "watched")

    def __init__(self, kind: Any, path: str, *, watched: bool) -> None:
        self.kind = kind
        self.path = path
        self.watched = watched
        self.type = kind.type

    def serialize(self) -> bytes:
        sent: bytes = self.kind(self.path, self.watched).serialize()
        return sent

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return self.kind.deserialize(buffer, offset)


class SetWatches:
    """Request that sets watches again; the server fires those whose node changed since `zxid`."""

    __slots__ = ("children", "data", "exists", "zxid")

    type = 101

    def __init__(
        self, zxid: int, data: Sequence[str], exists: Sequence[str], children: Sequence[str]
    ) -> None:
        self.zxid = zxid
        self.data = data
        self.exists = exists
        self.children = children

    def serialize(self) -> bytes:
        parts = [jute.long_struct.pack(self.zxid)]
        for paths in (self.data, self.exists, self.children):
            parts.append(jute.int_struct.pack(len(paths)))
            parts += map(jute.write_string, paths)
        return b"".join(parts)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> None:  # noqa: ARG004 - the response has no body
        return None


def read_data(path: str, *, watched: bool = False) -> Read:
    return Read(jute.GetData, path, watched=watched)


def read_stat(path: str, *, watched: bool = False) -> Read:
    return Read(jute.Exists, path, watched=watched)


def read_children(path: str, *, watched: bool = False) -> Read:
    return Read(jute.GetChildren, path, watched=watched)


def write(operation: Operation, path: str, access: Access) -> Any:
    """Request for one operation; `path` includes the chroot."""
    if isinstance(operation, Create):
        flags = operation.ephemeral * _EPHEMERAL | operation.sequential * _SEQUENTIAL
        return jute.Create(path, operation.data, _ACLS[access], flags)
    if isinstance(operation, SetData):
        return jute.SetData(path, operation.data, operation.version)
    if isinstance(operation, Delete):
        return jute.Delete(path, operation.version)
    return jute.CheckVersion(path, operation.version)


def read_access(path: str) -> Any:
    """Request whose response `is_open_to_all` evaluates."""
    return jute.GetACL(path)


def set_access(path: str, access: Access) -> Any:
    return jute.SetACL(path, _ACLS[access], coordination.ANY_VERSION)


def is_open_to_all(answer: Any) -> bool:
    """Whether all clients may do more with the node than read it."""
    acls, _ = answer
    return any(each.id.scheme == "world" and each.perms & ~security.Permissions.READ for each in acls)


def transaction(requests: Sequence[Any]) -> Any:
    return jute.Transaction(requests)


def first_failure(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Operation that made a transaction fail: earlier ones were rolled back, later ones not executed."""
    failures = [(n, each) for n, each in enumerate(results) if isinstance(each, Exception)]
    return next((each for each in failures if not isinstance(each[1], _ROLLED_BACK)), None)


def translate(error: Exception, path: str) -> CoordinationError:
    known = ERRORS.get(type(error))
    return CoordinationError(f"{path}: {error!r}") if known is None else known(path)


def stat_of(znode_stat: Any) -> Stat:
    """`Stat` from kazoo's tuple, which also has the version of the ACL."""
    return Stat(*znode_stat[:6], *znode_stat[7:])


def _detail_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, InvalidConfig):
        return error.message
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
