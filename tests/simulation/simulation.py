"""One run: a cluster of three, its clients, what breaks, and the judgement. All of it from one seed.

First the cluster starts and topics are made; then faults come for a while; then all is mended, and within
`PATIENCE_S` of virtual time everything has to be served again, every replica in sync and every transaction
decided; then all that is in the logs is read, and judged.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import Consumer, list_offsets
from barnabas.client.steps import ClusterUnreachable
from barnabas.cluster.znodes import PartitionStateZnode
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from tests.chaos.history import ALL_REPLICAS, History, Reading, Value
from tests.simulation import clients, judge
from tests.simulation.administrator import administrate
from tests.simulation.copier import copy
from tests.simulation.faults import KINDS, Fault, Surroundings, draw
from tests.simulation.groups import Commits, read_in_group
from tests.simulation.loop import Process, SimulatedLoop, Stuck
from tests.simulation.machine import Machine, SimulatedClock
from tests.simulation.network import Network
from tests.simulation.store import Store
from tests.simulation.trace import Trace

BROKERS = 3
PARTITIONS = 2
PLAIN, TRANSACTIONAL, COPIED = "plain", "transactional", "copied"
TOPICS = {PLAIN: PARTITIONS, TRANSACTIONAL: PARTITIONS, COPIED: PARTITIONS}
CLIENT_HOST = "10.0.1.1"
START_S = 60.0
FAULTS_S = 60.0
PATIENCE_S = 90.0
LATEST = -1


class Outcome(NamedTuple):
    seed: int
    complaints: list[str]
    digest: str
    virtual_s: float
    events: int
    turns: int
    writes: int
    faults: list[Fault]
    lines: list[str]
    errors: list[str]
    """What brokers wrote into their logs as errors, with what happened: not judged, worth a look."""


class NotServed(Exception):
    """Something was not done in bounded time."""


class Simulation:
    def __init__(
        self, seed: int, faults: Sequence[Fault] | None = None, *, faults_s: float = FAULTS_S
    ) -> None:
        self.seed = seed
        self._faults_s = faults_s
        self._given = faults
        self._chance = random.Random(f"{seed} world")
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, random.Random(f"{seed} network"), self.trace)
        self.store = Store(self.loop, self.network)
        self.machines = [
            Machine(number, self.loop, self.network, self.store, seed * 10 + number, self.trace)
            for number in range(1, BROKERS + 1)
        ]
        self.history = History()
        self.faults: list[Fault] = []
        self._is_over = False
        self._is_written = False
        self._processes: list[Process] = []
        self._committed: list[Reading] = []
        self._commits = Commits()
        self._clock = SimulatedClock(self.loop)

    def run(self) -> Outcome:
        complaints: list[str] = []
        errors = _Errors(self.loop.time)
        with errors, _quiet_collector():
            asyncio.set_event_loop(self.loop)
            try:
                complaints += self.loop.run_until_complete(self._main())
            except (NotServed, Stuck) as error:
                complaints.append(f"not served: {error}")
            finally:
                asyncio.set_event_loop(None)
                self._bury()
        for complaint in complaints:
            self.trace.tell(complaint)
        return Outcome(
            self.seed, complaints, self.trace.digest, self.loop.time(), self.trace.events, self.loop.turns,
            len(self.history.writes), self.faults, self.trace.lines, [*errors.seen, *self.loop.complaints],
        )  # fmt: skip

    async def _main(self) -> list[str]:
        for machine in self.machines:
            machine.start()
        await self._within(START_S, self._make_topics(), "the topics cannot be made")
        working = self._start_clients()
        copying = self._start_copier()
        begins_s = self.loop.time()
        drawn = draw(self.seed, begins_s, begins_s + self._faults_s, BROKERS)
        self.faults = list(drawn if self._given is None else self._given)
        around = Surroundings(self.loop, self.network, self.store, self.machines)
        for fault in self.faults:
            self.loop.later(max(fault.at_s - self.loop.time(), 0), KINDS[fault.kind], around, fault)
        await asyncio.sleep(begins_s + self._faults_s - self.loop.time())
        self._mend()
        self._is_over = True
        for each, name in working:
            await self._within(PATIENCE_S, each, f"{name} does not end")
        self._is_written = True
        await self._within(PATIENCE_S, copying, "not everything is copied")
        await self._until("not every replica is in sync", self._is_in_sync)
        await self._within(PATIENCE_S, self._read_all(), "the logs cannot be read")
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                self.history.epochs |= judge.epochs(self.machines[0], topic, partition)
        complaints = judge.verdict(self.history, self._committed, self.machines, TOPICS)
        return complaints + self._commits.complaints

    # -- clients ------------------------------------------------------------------------------

    def _process(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        process = Process(self.loop, name, CLIENT_HOST)
        self._processes.append(process)
        return process.start(work)

    def _start_clients(self) -> list[tuple[asyncio.Task[Any], str]]:
        apart = History(readings=self._committed)
        started: list[tuple[asyncio.Task[Any], str]] = []

        def start(name: str, client: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
            history = apart if client is clients.read_committed else self.history
            started.append((self._process(name, client(self._world(name, history), name, *given)), name))

        start("producer-all", clients.produce, PLAIN, PARTITIONS, ALL_REPLICAS)
        start("producer-one", clients.produce, PLAIN, PARTITIONS, 1)
        start("transactor", clients.transact, TRANSACTIONAL, PARTITIONS)
        start("reader", clients.read_all, PLAIN, PARTITIONS)
        start("committed", clients.read_committed, TRANSACTIONAL, PARTITIONS)
        start("member-1", read_in_group, "group", PLAIN, self._commits)
        start("member-2", read_in_group, "group", PLAIN, self._commits)
        start("administrator", administrate, TOPICS, BROKERS)
        return started

    def _start_copier(self) -> asyncio.Task[Any]:
        self.history.copied["copier"] = (PLAIN, COPIED)
        world = self._world("copier", self.history)
        work = copy(world, "copier", PLAIN, COPIED, PARTITIONS, lambda: self._is_written)
        return self._process("copier", work)

    def _world(self, name: str, history: History) -> clients.World:
        return clients.World(
            self.loop,
            self._clock,
            random.Random(f"{self.seed} {name}"),
            [each.address for each in self.machines],
            history,
            lambda: self._is_over,
        )

    async def _make_topics(self) -> None:
        await self._process("admin", self._make())

    async def _make(self) -> None:
        cluster = self._client("admin")
        for topic, partitions in TOPICS.items():
            while True:
                try:
                    await Admin(cluster).create_topic(
                        topic, partitions=partitions, replication_factor=BROKERS, configs={}
                    )
                except TopicAlreadyExists:
                    break
                except (KafkaError, ClusterUnreachable):
                    await asyncio.sleep(0.5)
                else:
                    break

    def _client(self, name: str) -> ClusterClient:
        return ClusterClient(
            [each.address for each in self.machines],
            clock=self._clock,
            randomness=self._chance,
            client_id=name,
        )

    # -- the end ------------------------------------------------------------------------------

    def _mend(self) -> None:
        self.trace.tell("everything is mended")
        self.network.heal_all()
        self.store.is_up = True
        for machine in self.machines:
            machine.sync_s = 0.004
            machine.mend_disk()
            machine.resume()
            machine.start()

    def _is_in_sync(self) -> bool:
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                node = self.store.tree.nodes.get(PartitionStateZnode.path(topic, partition))
                if node is None or len(PartitionStateZnode.decode(node.data, 0).isr) < BROKERS:
                    return False
        return all(machine.is_serving for machine in self.machines)

    async def _read_all(self) -> None:
        await self._process("last reader", self._read())

    async def _read(self) -> None:
        cluster = self._client("last reader")
        for topic, partitions in TOPICS.items():
            numbers = range(partitions)
            ends = await list_offsets(cluster, topic, numbers, LATEST)
            while await list_offsets(cluster, topic, numbers, LATEST, isolation_level=1) != ends:
                await asyncio.sleep(1.0)  # an open transaction ends by its timeout
                ends = await list_offsets(cluster, topic, numbers, LATEST)
            for committed, into in ((False, self.history.final), (True, self.history.final_committed)):
                for number in numbers:
                    into[topic, number] = []
                async with Consumer(
                    cluster, topic, dict.fromkeys(numbers, 0), read_committed=committed
                ) as consumer:
                    while any(consumer.positions[number] < ends[number] for number in numbers):
                        for number, record in await consumer.poll():
                            value = Value.decode(bytes(record.value or b""))
                            into[topic, number].append((record.offset, value))

    async def _within(self, patience_s: float, work: Any, complaint: str) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await work
        except TimeoutError:
            raise NotServed(f"{complaint} within {patience_s:.0f} s") from None

    async def _until(self, complaint: str, holds: Callable[[], bool]) -> None:
        deadline_s = self.loop.time() + PATIENCE_S
        while not holds():
            if self.loop.time() > deadline_s:
                raise NotServed(f"{complaint} within {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.25)

    def _bury(self) -> None:
        for machine in self.machines:
            machine.leave()
            self._processes += machine.graves
        for process in self._processes:
            process.die()
            process.bury()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()


class _Errors(logging.Handler):
    """What is logged as an error; nothing is printed."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []
        self._now_s = now_s

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{self._now_s():.3f} {self.format(record)}")

    def __enter__(self) -> None:
        root = logging.getLogger("barnabas")
        root.addHandler(self)
        root.propagate = False

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger("barnabas")
        root.removeHandler(self)
        root.propagate = True


class _quiet_collector:  # noqa: N801 - a context
    """Who is collected when must not matter; and there is little to collect in a minute."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
