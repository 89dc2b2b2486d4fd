"""The shared coordination store inside the simulated world: a process of its own, on its own disk.

Both ends are the product's own: the server with the embedded store and its journal, on simulated files, and
the sessions of the brokers. Bytes go through the simulated network. The store is killed, and its machine
loses power; each write that was answered is on its disk. A supervisor reports brokers that have ended, and
starts the store again.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from barnabas.cluster.coordination.contract import Coordination, Result, SetData
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.cluster.embedded.tree import Deleted, Transaction, Tree
from barnabas.cluster.shared.link import Link
from barnabas.cluster.shared.notices import report_ended
from barnabas.cluster.shared.server import StoreServer
from barnabas.cluster.shared.session import open_shared
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Background
from tests.chaos.leaderships import Leaders
from tests.simulation.loop import EPOCH_MS, Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.sockets import End, StreamTransport
from tests.simulation.store import HOST, tell_of_write
from tests.simulation.threads import SimulatedWorkers
from tests.support.power_cut_files import PowerCutFiles

PORT = 2181
DIRECTORY = "/store"
SYNC_S = 0.004


class StoreClock:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.now_s * 1_000)

    def monotonic_ms(self) -> float:
        return self._loop.now_s * 1_000


class PlainTransport(StreamTransport):
    """One end of a connection, under an `asyncio.Protocol`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """The windows of the network are small enough."""

    def resume_reading(self) -> None:
        """Reading was never paused."""

    def _feed(self, found: bytes | bytearray) -> None:
        if not self._is_closing:
            self._protocol.data_received(bytes(found))


class Listener:
    """The socket of the store, as far as the network knows it."""

    address = (HOST, PORT)

    def __init__(self, process: Process, arrived: Callable[[End], None]) -> None:
        self.process = process
        self.arrived = arrived


class SharedView:
    """The interface of `store.Store` that parts, judges and faults use."""

    def __init__(self, loop: SimulatedLoop, network: Network, seed: int) -> None:
        self.tree = Tree()
        self.forced_s = -math.inf
        self.forced_moments_s: list[float] = []
        self.leaders: Leaders = {}
        self._loop = loop
        self._network = network
        self._chance = random.Random(f"{seed} shared store")
        self._files = PowerCutFiles(seed * 10 + 9)
        self._clock = StoreClock(loop)
        self._process: Process | None = None
        self._store: EmbeddedStore | None = None
        self._server: StoreServer | None = None
        self.graves: list[Process] = []
        self._start()

    @property
    def is_up(self) -> bool:
        return self._process is not None

    @is_up.setter
    def is_up(self, wanted: bool) -> None:
        if wanted:
            self._start()

    @property
    def session_ids(self) -> list[int]:
        return [] if self._server is None else self._server.session_ids

    def restart(self, outage_s: float) -> None:
        """Killed, and away for a while."""
        self._die()
        self._loop.later(outage_s, self._start)

    def elect(self, outage_s: float) -> None:
        """There are no servers to choose from. Its machine loses power instead."""
        self._die()
        self._files.cut_power()
        self._loop.later(outage_s, self._start)

    def expire(self, session_id: int) -> None:
        if self._server is not None and self._process is not None:
            self.forced_s = self._loop.now_s
            self.forced_moments_s.append(self.forced_s)
            self._network.trace.tell("the store is made to end a session")
            self._process.start(self._server.end_session(session_id))

    def spoil(self, path: str, data: bytes) -> None:
        store = self._store
        if store is not None and path in store.nodes:
            self._network.trace.tell(f"somebody writes {data!r} into {path}")
            assert self._process is not None
            self._process.call_soon(lambda: store.submit([SetData(path, data)], 0))

    def process_ended(self, name: str) -> None:
        """Notices of a supervisor to the store."""
        supervisor = Process(self._loop, "supervisor", HOST)
        self.graves.append(supervisor)
        supervisor.start(report_ended(self.connect, name))

    async def connect(self, link: Link) -> None:
        network = self._network
        await network.connect(lambda: link, HOST, PORT, make_transport=PlainTransport)

    def opener(self, name: str) -> Any:
        """A `node.membership.coordination_store.OpenCoordination` of the process with this name."""

        @asynccontextmanager
        async def open_store(
            config: BrokerConfig, clock: Clock, _: Background
        ) -> AsyncIterator[Coordination]:
            async with open_shared(
                self.connect,
                "the shared store",
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms,
                clock=clock,
                process=name,
            ) as session:
                yield session

        return open_store

    def leave(self) -> None:
        self._die()

    def _start(self) -> None:
        if self._process is None:
            self._network.trace.tell("the shared store is started")
            self._process = Process(self._loop, "store", HOST)
            self._process.start(self._serve(self._process))

    async def _serve(self, process: Process) -> None:
        workers = SimulatedWorkers(self._loop, 1, self._chance, lambda: SYNC_S)
        store = EmbeddedStore.open(self._files, DIRECTORY, self._clock, workers)
        self.tree = store.tree
        self._listen_to(store.tree)
        server = StoreServer(store, self._clock)
        await server.start()
        self._store, self._server = store, server

        def arrived(end: End) -> None:
            def accept() -> None:
                peer = server.accept()
                peer.connection_made(PlainTransport(self._loop, end, peer))

            process.call_soon(accept)

        self._network.listen(Listener(process, arrived))  # type: ignore[arg-type]
        await server.failure
        self._network.trace.tell("the shared store cannot write")
        self.restart(1.0)

    def _listen_to(self, tree: Tree) -> None:
        commit = tree.commit

        def heard(transaction: Transaction) -> Sequence[Result]:
            for change in transaction.changes:
                if not isinstance(change, Deleted):
                    tell_of_write(change.path, change.data, self.leaders, self._network.trace)
            return commit(transaction)

        tree.commit = heard  # type: ignore[method-assign, assignment]

    def _die(self) -> None:
        process, self._process, self._server, self._store = self._process, None, None, None
        if process is not None:
            self._files.locks.clear()
            process.die()
            self.graves.append(process)
            self._network.process_died(process, silently=False)
