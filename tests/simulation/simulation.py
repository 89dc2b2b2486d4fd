"""One run: a cluster, its clients, what breaks, and the judgement. All of it from one seed.

First the cluster starts and topics are made; then faults come for a while; then all is mended, and within
`PATIENCE_S` of virtual time everything has to be served again, every replica in sync and every transaction
decided; then all that is in the logs is read, and judged.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.cluster.znodes.layout import PartitionStateZnode
from barnabas.core.errors import KafkaError, TopicAlreadyExists
from tests.chaos.history import ALL_REPLICAS, History, Reading
from tests.chaos.history import Outcome as WriteOutcome
from tests.chaos.leaderships import merge
from tests.simulation import clients, judge, memory
from tests.simulation.administrator import administrate
from tests.simulation.authority import LEASE_S_MAX
from tests.simulation.cast import Stage, Topic
from tests.simulation.conduct import Conduct
from tests.simulation.copier import copy
from tests.simulation.derived import forgotten_producers
from tests.simulation.embedded import EmbeddedView
from tests.simulation.faults import EVERY_KIND, Fault, Surroundings, draw
from tests.simulation.final_reading import read_topic
from tests.simulation.groups import PROTOCOLS, process_in_group, read_in_group
from tests.simulation.loop import EPOCH_MS, Process, SimulatedLoop, Stuck
from tests.simulation.machine import Machine, SimulatedClock
from tests.simulation.network import Network
from tests.simulation.parts import USUAL, draw_cast, draw_usual, trial_of
from tests.simulation.scale import small_sizes
from tests.simulation.shape import Shape, draw_shape
from tests.simulation.shared import SharedView
from tests.simulation.store import Store
from tests.simulation.story import plain
from tests.simulation.trace import Trace
from tests.simulation.transactors import come_late, transact, transact_by_library, usurp
from tests.simulation.watch import Watch

REPLICAS = 3
PARTITIONS = 2
PLAIN, TRANSACTIONAL, COPIED = "plain", "transactional", "copied"
TOPICS = {PLAIN: PARTITIONS, TRANSACTIONAL: PARTITIONS, COPIED: PARTITIONS}
CLIENT_HOST = "10.0.1.1"
START_S = 60.0
FAULTS_S = 60.0
PATIENCE_S = 90.0
_TOLD_OF = re.compile(r"  (\S+): .* in epoch ")


class Outcome(NamedTuple):
    seed: int
    complaints: list[str]
    digest: str
    virtual_s: float
    events: int
    turns: int
    writes: int
    faults: list[Fault]
    shape: Shape
    histories: list[History]
    lines: list[str]
    errors: list[str]
    """Errors that brokers logged, with their cause: not judged, worth a look."""

    @property
    def partitions(self) -> set[str]:
        """Names of all nodes that the store received."""
        return {found for line in self.lines for found in _TOLD_OF.findall(line)}


class NotServed(Exception):
    """Something was not done in bounded time."""


class Simulation:
    def __init__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        *,
        faults_s: float = FAULTS_S,
        shape: Shape | None = None,
        ends_early: bool = False,
    ) -> None:
        """Without `faults` and `shape` the seed draws them. If it `ends_early`, the first complaint of the
        watch is the last: who only wants to know whether there is one need not wait."""
        self.seed = seed
        self.shape = draw_shape(seed) if shape is None else shape
        self._faults_s = faults_s
        self._given = faults
        self._ends_early = ends_early
        self._chance = random.Random(f"{seed} world")
        self.loop = SimulatedLoop()
        self.loop.clocks_drift = self.shape.drift_ppm_max > 0
        self.trace = Trace(lambda: self.loop.now_s)
        self.network = Network(self.loop, random.Random(f"{seed} network"), self.trace)
        self.network.latency_s = (0.0002, self.shape.latency_ms_max / 1_000)
        epoch_ms = EPOCH_MS if self.shape.settings else 0
        self.store: Store | EmbeddedView | SharedView
        if self.shape.is_embedded:
            self.store = EmbeddedView()
        elif self.shape.is_shared:
            self.store = SharedView(self.loop, self.network, seed)
        else:
            self.store = Store(self.loop, self.network, epoch_ms)
        self.machines = [
            Machine(number, self.loop, self.network, self.store, seed * 10 + number, self.trace, self.shape)
            for number in range(1, self.shape.brokers + 1)
        ]
        self.history = History()
        self._histories = [self.history]
        """With those that parts of the cast keep."""
        self.faults: list[Fault] = []
        self._mended_s = 0.0
        self._forgotten: list[str] = []
        self._watch = Watch(
            self.loop, random.Random(f"{seed} watch"), self.trace, self.machines, TOPICS, self._calm_since_s
        )
        self._is_over = False
        self._is_written = False
        self._processes: list[Process] = []
        self._committed: list[Reading] = []
        self._conduct = Conduct(self.loop, self.network.streams_of)
        self._clock = SimulatedClock(self.loop)
        self._cast = draw_cast(seed, PLAIN, self.shape)
        self._trial = trial_of(self.shape, random.Random(f"{seed} trial"))
        usual = {name: Topic(count) for name, count in TOPICS.items()}
        self._topics = {**usual, **self._cast.topics, **self._trial.topics}

    def run(self) -> Outcome:
        complaints: list[str] = []
        errors = _Errors(self.loop.time)
        with errors, _quiet_collector(), small_sizes():
            asyncio.set_event_loop(self.loop)
            try:
                main = asyncio.ensure_future(self._main(), loop=self.loop)
                if self._ends_early:
                    self._watch.on_complaint = main.cancel
                complaints += self.loop.run_until_complete(main)
            except asyncio.CancelledError:
                complaints += self._watch.complaints
            except (NotServed, Stuck) as error:
                complaints += [*self._watch.complaints, f"not served: {error}"]
            except Exception as error:  # of a client that met what it does not expect of any broker
                last = traceback.extract_tb(error.__traceback__)[-1]
                complaints.append(f"unexpected: {error!r} in {last.name} of {Path(last.filename).name}")
            finally:
                asyncio.set_event_loop(None)
                self._bury()
        complaints = [plain(complaint) for complaint in complaints]
        for complaint in complaints:
            self.trace.tell(complaint)
        return Outcome(
            self.seed, complaints, self.trace.digest, self.loop.time(), self.trace.events, self.loop.turns,
            sum(len(each.writes) for each in self._histories), self.faults, self.shape, self._histories,
            self.trace.lines, [*errors.seen, *self.loop.complaints],
        )  # fmt: skip

    async def _main(self) -> list[str]:
        self.trace.tell(f"a cluster of {self.shape.brokers}; at work: {', '.join(self._at_work())}")
        if self.shape.settings:
            settings = ", ".join(f"{key}={value}" for key, value in self.shape.settings.items())
            self.trace.tell(f"settings: {settings}")
        for machine in self.machines:
            machine.start()
        await self._within(START_S, self._make_topics(), "the topics cannot be made")
        working = self._start_clients()
        copying = self._start_copiers()
        begins_s = self.loop.time()
        drawn = draw(self.seed, begins_s, begins_s + self._faults_s, self.shape)
        self.faults = list(drawn if self._given is None else self._given)
        self._watch.begin()
        around = Surroundings(self.loop, self.network, self.store, self.machines, tuple(TOPICS))
        for fault in self.faults:
            self.loop.later(max(fault.at_s - self.loop.time(), 0), EVERY_KIND[fault.kind], around, fault)
        await asyncio.sleep(begins_s + self._faults_s - self.loop.time())
        self._mend()
        self._is_over = True
        for each, name in working:
            await self._within(PATIENCE_S, each, f"{name} does not end")
        self._is_written = True
        if copying is not None:
            await self._while_it_goes_on(copying, self._copied, "not everything is copied")
        await self._until("not every replica is in sync", self._is_in_sync)
        if self.shape.is_restarted:
            await self._within(2 * PATIENCE_S, self._restart(), "the cluster does not come back")
        await self._within(PATIENCE_S, self._read_all(), "the logs cannot be read")
        for last, name in ((self._cast, "the last look"), (self._trial, "the trial")):
            looking = self._process(name, last.look(self._stage()))
            await self._within(3 * PATIENCE_S, looking, f"{name} does not end")
        await self._catch_up()
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                holder = judge.holders(self.machines, topic, partition)[0]
                self.history.epochs |= judge.epochs(holder, topic, partition)
        merge(self.history.leaders, self.store.leaders)
        self._leave_out_unforeseen()
        complaints = judge.verdict(self.history, self._committed, self.machines, TOPICS)
        complaints += [*self._watch.complaints, *self._forgotten, *forgotten_producers(self.machines)]
        complaints += [complaint for machine in self.machines for complaint in machine.complaints]
        return [
            *complaints, *self._conduct.complaints, *self._conduct.passed_over(self.history),
            *self._cast.complaints(), *self._trial.complaints(),
        ]  # fmt: skip

    # -- clients ------------------------------------------------------------------------------

    def _at_work(self) -> list[str]:
        usual = draw_usual(self.seed)
        named = (name for name in USUAL if name in usual)
        always = ("producer-all", "sender", "library-transactor", "handler-1")
        return [*always, *named, *self._cast.topics, *self._trial.topics]

    def _process(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        process = Process(self.loop, name, CLIENT_HOST)
        self._processes.append(process)
        return process.start(work)

    def _start_clients(self) -> list[tuple[asyncio.Task[Any], str]]:
        apart = History(readings=self._committed)
        started: list[tuple[asyncio.Task[Any], str]] = []
        usual = draw_usual(self.seed)

        def start(name: str, client: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
            if name in USUAL and name not in usual:
                return
            history = apart if client is clients.read_committed else self.history
            started.append((self._process(name, client(self._world(name, history), name, *given)), name))

        start("producer-all", clients.produce, PLAIN, PARTITIONS, ALL_REPLICAS)
        start("producer-one", clients.produce, PLAIN, PARTITIONS, 1)
        start("transactor", transact, TRANSACTIONAL, PARTITIONS)
        start("latecomer", come_late, TRANSACTIONAL, PARTITIONS)
        start("usurper", usurp, "transactor", TRANSACTIONAL, PARTITIONS)
        start("reader", clients.read_all, PLAIN, PARTITIONS)
        start("committed", clients.read_committed, TRANSACTIONAL, PARTITIONS)
        start("sender", clients.send, PLAIN, PARTITIONS)
        start("library-transactor", transact_by_library, TRANSACTIONAL, PARTITIONS)
        protocols = random.Random(f"{self.seed} protocols")
        protocol = protocols.choice(PROTOCOLS)
        for name in ("member-1", "member-2"):
            start(name, read_in_group, "group", PLAIN, protocol)
        protocol = protocols.choice(PROTOCOLS)
        for name in ("handler-1", "handler-2"):
            start(name, process_in_group, "handlers", PLAIN, protocol)
        if not self.shape.is_embedded:
            start("administrator", administrate, TOPICS, self.shape.brokers)
        started += [(self._process(name, work), name) for name, work in self._cast.clients(self._stage())]
        return started

    def _stage(self) -> Stage:
        return Stage(
            self.seed, self.shape.brokers, self.machines, self.network, self.store, self.history, self._world,
            lambda: self._until("not every replica is in sync again", self._is_in_sync), self.shape.settings,
        )  # fmt: skip

    def _start_copiers(self) -> asyncio.Task[Any] | None:
        copiers = [name for name in ("copier-1", "copier-2") if name in draw_usual(self.seed)]
        if not copiers:
            return None
        self.history.copied["copiers"] = (PLAIN, COPIED)
        protocol = random.Random(f"{self.seed} copiers").choice(PROTOCOLS)
        works = [
            self._process(
                name,
                copy(
                    self._world(name, self.history), name, PLAIN, COPIED, protocol, lambda: self._is_written
                ),
            )
            for name in copiers
        ]

        async def all_of_them() -> None:
            await asyncio.gather(*works)

        return self._process("copiers", all_of_them())

    def _copied(self) -> int:
        """Transactions that have succeeded: those that fail again and again are no progress."""
        return sum(each.outcome is WriteOutcome.ACKNOWLEDGED for each in self.history.transactions)

    def _world(self, name: str, history: History) -> clients.World:
        if not any(each is history for each in self._histories):
            self._histories.append(history)
        return clients.World(
            self.loop,
            self._clock,
            random.Random(f"{self.seed} {name}"),
            [each.address for each in self.machines],
            history,
            lambda: self._is_over,
            self._conduct,
            self.shape.pace,
        )

    async def _make_topics(self) -> None:
        await self._process("admin", self._make())

    async def _make(self) -> None:
        cluster = self._client("admin")
        for name, topic in self._topics.items():
            while True:
                try:
                    await TopicAdmin(cluster).create_topic(
                        name,
                        partitions=topic.partitions,
                        replication_factor=self._replicas(topic),
                        configs=topic.configs,
                    )
                except TopicAlreadyExists:
                    break
                except (KafkaError, ClusterUnreachable):
                    await asyncio.sleep(0.5)
                else:
                    break

    def _replicas(self, topic: Topic) -> int:
        return min(topic.replicas or REPLICAS, self.shape.brokers)

    def _client(self, name: str) -> ClusterClient:
        return ClusterClient(
            [each.address for each in self.machines],
            clock=self._clock,
            randomness=self._chance,
            client_id=name,
        )

    # -- the end ------------------------------------------------------------------------------

    def _mend(self) -> None:
        self._mended_s = self.loop.now_s
        self.trace.tell("everything is mended")
        self.network.heal_all()
        self.store.is_up = True
        for machine in self.machines:
            machine.mend()

    def _is_in_sync(self) -> bool:
        for name, topic in self._topics.items():
            for partition in range(topic.partitions):
                node = self.store.tree.nodes.get(PartitionStateZnode.path(name, partition))
                if node is None:
                    return False
                state = PartitionStateZnode.decode(node.data, 0)
                if len(state.isr) < self._replicas(topic) or state.leader < 0:
                    return False
        return all(machine.is_serving for machine in self.machines)

    async def _catch_up(self) -> None:
        """Let followers fetch what a power failure at the end of a trial took from them: the ISR in the store
        does not show it. Replicas that differ for good are left to the verdict.
        """
        places = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
        for _ in range(int(PATIENCE_S)):
            if not any(any(judge.differing_replicas(self.machines, *place)) for place in places):
                return
            await asyncio.sleep(1)

    async def _restart(self) -> None:
        client = self._client("questioner")
        known = await self._process("questioner", memory.known_to(client))
        before = await self._process("questioner", memory.ask(client, known))
        for machine in self.machines:
            machine.kill()
        for machine in self.machines:
            machine.start()
        await self._until("not every replica is in sync after the restart", self._is_in_sync)
        after = await self._process("questioner", memory.ask(self._client("questioner"), known))
        self._forgotten += memory.differences(before, after)

    def _leave_out_unforeseen(self) -> None:
        """With acks=1 a leader promises alone, and one whose session was made to end before its time does not
        know for as long as its lease lasts that it leads no longer; nor does Apache Kafka's. Nobody counts on
        what it says then."""
        for write in self.history.writes:
            if write.acks == 1 and any(
                0 <= write.answered_s - moment_s <= LEASE_S_MAX for moment_s in self.store.forced_moments_s
            ):
                write.outcome = WriteOutcome.UNKNOWN

    def _calm_since_s(self) -> float:
        """When something was last broken, as far as we have come."""
        now_s = self.loop.now_s
        ends = (fault.at_s + fault.lasts_s for fault in self.faults if fault.at_s <= now_s)
        return max((*ends, self._mended_s), default=0.0)

    async def _read_all(self) -> None:
        await self._process("last reader", self._read())

    async def _read(self) -> None:
        cluster = self._client("last reader")
        for topic, partitions in TOPICS.items():
            await read_topic(cluster, topic, partitions, self.history)

    async def _within(self, patience_s: float, work: Any, complaint: str) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await work
        except TimeoutError:
            raise NotServed(f"{complaint} within {patience_s:.0f} s") from None

    async def _while_it_goes_on(
        self, work: asyncio.Task[Any], progress: Callable[[], int], complaint: str
    ) -> None:
        """There may be much to do: what matters is that it goes on."""
        before = -1
        while not work.done():
            if progress() == before:
                raise NotServed(f"{complaint}, and nothing has happened for {PATIENCE_S:.0f} s")
            before = progress()
            await asyncio.wait((work,), timeout=PATIENCE_S)
        await work

    async def _until(self, complaint: str, holds: Callable[[], bool]) -> None:
        deadline_s = self.loop.time() + PATIENCE_S
        while not holds():
            if self.loop.time() > deadline_s:
                raise NotServed(f"{complaint} within {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.25)

    def _bury(self) -> None:
        if isinstance(self.store, SharedView):
            self.store.leave()
        for machine in self.machines:
            machine.leave()
            self._processes += machine.graves
        if isinstance(self.store, SharedView):
            self._processes += self.store.graves
        for process in self._processes:
            process.die()
            process.bury()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.close()


_LOGGERS = ("barnabas", "pyspark_barnabas")


class _Errors(logging.Handler):
    """Errors that are logged; nothing is printed."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []
        self._now_s = now_s

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{self._now_s():.3f} {self.format(record)}")

    def __enter__(self) -> None:
        for root in map(logging.getLogger, _LOGGERS):
            root.addHandler(self)
            root.propagate = False

    def __exit__(self, *_: object) -> None:
        for root in map(logging.getLogger, _LOGGERS):
            root.removeHandler(self)
            root.propagate = True


class _quiet_collector:  # noqa: N801 - a context
    """Garbage is collected when the run is over, so that its time does not matter."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
        gc.collect()
