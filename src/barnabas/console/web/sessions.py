"""Sessions of browsers: a random cookie, the signed-in user's client, notices for the next page.

A session that is not used ends; the session that was used longest ago makes room when there are too many. The
form token of a session is derived from its id. Another site may make the browser send the cookie, but does
not know the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from barnabas.console.web.connections import Connection
from barnabas.core.clock import Clock

COOKIE: Final = "barnabas_console"
TLS_COOKIE: Final = f"__Host-{COOKIE}"
"""Browsers accept this name from the console's own host alone, and with TLS. So no other host of the domain,
and no page without TLS, can put a session of its own into the browser."""
IDLE_MS: Final = 8 * 3_600_000.0
SESSIONS_MAX: Final = 1_000
NOTICES_MAX: Final = 5
ID_BYTES: Final = 32


def cookie_name(*, is_tls: bool, cluster: str = "") -> str:
    """Each of several clusters has sessions of its own, and so a cookie of its own."""
    name = TLS_COOKIE if is_tls else COOKIE
    return f"{name}-{cluster}" if cluster else name


class Notice(NamedTuple):
    text: str
    tone: Literal["good", "bad"]


class Session:
    def __init__(self, id_: str, secret: bytes, now_ms: float) -> None:
        self.id = id_
        self.form_token = hmac.new(secret, id_.encode(), hashlib.sha256).hexdigest()
        self.used_ms = now_ms
        self.connection: Connection | None = None
        self.is_admitted = False
        """Whether the browser has shown the console's token."""
        self.wanted_path = "/"
        """Page that was asked for before the sign-in."""
        self.notices: list[Notice] = []
        self.proof: str | None = None
        """Proof that each request of this session shows; None for a session of a cookie."""

    def notify(self, text: str, tone: Literal["good", "bad"]) -> None:
        self.notices = [*self.notices, Notice(text, tone)][-NOTICES_MAX:]

    def take_notices(self) -> list[Notice]:
        taken, self.notices = self.notices, []
        return taken


class Sessions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._by_id: OrderedDict[str, Session] = OrderedDict()
        """The one used last is the last."""
        self._by_proof: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def find(self, id_: str | None) -> Session | None:
        """The session of a cookie. One that belongs to a proof is not found by its cookie."""
        self._expire()
        found = self._by_id.get(id_ or "")
        return None if found is None or found.proof is not None else self._used(found)

    def proven(self, proof: str) -> Session | None:
        self._expire()
        found = self._by_proof.get(proof)
        return None if found is None else self._used(found)

    def stranger(self) -> Session:
        """A session that no request will find again."""
        return Session("", b"", self._clock.monotonic_ms())

    def begin(self, proof: str | None = None) -> Session:
        self._expire()
        while len(self._by_id) >= SESSIONS_MAX:
            # Strangers who ask often must not sign users out.
            unknown = (
                each for each in self._by_id.values() if each.connection is None and not each.is_admitted
            )
            self._drop(next(unknown, None) or next(iter(self._by_id.values())))
        made = Session(secrets.token_urlsafe(ID_BYTES), self._secret, self._clock.monotonic_ms())
        made.proof = proof
        self._by_id[made.id] = made
        if proof is not None:
            self._by_proof[proof] = made
        return made

    def end(self, session: Session) -> None:
        self._drop(session)

    async def close(self) -> None:
        for each in list(self._by_id.values()):
            self._drop(each)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _used(self, session: Session) -> Session | None:
        now_ms = self._clock.monotonic_ms()
        if session.connection is not None and session.connection.is_over(now_ms):
            self._drop(session)
            return None
        session.used_ms = now_ms
        self._by_id.move_to_end(session.id)
        return session

    def _expire(self) -> None:
        until_ms = self._clock.monotonic_ms() - IDLE_MS
        while self._by_id:
            oldest = next(iter(self._by_id.values()))
            if oldest.used_ms > until_ms:
                return
            self._drop(oldest)

    def _drop(self, session: Session) -> None:
        self._by_id.pop(session.id, None)
        if session.proof is not None and self._by_proof.get(session.proof) is session:
            del self._by_proof[session.proof]
        connection, session.connection = session.connection, None
        session.is_admitted = False  # streams of the session end
        if connection is not None:
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
