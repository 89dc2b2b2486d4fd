"""Sequences inside the simulator: the same plan, over virtual time, a simulated network and a simulated disk.

A run follows from its seed alone, so what it finds can be played again exactly. Sessions, rebalances and
transactions run out within one sequence, as a minute of virtual time costs nothing. One whole broker serves,
without users. Every client may do everything, so requests that change the broker's settings are left out.

Its judges: every answer can be read and is no error of ours; every request that need not wait for other
members is answered; no task ends with an error and no error is logged; after each restart, in order or by
SIGKILL, memory equals a replay of the logs.
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.fuzz.judges import answers
from tests.fuzz.plan import SIMULATED, new_cast, plan
from tests.fuzz.pool import Pool
from tests.fuzz.reading import Reader, read_answer
from tests.fuzz.sequence import Exchange, step_of
from tests.fuzz.steps import (
    ASK,
    CLOSE,
    KILL,
    MAY_WAIT,
    MEMBER_SLOTS,
    NOT_BY_ADMIN,
    PAUSE,
    RESTART,
    SLOTS,
    Step,
)
from tests.simulation import memory
from tests.simulation.embedded import EmbeddedView
from tests.simulation.loop import Process, SimulatedLoop, Stuck
from tests.simulation.machine import PORT, Machine, SimulatedClock
from tests.simulation.network import Network
from tests.simulation.settings import SINGLE
from tests.simulation.shape import Shape
from tests.simulation.simulation import _Errors
from tests.simulation.trace import Trace
from tests.support import hostile, wire

CLIENT_HOST = "10.0.1.1"
ANSWER_S_MAX = 60.0
START_S_MAX = 120.0
RESTART_S_MAX = 300.0
POLL_S = 0.002
COMPUTED_S_MAX = 15.0
"""Of the processor, for a whole run: one callback that never ends stops virtual time."""
TOPICS = ("fuzz-a", "fuzz-b", "fuzz.c", "hidden-t")
SETTINGS = {
    **SINGLE,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
}


class Endless(KeyboardInterrupt):
    """A callback does not end. Neither a broker that catches every Exception nor asyncio keeps this."""


class Outcome(NamedTuple):
    complaints: list[str]
    requests: int
    restarts: int
    virtual_s: float
    digest: str


class _Connection(asyncio.BufferedProtocol):
    """One slot of the sequence."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.pending: deque[tuple[int, Step]] = deque()
        self.is_lost = False
        self.arrived: list[bytes] = []
        self._room = bytearray(1 << 18)
        self._received = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        received = self._received
        received += self._room[:nbytes]
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4])
            if len(received) < end:
                break
            self.arrived.append(bytes(received[4:end]))
            del received[:end]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class SimulatedSequence:
    def __init__(self, seed: int, count: int) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._count = count
        self._loop = SimulatedLoop()
        self._trace = Trace(lambda: self._loop.now_s)
        self._network = Network(self._loop, random.Random(f"{seed} network"), self._trace)
        shape = Shape(brokers=1, is_embedded=True, settings=SETTINGS)
        self._machine = Machine(1, self._loop, self._network, EmbeddedView(), seed, self._trace, shape)
        self._process = Process(self._loop, "fuzz", CLIENT_HOST)
        self._pool = Pool()
        self._reader = Reader()
        self._cast = new_cast(self._random)
        self._slots: dict[int, _Connection] = {}
        self._complaints: list[str] = []
        self._sent = 0
        self._restarts = 0

    def run(self) -> Outcome:
        errors = _Errors(self._loop.time)
        gc.disable()
        try:
            with errors, _computing_at_most(COMPUTED_S_MAX):
                asyncio.set_event_loop(self._loop)
                try:
                    self._loop.run_until_complete(self._process.start(self._main()))
                except (Stuck, Endless) as error:
                    self._complaints.append(f"stuck: {error}")
                finally:
                    asyncio.set_event_loop(None)
                    self._bury()
        finally:
            gc.enable()
        told = [f"error: {each[:2_000]}" for each in (*errors.seen, *self._loop.complaints)]
        return Outcome(
            [*self._complaints, *told], self._sent, self._restarts, self._loop.now_s, self._trace.digest
        )

    async def _main(self) -> None:
        self._machine.start()
        await self._until_serving()
        await self._prepare()
        for step in plan(self._random, self._pool, self._cast, self._count, SIMULATED):
            await self._do(step)
        await self._restart(is_killed=True)

    async def _until_serving(self) -> None:
        deadline_s = self._loop.now_s + START_S_MAX
        while not self._machine.is_serving:
            if self._loop.now_s > deadline_s:
                raise Stuck(f"the broker does not serve after {START_S_MAX:.0f} s")
            await asyncio.sleep(0.1)

    async def _prepare(self) -> None:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        frame = hostile.frame_of(ApiKey.CREATE_TOPICS, 2, CreateTopicsRequest(topics=topics))
        await self._send(Step(ASK, 0, ApiKey.CREATE_TOPICS, 2, frame))
        await self._gather(1.0)

    async def _do(self, step: Step) -> None:
        if step.do == PAUSE:
            await self._gather(step.pause_ms / 1_000)
        elif step.do in (RESTART, KILL):
            await self._restart(is_killed=step.do == KILL)
        elif step.do == CLOSE:
            self._close(step.slot)
        elif step.key in NOT_BY_ADMIN:
            self._cast.closed(step.slot)
        else:
            await self._send(step)

    async def _send(self, step: Step) -> None:
        connection = self._slots.get(step.slot)
        if connection is None or connection.is_lost:
            self._close(step.slot)
            try:
                _, connection = await self._loop.create_connection(_Connection, self._machine.host, PORT)
            except OSError:
                self._cast.closed(step.slot)
                return
            self._slots[step.slot] = connection
        self._sent += 1
        if step.do == ASK and step.is_answered:
            connection.pending.append((int.from_bytes(step.frame[4:8], signed=True), step))
        connection.transport.write(wire.framed(step.frame))

    async def _gather(self, pause_s: float) -> None:
        """Until every request is answered that need not wait for other members, and for the pause at
        least."""
        began_s = self._loop.now_s
        while True:
            self._take()
            spent_s = self._loop.now_s - began_s
            late = [
                connection.pending[0][1]
                for connection in self._slots.values()
                if connection.pending and connection.pending[0][1].key not in MAY_WAIT
            ]
            if not late and spent_s >= pause_s:
                return
            if late and spent_s > ANSWER_S_MAX + pause_s:
                self._complaints.append(f"unanswered: {ApiKey(late[0].key).name} {late[0].told[:500]}")
                self._close(late[0].slot)
            await asyncio.sleep(POLL_S if late else max(pause_s - spent_s, POLL_S))

    def _take(self) -> None:
        for slot, connection in list(self._slots.items()):
            arrived, connection.arrived = connection.arrived, []
            for answer in arrived:
                step = step_of(connection.pending, answer)
                if step is not None:
                    self._matched(step, answer)
            if connection.is_lost:
                self._close(slot)

    def _matched(self, step: Step, answer: bytes) -> None:
        if step.slot in MEMBER_SLOTS:
            message, complaint = read_answer(step, answer)
            self._cast.answered(step.slot, step.key, message)
        else:
            message, complaint = self._reader.read(step, answer)
        if complaint is not None:
            self._complaints.append(f"broken answer: {complaint}")
        if message is not None:
            self._pool.learn(message)
        self._complaints += answers.complaints(Exchange(step, answer, message))

    def _close(self, slot: int) -> None:
        connection = self._slots.pop(slot, None)
        if connection is not None and not connection.is_lost:
            connection.transport.close()
        self._cast.closed(slot)

    async def _restart(self, *, is_killed: bool) -> None:
        self._restarts += 1
        for slot in range(len(SLOTS)):
            self._close(slot)
        try:
            async with asyncio.timeout(RESTART_S_MAX):
                client = self._client()
                known = await memory.known_to(client)
                before = await memory.ask(client, known)
                life = self._machine.lives
                if is_killed:
                    self._machine.kill()
                    self._machine.start()
                else:
                    self._machine.stop()
                    while self._machine.lives == life:  # noqa: ASYNC110 - the machine tells nobody
                        await asyncio.sleep(0.1)
                await self._until_serving()
                after = await memory.ask(self._client(), known)
        except (TimeoutError, KafkaError, ClusterUnreachable) as error:
            self._complaints.append(f"restart: {error!r}")
        else:
            self._complaints += memory.differences(before, after)

    def _client(self) -> ClusterClient:
        return ClusterClient(
            [self._machine.address],
            clock=SimulatedClock(self._loop),
            randomness=random.Random(f"{self._seed} questions"),
            client_id="questions",
        )

    def _bury(self) -> None:
        self._machine.leave()
        for process in (*self._machine.graves, self._process):
            process.die()
            process.bury()
        for task in asyncio.all_tasks(self._loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._loop.close()


@contextmanager
def _computing_at_most(spent_s: float) -> Iterator[None]:
    def complain(*_: object) -> None:
        raise Endless(f"{spent_s:.0f} s of the processor are used up")

    before = signal.signal(signal.SIGVTALRM, complain)
    signal.setitimer(signal.ITIMER_VIRTUAL, spent_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
