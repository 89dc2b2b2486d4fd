"""Socket server: listeners, their connections, limits on their number and their deadlines.

`bind` opens the ports, `start` begins to accept, `stop` is the mirror: no new connections, no new requests.
Pending responses leave within a deadline, and everything is closed.

One sweep over all connections enforces the deadlines, not a timer for each. Most deadlines move with every
request, and a sweep of a thousand connections takes well under a millisecond.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.addresses import canonical_host
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.addressing.host_lookup import HostLookup
from barnabas.core.clock import Clock
from barnabas.core.integers import INT_MAX
from barnabas.core.limits import DISK_READERS_MAX
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Background, BoundedBackground, Cancellable, Scheduler
from barnabas.network import listener
from barnabas.network.busy_poll import BusyPoll
from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionLimits
from barnabas.network.connections_per_ip import ConnectionsPerIp
from barnabas.network.counters import Closed, NetworkCounters, Rejected
from barnabas.network.handshakes import ContextSource, Handshake, Handshakes
from barnabas.network.listener import Listener
from barnabas.network.request_memory import RequestMemory
from barnabas.network.transport.arrivals import StampedReceive
from barnabas.network.transport.exchange import Dispatch, Gate
from barnabas.network.transport.receive_buffer import LoopBuffers
from barnabas.network.transport.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.network.transport.tls_transport import TlsTransport
from barnabas.network.transport.transport import PlainTransport, Transport
from barnabas.quota.connection_rates import ConnectionRates
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

SWEEP_PERIOD_MS = 1_000.0
REFUSED_HELD_MAX = 256
NO_GATES: Mapping[str, Gate] = {}
NO_TLS: Mapping[str, ContextSource] = {}
_WORTH_A_LINE = frozenset({Closed.SLOW_REQUEST, Closed.STALLED_READER, Closed.UNAUTHENTICATED})


class Server:
    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        config: BrokerConfig,
        background: Background,
        limits: ConnectionLimits | None = None,
        sockets: Sockets = SYSTEM_SOCKETS,
    ) -> None:
        """`background` reads regions outside the page cache, and resolves host names."""
        self.clock = clock
        self.scheduler = scheduler
        self.config = config
        self.limits = ConnectionLimits() if limits is None else limits
        self.counters = NetworkCounters(metrics)
        self._sockets = sockets
        self.limited_log = RateLimitedLogger(logging.getLogger(__name__), clock)
        self.buffers = LoopBuffers()
        self.stamped = StampedReceive() if sockets.stamps_arrivals else None
        self.request_memory = RequestMemory(self.config.queued_max_request_bytes, metrics)
        self.frame_bytes_max_of: Callable[[int], int] = lambda _: INT_MAX
        """Largest request of an API, within `socket.request.max.bytes`. The dispatcher's owner sets it."""
        self.disk_readers: Background = BoundedBackground(background, DISK_READERS_MAX)
        self.hosts = HostLookup(sockets.address_of, background)
        self.per_ip = ConnectionsPerIp(self.config, self.hosts, self.limited_log)
        self.report_unreadable: Callable[[FileRegion, OSError], None] = lambda *_: None
        self.is_in_turn = False
        self.answered_in_turn: dict[Connection, None] = {}
        self.served: Connection | None = None
        self.switches = 0
        self.listeners: list[Listener] = []
        self._connections: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        """Connections that have to authenticate and have not, the oldest first."""
        self._handshakes = Handshakes(self)
        self._by_ip: Tally[str] = Tally()
        self._by_listener: Tally[str] = Tally()
        self._refused: dict[socket.socket, None] = {}
        """Connections that are delayed before they are closed."""
        self._accepted_count = 0
        self._sweeping: Cancellable | None = None
        self._emptied: asyncio.Future[None] | None = None
        metrics.gauge("barnabas_network_connections", "Open connections.", lambda: len(self._connections))
        metrics.gauge(
            "barnabas_network_unauthenticated_connections",
            "Open connections that have not authenticated yet.",
            lambda: len(self._strangers),
        )

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._connections))

    def bind(self, endpoints: Sequence[ListenerEndpoint]) -> list[Listener]:
        """Open every port or none; nothing is accepted yet. Raises OSError."""
        config = self.config
        bound: list[Listener] = []
        try:
            for endpoint in endpoints:
                opened = listener.bind(
                    endpoint,
                    self._sockets,
                    backlog=config.socket_listen_backlog_size,
                    send_buffer_bytes=config.send_buffer_bytes,
                    receive_buffer_bytes=config.receive_buffer_bytes,
                )
                bound.append(opened)
        except OSError:
            for opened in bound:
                opened.close()
            raise
        self.listeners.extend(bound)
        return bound

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Dispatch,
        gates: Mapping[str, Gate] = NO_GATES,
        tls: Mapping[str, ContextSource] = NO_TLS,
        rates: ConnectionRates | None = None,
    ) -> None:
        """Accept connections and pass their frames to `dispatch`.

        `gates` and `tls` are those of the listeners that have them, by name. Without `rates` connection
        creation is not limited.
        """
        self.loop = loop
        self.busy_poll = BusyPoll(loop.call_soon, self.clock, self._sockets.busy_poll_ms)
        self.dispatch = dispatch
        self._gates = gates
        self._tls = tls
        self._rates = rates
        for each in self.listeners:
            protocol = each.security_protocol
            if protocol.startswith("SASL") and each.name not in gates:
                raise ValueError(f"no SASL gate for listener {each.name}, which is {protocol}")
            if protocol.endswith("SSL") and each.name not in tls:
                raise ValueError(f"no TLS context for listener {each.name}, which is {protocol}")
        for each in self.listeners:
            each.start(loop, self.scheduler, self.limited_log, self._accept)
        self._sweeping = self.scheduler.every(SWEEP_PERIOD_MS, self.sweep)

    def release(self) -> None:
        """Close the ports. A server that never started has nothing else."""
        for each in self.listeners:
            each.close()
        self.listeners = []

    async def stop(
        self, *, deadline_ms: float = 0.0, answer_waiting: Callable[[], None] = lambda: None
    ) -> None:
        """Drain: afterwards no socket is open. May be called on a server that never started.

        `answer_waiting` is called once no more requests are read: requests that wait for a later request
        would wait forever.
        """
        self.release()
        self._handshakes.close()
        for connection in self:
            connection.drain(Closed.SHUTDOWN)
        answer_waiting()
        if self._connections and deadline_ms > 0:
            self._emptied = self.loop.create_future()
            deadline = self.scheduler.after(deadline_ms, self._stop_waiting)
            await self._emptied
            deadline.cancel()
        for connection in self:
            connection.close(Closed.SHUTDOWN)
        for sock in tuple(self._refused):
            self._close_refused(sock)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def sweep(self) -> None:
        """Close every connection whose deadline has passed."""
        now_ms = self.clock.monotonic_ms()
        self._handshakes.sweep(now_ms)
        for connection in self:
            with sweeping("the deadlines of a connection", connection.connection_id):
                self._close_overdue(connection, now_ms)
        self.bound_unread()

    def _close_overdue(self, connection: Connection, now_ms: float) -> None:
        reason = connection.overdue(now_ms)
        if reason is not None:
            if reason in _WORTH_A_LINE:
                self.limited_log.warn(reason, "closing connection %s: %s", connection.connection_id, reason)
            connection.close(reason)

    def bound_unread(self) -> None:
        """Close the slow readers with the most unread responses until all responses together take little
        enough memory. Readers that began a moment ago keep theirs."""
        over_bytes = sum(each.queued_bytes for each in self._connections) - self.limits.unread_bytes_max
        if over_bytes <= 0:
            return
        now_ms = self.clock.monotonic_ms()
        slow = [(each.unread_bytes(now_ms), each) for each in self]
        for unread_bytes, connection in sorted(slow, key=lambda each: each[0], reverse=True):
            if over_bytes <= 0 or not unread_bytes:
                break
            connection.reject_stalled()
            over_bytes -= unread_bytes

    def authenticated(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._strangers.pop(connection, None)
        self._forget_peer(connection.listener_name, connection.peer_host)
        if not self._connections:
            self._stop_waiting()

    def _forget_peer(self, listener_name: str, host: str) -> None:
        self._by_listener[listener_name] -= 1
        self._by_ip[host] -= 1
        if self._by_ip[host] <= 0:
            del self._by_ip[host]

    def _stop_waiting(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _accept(self, arrived_at: Listener, sock: socket.socket, peer_host: str, peer_port: int) -> None:
        rejected = self._over_limit(arrived_at.name, peer_host)
        if rejected is not None and self._close_a_stranger(rejected, arrived_at.name):
            rejected = self._over_limit(arrived_at.name, peer_host)
        if rejected is not None:
            self.counters.rejected[rejected].value += 1
            self.limited_log.warn("rejected", "connection of %s refused: %s is reached", peer_host, rejected)
            sock.close()
            return
        if self._rates is not None and self._is_too_fast(self._rates, arrived_at, sock, peer_host):
            return
        listener.prepare_accepted(sock)
        self._by_ip[peer_host] += 1
        self._by_listener[arrived_at.name] += 1
        self.counters.accepted.value += 1
        contexts = self._tls.get(arrived_at.name)
        if contexts is None:
            transport = PlainTransport(sock, self.loop, self._sockets.send_file)
            self._connect(arrived_at, sock, transport, peer_host, peer_port, ANONYMOUS)
        else:
            began_ms = self.clock.monotonic_ms()
            self._handshakes.begin(Handshake(arrived_at, sock, peer_host, peer_port, began_ms), contexts)

    def _close_a_stranger(self, rejected: Rejected, listener_name: str) -> bool:
        """Make room by closing the connection that has been unauthenticated for longest.

        A crowd of any size keeps out no client that authenticates as soon as it connects.
        """
        if rejected is Rejected.PER_IP:
            return False
        for connection in self._strangers:
            if rejected is Rejected.TOTAL or connection.listener_name == listener_name:
                self.limited_log.warn(
                    "crowd",
                    "closing unauthenticated connection %s: %s is reached",
                    connection.connection_id,
                    rejected,
                )
                connection.close(Closed.UNAUTHENTICATED)
                return True
        return False

    def _is_too_fast(
        self, rates: ConnectionRates, arrived_at: Listener, sock: socket.socket, peer_host: str
    ) -> bool:
        """Whether a connection is refused because of its address' creation rate."""
        pause_ms = rates.pause_ms(arrived_at.name, is_for_brokers=self._is_for_brokers(arrived_at.name))
        if pause_ms:
            arrived_at.rest(pause_ms)
        refusal_ms = rates.refusal_ms(peer_host)
        if not refusal_ms:
            return False
        self.counters.rejected[Rejected.RATE].value += 1
        self.limited_log.warn(
            "rate", "connection of %s refused: it exceeds connection_creation_rate", peer_host
        )
        if len(self._refused) < REFUSED_HELD_MAX:
            self._refused[sock] = None
            self.scheduler.after(refusal_ms, lambda: self._close_refused(sock))
        else:
            sock.close()
        return True

    def _close_refused(self, sock: socket.socket) -> None:
        self._refused.pop(sock, None)
        sock.close()

    def take_over(self, handshake: Handshake, tls: ssl.SSLSocket, principal: KafkaPrincipal) -> None:
        transport = TlsTransport(tls, self.loop)
        host, port = handshake.peer_host, handshake.peer_port
        self._connect(handshake.listener, tls, transport, host, port, principal)

    def forget_handshake(self, handshake: Handshake) -> None:
        self._forget_peer(handshake.listener.name, handshake.peer_host)

    def _connect(
        self,
        arrived_at: Listener,
        sock: socket.socket,
        transport: Transport,
        peer_host: str,
        peer_port: int,
        principal: KafkaPrincipal,
    ) -> None:
        """Open a connection. A bug costs this one client, but no descriptor and no slot of its address."""
        connection: Connection | None = None
        try:
            local = sock.getsockname()
            local_host = canonical_host(local[0])
            self._accepted_count += 1
            connection = Connection(
                self,
                transport,
                connection_id=f"{local_host}:{local[1]}-{peer_host}:{peer_port}-{self._accepted_count}",
                listener_name=arrived_at.name,
                security_protocol=arrived_at.security_protocol,
                peer_host=peer_host,
                local_host=local_host,
                local_port=local[1],
                principal=principal,
                gate=self._gates.get(arrived_at.name),
            )
            self._connections[connection] = None
            if arrived_at.name in self._gates:
                self._strangers[connection] = None
            connection.start()
        except Exception as error:  # noqa: BLE001
            self.limited_log.error("connection", "connection of %s failed", peer_host, cause=error)
            if connection is not None:
                connection.close(Closed.OWN_FAULT)
            else:
                transport.close()
                self._forget_peer(arrived_at.name, peer_host)

    def _is_for_brokers(self, listener_name: str) -> bool:
        """Whether the listener is the inter-broker listener, and clients use another."""
        return listener_name == self.config.inter_broker_listener.listener_name and len(self.listeners) > 1

    def _over_limit(self, listener_name: str, peer_host: str) -> Rejected | None:
        """The limit that is reached. Clients in any number leave room for brokers, except for descriptors."""
        config = self.config
        total_max = self.limits.connections_max
        if not self._is_for_brokers(listener_name):
            total_max = min(total_max, config.max_connections)
        if len(self._connections) + len(self._handshakes) >= total_max:
            return Rejected.TOTAL
        listener_max = config.max_connections_of(listener_name)
        if listener_max is not None and self._by_listener[listener_name] >= listener_max:
            return Rejected.PER_LISTENER
        if self._by_ip.get(peer_host, 0) >= self.per_ip.max_of(peer_host):
            return Rejected.PER_IP
        return None
