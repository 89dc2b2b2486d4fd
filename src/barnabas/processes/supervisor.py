"""Supervisor of several processes: a local store, the brokers of a cluster.

A `Member` starts one process and recognizes that it is ready. The supervisor starts the members stage by
stage, each stage when the one before it is ready. The start fails if a member ends before it was ever ready.
Later a member that ends is started again, after a pause. The pause doubles up to a limit, and is short again
once the member has run for a while.

The stop goes backwards through the stages and, within a stage, one member after the other. A broker that
leaves hands its partitions to those still there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.processes.child_process import Child, ChildEnded, Say

logger = logging.getLogger(__name__)

RESTART_BACKOFF = Backoff(first_ms=500.0, max_ms=30_000.0)
STEADY_MS = 60_000.0
"""A member that has run for this long is restarted after the shortest pause again."""
STOP_TIMEOUT_S = 120.0


class Stopped(Exception):
    """A stop was requested before all members were ready."""


class Member(Protocol):
    """One process to keep running."""

    restart_backoff: Backoff
    """Pauses before the process is started again."""

    @property
    def name(self) -> str: ...

    async def launch(self, say: Say) -> Child:
        """Start the process."""
        ...

    async def until_ready(self, child: Child) -> None:
        """Wait until the process is ready; ChildEnded if it ends first."""
        ...

    def ended(self) -> None:
        """The launched process no longer exists."""
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
        """Wait until the member is ready for the first time; raises the error that prevents it."""
        await asyncio.shield(self._first_ready)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        self._leaving.set()
        if self.child is not None and self.child.is_running:
            await self.child.stop(timeout_s)
        if self._task is not None:
            await self._task
        if self._first_ready.done():
            self._first_ready.exception()  # retrieved, so that asyncio does not log it
        else:
            self._first_ready.cancel()

    def kill(self) -> None:
        self._leaving.set()
        if self.child is not None:
            self.child.send(signal.SIGKILL)

    async def _keep(self) -> None:
        backoff = self._member.restart_backoff
        backoff_ms = backoff.first_ms
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
                logger.exception("supervision of %s failed", self.name)
                reason = f"{self.name}: {error!r}"
            else:
                assert self.child is not None
                reason = self.child.epitaph()
            if self._leaving.is_set():
                return
            if self._now_ms() - started_ms >= STEADY_MS:
                backoff_ms = backoff.first_ms
            self._tell("supervisor", f"{reason}; starting it again in {backoff_ms / 1_000:g} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_ms / 1_000):
                    await self._leaving.wait()
            backoff_ms = backoff.following_ms(backoff_ms)

    async def _run_once(self) -> None:
        child = self.child = await self._member.launch(lambda line: self._tell(self.name, line))
        try:
            if self._leaving.is_set():
                child.send(signal.SIGTERM)
            await self._member.until_ready(child)
            if self._first_ready.done():
                self._tell("supervisor", f"{self.name} is back")
            else:
                self._first_ready.set_result(None)
            await child.wait()
        finally:
            if not child.is_running:
                self._member.ended()


class Supervisor:
    """Keepers of all members; `say` receives the name of a member and a line of its output."""

    def __init__(
        self, stages: Sequence[Sequence[Member]], say: Callable[[str, str], None], clock: Clock
    ) -> None:
        self._say = say
        self.stages = [[Keeper(member, say, clock) for member in stage] for stage in stages]
        self._stopping = asyncio.Event()

    @property
    def keepers(self) -> list[Keeper]:
        return [keeper for stage in self.stages for keeper in stage]

    async def start(self) -> None:
        """Raises ChildEnded or OSError if a member does not start, Stopped after `request_stop`."""
        for stage in self.stages:
            await self.start_stage(stage)

    async def start_stage(self, stage: Sequence[Keeper]) -> None:
        """Start one of `stages`, after the stages before it; raises as `start` does."""
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
        """Stop all members in order; the second call kills them."""
        if self._stopping.is_set():
            for keeper in self.keepers:
                keeper.kill()
        self._stopping.set()

    async def stop(self) -> None:
        for stage in reversed(self.stages):
            for keeper in stage:
                await keeper.stop()
                if keeper.child is not None:
                    self._say("supervisor", keeper.child.farewell())


async def _all_ready(keepers: Sequence[Keeper]) -> None:
    await asyncio.gather(*(keeper.wait_ready() for keeper in keepers))
