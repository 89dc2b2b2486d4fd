"""Leadership among several pipeline services: the leader runs the pipelines.

The service with the last claim in the store leads. It writes a heartbeat every few seconds and releases its
claim when it ends. The others follow. One of them claims the pipelines when the leader has released its claim
or its heartbeats have stopped.

Silence is measured by a clock that does not jump. It counts only while this service runs and reads: one that
stood still reads first what the leader has written meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.store import Change, Claim

logger = logging.getLogger(__name__)

HEARTBEAT_MS = 5_000
SILENCE_MS = 20_000
"""A leader without a heartbeat for this long counts as dead."""
STOOD_STILL_MS = 2 * HEARTBEAT_MS
"""A pause between heartbeats that takes this long: the process or its machine was stopped."""


class Claims(Protocol):
    """Part of the store that services share."""

    @property
    def service_id(self) -> str: ...
    async def claim(self, worker_id: str) -> None: ...
    async def heartbeat(self) -> None: ...
    async def release(self) -> None: ...


class LeadershipChange(Enum):
    """Effect of a claim on this service."""

    LOST = "another service runs the pipelines now"
    REGAINED = "this service runs the pipelines again"


class Leadership:
    def __init__(self, store: Claims, worker_id: str, clock: Clock) -> None:
        self.other_leader: str | None = None
        """Address of the service that has taken over, if any."""
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._leader_id = ""
        self._last_heartbeat_ms = 0.0
        """Time of the leader's last record."""

    @property
    def is_leader(self) -> bool:
        return self._leader_id == self._store.service_id

    def check(self) -> None:
        """Raises ServiceError if another service has taken over."""
        if self.other_leader is not None:
            raise ServiceError(
                503,
                f"The pipeline service at {self.other_leader} has taken over: use it, or restart this one",
            )

    async def open(self) -> None:
        await self._store.claim(self._worker_id)
        self._leader_id = self._store.service_id

    async def close(self) -> None:
        """Release the claim if this service is the leader. It stops also while the brokers are away."""
        if self.is_leader:
            try:
                await self._store.release()
            except AWAY as error:
                logger.warning(
                    "the claim on the pipelines stays, until %d s after the last heartbeat: %s",
                    SILENCE_MS // 1_000, error,
                )  # fmt: skip

    async def keep(self) -> None:
        """Write heartbeats, or check those of the leader, without end."""
        while True:
            slept_at_ms = self._clock.monotonic_ms()
            await asyncio.sleep(HEARTBEAT_MS / 1_000)
            if self._clock.monotonic_ms() - slept_at_ms > STOOD_STILL_MS:
                self._heard()
            with sweeping("keeping the leadership"):
                try:
                    await self.tick()
                except AWAY as error:
                    logger.warning("the pipelines topic cannot be written, retrying: %s", error)

    async def tick(self) -> None:
        if self.is_leader:
            await self._store.heartbeat()
        elif self._clock.monotonic_ms() - self._last_heartbeat_ms > SILENCE_MS:
            logger.warning(
                "the pipeline service at %s writes no heartbeats: taking over its pipelines",
                self.other_leader,
            )
            await self._take()

    async def on_change(self, change: Change) -> LeadershipChange | None:
        """Apply a claim, a heartbeat, the release of a claim, or a gap in reading."""
        if change.claim is not None:
            return self.claimed(change.claim)
        if change.is_gap or (change.is_heartbeat and change.writer == self._leader_id):
            self._heard()
        elif change.is_release and change.writer == self._leader_id and not self.is_leader:
            logger.info("the pipeline service at %s has ended: taking over its pipelines", self.other_leader)
            try:
                await self._take()
            except AWAY as error:
                logger.warning("the pipelines cannot be claimed now, retrying: %s", error)
        return None

    def claimed(self, claim: Claim) -> LeadershipChange | None:
        if claim.service_id != self._store.service_id:
            self._leader_id, self.other_leader = claim.service_id, claim.worker_id
            self._heard()
            return LeadershipChange.LOST
        if self.is_leader:
            return None
        self._leader_id, self.other_leader = claim.service_id, None
        return LeadershipChange.REGAINED

    async def _take(self) -> None:
        """Claim the pipelines. Other services may claim at this moment; the order in the store decides."""
        await self._store.claim(self._worker_id)
        self._heard()

    def _heard(self) -> None:
        """Silence begins again."""
        self._last_heartbeat_ms = self._clock.monotonic_ms()
