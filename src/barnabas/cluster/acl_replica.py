"""This broker's copy of the access rules, which the authorizer decides by.

A broker hears of changes by notes, and that it heard of none proves nothing: it also reads everything again
after a new session, when a note cannot be understood, and from time to time. All reading goes through one
lock, so what is taken over is never older than what was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from barnabas.cluster.acl_store import (
    Rules,
    change_rules,
    list_patterns,
    make_acl_paths,
    named_by_note,
    read_rules,
)
from barnabas.cluster.acl_znodes import AclChangeZnode
from barnabas.cluster.coordination import (
    ConnectionLoss,
    Coordination,
    CoordinationError,
    NoNode,
    NotEmpty,
    SessionState,
    WatchEvent,
)
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.bindings import ResourcePattern

logger = logging.getLogger(__name__)

NOTE_LIFETIME_MS: Final = 15 * 60 * 1_000
LOOK_AGAIN_S: Final = 300.0
RETRY_S: Final = 1.0

_PARENTS = ((AclChangeZnode.LITERAL_PARENT, False), (AclChangeZnode.EXTENDED_PARENT, True))


class AclReplica:
    """`start` reads all rules before it returns; `close` ends the watching."""

    def __init__(self, znodes: Coordination, authorizer: AclAuthorizer, clock: Clock) -> None:
        self.authorizer = authorizer
        self._znodes = znodes
        self._clock = clock
        self._lock = asyncio.Lock()
        self._look = asyncio.Event()
        self._is_all_unsure = False
        self._seen: frozenset[str] = frozenset()
        self._session_id = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises MalformedZnode if a rule cannot be understood: it might forbid something."""
        self._session_id = self._znodes.session_id
        self._znodes.add_listener(self._on_state)
        while True:
            try:
                await make_acl_paths(self._znodes)
                await self._heed_notes()
                await self._read_all()
            except ConnectionLoss:
                await asyncio.sleep(RETRY_S)
            else:
                break
        self._task = asyncio.create_task(self._run(), name="acl-replica")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def change(self, pattern: ResourcePattern, change: Callable[[Rules], Rules]) -> tuple[Rules, Rules]:
        """Change the rules of a pattern, for a client; before and after. This broker heeds them at once."""
        with as_client_errors():
            outcome = await change_rules(self._znodes, pattern, change)
            await self._read([pattern])
        return outcome

    async def _run(self) -> None:
        pause_s = LOOK_AGAIN_S
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), pause_s)
            except TimeoutError:
                self._is_all_unsure = True
            self._look.clear()
            pause_s = LOOK_AGAIN_S
            try:
                await self._heed_notes()
                if self._is_all_unsure:
                    await self._read_all()
            except Exception as error:
                self._is_all_unsure = True
                if isinstance(error, CoordinationError):
                    pause_s = RETRY_S
                    logger.info("access rules are read again in a moment: %r", error)
                else:
                    logger.exception("access rules could not be read; what was known of them still holds")

    async def _heed_notes(self) -> None:
        named: dict[ResourcePattern, None] = {}
        seen: set[str] = set()
        for parent, is_extended in _PARENTS:
            names = await self._znodes.children(parent, self._changed)
            paths = [f"{parent}/{name}" for name in names]
            nodes = await self._znodes.get_many(paths)
            for path, node in zip(paths, nodes, strict=True):
                if node is None:
                    continue
                if node[1].ctime_ms < self._clock.now_ms() - NOTE_LIFETIME_MS:
                    with suppress(NoNode, NotEmpty):  # every broker removes old notes
                        await self._znodes.delete(path)
                elif path in self._seen:
                    seen.add(path)
                    continue
                seen.add(path)
                try:
                    named[named_by_note(node[0], extended=is_extended)] = None
                except MalformedZnode as error:
                    logger.warning("%s: %s", path, error)
                    self._is_all_unsure = True
        await self._read(named)
        self._seen = frozenset(seen)

    async def _read_all(self) -> None:
        self._is_all_unsure = False
        try:
            patterns = await list_patterns(self._znodes)
            await self._read(dict.fromkeys([*patterns, *self.authorizer.patterns()]))
        except BaseException:
            self._is_all_unsure = True
            raise

    async def _read(self, patterns: Iterable[ResourcePattern]) -> None:
        """What cannot be understood raises, once all the others are taken over."""
        failure: MalformedZnode | None = None
        async with self._lock:
            for pattern, rules in (await read_rules(self._znodes, list(patterns))).items():
                if isinstance(rules, MalformedZnode):
                    failure = rules
                else:
                    self.authorizer.replace(pattern, rules)
        if failure is not None:
            raise failure

    def _changed(self, event: WatchEvent) -> None:  # noqa: ARG002 - whatever it was, look
        self._look.set()

    def _on_state(self, state: SessionState) -> None:
        """The watches went with the old session, and notes may have come and gone meanwhile."""
        if state is SessionState.CONNECTED and self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._is_all_unsure = True
            self._look.set()
