"""Embedded coordination store: ZooKeeper's semantics in one process, on one disk.

A write is prepared on the loop, written and synced by `Background`, and only then committed: its watches fire
and its caller continues. The loop never waits for the disk, because a sync may take milliseconds and would
delay every request of the broker. Writes that arrive during a sync go together in the next one (group
commit), so a burst of a thousand costs two syncs. A `multi` is one record.

Sessions live in this process and cannot outlive it. Opening the store removes the ephemeral nodes that a
previous process left behind. A session ends when it is closed. The exceptions are the sessions of a shared
store, which belong to other processes (`durable_sessions`): they and their ephemeral nodes stay.

After a write error the store accepts nothing more and every session is LOST: only the next opening finds out
what the disk holds. The broker cannot continue without its store, so it reads `failure` and ends. Two errors
are temporary: the background refuses work, or a snapshot finds no space or no file descriptor. In the first
case nothing was written; in the second the log is unchanged.

The gap: a snapshot is encoded on the loop, once per `COMPACT_BYTES_MIN` of log.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NoNode,
    Operation,
    Result,
    SessionState,
    SetData,
    Stat,
    StateListener,
    StoreFailed,
    Watch,
    check_data,
    check_path,
    parent_of,
)
from barnabas.cluster.coordination.session_status import SessionStatus
from barnabas.cluster.coordination.watches import Watches
from barnabas.cluster.embedded.durable_sessions import read_sessions, session_path
from barnabas.cluster.embedded.journal import Journal, open_journal
from barnabas.cluster.embedded.journal_codec import encode_snapshot, encode_transaction
from barnabas.cluster.embedded.tree import Transaction, Tree, Znode, events_of
from barnabas.core.clock import Clock
from barnabas.core.files import Files, RealFiles
from barnabas.core.scheduler import Background

logger = logging.getLogger(__name__)

WRITE_RETRY_S = 0.1
"""Delay before a write that the background refused is submitted again."""

_NO_SNAPSHOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT})

COMPACT_BYTES_MIN = 4 * 1024 * 1024
"""The log is compacted when it exceeds this and twice the last snapshot."""

SESSION_TIMEOUT_MS = 18_000


def make_private(directory: Path) -> None:
    """Make the directory of a store, which only its owner can enter."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


@asynccontextmanager
async def open_embedded(
    path: Path,
    clock: Clock,
    background: Background,
    *,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    files: Files | None = None,
) -> AsyncIterator[EmbeddedSession]:
    """Open a session with the store in the directory `path`, which is created if missing.

    The store holds the credentials of users, so the directory is private to the broker's user.
    """
    make_private(path)
    store = EmbeddedStore.open(files or RealFiles(), str(path), clock, background)
    try:
        yield store.connect(session_timeout_ms)
    finally:
        await store.close()


class _Entry(NamedTuple):
    """Queued request: its outcome and the future of its caller."""

    outcome: Transaction | CoordinationError
    future: asyncio.Future[list[Result]]


