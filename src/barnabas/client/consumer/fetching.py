"""Fetch requests in flight: a task for each broker, started by `pump` whenever something may be fetched."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from barnabas.client.aio.background import OnFailure, background_task
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import FETCH
from barnabas.client.consumer.core.fetch_plans import FetchPlan, FetchPlans
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from barnabas.protocol.messages.fetch import FetchResponse


class Fetching:
    def __init__(
        self,
        cluster: ClusterClient,
        plans: FetchPlans,
        *,
        on_arrival: Callable[[], None],
        on_positions_wanted: Callable[[], None],
        on_failure: OnFailure,
    ) -> None:
        self._cluster = cluster
        self._plans = plans
        self._on_arrival = on_arrival
        self._on_positions_wanted = on_positions_wanted
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def pump(self) -> None:
        """Send the requests that are possible now."""
        if self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        for plan in self._plans.plans():
            task = background_task(self._fetch(plan), self._on_failure)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._plans.wants_metadata:
            self._plans.wants_metadata = False
            self._cluster.updates.request()
        self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes_ms = self._plans.wakes_ms()
        if wakes_ms != math.inf:
            delay_ms = max(0.0, wakes_ms - self._cluster.clock.monotonic_ms())
            self._timer = loop.call_later(delay_ms / 1_000, self.pump)

    async def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _fetch(self, plan: FetchPlan) -> None:
        try:
            channel = await self._cluster.channel_to(plan.broker_id, FETCH)
            answer = await channel.send(plan.request, FetchResponse, version_max=plan.version_max)
        except (KafkaError, ClusterUnreachable):
            self._plans.failed(plan)
        else:
            if self._plans.answered(plan, answer) or self._plans.errors:
                self._on_arrival()
            if self._plans.wants_positions:
                self._plans.wants_positions = False
                self._on_positions_wanted()
        self.pump()
