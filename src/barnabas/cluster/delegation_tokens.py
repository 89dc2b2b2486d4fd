"""This broker's copy of the delegation tokens, and the way to change them.

A broker hears of changes by notes, and reads the tokens that they name; all of them when it is told to, and
those that did not change are not decoded again. A token may be large, and what lets somebody log in with it
takes milliseconds to derive: both are done off the loop. All reading goes through one lock, so what is taken
over is never older than what was.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.cluster.change_notes import remove_old_notes
from barnabas.cluster.coordination import (
    Coordination,
    Create,
    Delete,
    NoNode,
    Operation,
    SetData,
    Stat,
)
from barnabas.cluster.delegation_token_znodes import DelegationTokenZnode, TokenChangeZnode
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import DelegationTokenNotFound, KafkaError, PolicyViolation
from barnabas.core.limits import DELEGATION_TOKENS_MAX, DELEGATION_TOKENS_PER_OWNER_MAX
from barnabas.core.scheduler import Background
from barnabas.core.sweeping import sweeping
from barnabas.core.waiting import Lock, Runner, elsewhere
from barnabas.security.credentials.decoys import Decoys, decoy_salt
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
)
from barnabas.security.principal import KafkaPrincipal

logger = logging.getLogger(__name__)

TOKENS_READ_TOGETHER = 100


class _Known(NamedTuple):
    token: DelegationToken
    secret: bytes
    credentials: dict[ScramMechanism, ScramCredential]
    mzxid: int
    """Of the write that left the token as it is here."""


class DelegationTokens:
    """`open` reads all of them before it returns."""

    def __init__(
        self,
        znodes: Coordination,
        clock: Clock,
        brokers_secret: str,
        times: TokenTimes,
        background: Background,
        runner: Runner,
    ) -> None:
        self.times = times
        self._znodes = znodes
        self._clock = clock
        self._brokers_secret = brokers_secret
        self._known: dict[str, _Known] = {}
        self._ids: dict[bytes, str] = {}
        """By a digest of the secret: how long a look-up takes says nothing about the secret itself."""
        self._notes: dict[str, tuple[bytes, Stat] | None] = {}
        """By path: those that were heeded."""
        self._background = background
        self._runner = runner
        self._turn = Lock(runner)
        self._adding = Lock(runner)
        self._salt_secret = token_secret(brokers_secret, "salts of all token ids, whether there are or not")
        self._decoys = Decoys(self._salt_secret)

    async def open(self, look: Callable[[], None]) -> None:
        await self._znodes.make_paths((DelegationTokenZnode.PARENT, TokenChangeZnode.PARENT))
        await self.refresh(look, everything=True)

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter([known.token for known in self._known.values()])

    def secret_of(self, token: DelegationToken) -> bytes:
        known = self._known.get(token.token_id)
        return token_secret(self._brokers_secret, token.token_id) if known is None else known.secret

    def find(self, secret: bytes) -> DelegationToken:
        token_id = self._ids.get(_digest(secret))
        if token_id is None:
            raise DelegationTokenNotFound("there is no such token")
        return self._known[token_id].token

    def credential(self, mechanism: ScramMechanism, token_id: str) -> KnownCredential:
        """What logs in with a token; a decoy where there is none, or none any more."""
        known = self._known.get(token_id)
        if known is None or known.token.expiry_ms < self._clock.now_ms():
            return self._decoys.of(mechanism, token_id)
        return KnownCredential(known.credentials[mechanism], known.token.owner, known.token.expiry_ms)

    async def add(self, token: DelegationToken) -> None:
        """A new one; POLICY_VIOLATION if its owner, or all together, have as many as there may be."""
        async with self._adding:
            if self._is_full_for(token.owner):
                await self.remove_expired()
                if self._is_full_for(token.owner):
                    raise PolicyViolation(
                        f"there are as many delegation tokens as there may be: {DELEGATION_TOKENS_MAX},"
                        f" or {DELEGATION_TOKENS_PER_OWNER_MAX} of one owner; end those that are not used"
                    )
            await self.put(token)

    def _is_full_for(self, owner: KafkaPrincipal) -> bool:
        of_owner = sum(each.token.owner == owner for each in self._known.values())
        return of_owner >= DELEGATION_TOKENS_PER_OWNER_MAX or len(self._known) >= DELEGATION_TOKENS_MAX

    async def put(self, token: DelegationToken) -> None:
        """Write it, let the others know, and know it here."""
        path, data = DelegationTokenZnode.path(token.token_id), DelegationTokenZnode.encode(token)
        is_known = token.token_id in self._known
        await self._write(token.token_id, SetData(path, data) if is_known else Create(path, data))
        async with self._turn:
            with as_client_errors():
                await self._read([token.token_id])

    async def remove(self, token: DelegationToken) -> None:
        await self._write(token.token_id, Delete(DelegationTokenZnode.path(token.token_id)))
        self._forget(token.token_id)

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
            self._forget(token_id)
            raise DelegationTokenNotFound("there is no such token") from None

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        async with self._turn:
            notes = await self._read_notes(look)
            ids = await self._znodes.children(DelegationTokenZnode.PARENT)
            for gone in self._known.keys() - ids:
                self._forget(gone)
            named = {node[0] for path, node in notes.items() if node is not None and path not in self._notes}
            await self._read(
                [
                    each
                    for each in ids
                    if everything or each not in self._known or TokenChangeZnode.encode(each) in named
                ]
            )
            self._notes = notes
            await remove_old_notes(self._znodes, notes, self._clock)

    async def _read_notes(self, look: Callable[[], None]) -> dict[str, tuple[bytes, Stat] | None]:
        """All of them; of those that were heeded what is known of them will do."""
        names = await self._znodes.children(TokenChangeZnode.PARENT, lambda _: look())
        paths = [f"{TokenChangeZnode.PARENT}/{name}" for name in names]
        new = [path for path in paths if path not in self._notes]
        found = dict(zip(new, await self._znodes.get_many(new), strict=True))
        return {path: self._notes[path] if path in self._notes else found[path] for path in paths}

    async def _read(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), TOKENS_READ_TOGETHER):
            some = ids[start : start + TOKENS_READ_TOGETHER]
            nodes = await self._znodes.get_many([DelegationTokenZnode.path(each) for each in some])
            for token_id, node in zip(some, nodes, strict=True):
                known = self._known.get(token_id)
                if node is None:
                    self._forget(token_id)
                elif known is None or known.mzxid != node[1].mzxid:
                    await self._take(token_id, *node)

    async def _take(self, token_id: str, data: bytes, stat: Stat) -> None:
        known = self._known.get(token_id)

        def understand() -> _Known:
            token = DelegationTokenZnode.decode(data)
            if token.token_id != token_id:
                raise MalformedZnode(f"the token {token_id} holds another id")
            if known is not None:
                return known._replace(token=token, mzxid=stat.mzxid)
            secret = token_secret(self._brokers_secret, token_id)
            return _Known(token, secret, self._credentials(token_id, token_password(secret)), stat.mzxid)

        try:
            taken = await elsewhere(understand, self._background, self._runner)
        except MalformedZnode as error:
            logger.warning("a delegation token is ignored: %s", error)
            return
        self._known[token_id] = taken
        self._ids[_digest(taken.secret)] = token_id

    def _credentials(self, token_id: str, password: str) -> dict[ScramMechanism, ScramCredential]:
        """With the salts that a decoy would have."""
        return {
            each: ScramCredential.derive(each, password, salt=decoy_salt(each, self._salt_secret, token_id))
            for each in ScramMechanism
        }

    def _forget(self, token_id: str) -> None:
        known = self._known.pop(token_id, None)
        if known is not None:
            del self._ids[_digest(known.secret)]


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
