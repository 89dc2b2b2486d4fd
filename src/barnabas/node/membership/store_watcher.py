"""Copies of the coordination store's contents, kept fresh while a broker runs.

A watch notifies the broker of a change, but a missing notification proves nothing. So the copy is read again
soon after a failure, and as a whole from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from barnabas.cluster.coordination.contract import (
    RECOVERY_RETRY_MS,
    ConnectionLoss,
    Coordination,
    CoordinationError,
    SessionState,
)

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 300.0


class StoreCopy(Protocol):
    async def open(self, look: Callable[[], None]) -> None:
        """Read everything; `look` is called after a possible change."""

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        """Read the changes, or everything; `look` is called after a possible change."""


@asynccontextmanager
async def following(znodes: Coordination, copy: StoreCopy, what: str) -> AsyncIterator[None]:
    """`copy` is complete when the body begins, and follows the store until it ends."""
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
                await asyncio.sleep(RECOVERY_RETRY_MS / 1_000)
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
                self._is_unsure, pause_s = True, RECOVERY_RETRY_MS / 1_000
                logger.info("%s: cannot read the coordination store, trying again: %r", self._what, error)
            except Exception:
                self._is_unsure = True
                logger.exception("%s: refresh failed; the previous state stays in effect", self._what)

    def _session_changed(self, state: SessionState) -> None:
        """Read everything again: watches end with their session, and changes may have passed unseen."""
        if state is SessionState.CONNECTED and self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._is_unsure = True
            self._changed.set()
