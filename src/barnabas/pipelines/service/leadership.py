"""Which of several services runs the pipelines.

The leader: the one whose claim is the last in the store. It writes a heartbeat every few seconds, and
releases its claim when it ends. The others only follow; one of them claims in its place when the leader
has released its claim, or has been silent for a while.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.core.sweeping import sweeping
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.store import Change, Claim

log = logging.getLogger(__name__)

HEARTBEAT_MS = 5_000
SILENCE_MS = 20_000
"""A leader that was silent for so long is taken for dead."""


class Claims(Protocol):
    """The part of the store that services share."""

    @property
    def service_id(self) -> str: ...
    async def claim(self, worker_id: str) -> None: ...
    async def heartbeat(self) -> None: ...
    async def release(self) -> None: ...


class LeadershipChange(Enum):
    """What a claim means for this service."""

    LOST = "another service runs the pipelines from here on"
    REGAINED = "this one does, again"


class Leadership:
    def __init__(self, store: Claims, worker_id: str, clock: Clock) -> None:
        self.other_leader: str | None = None
        """Where the service is that has taken over, if one has."""
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._leader_id = ""
        self._heard_ms = 0
        """When the leader was last heard of."""

    @property
    def is_leader(self) -> bool:
        return self._leader_id == self._store.service_id

    def check(self) -> None:
        """Raises ServiceError where another service has taken over."""
        if self.other_leader is not None:
            raise ServiceError(
                503,
                f"The pipeline service at {self.other_leader} has taken over: ask there, or start this again",
            )

    async def open(self) -> None:
        await self._store.claim(self._worker_id)
        self._leader_id = self._store.service_id

    async def close(self) -> None:
        """Release the claim, if this service is the leader."""
        if self.is_leader:
            await self._store.release()

    async def keep(self) -> None:
        """Without end: write a heartbeat, or look whether the leader still does."""
        while True:
            await asyncio.sleep(HEARTBEAT_MS / 1_000)
            with sweeping("keeping the leadership"):
                try:
                    await self.tick()
                except AWAY as error:
                    log.warning("the topic of pipelines cannot be written: %s", error)

    async def tick(self) -> None:
        if self.is_leader:
            await self._store.heartbeat()
        elif self._clock.now_ms() - self._heard_ms > SILENCE_MS:
            log.warning("nothing is heard of the pipeline service at %s: taking over", self.other_leader)
            await self._take()

    async def heard(self, change: Change) -> LeadershipChange | None:
        """A claim, a heartbeat, the release of a claim, or a gap in what could be read."""
        if change.claim is not None:
            return self.claimed(change.claim)
        if change.is_gap or (change.is_heartbeat and change.writer == self._leader_id):
            self._heard_ms = self._clock.now_ms()
        elif change.is_release and change.writer == self._leader_id and not self.is_leader:
            log.info("the pipeline service at %s has ended: taking over", self.other_leader)
            try:
                await self._take()
            except AWAY as error:
                log.warning("the pipelines cannot be claimed now: %s", error)
        return None

    def claimed(self, claim: Claim) -> LeadershipChange | None:
        if claim.service_id != self._store.service_id:
            self._leader_id, self.other_leader = claim.service_id, claim.worker_id
            self._heard_ms = self._clock.now_ms()
            return LeadershipChange.LOST
        if self.is_leader:
            return None
        self._leader_id, self.other_leader = claim.service_id, None
        return LeadershipChange.REGAINED

    async def _take(self) -> None:
        """Others may do the same at this moment: who comes last in the store shows when it is read there."""
        await self._store.claim(self._worker_id)
        self._heard_ms = self._clock.now_ms()