class EmbeddedStore:
    """The tree, its journal, and the queue between them."""

    def __init__(self, journal: Journal, tree: Tree, clock: Clock, background: Background) -> None:
        self._journal = journal
        self._tree = tree
        self._clock = clock
        self._background = background
        self._sessions: list[EmbeddedSession] = []
        self._sessions_made = 0
        self._session_id_base = tree.zxid + 1 << 16
        self._queue: list[_Entry] = []
        self._writing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: BaseException | None = None

    @classmethod
    def open(cls, files: Files, directory: str, clock: Clock, background: Background) -> EmbeddedStore:
        """Recover the store from disk. Blocks, because it is the first action of a broker."""
        journal, tree = open_journal(files, directory)
        living = read_sessions(tree)
        orphans = [
            Delete(path) for owner in tree.owners() if owner not in living for path in tree.owned_by(owner)
        ]
        if orphans:
            transaction = tree.prepare(orphans, 0, clock.now_ms())
            journal.append(encode_transaction(transaction))
            tree.commit(transaction)
        return cls(journal, tree, clock, background)

    @property
    def failure(self) -> BaseException | None:
        """Write error after which the store accepts nothing more."""
        return self._failure

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def nodes(self) -> dict[str, Znode]:
        return self._tree.nodes

    def connect(
        self, session_timeout_ms: int = SESSION_TIMEOUT_MS, session_id: int | None = None
    ) -> EmbeddedSession:
        """Begin a session of this process, or continue a durable one."""
        self._check_writable()
        session = EmbeddedSession(
            self, self.new_session_id() if session_id is None else session_id, session_timeout_ms
        )
        self._sessions.append(session)
        return session

    def submit(
        self, operations: Sequence[Operation], session_id: int, *, make_parents: bool = False
    ) -> asyncio.Future[list[Result]]:
        """Queue a request. The future is done once the request is on disk and visible, or refused."""
        self._check_writable()
        check_data(operations)
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        outcome: Transaction | CoordinationError
        try:
            if make_parents:
                check_path(operations[0].path, sequential=True)
                operations = [*self.missing([parent_of(operations[0].path)]), *operations]
            outcome = self._tree.prepare(operations, session_id, self._clock.now_ms())
        except CoordinationError as error:
            outcome = error
        self._queue.append(_Entry(outcome, future))
        if not self._writing:
            self._write()
        return future

    async def close(self) -> None:
        """End every session, finish every write, release the lock."""
        for session in list(self._sessions):
            with suppress(StoreFailed):
                await session.close()
        await self._idle.wait()
        self._journal.close()

    def forget(self, session: EmbeddedSession) -> None:
        self._sessions.remove(session)

    def end_session(self, session_id: int) -> asyncio.Future[list[Result]]:
        """Delete the session's ephemeral nodes, including those still being written, and with them the node
        of a durable session."""
        ended = [Delete(path) for path in self._tree.owned_by(session_id)]
        own = session_path(session_id)
        if own is not None and self._tree.will_exist(own):
            ended.append(Delete(own))
        return self.submit(ended, session_id)

    def new_session_id(self) -> int:
        self._sessions_made += 1
        return self._session_id_base + self._sessions_made

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure))

    def missing(self, paths: Iterable[str]) -> list[Create]:
        """Operations that create the missing ones of these nodes and of their parents."""
        made: dict[str, Create] = {}
        for path in paths:
            check_path(path)
            missing, above = [], path
            while above not in made and not self._tree.will_exist(above):
                missing.append(above)
                above = parent_of(above)
            made.update((each, Create(each)) for each in reversed(missing))
        return list(made.values())

    def _write(self) -> None:
        batch, self._queue = self._queue, []
        frames = b"".join(
            encode_transaction(entry.outcome)
            for entry in batch
            if isinstance(entry.outcome, Transaction) and entry.outcome.changes
        )
        if not frames:
            self._finish(batch)
            return
        self._begin_writing()
        self._append(frames, batch)

    def _append(self, frames: bytes, batch: list[_Entry]) -> None:
        try:
            self._background.submit(
                lambda: self._journal.append(frames),
                lambda _: self._written(batch),
                lambda error: self._fail(error, batch),
            )
        except RuntimeError as error:
            logger.warning("coordination store: write is retried: %s", error)
            asyncio.get_running_loop().call_later(WRITE_RETRY_S, self._append, frames, batch)

    def _written(self, batch: list[_Entry]) -> None:
        # A watch may submit. That write waits, because compaction would empty it together with the log.
        self._finish(batch)
        self._end_writing()
        journal = self._journal
        if journal.log_bytes > max(COMPACT_BYTES_MIN, 2 * journal.snapshot_bytes):
            self._compact()
        elif self._queue:
            self._write()

    def _finish(self, batch: list[_Entry]) -> None:
        for outcome, future in batch:
            if isinstance(outcome, CoordinationError):
                if not future.done():
                    future.set_exception(outcome)
                continue
            results = self._tree.commit(outcome)
            for session in tuple(self._sessions):
                if session.watches:
                    session.watches.fire(events_of(outcome))
            if not future.done():
                future.set_result(results)

    def _compact(self) -> None:
        snapshot = encode_snapshot(self._tree)
        self._begin_writing()
        try:
            self._background.submit(
                lambda: self._journal.compact(snapshot),
                lambda _: self._compacted(),
                self._compaction_failed,
            )
        except RuntimeError as error:
            logger.warning("coordination store: log compaction is retried at the next write: %s", error)
            self._compacted()

    def _compaction_failed(self, error: BaseException) -> None:
        """Let the log grow if there is no space or file descriptor for a snapshot; the next write tries
        again.

        A half-written snapshot has no name yet, and a renamed one holds no more than the log does.
        """
        if isinstance(error, OSError) and error.errno in _NO_SNAPSHOT_NOW:
            logger.warning("coordination store: log compaction is retried at the next write: %s", error)
            self._compacted()
        else:
            self._fail(error, [])

    def _compacted(self) -> None:
        self._end_writing()
        if self._queue:
            self._write()

    def _begin_writing(self) -> None:
        self._writing = True
        self._idle.clear()

    def _end_writing(self) -> None:
        self._writing = False
        self._idle.set()

    def _fail(self, error: BaseException, batch: list[_Entry]) -> None:
        logger.error("coordination store cannot write and stops; check the disk: %s", error)
        self._failure = error
        self._end_writing()
        waiting, self._queue = [*batch, *self._queue], []
        for _, future in waiting:
            if not future.done():
                future.set_exception(StoreFailed(str(error)))
        for session in tuple(self._sessions):
            session.lose()


