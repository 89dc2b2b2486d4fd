"""The server: listeners, their connections, the limits on their number and on their time.

`bind` opens the ports, `start` begins to accept, `stop` is the mirror: no new connections, no
new requests, the answers that are owed leave within a deadline, everything is closed.

Time limits are kept by one sweep over all connections, not by a timer for each: most
deadlines move with every request, and a sweep of a thousand connections takes well under a
millisecond.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.endpoints import ListenerEndpoint
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.core.sweeping import sweeping
from barnabas.network import listener
from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionLimits
from barnabas.network.counters import Closed, NetworkCounters, Rejected
from barnabas.network.exchange import Dispatch, Gate
from barnabas.network.listener import Listener
from barnabas.network.receive_buffer import LoopBuffers

SWEEP_PERIOD_MS = 1_000.0
NO_GATES: Mapping[str, Gate] = {}
_WORTH_A_LINE = frozenset({Closed.SLOW_REQUEST, Closed.STALLED_READER, Closed.UNAUTHENTICATED})


class Server:
    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        settings: BrokerConfig | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.clock = clock
        self.scheduler = scheduler
        self.settings = BrokerConfig.load({}) if settings is None else settings
        self.limits = ConnectionLimits() if limits is None else limits
        self.counters = NetworkCounters(metrics)
        self.complaints = Complaints(logging.getLogger(__name__), clock)
        self.buffers = LoopBuffers()
        self.is_in_turn = False
        self.answered_in_turn: dict[Connection, None] = {}
        self.listeners: list[Listener] = []
        self._connections: set[Connection] = set()
        self._by_ip: Tally[str] = Tally()
        self._accepted_count = 0
        self._sweeping: Cancellable | None = None
        self._emptied: asyncio.Future[None] | None = None
        metrics.gauge("barnabas_network_connections", "Open connections.", lambda: len(self._connections))

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._connections))

    def bind(self, endpoints: Sequence[ListenerEndpoint]) -> list[Listener]:
        """Open every port or none; nothing is accepted yet. Raises OSError."""
        settings = self.settings
        bound: list[Listener] = []
        try:
            for endpoint in endpoints:
                opened = listener.bind(
                    endpoint,
                    backlog=settings.socket_listen_backlog_size,
                    send_buffer_bytes=settings.send_buffer_bytes,
                    receive_buffer_bytes=settings.receive_buffer_bytes,
                )
                bound.append(opened)
        except OSError:
            for opened in bound:
                opened.close()
            raise
        self.listeners.extend(bound)
        return bound

    def start(
        self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, gates: Mapping[str, Gate] = NO_GATES
    ) -> None:
        """Accept connections, whose frames go to `dispatch`. `gates` are those of the listeners that have
        one, by name."""
        self.loop = loop
        self.dispatch = dispatch
        self._gates = gates
        for each in self.listeners:
            each.start(loop, self.scheduler, self.complaints, self._accept)
        self._sweeping = self.scheduler.every(SWEEP_PERIOD_MS, self.sweep)

    def release(self) -> None:
        """Give the ports back. A server that never started has nothing else."""
        for each in self.listeners:
            each.close()
        self.listeners = []

    async def stop(
        self, *, deadline_ms: float = 0.0, answer_waiting: Callable[[], None] = lambda: None
    ) -> None:
        """Drain: afterwards no socket is open. May be called on a server that never started.

        `answer_waiting` is called once no more requests are read: what waits for some later request
        waits in vain."""
        self.release()
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
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def sweep(self) -> None:
        """Close every connection whose time is up."""
        now_ms = self.clock.monotonic_ms()
        for connection in self:
            with sweeping("the deadlines of a connection", connection.connection_id):
                self._close_overdue(connection, now_ms)

    def _close_overdue(self, connection: Connection, now_ms: float) -> None:
        reason = connection.overdue(now_ms)
        if reason is not None:
            if reason in _WORTH_A_LINE:
                self.complaints.warn(reason, "closing %s: %s", connection.connection_id, reason)
            connection.close(reason)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        host = connection.peer_host
        self._by_ip[host] -= 1
        if self._by_ip[host] <= 0:
            del self._by_ip[host]
        if not self._connections:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _accept(self, arrived_at: Listener, sock: socket.socket, peer_host: str, peer_port: int) -> None:
        rejected = self._over_limit(peer_host)
        if rejected is not None:
            self.counters.rejected[rejected].value += 1
            self.complaints.warn("rejected", "no connection for %s: %s is reached", peer_host, rejected)
            sock.close()
            return
        listener.prepare_accepted(sock)
        local = sock.getsockname()
        local_host = listener.plain_host(local[0])
        self._accepted_count += 1
        connection = Connection(
            self,
            sock,
            connection_id=f"{local_host}:{local[1]}-{peer_host}:{peer_port}-{self._accepted_count}",
            listener_name=arrived_at.name,
            security_protocol=arrived_at.security_protocol,
            peer_host=peer_host,
            local_host=local_host,
            local_port=local[1],
            gate=self._gates.get(arrived_at.name),
        )
        self._connections.add(connection)
        self._by_ip[peer_host] += 1
        self.counters.accepted.value += 1
        connection.start()

    def _over_limit(self, peer_host: str) -> Rejected | None:
        settings = self.settings
        if len(self._connections) >= min(settings.max_connections, self.limits.connections_max):
            return Rejected.TOTAL
        per_ip_max = settings.max_connections_per_ip_overrides.get(peer_host, settings.max_connections_per_ip)
        if self._by_ip.get(peer_host, 0) >= per_ip_max:
            return Rejected.PER_IP
        return None
