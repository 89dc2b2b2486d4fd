"""Visitors who prove with each request who they are: by a client certificate, or by a bearer token.

Such a visitor needs no cookie and no sign-in page. The session belongs to the proof: a request finds it by
showing the proof again, and by nothing else. A cookie without the proof opens nothing.

A certificate counts if the TLS handshake of the console's own listener has checked it. Headers in which a
proxy describes a certificate or a user are never read, because any client can send them. A bearer token may
come from a proxy, since the brokers verify it. It wins over a certificate, which is then the proxy's own.

A refused proof is remembered for a while, so that a client that repeats it costs the brokers nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.web.connections import Connection, Connections, reason_of
from barnabas.console.web.sessions import Session, Sessions
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    KafkaError,
    SaslAuthenticationFailed,
)
from barnabas.network.http.asgi import CERTIFICATE

REFUSAL_KEPT_MS: Final = 5_000.0
REFUSALS_MAX: Final = 1_000


class NotProven(Exception):
    """The brokers do not let this visitor in, or do not answer; the message says why."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Proof:
    id: str
    """Identifies the session. It holds no secret."""
    user: str | None = None
    """User of a certificate."""
    bearer: str | None = field(default=None, repr=False)

    async def open(self, connections: Connections) -> Connection:
        if self.bearer is not None:
            return await connections.log_in_by_bearer(self.bearer)
        assert self.user is not None
        return await connections.log_in_for(self.user)


def proof_of(request: Request, connections: Connections) -> Proof | None:
    """Credentials that the request carries; None for a visitor who signs in by the page."""
    if connections.takes_bearers:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = shown.strip()
            return Proof(f"bearer:{hashlib.sha256(token.encode()).hexdigest()}", bearer=token)
    if connections.takes_certificates:
        user = request.scope["extensions"][CERTIFICATE]["user"]
        if user is not None:
            return Proof(f"certificate:{user}", user=user)
    return None


class Proven:
    """Sessions by their proof."""

    def __init__(self, sessions: Sessions, connections: Connections, clock: Clock) -> None:
        self._sessions = sessions
        self._connections = connections
        self._clock = clock
        self._opening: dict[str, asyncio.Task[Session]] = {}
        self._refused: OrderedDict[str, tuple[float, NotProven]] = OrderedDict()

    async def session_of(self, proof: Proof) -> Session:
        """The session of the proof. Requests that come at once share one login."""
        found = self._sessions.proven(proof.id)
        if found is not None:
            return found
        until_ms, refusal = self._refused.get(proof.id, (0.0, None))
        if refusal is not None and self._clock.monotonic_ms() < until_ms:
            raise NotProven(str(refusal), refusal.status)
        task = self._opening.get(proof.id)
        if task is None:
            task = self._opening[proof.id] = asyncio.create_task(self._open(proof))
            task.add_done_callback(lambda done: self._opened(proof.id, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._opening.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, proof: Proof) -> Session:
        try:
            connection = await proof.open(self._connections)
        except (SaslAuthenticationFailed, DelegationTokenAuthorizationFailed) as error:
            raise NotProven(reason_of(error), 401) from None
        except DelegationTokenAuthDisabled as error:
            raise NotProven(reason_of(error), 501) from None
        except (KafkaError, ClusterUnreachable) as error:
            raise NotProven(reason_of(error), 503) from None
        session = self._sessions.begin(proof.id)
        session.connection = connection
        return session

    def _opened(self, proof_id: str, task: asyncio.Task[Session]) -> None:
        self._opening.pop(proof_id, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NotProven) and error.status == 401:
            self._refused[proof_id] = (self._clock.monotonic_ms() + REFUSAL_KEPT_MS, error)
            while len(self._refused) > REFUSALS_MAX:
                self._refused.popitem(last=False)
