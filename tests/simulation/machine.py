"""A machine with a disk, on which a broker runs: as `node` wires it, whole, on what the world gives it.

The broker dies in two ways. Killed, its files stay as they are, since the kernel has them. At a power cut
each page that was not synced is on the disk, or is not, or is torn (`testing.files`). What cannot write any
more stops by itself (`Broker.halted`), and is started again as a supervisor would.
"""

from __future__ import annotations

import errno
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.endpoints import Endpoint
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.lifecycle import BrokerState
from barnabas.testing.files import PowerCutFiles
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.store import Store, opener
from tests.simulation.trace import Trace

T = TypeVar("T")

logger = logging.getLogger(__name__)

PORT = 9092
EPOCH_MS = 1_700_000_000_000
RESTART_S = 1.0
SETTINGS = {
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 4_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "log.segment.bytes": 8_192,
    "log.flush.offset.checkpoint.interval.ms": 5_000,
    "log.index.size.max.bytes": 4_096,
    "log.retention.check.interval.ms": 30_000,
    "log.cleaner.dedupe.buffer.size": 1 << 21,
    "group.initial.rebalance.delay.ms": 100,
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": 20,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
    "background.threads": 3,
}


class SimulatedClock:
    """The wall clock of a machine may be wrong; distances are right everywhere."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.skew_ms = 0
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1_000) + self.skew_ms

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1_000


class SimulatedWorkers:
    """`node.runtime.Workers`: so many pieces of work at a time, each done at one moment of its own."""

    def __init__(
        self, loop: SimulatedLoop, threads: int, chance: random.Random, delay_s: Callable[[], float]
    ):
        self._loop = loop
        self._threads = threads
        self._chance = chance
        self._delay_s = delay_s
        self._busy = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._idle = loop.create_future()

    def resize(self, threads: int) -> None:
        self._threads = threads

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def do() -> None:
            try:
                result = work()
            except Exception as error:
                self._loop.call_later(self._pause_s(), deliver, failed, error)
            else:
                self._loop.call_later(self._pause_s(), deliver, then, result)

        def deliver(tell: Callable[[Any], None], outcome: Any) -> None:
            self._busy -= 1
            self._next()
            tell(outcome)

        self._queue.append(do)
        self._next()

    async def close(self) -> None:
        while self._busy or self._queue:
            self._idle = self._loop.create_future()
            await self._idle

    def _next(self) -> None:
        while self._queue and self._busy < self._threads:
            self._busy += 1
            self._loop.call_later(self._pause_s(), self._queue.popleft())
        if not self._busy and not self._idle.done():
            self._idle.set_result(None)

    def _pause_s(self) -> float:
        return self._chance.uniform(0, self._delay_s())


class Machine:
    def __init__(
        self, number: int, loop: SimulatedLoop, network: Network, store: Store, seed: int, trace: Trace
    ) -> None:
        self.number = number
        self.host = f"10.0.0.{number}"
        self.address = Endpoint(self.host, PORT)
        self.clock = SimulatedClock(loop)
        self.files = PowerCutFiles(seed)
        self.sync_s = 0.004
        """How long a disk may take for a piece of work."""
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.graves: list[Process] = []
        self.failures: list[str] = []
        self._loop = loop
        self._network = network
        self._store = store
        self._chance = random.Random(f"{seed} machine {number}")
        self._trace = trace
        self._has_power = True

    def __str__(self) -> str:
        return f"broker {self.number}"

    @property
    def is_serving(self) -> bool:
        return self.broker is not None and self.broker.lifecycle.state is BrokerState.RUNNING

    def start(self) -> None:
        if self.process is not None:
            return
        self._trace.tell(f"{self} is started")
        self._has_power = True
        self._network.down.discard(self.host)
        self._network.heal_stalled()
        self.process = Process(self._loop, str(self), self.host)
        self.process.start(self._serve())

    async def _serve(self) -> None:
        """What `node.main` does, without signals."""
        config = BrokerConfig.load(
            {
                **{key: str(value) for key, value in SETTINGS.items()},
                "broker.id": str(self.number),
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "log.dirs": "data",
            }
        )
        broker = self.broker = Broker(
            config,
            clock=self.clock,
            randomness=self._chance,
            files=self.files,
            sockets=self._network.sockets,
            make_workers=lambda _, threads: SimulatedWorkers(
                self._loop, threads, self._chance, lambda: self.sync_s
            ),
            open_store=opener(self._store, self._network, self._chance),
        )
        try:
            await broker.startup()
            self._trace.tell(f"{self} serves")
            await broker.halted.wait()
            self._trace.tell(f"{self} cannot go on: {broker.halt_reason}")
        except StartAbandoned:
            pass
        except Exception as error:
            self._trace.tell(f"{self} does not start: {error!r}")
        await broker.shutdown()
        self._ended(silently=False)
        self._loop.later(RESTART_S, self.start)

    def stop(self) -> None:
        """In order, handing its leaderships over; the supervisor does not start it again."""
        if self.process is not None and self.broker is not None and self.is_serving:
            self._trace.tell(f"{self} is told to stop")
            self.process.start(self._stop(self.broker))

    async def _stop(self, broker: Broker) -> None:
        await broker.shutdown()
        self._trace.tell(f"{self} has stopped")
        self._ended(silently=False)
        self._loop.later(RESTART_S, self.start)

    def kill(self) -> None:
        if self.process is not None:
            self._trace.tell(f"{self} is killed")
            self._ended(silently=False)
            self.files.locks.clear()

    def cut_power(self) -> None:
        if self._has_power:
            self._trace.tell(f"{self} loses its power")
            self._has_power = False
            self._network.down.add(self.host)
            self._ended(silently=True)
            self.files.cut_power()
            self.files.before = None

    def pause(self) -> None:
        if self.process is not None:
            self._trace.tell(f"{self} is stopped where it stands")
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and not self.process.is_running:
            self._trace.tell(f"{self} goes on")
            self.process.resume()

    def fail_disk(self, code: int) -> None:
        """Every write fails from now on, until somebody mends the disk."""
        self._trace.tell(f"the disk of {self} fails with {errno.errorcode[code]}")

        def fail(operation: str, path: str) -> None:
            if operation in ("write", "sync", "truncate"):
                raise OSError(code, errno.errorcode[code], path)

        self.files.before = fail

    def mend_disk(self) -> None:
        if self.files.before is not None:
            self._trace.tell(f"the disk of {self} is mended")
            self.files.before = None

    def leave(self) -> None:
        """With the world."""
        self._ended(silently=True)

    def _ended(self, *, silently: bool) -> None:
        process, self.process, self.broker = self.process, None, None
        if process is not None:
            process.die()
            self.graves.append(process)
            self._network.process_died(process, silently=silently)
