"""Task that drives the membership: it sends its requests to the coordinator, and keeps its timers.

JoinGroup and SyncGroup wait for other members, so they have a connection of their own: heartbeats, commits
and LeaveGroup never wait behind them.

The task sends heartbeats by itself. Events wait until the application takes records (`on_event` is called):
then everything that it was given before is done, and may be committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from barnabas.client.aio.background import OnFailure, background_task
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import COORDINATOR, JOINING
from barnabas.client.core.cluster_state import GROUP
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.membership.interface import Ask, Membership
from barnabas.core.errors import KafkaError, NetworkException
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)


class Coordination:
    def __init__(
        self,
        cluster: ClusterClient,
        group_id: str,
        member: Membership,
        *,
        on_event: Callable[[], None],
        on_metadata_wanted: Callable[[], None],
        has_taken: Callable[[], bool],
        on_failure: OnFailure,
    ) -> None:
        """`has_taken` says whether the application took records since the last call."""
        self.member = member
        self._cluster = cluster
        self._group_id = group_id
        self._on_event = on_event
        self._on_metadata_wanted = on_metadata_wanted
        self._has_taken = has_taken
        self._on_failure = on_failure
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: tuple[asyncio.Task[Message], Ask] | None = None
        self._became_out = asyncio.Event()

    def start(self) -> None:
        if self._task is None:
            self._task = background_task(self._run(), self._on_failure)

    def wake(self) -> None:
        self._woken.set()

    async def leave(self, timeout_ms: float) -> None:
        """Leave the group, and wait for the answer. A join that is under way is given up."""
        self.member.leave()
        if self._asking is not None and isinstance(
            self._asking[1].request, JoinGroupRequest | SyncGroupRequest
        ):
            self._asking[0].cancel()
        self.wake()
        self._became_out.clear()
        if self._task is None or self._task.done() or self.member.is_out:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self._became_out.wait()
        except TimeoutError:
            logger.warning(
                "group %s: member %s could not leave within %.0f ms; its session expires",
                self._group_id,
                self.member.member_id,
                timeout_ms,
            )

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._asking and self._asking[0]) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task = None

    async def _run(self) -> None:
        clock, member = self._cluster.clock, self.member
        while True:
            self._woken.clear()
            if self._has_taken():
                member.polled()
            ask = member.next_ask()
            if ask is not None:
                await self._send(ask)
            self._look()
            if ask is not None:
                continue
            wait_ms = member.wakes_ms() - clock.monotonic_ms()
            try:
                async with asyncio.timeout(None if wait_ms == math.inf else max(0.0, wait_ms) / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _look(self) -> None:
        """Pass on what the machine wants."""
        member = self.member
        if member.forgets_coordinator:
            member.forgets_coordinator = False
            self._cluster.state.forget_coordinator(self._group_id, GROUP)
        if member.wants_metadata:
            self._on_metadata_wanted()
        if member.event is not None:
            self._on_event()
        if member.is_out:
            self._became_out.set()

    async def _send(self, ask: Ask) -> None:
        # A task of its own, so that `leave` can give it up without ending this one.
        asking = asyncio.get_running_loop().create_task(self._exchange(ask))
        self._asking = (asking, ask)
        try:
            await asyncio.wait((asking,))
        finally:
            self._asking = None
            asking.cancel()
        if asking.cancelled():
            self.member.failed(ask, NetworkException("the request was given up"))
            return
        error = asking.exception()
        if error is None:
            self.member.answered(ask, asking.result())
        elif isinstance(error, KafkaError | ClusterUnreachable):
            logger.debug("group %s: %s", self._group_id, error)
            self.member.failed(ask, error)
        else:
            raise error

    async def _exchange(self, ask: Ask) -> Message:
        waits = isinstance(ask.request, JoinGroupRequest | SyncGroupRequest)
        broker_id = await self._cluster.coordinator(self._group_id, GROUP)
        channel = await self._cluster.channel_to(broker_id, JOINING if waits else COORDINATOR)
        return await channel.send(ask.request, ask.response_class, timeout_ms=ask.timeout_ms)
