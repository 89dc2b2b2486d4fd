"""Server of the shared store: sessions of other processes on an embedded store.

A session of a broker is an `EmbeddedSession` that outlives its connections. Its last write orders the reads
of the next connection behind it. A broker that connects again takes its session over from its previous
connection, whose unread requests are dropped. None of them takes effect after the answer to `Hello`.

An answer is sent when the write is on disk. If the store is killed in between, the broker sees a lost
connection, and the write may have taken effect, as with ZooKeeper.

After a write error the store ends (`failure`). Its supervisor starts it again, and the recovery of the
journal finds out what the disk holds. Brokers keep their sessions meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from barnabas.cluster.coordination.contract import Result, StoreFailed
from barnabas.cluster.embedded.durable_sessions import (
    SESSIONS,
    DurableSession,
    create_session,
    read_sessions,
    session_id_of,
)
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.shared.messages import (
    VERSION,
    Answer,
    Close,
    Done,
    Expired,
    Hello,
    Ping,
    ProcessEnded,
    Request,
    SupervisedEnded,
    Welcome,
)
from barnabas.cluster.shared.operations import carry_out
from barnabas.cluster.shared.peer import Peer
from barnabas.cluster.shared.session_table import TICK_MS, SessionTable, granted_timeout_ms
from barnabas.core.clock import Clock

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1_000


class StoreServer:
    """Serves one embedded store, which its owner opens and closes. `accept` is the protocol factory."""

    def __init__(self, store: EmbeddedStore, clock: Clock, tick_ms: int = TICK_MS) -> None:
        self.failure = asyncio.get_running_loop().create_future()
        """Done when the store cannot write and must be started again."""
        self._store = store
        self._now_ms = clock.monotonic_ms
        self._table = SessionTable(self._now_ms(), tick_ms)
        self._tick_ms = tick_ms
        self._sessions: dict[int, EmbeddedSession] = {}
        self._attached: dict[int, Peer] = {}
        self._ending: dict[int, asyncio.Future[list[Result]]] = {}
        """Sessions whose end is not on disk yet."""
        self._peers: dict[Peer, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Continue the sessions that an earlier process has left, with their whole time."""
        await self._store.submit(self._store.missing([SESSIONS]), 0)
        for session_id, session in read_sessions(self._store.tree).items():
            self._begin(session_id, session)
        self._tick()

    def stop(self) -> None:
        """Drop the connections. Sessions stay, and go on when a store serves them again."""
        if self._timer is not None:
            self._timer.cancel()
        for peer in tuple(self._peers):
            peer.drop()
        for session in self._sessions.values():
            self._store.forget(session)
        self._sessions.clear()

    def accept(self) -> Peer:
        return Peer(self)

    @property
    def session_ids(self) -> list[int]:
        return list(self._sessions)

    def sessions_of(self, process: str) -> list[int]:
        """Living sessions of the process with this name."""
        return self._table.of_process(process)

    async def end_session(self, session_id: int) -> None:
        """End a session and delete its ephemeral nodes."""
        await asyncio.shield(self._throw_out(session_id))

    # --- events of a connection ---

    @property
    def zxid(self) -> int:
        return self._store.tree.zxid

    def entered(self, peer: Peer) -> bool:
        self._peers[peer] = None
        return len(self._peers) <= CONNECTIONS_MAX

    def left(self, peer: Peer) -> None:
        self._peers.pop(peer, None)
        if peer.session_id is not None:
            self._detach(peer, peer.session_id)

    def failed(self) -> None:
        if not self.failure.done():
            self.failure.set_result(None)
        for peer in tuple(self._peers):
            peer.drop()

    def received(self, peer: Peer, number: int, request: Request) -> None:
        if isinstance(request, Hello):
            self._greet(peer, number, request)
        elif isinstance(request, ProcessEnded):
            peer.answer_when(number, partial(self._end_all, self._table.of_process(request.process)))
        elif isinstance(request, SupervisedEnded):
            peer.answer_when(number, partial(self._end_all, self._table.of_supervised()))
        elif peer.session_id is None:
            logger.warning("coordination store: a request without a session; its connection is closed")
            peer.drop()
        else:
            self._table.hear(peer.session_id, self._now_ms())
            if isinstance(request, Ping):
                peer.answer(number, Done())
            elif isinstance(request, Close):
                peer.answer_when(number, partial(self._close, peer, peer.session_id))
            else:
                session = self._sessions[peer.session_id]
                peer.answer_when(number, partial(carry_out, session, peer.on_event, request))

    # --- sessions ---

    def _greet(self, peer: Peer, number: int, hello: Hello) -> None:
        if hello.version != VERSION or peer.session_id is not None or peer.is_greeting:
            logger.warning("coordination store: an unexpected greeting; its connection is closed")
            peer.drop()
        elif not hello.session_id:
            peer.is_greeting = True
            peer.answer_when(number, partial(self._make_session, peer, hello))
        elif hello.session_id in self._table:
            peer.answer(number, self._attach(peer, hello.session_id))
        else:
            peer.answer_when(number, partial(self._expired, hello.session_id))

    async def _expired(self, session_id: int) -> Answer:
        """A broker learns of the end of its session when no crash of the store can undo it."""
        ending = self._ending.get(session_id)
        if ending is not None:
            await asyncio.shield(ending)
        return Expired()

    async def _make_session(self, peer: Peer, hello: Hello) -> Answer:
        session = DurableSession(granted_timeout_ms(hello.timeout_ms), hello.process)
        writing = self._store.submit([create_session(session)], 0)
        writing.add_done_callback(lambda done: self._made(done, session))
        (path,) = await asyncio.shield(writing)
        assert isinstance(path, str)
        peer.is_greeting = False
        session_id = session_id_of(path)
        return self._attach(peer, session_id) if session_id in self._table else Expired()

    def _made(self, writing: asyncio.Future[list[Result]], session: DurableSession) -> None:
        """Enter a session once it is on disk, even if its connection is gone: it then expires."""
        if not writing.cancelled() and writing.exception() is None:
            (path,) = writing.result()
            assert isinstance(path, str)
            self._begin(session_id_of(path), session)

    def _begin(self, session_id: int, session: DurableSession) -> None:
        self._table.add(session_id, session, self._now_ms())
        self._sessions[session_id] = self._store.connect(session.timeout_ms, session_id)

    def _attach(self, peer: Peer, session_id: int) -> Welcome:
        previous = self._attached.pop(session_id, None)
        if previous is not None:
            previous.drop()
        self._attached[session_id] = peer
        peer.session_id = session_id
        self._table.hear(session_id, self._now_ms())
        return Welcome(session_id, self._table[session_id].timeout_ms)

    def _detach(self, peer: Peer, session_id: int) -> None:
        peer.session_id = None
        if self._attached.get(session_id) is peer:
            del self._attached[session_id]
        session = self._sessions.get(session_id)
        if session is not None:
            session.watches.clear()

    def _end(self, session_id: int) -> asyncio.Future[list[Result]]:
        """From now on no request of the session takes effect."""
        ended = self._store.end_session(session_id)
        self._table.remove(session_id)
        self._store.forget(self._sessions.pop(session_id))
        self._ending[session_id] = ended
        ended.add_done_callback(partial(self._ended, session_id))
        return ended

    def _ended(self, session_id: int, ended: asyncio.Future[list[Result]]) -> None:
        del self._ending[session_id]
        if not ended.cancelled() and ended.exception() is not None:
            self.failed()

    def _throw_out(self, session_id: int) -> asyncio.Future[list[Result]]:
        """End a session whose owner did not close it, and its connection."""
        ended = self._end(session_id)
        peer = self._attached.get(session_id)
        if peer is not None:
            peer.drop()
        return ended

    async def _end_all(self, session_ids: Iterable[int]) -> Answer:
        ending = [self._throw_out(each) for each in session_ids if each in self._table]
        await asyncio.gather(*map(asyncio.shield, ending))
        return Done()

    async def _close(self, peer: Peer, session_id: int) -> Answer:
        ended = self._end(session_id)
        self._detach(peer, session_id)
        await asyncio.shield(ended)
        return Done()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_ms / 1_000, self._tick)
        try:
            for session_id in self._table.tick(self._now_ms()):
                logger.info("coordination store: session 0x%x was silent and has expired", session_id)
                self._throw_out(session_id)
        except StoreFailed:
            self.failed()
        if self._store.failure is not None:
            self.failed()
