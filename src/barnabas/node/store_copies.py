"""Copies of what the coordination store holds, kept fresh for as long as a broker runs.

A broker hears of a change by a watch, and that it heard of none proves nothing: what could not be read is
read again in a moment, and everything is from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from barnabas.cluster.coordination import ConnectionLoss, Coordination, CoordinationError, SessionState

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 300.0
RETRY_S: Final = 1.0


class StoreCopy(Protocol):
    async def open(self, look: Callable[[], None]) -> None:
        """Read all of it; `look` is called when it may have changed."""

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        """Read what changed, or everything; `look` is called when it may have changed again."""


@asynccontextmanager
async def following(znodes: Coordination, copy: StoreCopy, what: str) -> AsyncIterator[None]:
    """`copy` is whole when the body begins, and follows the store until it ends."""
    follower = _Follower(znodes, copy, what)
    await follower.open()
    task = asyncio.create_task(follower.run(), name=what)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Follower:
    def __init__(self, znodes: Coordination, copy: StoreCopy, what: str) -> None:
        self._znodes = znodes
        self._copy = copy
        self._what = what
        self._changed = asyncio.Event()
        self._is_unsure = False
        self._session_id = znodes.session_id

    async def open(self) -> None:
        self._znodes.add_listener(self._session_changed)
        while True:
            try:
                await self._copy.open(self._changed.set)
            except ConnectionLoss:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def run(self) -> None:
        pause_s = LOOK_AGAIN_S
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), pause_s)
            except TimeoutError:
                self._is_unsure = True
            self._changed.clear()
            everything, self._is_unsure = self._is_unsure, False
            pause_s = LOOK_AGAIN_S
            try:
                await self._copy.refresh(self._changed.set, everything=everything)
            except CoordinationError as error:
                self._is_unsure, pause_s = True, RETRY_S
                logger.info("%s: read again in a moment: %r", self._what, error)
            except Exception:
                self._is_unsure = True
                logger.exception("%s could not be read; what was known still holds", self._what)

    def _session_changed(self, state: SessionState) -> None:
        """Watches go with their session, and what they would have told may have come and gone since."""
        if state is SessionState.CONNECTED and self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._is_unsure = True
            self._changed.set()
