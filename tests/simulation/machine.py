"""A machine with a disk and a broker, wired as `node` wires it, on the parts of the simulated world.

The broker dies in two ways. Killed, its files stay as they are, since the kernel has them. At a power failure
each page that was not synced is on the disk, or is not, or is torn (`power_cut_files`). A broker that cannot
write any more stops (`Broker.halted`), and is started again as by a supervisor.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Sequence
from typing import Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.node.broker import Broker, StartAbandoned
from barnabas.node.lifecycle import BrokerState
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from barnabas.replication.partition.partition import Partition
from barnabas.storage.files.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from tests.simulation.embedded import EmbeddedView, embedded_opener
from tests.simulation.loop import EPOCH_MS, Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.settings import settings_of
from tests.simulation.shape import Shape
from tests.simulation.shared import SharedView
from tests.simulation.shortages import WITHOUT_MEMORY
from tests.simulation.store import Store, opener
from tests.simulation.threads import SimulatedWorkers
from tests.simulation.trace import Trace
from tests.support.power_cut_files import PowerCutFiles

logger = logging.getLogger(__name__)

PORT = 9092
RESTART_S = 1.0
DISKS_LOOKED_AT_EVERY_S = 10.0
DIRECTORIES = ("/data", "/spare")
"""Absolute, or no replica could be moved from one to the other."""
COORDINATION = f"{DIRECTORIES[0]}/{COORDINATION_DIRECTORY}"
BATCH_HEADER_BYTES = 61
CONTENT = ("write", "sync", "truncate")
READS = ("read", "map", "list")
NAMES = ("rename", "unlink", "sync_directory", "make_directory", "remove_tree")
OPERATIONS = (CONTENT, READS, NAMES, ("open", *CONTENT, *READS, *NAMES))
"""Parts of a disk that fail together."""
DERIVED = (".index", ".timeindex", ".snapshot", ".txnindex", ".txnindex.crc")
"""Ends of the names of files that a broker can make again from the log."""
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANED_OFFSETS)
"""Checkpoints without which nothing is lost. That of log start offsets is the only place that says what was
deleted, and that of leader epochs is believed, as in Apache Kafka."""
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


class Machine:
    def __init__(
        self,
        number: int,
        loop: SimulatedLoop,
        network: Network,
        store: Store | EmbeddedView | SharedView,
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
        """Longest time of the disk for a piece of work."""
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.graves: list[Process] = []
        self.lives = 0
        self.losses = 0
        """Number of times that written data was gone afterwards."""
        self.is_damaged = False
        """Whether there is a bad sector that no read has found yet."""
        self.deaths_s: list[float] = []
        """When it was killed, or could not go on."""
        self.complaints: list[str] = []
        self._loop = loop
        self._network = network
        self.store: Store | EmbeddedView | SharedView = store
        self._trace = trace
        self._has_power = True
        self._has_threads = True
        self._hidden: dict[str, str] = {}
        """Log directories whose disk is not mounted, and where their content is meanwhile."""
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
        """The work of `node.main`, without signals."""
        settings = {
            **{key: str(value) for key, value in SETTINGS.items()},
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": ",".join(DIRECTORIES),
            "replica.fetch.wait.max.ms": str(self._shape.fetch_wait_ms_max),
            **settings_of(self.number, self._shape.settings),
        }
        config = BrokerConfig.load({key: value for key, value in settings.items() if value})
        broker = self.broker = Broker(
            config,
            clock=self.clock,
            randomness=self._chance,
            files=self.files,
            sockets=self._network.sockets,
            make_workers=lambda _, threads: SimulatedWorkers(
                self._loop, threads, self._chance, lambda: self.sync_s, lambda: self._has_threads
            ),
            open_store=self._opener(),
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

    def _opener(self) -> Any:
        if isinstance(self.store, EmbeddedView):
            return embedded_opener(self.store, self.files)
        if isinstance(self.store, SharedView):
            return self.store.opener(self._life())
        return opener(self.store, self._network, self._chance)

    def _life(self) -> str:
        """Name of the present process, or of the last."""
        return f"{self}, life {self.lives}"

    def stop(self) -> None:
        """Controlled shutdown, which hands leaderships over. The broker is started again when it has stopped.
        A stop that was requested before may not have reached it, where it is suspended."""
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
        """Every write fails from now on, until the disk is repaired."""
        self._trace.tell(f"the disk of {self} fails with {errno.errorcode[code]}")

        def fail(operation: str, path: str) -> None:
            if operation in ("write", "sync", "truncate"):
                raise OSError(code, errno.errorcode[code], path)

        self.files.before = fail

    def fail_in_part(self, code: int, operations: Sequence[str], places: Sequence[str]) -> None:
        """These operations fail from now on, on what lies below these directories."""
        what = "/".join(operations)
        self._trace.tell(f"{what} below {', '.join(places)} of {self} fails with {errno.errorcode[code]}")

        def fail(operation: str, path: str) -> None:
            if operation in operations and any(
                path == place or path.startswith(f"{place}/") for place in places
            ):
                raise OSError(code, errno.errorcode[code], path)

        self.files.before = fail

    def make_unreadable(self, log: str) -> None:
        """The disk gives the records of one log no more."""
        self._trace.tell(f"{log} of {self} cannot be read")

        def fail(operation: str, path: str) -> None:
            if operation in ("read", "map") and f"/{log}/" in path and path.endswith(".log"):
                raise OSError(errno.EIO, "Input/output error", path)

        self.files.before = fail

    def rot(self, chance: random.Random) -> int:
        """A bit of the log of the embedded store changes; returns where."""
        path = f"{COORDINATION}/log"
        size = len(self.files.read(path))
        place = chance.randrange(size // 2, max(size * 9 // 10, size // 2 + 1))
        self._trace.tell(f"a bit of {path} of {self} changes at {place}")
        self.files.corrupt(path, place)
        return place

    def undo_rot(self, place: int) -> None:
        self._trace.tell(f"the log of the store of {self} is restored")
        self.files.corrupt(f"{COORDINATION}/log", place)

    def run_out_of_memory(self) -> None:
        """The kernel has none for the map of the cleaner."""
        self._trace.tell(f"{self} has no memory left (ENOMEM)")
        WITHOUT_MEMORY.add(self.host)

    def find_memory(self) -> None:
        """A shortage costs a compaction, never a directory."""
        if self.host not in WITHOUT_MEMORY:
            return
        self._trace.tell(f"{self} has memory again")
        WITHOUT_MEMORY.discard(self.host)
        replicas = self.broker._replicas if self.broker is not None else None
        for directory in replicas.log_manager.offline_directories if replicas is not None else ():
            if "allocate memory" in str(directory.failure):
                self.complaints.append(
                    f"offline for want of memory: {directory.path} of {self}, at {self._loop.now_s:.3f} s"
                )
                self._return_offline()

    def run_out_of_threads(self) -> None:
        self._trace.tell(f"{self} cannot start any more threads")
        self._has_threads = False

    def find_threads(self) -> None:
        if not self._has_threads:
            self._trace.tell(f"{self} can start threads again")
            self._has_threads = True

    def unmount(self, place: str) -> None:
        """The broker dies, and starts without one of its disks: the mount point is an empty directory."""
        if self._hidden or not self.files.exists(place):
            return
        self.kill()
        self._trace.tell(f"{self} starts without the disk of {place}")
        self._hidden[place] = f"{place}.unmounted"
        self._swap(place, self._hidden[place])
        self.files.make_lasting_directory(place)
        self.start()

    def mount_again(self) -> None:
        """Files written to the mount point meanwhile are hidden by the disk."""
        for place, hidden in self._hidden.items():
            self.kill()
            self._trace.tell(f"the disk of {place} of {self} is there again")
            self.files.remove_tree(place)
            self._swap(hidden, place)
            self._loop.later(RESTART_S, self.start)
        self._hidden.clear()

    def _swap(self, old: str, new: str) -> None:
        self.files.rename(old, new)
        self.files.sync_directory("")
        self.files.locks.clear()

    def run_out_of_descriptors(self) -> None:
        """Neither a file can be opened nor a connection."""
        self._trace.tell(f"{self} cannot open any more files or connections (EMFILE)")
        self._network.without_descriptors.add(self.host)

        def fail(operation: str, path: str) -> None:
            if operation in ("open", "map"):
                raise OSError(errno.EMFILE, "Too many open files", path)

        self.files.before = fail

    def mend(self) -> None:
        """Everything."""
        self.sync_s = 0.004
        self.find_threads()
        self.find_memory()
        self.mount_again()
        self.mend_disk()
        self.resume()
        self.start()

    def mend_disk(self) -> None:
        self._network.without_descriptors.discard(self.host)
        if self.files.before is not None:
            self._trace.tell(f"the files of {self} can be used again")
            self.files.before = None
            self._return_offline()

    def _look_at_disks(self) -> None:
        """A write may fail just before the disk is repaired, and its broker learns of it afterwards."""
        if self.files.before is None:
            self._return_offline()
        self._loop.later(DISKS_LOOKED_AT_EVERY_S, self._look_at_disks)

    def _return_offline(self) -> None:
        """A directory that went offline, or a log that could not be read, is used again when its broker is
        started again, by a person."""
        replicas = self.broker._replicas if self.broker is not None else None
        if replicas is None or not self.is_serving or self.is_damaged:
            return
        if replicas.log_manager.offline_directories or replicas.log_manager.damaged:
            self._trace.tell(f"{self} is started again for the sake of a disk that had failed")
            self.kill()
            self._loop.later(RESTART_S, self.start)

    def change_bit(self, path: str, place: int) -> None:
        self._trace.tell(f"a bit of {path} of {self} changes at {place}")
        self.files.corrupt(path, place)

    def damage_derived(self, choice: int, ends: Sequence[str] = DERIVED) -> None:
        """The broker dies, and a bit of a file that is derived from a log changes before it starts again."""
        self.kill()
        found = [
            f"{directory}/{entry.name}/{each.name}"
            for directory in filter(self.files.exists, DIRECTORIES)
            for entry in self.files.list(directory)
            if entry.is_directory
            for each in self.files.list(f"{directory}/{entry.name}")
            if each.size_bytes and each.name.endswith(tuple(ends))
        ]
        if found:
            # By kind first: of some kinds there are few files.
            kinds = [end for end in ends if any(path.endswith(end) for path in found)]
            found = [path for path in found if path.endswith(kinds[choice // 7 % len(kinds)])]
            path = sorted(found)[choice * 37 % len(found)]
            size = len(self.files.read(path))
            self._trace.tell(f"a bit of {path} of {self} changes")
            self.files.corrupt(path, choice * 11 % size)
        self._loop.later(RESTART_S, self.start)

    def damage_checkpoint(self, choice: int) -> None:
        """The broker dies, and a bit of a checkpoint changes before it starts again. The bit makes a digit a
        blank or something else that is no digit: an offset becomes smaller, or the file cannot be read."""
        self.kill()
        found = [
            path
            for directory in DIRECTORIES
            for name in CHECKPOINTS
            if self.files.exists(path := f"{directory}/{name}") and len(self.files.read(path))
        ]
        if found:
            path = found[choice % len(found)]
            self.change_bit(path, choice * 53 % len(self.files.read(path)))
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
        WITHOUT_MEMORY.discard(self.host)
        self._ended(silently=True)

    def _ended(self, *, silently: bool) -> None:
        process, self.process, self.broker = self.process, None, None
        if process is not None:
            self.files.locks.clear()  # the kernel releases those of a process that has ended
            process.die()
            self.graves.append(process)
            self._network.process_died(process, silently=silently)
            if isinstance(self.store, SharedView):
                self.store.process_ended(self._life())
