"""Several processes kept running: a local ZooKeeper, the brokers of a cluster.

A `Member` says how to start one process and how it shows that it is of use. The supervisor starts the
members stage by stage, each stage once the one before it is ready, and fails if one ends before it ever
was. From then on a member that ends is started again, after a pause that doubles up to a limit and is
short again once the member has lived for a while. Stopping goes backwards through the stages and, within
a stage, one member after the other: a broker that leaves hands its partitions to those still there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.node.child_process import Child, ChildEnded, Say

logger = logging.getLogger(__name__)

BACKOFF_S_MIN = 0.5
BACKOFF_S_MAX = 30.0
STEADY_MS = 60_000.0
"""Who has run for this long starts over with the shortest pause."""
STOP_TIMEOUT_S = 120.0


class Stopped(Exception):
    """Somebody asked to stop before everything was up."""


class Member(Protocol):
    """One process to keep running."""

    @property
    def name(self) -> str: ...

    async def launch(self, say: Say) -> Child:
        """A new run of it."""
        ...

    async def until_ready(self, child: Child) -> None:
        """ChildEnded if that never comes."""
        ...


class Keeper:
    """Keeps one member running, from `start` to `stop`."""

    def __init__(self, member: Member, say: Callable[[str, str], None], clock: Clock) -> None:
        self.name = member.name
        self.child: Child | None = None
        self._member = member
        self._tell = say
        self._now_ms = clock.monotonic_ms
        self._first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def wait_ready(self) -> None:
        """Until it is ready for the first time; raises what kept it from that."""
        await asyncio.shield(self._first_ready)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        self._leaving.set()
        if self.child is not None and self.child.is_running:
            await self.child.stop(timeout_s)
        if self._task is not None:
            await self._task
        if self._first_ready.done():
            self._first_ready.exception()  # whoever wanted to know was told
        else:
            self._first_ready.cancel()

    def kill(self) -> None:
        self._leaving.set()
        if self.child is not None:
            self.child.send(signal.SIGKILL)

    async def _keep(self) -> None:
        backoff_s = BACKOFF_S_MIN
        while not self._leaving.is_set():
            started_ms = self._now_ms()
            try:
                await self._run_once()
            except (ChildEnded, OSError) as error:
                if not self._first_ready.done():
                    self._first_ready.set_exception(error)
                    return
                reason = str(error)
            except Exception as error:
                if not self._first_ready.done():
                    self._first_ready.set_exception(error)
                    return
                logger.exception("%s could not be looked after", self.name)
                reason = f"{self.name}: {error!r}"
            else:
                assert self.child is not None
                reason = self.child.epitaph()
            if self._leaving.is_set():
                return
            if self._now_ms() - started_ms >= STEADY_MS:
                backoff_s = BACKOFF_S_MIN
            self._tell("supervisor", f"{reason}; starting it again in {backoff_s:g} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._leaving.wait()
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)

    async def _run_once(self) -> None:
        child = self.child = await self._member.launch(lambda line: self._tell(self.name, line))
        if self._leaving.is_set():
            child.send(signal.SIGTERM)
        await self._member.until_ready(child)
        if self._first_ready.done():
            self._tell("supervisor", f"{self.name} is back")
        else:
            self._first_ready.set_result(None)
        await child.wait()


class Supervisor:
    """All members; `say` gets the name of who speaks and a line."""

    def __init__(
        self, stages: Sequence[Sequence[Member]], say: Callable[[str, str], None], clock: Clock
    ) -> None:
        self.stages = [[Keeper(member, say, clock) for member in stage] for stage in stages]
        self._stopping = asyncio.Event()

    @property
    def keepers(self) -> list[Keeper]:
        return [keeper for stage in self.stages for keeper in stage]

    async def start(self) -> None:
        """Raises ChildEnded or OSError if a member does not come up, Stopped if asked to stop meanwhile."""
        for stage in self.stages:
            await self.start_stage(stage)

    async def start_stage(self, stage: Sequence[Keeper]) -> None:
        """Likewise, one of `stages`; those before it are up."""
        for keeper in stage:
            keeper.start()
        ready = asyncio.create_task(_all_ready(stage))
        asked = asyncio.create_task(self.wait_stopping())
        await asyncio.wait((ready, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not ready.done():
            ready.cancel()
            raise Stopped
        ready.result()

    async def wait_stopping(self) -> None:
        await self._stopping.wait()

    def request_stop(self) -> None:
        """The first time a wish, the second time a kill."""
        if self._stopping.is_set():
            for keeper in self.keepers:
                keeper.kill()
        self._stopping.set()

    async def stop(self) -> None:
        for stage in reversed(self.stages):
            for keeper in stage:
                await keeper.stop()


async def _all_ready(keepers: Sequence[Keeper]) -> None:
    await asyncio.gather(*(keeper.wait_ready() for keeper in keepers))