class EmbeddedSession(Coordination):
    """A session with an `EmbeddedStore`."""

    def __init__(self, store: EmbeddedStore, session_id: int, session_timeout_ms: int) -> None:
        self._store = store
        self._session_id = session_id
        self._session_timeout_ms = session_timeout_ms
        self._status = SessionStatus(SessionState.CONNECTED)
        self._lease_expires_ms = math.inf
        self._last_write: asyncio.Future[list[Result]] | None = None
        self.watches = Watches()

    @property
    def store(self) -> EmbeddedStore:
        return self._store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._status.state

    @property
    def lease_expires_ms(self) -> float:
        """Never expires while the session lives, because only this process can end it."""
        return self._lease_expires_ms

    @property
    def failure(self) -> BaseException | None:
        return self._store.failure

    def add_listener(self, listener: StateListener) -> None:
        self._status.add_listener(listener)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        results = await self._submit([operation], make_parents=make_parents)
        made = results[-1]
        assert isinstance(made, str)
        return made

    async def make_paths(self, paths: Iterable[str]) -> None:
        await self._submit(self._store.missing(paths))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._submit([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._submit([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._submit(operations)

    async def write_with_parents(self, operations: Sequence[Operation]) -> list[Result]:
        """The same, with the missing parents of the first operation, whose results come first."""
        return await self._submit(operations, make_parents=True)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        znode = await self._find(path)
        if znode is None:
            raise NoNode(path)
        if watch is not None:
            self.watches.on_data(path, watch)
        return znode.data, znode.stat()

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        await self._in_order()
        found = map(self._store.nodes.get, paths)
        return [None if znode is None else (znode.data, znode.stat()) for znode in found]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        znode = await self._find(path)
        if watch is not None:
            self.watches.on_data(path, watch)
        return None if znode is None else znode.stat()

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        await self._in_order()
        for path, watch in watches.items():
            check_path(path)
            self.watches.on_data(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        znode = await self._find(path)
        if znode is None:
            raise NoNode(path)
        if watch is not None:
            self.watches.on_children(path, watch)
        return sorted(znode.children or ())

    async def close(self) -> None:
        if self._status.state is SessionState.CLOSED:
            return
        lost = self._status.state is SessionState.LOST
        self._status.become(SessionState.CLOSED)
        self.watches.clear()
        self._store.forget(self)
        if not lost:
            await self._store.end_session(self._session_id)

    def lose(self) -> None:
        self.watches.clear()
        self._status.become(SessionState.LOST)

    async def _submit(self, operations: Sequence[Operation], *, make_parents: bool = False) -> list[Result]:
        self._status.check_connected()
        future = self._last_write = self._store.submit(
            operations, self._session_id, make_parents=make_parents
        )
        # A caller that gives up does not make the write done: later reads of the session wait for it.
        return await asyncio.shield(future)

    async def _find(self, path: str) -> Znode | None:
        check_path(path)
        await self._in_order()
        return self._store.nodes.get(path)

    async def _in_order(self) -> None:
        """Wait for the writes that this session has started, so that a read sees them."""
        self._status.check_connected()
        last = self._last_write
        if last is not None and not last.done():
            await asyncio.wait((last,))
            self._status.check_connected()
