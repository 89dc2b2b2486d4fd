"""Wires between machines, and TCP on them.

A `Direction` carries payloads from one machine to another, in order, each with its own delay. A cut loses
nothing at once, since TCP sends again. Payloads under way wait, and arrive when the cut has healed. After
`PATIENCE_S` the sender's connection is dead, while the other side, which has nothing to send, does not notice
(a half-open connection). A cut may be one-way.

A process that is killed leaves its sockets to the kernel, which resets or finishes them. A machine that loses
its power sends nothing; later packets to it are answered with a reset, once it is up again.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.network.transport.sockets import Sockets
from tests.simulation.loop import Process, SimulatedLoop, current_process
from tests.simulation.sockets import End, SimulatedSocket, Stream, StreamTransport
from tests.simulation.trace import Trace

PATIENCE_S = 20.0
SYN_RETRY_S = 1.0


class Direction:
    """One way between two machines."""

    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        deliver: Callable[[Any], None],
        broken: Callable[[], None],
    ) -> None:
        self.source = source
        self.target = target
        self._network = network
        self._deliver = deliver
        self._broken = broken
        self._queue: deque[tuple[float, Any]] = deque()
        self._last_s = 0.0
        self._is_stalled = False
        self._stalls = 0
        self.is_closed = False

    def put(self, payload: Any) -> None:
        if not self.is_closed:
            loop = self._network.loop
            self._last_s = max(loop.now_s + self._network.delay_s(self.source, self.target), self._last_s)
            self._queue.append((self._last_s, payload))
            if not self._is_stalled:
                loop.at(self._last_s, self._pump)

    def close(self) -> None:
        """Nothing more arrives."""
        self.is_closed = True
        self._queue.clear()
        self._network.forget(self)

    def _pump(self) -> None:
        if self._is_stalled or self.is_closed:
            return
        now_s = self._network.loop.now_s
        while self._queue and self._queue[0][0] <= now_s:
            if not self._network.is_open(self.source, self.target):
                self._is_stalled = True
                self._stalls += 1
                self._network.stalled[self] = None
                self._network.loop.later(PATIENCE_S, self._lose_patience, self._stalls)
                return
            self._deliver(self._queue.popleft()[1])
            if self.is_closed:
                return

    def heal(self) -> None:
        """Waiting payloads are sent again."""
        self._is_stalled = False
        waiting, self._queue = self._queue, deque()
        for _, payload in waiting:
            self.put(payload)

    def _lose_patience(self, stall: int) -> None:
        if self._is_stalled and stall == self._stalls and not self.is_closed:
            self._broken()


class Network:
    def __init__(self, loop: SimulatedLoop, chance: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.chance = chance
        self.latency_s = (0.0002, 0.002)
        self.slow: dict[str, float] = {}
        """Largest extra delay from or to a machine."""
        self.slow_links: dict[tuple[str, str], float] = {}
        """The same, of one way between two machines."""
        self.without_descriptors: set[str] = set()
        """Machines that cannot open another socket."""
        self.stalled: dict[Direction, None] = {}
        self.down: set[str] = set()
        self._cut: set[tuple[str, str]] = set()
        self._listening: dict[tuple[str, int], SimulatedSocket] = {}
        self._sockets: dict[int, SimulatedSocket] = {}
        self._streams: dict[Stream, None] = {}
        self._descriptors = 1_000
        loop.connect = self.connect
        self.sockets = Sockets(lambda *_: self.open_socket(), self._send_file)

    # -- what is between machines -------------------------------------------------------------

    def delay_s(self, source: str, target: str) -> float:
        shortest_s, longest_s = self.latency_s
        delay_s = shortest_s + (longest_s - shortest_s) * self.chance.random()
        if self.slow_links and (source, target) in self.slow_links:
            delay_s += self.chance.uniform(0, self.slow_links[source, target])
        if self.slow:
            for name in (source, target):
                if name in self.slow:
                    delay_s += self.chance.uniform(0, self.slow[name])
        return delay_s

    def is_open(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut and target not in self.down and source not in self.down

    def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        self.heal_stalled()

    def heal_all(self) -> None:
        self._cut.clear()
        self.slow.clear()
        self.slow_links.clear()
        self.without_descriptors.clear()
        self.heal_stalled()

    def heal_stalled(self) -> None:
        for direction in list(self.stalled):
            if self.is_open(direction.source, direction.target):
                del self.stalled[direction]
                direction.heal()

    def forget(self, direction: Direction) -> None:
        self.stalled.pop(direction, None)

    def reset_some(self, share: float) -> None:
        """Connections break by themselves, too."""
        for stream in list(self._streams):
            if self.chance.random() < share:
                stream.reset()

    # -- processes and machines ---------------------------------------------------------------

    def process_died(self, process: Process, *, silently: bool) -> None:
        for address in [at for at, sock in self._listening.items() if sock.process is process]:
            del self._listening[address]
        for sock in [each for each in self._sockets.values() if each.process is process]:
            del self._sockets[sock.fileno()]
            self.loop.forget_descriptor(sock.fileno())
            sock.forget()
        for stream in list(self._streams):
            for end in stream.ends:
                if end.process is process:
                    if silently:
                        end.vanish()
                    elif self.chance.random() < 0.5:
                        stream.reset()
                    else:
                        end.finish()

    # -- sockets ------------------------------------------------------------------------------

    def open_socket(self) -> SimulatedSocket:
        self._descriptors += 1
        sock = SimulatedSocket(self, self._descriptors, current_process())
        self._sockets[self._descriptors] = sock
        return sock

    def listen(self, sock: SimulatedSocket) -> None:
        self._listening[sock.address] = sock

    def socket_closed(self, sock: SimulatedSocket, fd: int) -> None:
        self._sockets.pop(fd, None)
        self.loop.forget_descriptor(fd)
        if self._listening.get(sock.address) is sock:
            del self._listening[sock.address]

    def is_taken(self, address: tuple[str, int]) -> bool:
        return address in self._listening

    def streams_of(self, process: Process) -> int:
        """Connections that a process has open; it does not know those whose greeting is on its way."""
        ends = (end for stream in self._streams for end in stream.ends)
        return sum(end.process is process and end.is_held and not end.is_closed for end in ends)

    def stream_ended(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    def _send_file(self, out: int, source: int, position: int, count: int) -> int:
        return self._sockets[out].send_from(source, position, count)

    def direction(
        self, source: str, target: str, deliver: Callable[[Any], None], broken: Callable[[], None]
    ) -> Direction:
        return Direction(self, source, target, deliver, broken)

    def message(self, source: str, target: str, callback: Callable[[], None]) -> None:
        """A single packet, which is never sent again."""
        self.loop.later(self.delay_s(source, target), self._arrive, source, target, callback)

    def _arrive(self, source: str, target: str, callback: Callable[[], None]) -> None:
        if self.is_open(source, target):
            callback()

    def accepted(self, end: End) -> SimulatedSocket:
        self._descriptors += 1
        sock = SimulatedSocket(self, self._descriptors, end.process, end)
        self._sockets[self._descriptors] = sock
        return sock

    # -- connecting ---------------------------------------------------------------------------

    async def connect(
        self,
        make_protocol: Callable[[], Any],
        host: str,
        port: int,
        make_transport: type[StreamTransport] = StreamTransport,
    ) -> tuple[Any, Any]:
        process = current_process()
        if process.host in self.without_descriptors:
            raise OSError(errno.EMFILE, "Too many open files")
        opened: asyncio.Future[Stream] = self.loop.create_future()
        self._later(process.host, host, self._greet, process, (host, port), opened)
        try:
            stream = await opened
        except asyncio.CancelledError:
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                opened.result().ends[0].finish()  # it was open, and its process did not know yet
            raise
        protocol = make_protocol()
        transport = make_transport(self.loop, stream.ends[0], protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def _later(self, source: str, target: str, callback: Callable[..., None], *arguments: Any) -> None:
        self.loop.later(self.delay_s(source, target), callback, *arguments)

    def _greet(self, process: Process, address: tuple[str, int], opened: asyncio.Future[Stream]) -> None:
        if opened.done() or process.is_dead:
            return
        host = address[0]
        if not self.is_open(process.host, host) or not self.is_open(host, process.host):
            self.loop.later(SYN_RETRY_S, self._greet, process, address, opened)
            return
        listener = self._listening.get(address)
        if listener is None:
            self._later(host, process.host, self._refuse, opened)
            return
        self._descriptors += 1
        stream = Stream(self, process, listener.process, (process.host, self._descriptors), address)
        self._streams[stream] = None
        listener.arrived(stream.ends[1])
        self._later(host, process.host, self._welcome, process, stream, opened)

    @staticmethod
    def _refuse(opened: asyncio.Future[Stream]) -> None:
        if not opened.done():
            opened.set_exception(ConnectionRefusedError(111, "Connect call failed"))

    @staticmethod
    def _welcome(process: Process, stream: Stream, opened: asyncio.Future[Stream]) -> None:
        if opened.done() or process.is_dead:
            stream.reset()
        else:
            opened.set_result(stream)
