"""Trial of the pipeline services: three of them share the pipelines by claims in a topic.

Store, leadership, service and supervisor are the product's own, each service in a process on a machine of its
own; drivers are played. Services are killed, stop where they stand, lose the network and have wrong clocks,
while a user changes pipelines. Whatever happens, one service runs the pipelines soon after, as they were
acknowledged, and the others none. A leader that is alive and heard keeps them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from barnabas.client.admin.groups import Groups
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.scheduler import Cancellable
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.leadership import HEARTBEAT_MS, SILENCE_MS
from barnabas.pipelines.service.service import PipelineService
from barnabas.pipelines.service.store import TOPIC, PipelineStore, Stored, Target
from barnabas.pipelines.service.supervisor import Observer, State, Supervisor
from barnabas.pipelines.spec.model import PipelineSpec
from tests.chaos.history import History
from tests.simulation.cast import Part, Stage
from tests.simulation.clients import REQUEST_TIMEOUT_MS, World
from tests.simulation.loop import Process
from tests.simulation.machine import SimulatedClock
from tests.simulation.trials import SERVED_WITHIN_S, leader_of

SERVICES = 3
NO_STATE = "/nowhere"
"""Checkpoints are on other machines."""
NOTICED_WITHIN_S = (SILENCE_MS + 2 * HEARTBEAT_MS) / 1_000 + 10.0
"""A dead leader is replaced in this time: silence, a look every few seconds, and a claim."""
RELEASED_WITHIN_S = 12.0
"""A leader that ends in order says so."""
AWAY_S = 34.0
"""Longer than the silence after which a leader counts as dead."""
AHEAD_MS = 3_600_000
WATCHED_S = 12.0
"""Longer than two heartbeats: a service that believes that its leader is dead has said so."""
DOUBT_S = 40.0
"""Longer than a change may be on its way."""
RUNS, KEY = "RateSource", "rows_per_second"


class LoopTimers:
    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        return asyncio.get_running_loop().call_later(delay_ms / 1_000, task)


class PlayedDrivers:
    """Drivers of one life of a service."""

    def __init__(self, chance: random.Random) -> None:
        self.running: dict[str, int] = {}
        """Generation of each pipeline that runs, or has not ended yet."""
        self._started: dict[str, tuple[int, Observer]] = {}
        self._chance = chance

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:
        self.running[spec.name] = generation
        self._started[spec.name] = (attempt, observer)
        self._later(2.0, lambda: observer.on_running(spec.name, attempt))
        if self._chance.random() < 0.1:
            self._later(8.0, lambda: self._end(spec.name, attempt, "the driver process ended"))

    def stop(self, name: str) -> None:
        attempt, _ = self._started[name]
        self._later(2.0, lambda: self._end(name, attempt, None))

    def _end(self, name: str, attempt: int, error: str | None) -> None:
        known, observer = self._started[name]
        if known == attempt:
            self.running.pop(name, None)
            observer.on_ended(name, attempt, error, is_counted=False)

    def _later(self, longest_s: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self._chance.uniform(0.05, longest_s), callback)


class Host:
    """Machine of one pipeline service."""

    def __init__(self, stage: Stage, world: World, number: int) -> None:
        self.address = f"10.0.1.{number}"
        self.clock = SimulatedClock(world.loop)
        self.service: PipelineService | None = None
        """Once it is open."""
        self.drivers: PlayedDrivers
        self._stage = stage
        self._world = world
        self._process: Process | None = None
        self._stopped: asyncio.Event
        self._lives = 0

    def __str__(self) -> str:
        return f"the service at {self.address}"

    @property
    def is_leader(self) -> bool:
        return self.service is not None and self.service.leadership.is_leader

    def start(self) -> None:
        if self._process is None:
            self._tell("is started")
            self._lives += 1
            self._process = Process(self._world.loop, str(self), self.address)
            self._process.start(self._serve())

    async def _serve(self) -> None:
        chance = self._world.chance
        brokers = [each.address for each in self._stage.machines]
        cluster = ClusterClient(
            brokers, clock=self.clock, randomness=chance, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        store = PipelineStore(
            lambda _: {"bootstrap.servers": ",".join(map(str, brokers))},
            f"{self.address}, life {self._lives}",
            clock=self.clock,
            randomness=chance,
        )
        self.drivers = PlayedDrivers(chance)
        supervisor = Supervisor(self.drivers, LoopTimers(), self.clock)
        service = PipelineService(store, supervisor, Groups(cluster), NO_STATE, self.address, self.clock)
        self._stopped = asyncio.Event()
        try:
            async with cluster, store:
                await service.open()
                self.service = service
                tasks = [asyncio.create_task(each) for each in (service.follow(), service.leadership.keep())]
                await self._stopped.wait()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await service.close()
        except AWAY as error:
            self._tell(f"does not go on: {error!r}")
        self._ended()
        if not self._stopped.is_set():
            self._world.loop.later(1.0, self.start)

    async def do(self, change: Callable[[PipelineService], Awaitable[object]]) -> None:
        """A request of a user. Raises TimeoutError if it is not answered."""
        service, process = self.service, self._process
        if service is None or process is None:
            raise ServiceError(503, "it is not there")

        async def answer() -> None:
            await change(service)

        asked = process.start(answer())
        done, _ = await asyncio.wait((asked,), timeout=DOUBT_S)
        if not done:
            raise TimeoutError
        asked.result()

    def stop(self) -> None:
        self._tell("is told to stop")
        assert self._process is not None
        self._process.call_soon(self._stopped.set)

    def kill(self) -> None:
        self._tell("is killed")
        self._ended()

    def pause(self) -> None:
        self._tell("stops where it stands")
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        self._tell("goes on")
        assert self._process is not None
        self._process.resume()

    def cut(self) -> None:
        self._tell("loses the network")
        for machine in self._stage.machines:
            self._stage.network.cut(self.address, machine.host)
            self._stage.network.cut(machine.host, self.address)

    def heal(self) -> None:
        self._tell("has the network again")
        for machine in self._stage.machines:
            self._stage.network.heal(self.address, machine.host)
            self._stage.network.heal(machine.host, self.address)

    def _ended(self) -> None:
        process, self._process, self.service = self._process, None, None
        if process is not None:
            process.die()
            self._stage.machines[0].graves.append(process)
            self._stage.network.process_died(process, silently=False)

    def _tell(self, what: str) -> None:
        self._stage.network.trace.tell(f"{self} {what}")


@dataclass
class Wanted:
    """A pipeline as its last acknowledged change left it."""

    value: str
    target: Target
    generation: int


class Services(Part):
    NAME = "services"
    PIPELINES = ("orders", "clicks", "bills")
    ROUNDS = 3
    CHANGES = 3

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._hosts: list[Host] = []
        self._wanted: dict[str, Wanted] = {}
        self._last: dict[str, int] = {}
        """Highest generation of each name, also of a deleted pipeline."""
        self._number = 0
        self._away: Host | None = None
        """Host that no user reaches."""
        self._stage: Stage
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        self._stage = stage
        world = stage.world(self.NAME, History())
        self._hosts = [Host(stage, world, number) for number in range(1, SERVICES + 1)]
        await self._start_together()
        happenings: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (
            self._leader_dies,
            self._leader_stops,
            self._leader_stands_still,
            self._leader_is_cut_off,
            self._follower_stands_still,
            self._follower_has_a_wrong_clock,
            self._start_together,
            self._broker_dies,
        )
        for happening in self.chance.sample(happenings, self.ROUNDS):
            if self._complaints:
                break
            for _ in range(self.CHANGES):
                await self._change()
            await happening()
            await self._agree(happening.__name__.strip("_"))
        for host in self._hosts:
            host.kill()

    # -- what happens to services ----------------------------------------------------------------

    async def _leader_dies(self) -> None:
        """The clocks of the others may be wrong from then on."""
        leader = self._leader()
        leader.kill()
        skew_ms = self.chance.choice((0, -AHEAD_MS))
        for host in self._followers(leader):
            host.clock.skew_ms += skew_ms
        await self._replaced(leader, NOTICED_WITHIN_S)
        await self._change()
        for host in self._followers(leader):
            host.clock.skew_ms -= skew_ms
        leader.start()

    async def _leader_stops(self) -> None:
        leader = self._leader()
        leader.stop()
        await self._replaced(leader, RELEASED_WITHIN_S)
        await self._change()
        leader.start()

    async def _leader_stands_still(self) -> None:
        """When it goes on, the first request comes before it has read what it missed."""
        leader = self._leader()
        leader.pause()
        self._away = leader
        await self._replaced(leader, AWAY_S)
        for _ in range(self.CHANGES):
            await self._change()
        self._away = None
        leader.resume()
        await self._change(first=leader)

    async def _leader_is_cut_off(self) -> None:
        leader = self._leader()
        leader.cut()
        self._away = leader
        await self._replaced(leader, AWAY_S)
        for _ in range(self.CHANGES):
            await self._change()
        self._away = None
        leader.heal()
        await self._change(first=leader)

    async def _follower_stands_still(self) -> None:
        leader = self._leader()
        follower = self.chance.choice(self._followers(leader))
        follower.pause()
        await asyncio.sleep(AWAY_S)
        follower.resume()
        await self._keeps(leader, f"{follower} stood still")

    async def _follower_has_a_wrong_clock(self) -> None:
        leader = self._leader()
        follower = self.chance.choice(self._followers(leader))
        follower.clock.skew_ms += AHEAD_MS
        await self._keeps(leader, f"the clock of {follower} was wrong")
        follower.clock.skew_ms -= AHEAD_MS

    async def _start_together(self) -> None:
        for host in self._hosts:
            host.kill()
        for host in self._hosts:
            host.start()
        await self._agree("they started together")

    async def _broker_dies(self) -> None:
        machine = leader_of(self._stage, TOPIC)
        machine.kill()
        if self._stage.brokers == 1:
            machine.start()
        for _ in range(self.CHANGES):
            await self._change()
        machine.start()
        await self._stage.in_sync()

    # -- a user ------------------------------------------------------------------------------------

    async def _change(self, first: Host | None = None) -> None:
        name = self.chance.choice(self.PIPELINES)
        known = self._wanted.get(name)
        self._number += 1
        value = str(self._number)
        config = {"connector.class": RUNS, "topic": "numbers", KEY: value}
        kind = self.chance.choice(("configure", "target", "target", "delete", "reset"))
        if known is None:
            after: Wanted | None = Wanted(value, Target.RUNNING, -1)
            await self._ask(name, first, lambda service: service.create(name, config), after)
        elif kind == "configure":
            after = Wanted(value, known.target, known.generation)
            await self._ask(name, first, lambda service: service.configure(name, config), after)
        elif kind == "delete":
            await self._ask(name, first, lambda service: service.delete(name), None)
        elif kind == "reset" and known.target is Target.STOPPED:
            after = Wanted(known.value, known.target, -1)
            await self._ask(name, first, lambda service: _reset(service, name), after)
        else:
            target = self.chance.choice([each for each in Target if each is not known.target])
            after = Wanted(known.value, target, known.generation)
            await self._ask(name, first, lambda service: service.set_target(name, target), after)

    async def _ask(
        self,
        name: str,
        first: Host | None,
        change: Callable[[PipelineService], Awaitable[object]],
        after: Wanted | None,
    ) -> None:
        """Until a service that runs the pipelines takes it."""
        hosts = [each for each in self.chance.sample(self._hosts, SERVICES) if each is not self._away]
        if first is not None:
            hosts = [first, *hosts]
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SERVED_WITHIN_S
        while loop.time() < until_s:
            for host in hosts:
                try:
                    await host.do(change)
                except (*AWAY, TimeoutError):
                    await self._doubt(name)
                    return
                except ServiceError as error:
                    if error.code == 503:
                        continue
                    self._complaints.append(f"refused wrongly: {host} says of {name}: {error.message}")
                    return
                if after is None:
                    del self._wanted[name]
                else:
                    self._wanted[name] = after
                    self._number_of(host, name, after)
                return
            await asyncio.sleep(1.0)
        self._complaints.append(f"not served: no service changes {name} within {SERVED_WITHIN_S:.0f} s")

    def _number_of(self, host: Host, name: str, wanted: Wanted) -> None:
        """A new pipeline, and one that begins again, has a generation that no earlier one had."""
        if host.service is None or name not in host.service.names():
            return
        generation, last = host.service.stored(name).generation, self._last.get(name, -1)
        if wanted.generation < 0 and generation <= last:
            self._complaints.append(f"generation used again: {generation} of {name}, after {last}")
        wanted.generation = generation
        self._last[name] = max(generation, last)

    async def _doubt(self, name: str) -> None:
        """It is not known whether the change was made: what the services have then, counts."""
        await asyncio.sleep(DOUBT_S)
        self._wanted.pop(name, None)
        for host in self._hosts:
            if host.is_leader and host.service is not None and name in host.service.names():
                stored = host.service.stored(name)
                self._wanted[name] = Wanted(stored.config[KEY], stored.target, stored.generation)
                self._last[name] = max(stored.generation, self._last.get(name, -1))

    # -- judging -----------------------------------------------------------------------------------

    def _leader(self) -> Host:
        return next(host for host in self._hosts if host.is_leader)

    def _followers(self, leader: Host) -> list[Host]:
        return [host for host in self._hosts if host is not leader]

    async def _replaced(self, leader: Host, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not any(each.is_leader for each in self._followers(leader)):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
                return
        self._complaints.append(f"not served: {leader} is gone, and no service has its place")

    async def _keeps(self, leader: Host, after: str) -> None:
        await asyncio.sleep(WATCHED_S)
        if not leader.is_leader:
            self._complaints.append(
                f"taken without need: the pipelines of {leader}, which was alive: {after}"
            )

    async def _agree(self, after: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_WITHIN_S):
                while self._problem() is not None:  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(1.0)
        if (problem := self._problem()) is not None:
            self._complaints.append(f"{problem}, after: {after}")

    def _problem(self) -> str | None:
        services = [host.service for host in self._hosts if host.service is not None]
        if len(services) < SERVICES:
            return "not served: a service is not open"
        leaders = [host for host in self._hosts if host.is_leader]
        if len(leaders) != 1:
            return f"claimed wrongly: {len(leaders)} services run the pipelines"
        for host, service in zip(self._hosts, services, strict=True):
            stored = {name: _shown(service.stored(name)) for name in service.names()}
            if stored != self._wanted:
                return f"lost change: {host} has {stored} instead of {self._wanted}"
            runs = {
                name: wanted.generation
                for name, wanted in self._wanted.items()
                if host.is_leader and wanted.target is Target.RUNNING
            }
            if host.drivers.running != runs:
                return f"run wrongly: {host} runs {host.drivers.running} instead of {runs}"
        return None

    def complaints(self) -> list[str]:
        return self._complaints[:5]


async def _reset(service: PipelineService, name: str) -> None:
    while service.leadership.is_leader and service.pipeline(name).state is not State.STOPPED:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    await service.reset_offsets(name)


def _shown(stored: Stored) -> Wanted:
    return Wanted(stored.config[KEY], stored.target, stored.generation)
