"""Delegation tokens: this broker's copy of them, and their changes in the store.

Change notifications name the changed tokens. A full refresh decodes only the tokens that have changed. A
token may be large, and deriving its SCRAM credentials takes milliseconds: both happen off the loop. All
reading goes through one lock, so a newer token is never replaced by an older one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.cluster.coordination.contract import (
    Coordination,
    Create,
    Delete,
    NoNode,
    Operation,
    SetData,
    Stat,
)
from barnabas.cluster.stores.change_notifications import SeenNotifications
from barnabas.cluster.stores.errors import as_client_errors
from barnabas.cluster.znodes.delegation_tokens import DelegationTokenZnode, TokenChangeZnode
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import DelegationTokenNotFound, KafkaError, PolicyViolation
from barnabas.core.limits import DELEGATION_TOKENS_MAX, DELEGATION_TOKENS_PER_OWNER_MAX
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background
from barnabas.core.waiting import Lock, elsewhere
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
from barnabas.security.identity.principal import KafkaPrincipal

logger = logging.getLogger(__name__)

TOKENS_READ_TOGETHER = 100


class _Known(NamedTuple):
    token: DelegationToken
    secret: bytes
    credentials: dict[ScramMechanism, ScramCredential]
    mzxid: int
    """Zxid of the write that this copy holds."""


class DelegationTokens:
    """Copy of all delegation tokens; `open` reads all of them before it returns."""

    def __init__(
        self,
        znodes: Coordination,
        clock: Clock,
        brokers_secret: str,
        times: TokenTimes,
        background: Background,
        metrics: Metrics,
    ) -> None:
        self.times = times
        self._znodes = znodes
        self._clock = clock
        self._brokers_secret = brokers_secret
        self._known: dict[str, _Known] = {}
        self._ids: dict[bytes, str] = {}
        """Token ids by a digest of the secret, so the time of a lookup reveals nothing about the secret
        itself.
        """
        self._notes: dict[str, tuple[bytes, Stat] | None] = {}
        """Processed notifications by path."""
        self._seen = SeenNotifications(znodes, clock)
        self._background = background
        metrics.gauge("barnabas_delegation_tokens", "Delegation tokens.", lambda: len(self._known))
        metrics.gauge(
            "barnabas_delegation_token_owners",
            "Owners of delegation tokens.",
            lambda: len({known.token.owner for known in self._known.values()}),
        )
        self._turn = Lock()
        self._adding = Lock()
        self._is_sweeping = False
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
        """Credential that logs in with a token; a decoy if the token is unknown or expired.

        The decoy is computed for every id, because the time would tell known from unknown ids.
        """
        decoy, known = self._decoys.of(mechanism, token_id), self._known.get(token_id)
        if known is None or known.token.expiry_ms < self._clock.now_ms():
            return decoy
        return KnownCredential(known.credentials[mechanism], known.token.owner, known.token.expiry_ms)

    async def add(self, token: DelegationToken) -> None:
        """Add a new token; POLICY_VIOLATION if its owner, or all owners together, have too many.

        No owner has more tokens than remain for the others: a few greedy owners leave some for the rest.
        """
        async with self._adding:
            if self._is_full_for(token.owner):
                await self.remove_expired()
                if self._is_full_for(token.owner):
                    raise PolicyViolation(
                        f"the limit of delegation tokens is reached: {DELEGATION_TOKENS_MAX} in all,"
                        f" {DELEGATION_TOKENS_PER_OWNER_MAX} of one owner, and no more of one owner than are"
                        " left for all others; expire tokens that are not used"
                    )
            await self.put(token)

    def _is_full_for(self, owner: KafkaPrincipal) -> bool:
        of_owner = sum(each.token.owner == owner for each in self._known.values())
        left = DELEGATION_TOKENS_MAX - len(self._known)
        return left <= 0 or of_owner >= DELEGATION_TOKENS_PER_OWNER_MAX or of_owner > left

    async def put(self, token: DelegationToken) -> None:
        """Write the token and its change notification, and read it into this copy."""
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
        """Remove expired tokens from the store. Every broker tries, and the first one succeeds."""
        now_ms = self._clock.now_ms()
        for token in self:
            if token.expiry_ms < now_ms:
                with sweeping("an expired delegation token", token.token_id), suppress(KafkaError):
                    await self.remove(token)

    async def sweep_expired(self) -> None:
        """Periodic `remove_expired`. A pass does not start while a slow store holds up the previous one."""
        if self._is_sweeping:
            return
        self._is_sweeping = True
        try:
            await self.remove_expired()
        finally:
            self._is_sweeping = False

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
            everything |= any(node is None and path not in self._seen for path, node in notes.items())
            named = {node[0] for path, node in notes.items() if node is not None and path not in self._notes}
            await self._read(
                [
                    each
                    for each in ids
                    if everything or each not in self._known or TokenChangeZnode.encode(each) in named
                ]
            )
            self._notes = notes
            await self._seen.processed(notes)

    async def _read_notes(self, look: Callable[[], None]) -> dict[str, tuple[bytes, Stat] | None]:
        """All notifications; those that were processed come from this copy."""
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
            taken = await elsewhere(understand, self._background)
        except MalformedZnode as error:
            logger.warning("delegation token is ignored: %s", error)
            return
        self._known[token_id] = taken
        self._ids[_digest(taken.secret)] = token_id

    def _credentials(self, token_id: str, password: str) -> dict[ScramMechanism, ScramCredential]:
        """SCRAM credentials of a token, with the salts that a decoy would have."""
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
