"""This broker's copy of the delegation tokens, and the way to change them.

A broker hears of changes by notes, and then reads all tokens: they are few. What it needs to let somebody
log in with one is derived when it hears of the token, off the loop.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.cluster.coordination import (
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionState,
    SetData,
    WatchEvent,
)
from barnabas.cluster.delegation_token_znodes import DelegationTokenZnode, TokenChangeZnode
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import DelegationTokenNotFound, KafkaError
from barnabas.core.sweeping import sweeping
from barnabas.security.credentials.delegation_token import (
    DelegationToken,
    TokenTimes,
    token_password,
    token_secret,
)
from barnabas.security.credentials.scram_credential import (
    KnownCredential,
    ScramCredential,
    ScramMechanism,
    decoy,
)

logger = logging.getLogger(__name__)

NOTE_LIFETIME_MS: Final = 15 * 60 * 1_000
RETRY_S: Final = 1.0
_PATHS: Final = ("/delegation_token", DelegationTokenZnode.PARENT, TokenChangeZnode.PARENT)


class _Known(NamedTuple):
    token: DelegationToken
    credentials: dict[ScramMechanism, ScramCredential]


class DelegationTokens:
    """`start` reads all of them before it returns."""

    def __init__(self, znodes: Coordination, clock: Clock, brokers_secret: str, times: TokenTimes) -> None:
        self.times = times
        self._znodes = znodes
        self._clock = clock
        self._brokers_secret = brokers_secret
        self._known: dict[str, _Known] = {}
        self._turn = asyncio.Lock()
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._decoy_secret = os.urandom(32)

    async def start(self) -> None:
        for path in _PATHS:
            with suppress(NodeExists):
                await self._znodes.create(path)
        await self._read()
        self._znodes.add_listener(self._session_changed)
        self._task = asyncio.create_task(self._follow(), name="delegation-tokens")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter([known.token for known in self._known.values()])

    def secret_of(self, token: DelegationToken) -> bytes:
        return token_secret(self._brokers_secret, token.token_id)

    def find(self, secret: bytes) -> DelegationToken:
        found = [each for each in self if hmac.compare_digest(self.secret_of(each), secret)]
        if not found:
            raise DelegationTokenNotFound("there is no such token")
        return found[0]

    def credential(self, mechanism: ScramMechanism, token_id: str) -> KnownCredential:
        """What logs in with a token; a decoy where there is none, or none any more."""
        known = self._known.get(token_id)
        if known is None or known.token.expiry_ms < self._clock.now_ms():
            return decoy(mechanism, self._decoy_secret, token_id)
        return KnownCredential(known.credentials[mechanism], known.token.owner, known.token.expiry_ms)

    async def put(self, token: DelegationToken) -> None:
        """Write it, let the others know, and know it here."""
        path, data = DelegationTokenZnode.path(token.token_id), DelegationTokenZnode.encode(token)
        is_known = token.token_id in self._known
        await self._write(token.token_id, SetData(path, data) if is_known else Create(path, data))
        async with self._turn:
            await self._take(token)

    async def remove(self, token: DelegationToken) -> None:
        await self._write(token.token_id, Delete(DelegationTokenZnode.path(token.token_id)))
        self._known.pop(token.token_id, None)

    async def remove_expired(self) -> None:
        """What is over is of no use to anybody; every broker looks, and one of them is first."""
        now_ms = self._clock.now_ms()
        for token in self:
            if token.expiry_ms < now_ms:
                with sweeping("an expired delegation token", token.token_id), suppress(KafkaError):
                    await self.remove(token)

    async def _write(self, token_id: str, operation: Operation) -> None:
        note = Create(TokenChangeZnode.CREATE_PATH, TokenChangeZnode.encode(token_id), sequential=True)
        try:
            with as_client_errors():
                await self._znodes.multi([operation, note])
        except NoNode:
            self._known.pop(token_id, None)
            raise DelegationTokenNotFound("there is no such token") from None

    async def _read(self) -> None:
        async with self._turn:
            notes = await self._znodes.children(TokenChangeZnode.PARENT, self._changed)
            ids = await self._znodes.children(DelegationTokenZnode.PARENT)
            nodes = await self._znodes.get_many([DelegationTokenZnode.path(each) for each in ids])
            for gone in self._known.keys() - ids:
                del self._known[gone]
            for node in nodes:
                if node is not None:
                    try:
                        await self._take(DelegationTokenZnode.decode(node[0]))
                    except MalformedZnode as error:
                        logger.warning("a delegation token is ignored: %s", error)
            await self._purge(notes)

    async def _take(self, token: DelegationToken) -> None:
        known = self._known.get(token.token_id)
        if known is not None:
            self._known[token.token_id] = known._replace(token=token)
            return
        password = token_password(self.secret_of(token))
        credentials = await asyncio.to_thread(
            lambda: {each: ScramCredential.derive(each, password) for each in ScramMechanism}
        )
        self._known[token.token_id] = _Known(token, credentials)

    async def _purge(self, names: list[str]) -> None:
        paths = [f"{TokenChangeZnode.PARENT}/{name}" for name in names]
        oldest_ms = self._clock.now_ms() - NOTE_LIFETIME_MS
        for path, node in zip(paths, await self._znodes.get_many(paths), strict=True):
            if node is not None and node[1].ctime_ms < oldest_ms:
                with suppress(NoNode):
                    await self._znodes.delete(path)

    async def _follow(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await self._read()
            except CoordinationError as error:
                logger.info("delegation tokens are read again soon: %r", error)
                await asyncio.sleep(RETRY_S)
                self._look.set()

    def _changed(self, event: WatchEvent) -> None:  # noqa: ARG002 - whatever it was, look
        self._look.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._look.set()
