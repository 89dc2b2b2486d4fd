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
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.lifecycle import BrokerState
from barnabas.replication.partition import Partition
from barnabas.testing.files import PowerCutFiles
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.shape import Shape
from tests.simulation.store import Store, opener
from tests.simulation.trace import Trace

T = TypeVar("T")

logger = logging.getLogger(__name__)

PORT = 9092
EPOCH_MS = 1_700_000_000_000
RESTART_S = 1.0
DISKS_LOOKED_AT_EVERY_S = 10.0
DIRECTORIES = ("data", "spare")
BATCH_HEADER_BYTES = 61
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
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 1_000,
    "log.index.size.max.bytes": 4_096,
    "log.retention.check.interval.ms": 30_000,
    "log.cleaner.dedupe.buffer.size": 1 << 21,
    "log.cleaner.backoff.ms": 3_000,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": 20,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
    "background.threads": 3,
}


class SimulatedClock:
    """The wall clock of a machine may be wrong, and its clock may run a little too fast or too slow."""

    def __init__(self, loop: SimulatedLoop, rate: float = 1.0) -> None:
        self.skew_ms = 0
        self.rate = rate
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.now_s * self.rate * 1_000) + self.skew_ms

    def monotonic_ms(self) -> float:
        return self._loop.now_s * self.rate * 1_000


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
        self,
        number: int,
        loop: SimulatedLoop,
        network: Network,
        store: Store,
        seed: int,
        trace: Trace,
        shape: Shape,
    ) -> None:
        self.number = number
        self.host = f"10.0.0.{number}"
        self.address = Endpoint(self.host, PORT)
        self._chance = random.Random(f"{seed} machine {number}")
        drift_ppm = self._chance.uniform(-shape.drift_ppm_max, shape.drift_ppm_max)
        self.clock = SimulatedClock(loop, 1.0 + drift_ppm / 1_000_000)
        self._shape = shape
        self.files = PowerCutFiles(seed)
        self.sync_s = 0.004
        """How long a disk may take for a piece of work."""
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.graves: list[Process] = []
        self.lives = 0
        self.losses = 0
        """How often something that had been written was gone afterwards."""
        self.is_damaged = False
        """Whether a sector is bad that nobody has found yet."""
        self.deaths_s: list[float] = []
        """When it was killed, or could not go on."""
        self._loop = loop
        self._network = network
        self.store = store
        self._trace = trace
        self._has_power = True
        self._is_stopping = False
        loop.later(DISKS_LOOKED_AT_EVERY_S, self._look_at_disks)

    def __str__(self) -> str:
        return f"broker {self.number}"

    @property
    def is_serving(self) -> bool:
        return self.broker is not None and self.broker.lifecycle.state is BrokerState.RUNNING

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        """The replicas that its broker has opened."""
        replicas = self.broker._replicas if self.broker is not None else None
        return {} if replicas is None else replicas.table.partitions

    def start(self) -> None:
        if self.process is not None:
            return
        self.lives += 1
        self._trace.tell(f"{self} is started")
        self._has_power = True
        self._is_stopping = False
        self._network.down.discard(self.host)
        self._network.heal_stalled()
        self.process = Process(self._loop, str(self), self.host, self.clock.rate)
        self.process.start(self._serve())

    async def _serve(self) -> None:
        """What `node.main` does, without signals."""
        config = BrokerConfig.load(
            {
                **{key: str(value) for key, value in SETTINGS.items()},
                "broker.id": str(self.number),
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "log.dirs": ",".join(DIRECTORIES),
                "replica.fetch.wait.max.ms": str(self._shape.fetch_wait_ms_max),
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
            open_store=opener(self.store, self._network, self._chance),
            written_elsewhere_bytes_min=self._shape.written_elsewhere_bytes_min,
        )
        try:
            await broker.startup()
            self._trace.tell(f"{self} serves")
            await broker.halted.wait()
            self.deaths_s.append(self._loop.time())
            self._trace.tell(f"{self} cannot go on: {broker.halt_reason}")
        except StartAbandoned:
            pass
        except Exception as error:
            self._trace.tell(f"{self} does not start: {error!r}")
        if self._is_stopping:
            return  # the process ends when that is done
        await broker.shutdown()
        self._ended(silently=False)
        self._loop.later(RESTART_S, self.start)

    def stop(self) -> None:
        """In order, handing its leaderships over; it is started again when it has stopped. Who was told
        already may not have heard of it, where it stands still."""
        if self.process is not None and self.broker is not None and self.is_serving and not self._is_stopping:
            self._trace.tell(f"{self} is told to stop")
            self._is_stopping = True
            self.process.start(self._stop(self.broker))

    async def _stop(self, broker: Broker) -> None:
        await broker.shutdown()
        self._trace.tell(f"{self} has stopped")
        self._ended(silently=False)
        self._loop.later(RESTART_S, self.start)

    def kill(self) -> None:
        if self.process is not None:
            self._trace.tell(f"{self} is killed")
            self.deaths_s.append(self._loop.time())
            self._ended(silently=False)
            self.files.locks.clear()

    def cut_power(self) -> None:
        if self._has_power:
            self._trace.tell(f"{self} loses its power")
            self.deaths_s.append(self._loop.time())
            self._has_power = False
            self.losses += 1
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

    def run_out_of_descriptors(self) -> None:
        """Neither a file can be opened nor a connection."""
        self._trace.tell(f"{self} cannot open any more files or connections (EMFILE)")
        self._network.without_descriptors.add(self.host)

        def fail(operation: str, path: str) -> None:
            if operation in ("open", "map"):
                raise OSError(errno.EMFILE, "Too many open files", path)

        self.files.before = fail

    def mend_disk(self) -> None:
        self._network.without_descriptors.discard(self.host)
        if self.files.before is not None:
            self._trace.tell(f"the files of {self} can be used again")
            self.files.before = None
            self._return_offline()

    def _look_at_disks(self) -> None:
        """A write may fail just before the disk is mended, and its broker hears of it afterwards."""
        if self.files.before is None:
            self._return_offline()
        self._loop.later(DISKS_LOOKED_AT_EVERY_S, self._look_at_disks)

    def _return_offline(self) -> None:
        """A directory that went offline is used again when its broker is started again, by a person."""
        replicas = self.broker._replicas if self.broker is not None else None
        if replicas is not None and self.is_serving and replicas.log_manager.offline_directories:
            self._trace.tell(f"{self} is started again for the sake of a disk that had failed")
            self.kill()
            self._loop.later(RESTART_S, self.start)

    def corrupt(self, topics: Sequence[str], choice: int) -> str | None:
        """A bit of a record in a closed segment of one of these topics changes; returns whose segment."""
        closed: list[str] = []
        for directory in filter(self.files.exists, DIRECTORIES):
            for entry in self.files.list(directory):
                if entry.is_directory and entry.name.rpartition("-")[0] in topics:
                    log = f"{directory}/{entry.name}"
                    names = sorted(each.name for each in self.files.list(log))
                    closed += [f"{log}/{name}" for name in names if name.endswith(".log")][:-1]
        if not closed:
            return None
        path = sorted(closed)[choice % len(closed)]
        size = len(self.files.read(path))
        if size <= BATCH_HEADER_BYTES:
            return None
        self._trace.tell(f"a sector of {self} goes bad, in {path}")
        self.is_damaged = True
        self.files.corrupt(path, size - 1)  # the last byte of the last batch: its checksum covers it
        return path.rpartition("/")[0]

    def replace_replica(self, place: str) -> None:
        """As an administrator does who has found a bad sector: what this broker has of a partition is thrown
        away, and fetched again from the others."""
        self.kill()
        self.losses += 1
        self.is_damaged = False
        self._trace.tell(f"what {self} has of {place} is thrown away")
        self.files.remove_tree(place)
        self.files.sync_directory(place.rpartition("/")[0])
        self.start()

    def leave(self) -> None:
        """With the world."""
        self._ended(silently=True)

    def _ended(self, *, silently: bool) -> None:
        process, self.process, self.broker = self.process, None, None
        if process is not None:
            process.die()
            self.graves.append(process)
            self._network.process_died(process, silently=silently)
