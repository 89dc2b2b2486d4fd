"""Which of several services runs the pipelines.

One is in office: the one whose claim is the last in the store. It says every few seconds that it is
there, and gives the office back when it ends. Others do nothing but follow; one of them takes the
office when it is given back, or when nothing was heard of its holder for a while.
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

BEAT_MS = 5_000
SILENCE_MS = 20_000
"""Nothing heard of the service in office for so long: it is taken for dead."""


class Claims(Protocol):
    """The part of the store that services share."""

    @property
    def service_id(self) -> str: ...
    async def claim(self, worker_id: str) -> None: ...
    async def beat(self) -> None: ...
    async def release(self) -> None: ...


class Turn(Enum):
    """What a claim means for this service."""

    LOST = "another service runs the pipelines from here on"
    REGAINED = "this one does, again"


class Office:
    def __init__(self, store: Claims, worker_id: str, clock: Clock) -> None:
        self.successor: str | None = None
        """Where the service is that has taken over, if one has."""
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._holder_id = ""
        """The service in office."""
        self._heard_ms = 0
        """When it was last heard of."""

    @property
    def is_held(self) -> bool:
        return self._holder_id == self._store.service_id

    def check(self) -> None:
        """Raises ServiceError where another service has taken over."""
        if self.successor is not None:
            raise ServiceError(
                503,
                f"The pipeline service at {self.successor} has taken over: ask there, or start this again",
            )

    async def open(self) -> None:
        await self._store.claim(self._worker_id)
        self._holder_id = self._store.service_id

    async def close(self) -> None:
        """Give the office back, if this service has it."""
        if self.is_held:
            await self._store.release()

    async def keep(self) -> None:
        """Without end: say that this service is there, or look whether the one in office still is."""
        while True:
            await asyncio.sleep(BEAT_MS / 1_000)
            with sweeping("keeping the office"):
                try:
                    await self.tick()
                except AWAY as error:
                    log.warning("the topic of pipelines cannot be written: %s", error)

    async def tick(self) -> None:
        if self.is_held:
            await self._store.beat()
        elif self._clock.now_ms() - self._heard_ms > SILENCE_MS:
            log.warning("nothing is heard of the pipeline service at %s: taking over", self.successor)
            await self._take()

    async def heard(self, change: Change) -> Turn | None:
        """A claim, a sign of life, a farewell, or a gap in what could be read."""
        if change.claim is not None:
            return self.claimed(change.claim)
        if change.is_gap or (change.is_beat and change.writer == self._holder_id):
            self._heard_ms = self._clock.now_ms()
        elif change.is_farewell and change.writer == self._holder_id and not self.is_held:
            log.info("the pipeline service at %s has ended: taking over", self.successor)
            try:
                await self._take()
            except AWAY as error:
                log.warning("the pipelines cannot be claimed now: %s", error)
        return None

    def claimed(self, claim: Claim) -> Turn | None:
        if claim.service_id != self._store.service_id:
            self._holder_id, self.successor = claim.service_id, claim.worker_id
            self._heard_ms = self._clock.now_ms()
            return Turn.LOST
        if self.is_held:
            return None
        self._holder_id, self.successor = claim.service_id, None
        return Turn.REGAINED

    async def _take(self) -> None:
        """Others may do the same at this moment: who comes last in the store shows when it is read there."""
        await self._store.claim(self._worker_id)
        self._heard_ms = self._clock.now_ms()
