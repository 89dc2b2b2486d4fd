"""Sessions with a shared store through real sockets: restarts, missed events, notices, hostile peers."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import (
    BadArguments,
    ConnectionLoss,
    Create,
    EventType,
    SessionState,
    WatchEvent,
)
from barnabas.cluster.embedded.durable_sessions import SESSIONS
from barnabas.cluster.shared import operations, unix_socket
from barnabas.cluster.shared.frames import REQUEST_BYTES_MAX
from barnabas.cluster.shared.link import Link
from barnabas.cluster.shared.messages import (
    VERSION,
    Children,
    Event,
    Exists,
    Expired,
    Get,
    Hello,
    Ping,
    ProcessEnded,
    SetWatches,
    Welcome,
    Write,
)
from barnabas.cluster.shared.notices import report_all_ended, report_ended
from barnabas.cluster.shared.session import SharedSession
from barnabas.core.clock import SystemClock
from tests.support.shared_store import SharedStore, serving
from tests.support.waiting import PATIENCE_S


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SharedStore]:
    async with serving(tmp_path / "coordination") as store:
        yield store


class Seen:
    """A watch, or a listener, that a test can wait for."""

    def __init__(self) -> None:
        self.all: list[WatchEvent | SessionState] = []
        self._changed = asyncio.Event()

    def __call__(self, each: WatchEvent | SessionState) -> None:
        self.all.append(each)
        self._changed.set()

    async def until(self, *wanted: WatchEvent | SessionState) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not set(wanted) <= set(self.all):
                self._changed.clear()
                await self._changed.wait()


def states_of(session: SharedSession) -> Seen:
    seen = Seen()
    session.add_listener(seen)
    return seen


class RawPeer:
    """A connection that sends what a test says, and no heartbeats."""

    def __init__(self, store: SharedStore) -> None:
        self.events: list[Event] = []
        self.on_event: Callable[[], object] = int
        self.lost = asyncio.Event()
        self.link = Link(self._on_event, self._on_lost)
        self._store = store

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self.on_event()

    def _on_lost(self) -> None:
        self.link.fail(ConnectionLoss)
        self.lost.set()

    async def connect(self) -> RawPeer:
        await self._store.connect(self.link)
        return self

    async def greet(self, session_id: int = 0, timeout_ms: int = 60_000) -> Welcome:
        answer = await self.link.ask(Hello(VERSION, session_id, timeout_ms, ""))
        assert isinstance(answer, Welcome)
        return answer

    async def until_lost(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.lost.wait()


# --- the store is started again


async def test_a_session_continues_with_a_store_that_was_started_again(store: SharedStore) -> None:
    async with store.session() as znodes, store.session() as other:
        before = znodes.session_id
        await znodes.create("/mine", b"data", ephemeral=True)
        seen = states_of(znodes)
        await store.restart()
        await seen.until(SessionState.SUSPENDED, SessionState.CONNECTED)
        assert znodes.session_id == before
        _, mine = await znodes.get("/mine")
        assert mine.ephemeral_owner == before
        assert SessionState.LOST not in seen.all
        assert znodes.lease_expires_ms > SystemClock().monotonic_ms()
        await connected(other)
        await znodes.close()
        assert await other.exists("/mine") is None


async def connected(session: SharedSession) -> None:
    """Wait until the session has an answer. It may not have noticed yet that its connection is gone."""
    while True:
        try:
            await session.exists("/")
        except ConnectionLoss:
            seen = states_of(session)
            if session.state is not SessionState.CONNECTED:
                await seen.until(SessionState.CONNECTED)
        else:
            return


async def test_events_that_were_missed_fire_when_the_session_is_back(store: SharedStore) -> None:
    is_open = True

    async def connect(link: Link) -> None:
        if not is_open:
            raise ConnectionRefusedError
        await store.connect(link)

    async with store.session(connect=connect) as znodes, store.session() as other:
        for path in ("/changed", "/deleted", "/parent", "/same"):
            await znodes.create(path)
        events = Seen()
        for path in ("/changed", "/deleted", "/same"):
            await znodes.get(path, events)
        await znodes.exists("/created", events)
        await znodes.children("/parent", events)
        is_open = False
        await store.restart()
        await connected(other)
        await other.set("/changed", b"new")
        await other.delete("/deleted")
        await other.create("/created")
        await other.create("/parent/child")
        assert events.all == []
        is_open = True
        await events.until(
            WatchEvent(EventType.CHANGED, "/changed"),
            WatchEvent(EventType.DELETED, "/deleted"),
            WatchEvent(EventType.CREATED, "/created"),
            WatchEvent(EventType.CHILD, "/parent"),
        )
        assert len(events.all) == 4
        await znodes.set("/same", b"later")  # this watch is still there
        await events.until(WatchEvent(EventType.CHANGED, "/same"))


async def test_an_event_does_not_hide_another_of_its_transaction(store: SharedStore) -> None:
    """A connection may break between two events of one `multi`. The second still comes."""
    peer = await RawPeer(store).connect()
    welcome = await peer.greet()
    await peer.link.ask(Exists("/a", True))
    await peer.link.ask(Exists("/b", True))
    before = peer.link.last_zxid
    zxids: set[int] = set()
    peer.on_event = lambda: zxids.add(peer.link.last_zxid)
    async with store.session() as other:
        await other.multi([Create("/a"), Create("/b")])
    assert await peer.link.ask(Get("/", watched=False))  # the events came before this answer
    assert len(peer.events) == 2
    assert zxids == {before}
    peer.link.drop()
    again = await RawPeer(store).connect()
    assert await again.greet(welcome.session_id) == welcome
    await again.link.ask(SetWatches(before, [], ["/b"], []))
    assert len(again.events) == 1


async def test_operations_fail_while_the_store_is_away_and_work_again(store: SharedStore) -> None:
    async with store.session() as znodes:
        seen = states_of(znodes)
        await store.crash()
        await seen.until(SessionState.SUSPENDED)
        with pytest.raises(ConnectionLoss):
            await znodes.create("/a")
        await store.start()
        await seen.until(SessionState.CONNECTED)
        await znodes.create("/a")


async def test_a_session_closes_while_the_store_is_away(store: SharedStore) -> None:
    async with store.session() as znodes:
        seen = states_of(znodes)
        await store.crash()
        await seen.until(SessionState.SUSPENDED)
    assert znodes.state is SessionState.CLOSED


async def test_no_store_is_an_error_that_names_the_socket(tmp_path: Path) -> None:
    missing = SharedStore.__new__(SharedStore)
    missing.directory = tmp_path
    session = SharedSession(missing.connect, str(missing.socket), 60_000, SystemClock(), "")
    with pytest.raises(ConnectionLoss, match=str(missing.socket)):
        await session.start(100)
    await session.close()


# --- sessions end


async def test_a_silent_session_expires(store: SharedStore) -> None:
    peer = await RawPeer(store).connect()
    await peer.greet(timeout_ms=400)
    await peer.link.ask(Write([Create("/mine", b"", ephemeral=True)], False))
    async with store.session() as znodes:
        events = Seen()
        await znodes.exists("/mine", events)
        await events.until(WatchEvent(EventType.DELETED, "/mine"))
        assert await znodes.children(SESSIONS) == [f"s{(znodes.session_id >> 16) - 1:010d}"]
    await peer.until_lost()


async def test_the_end_of_a_process_ends_its_sessions_and_no_other(store: SharedStore) -> None:
    async with (
        store.session(process="one") as one,
        store.session(process="two") as two,
        store.session() as unsupervised,
    ):
        lost = states_of(one)
        for session, path in ((one, "/one"), (two, "/two"), (unsupervised, "/unsupervised")):
            await session.create(path, ephemeral=True)
        before = one.session_id
        await report_ended(store.connect, "one")
        await lost.until(SessionState.LOST, SessionState.CONNECTED)
        assert one.session_id != before
        assert await two.exists("/one") is None
        await report_ended(store.connect, "one")  # a later session of the same name ends too
        await report_ended(store.connect, "")  # names no process
        assert await unsupervised.exists("/unsupervised") is not None
        assert await unsupervised.exists("/two") is not None
        await report_all_ended(store.connect)
        assert await unsupervised.exists("/two") is None
        assert await unsupervised.exists("/unsupervised") is not None


async def test_a_notice_reaches_a_store_that_was_away(store: SharedStore) -> None:
    async with store.session(process="one") as one, store.session() as other:
        await one.create("/one", ephemeral=True)
        await store.crash()
        report = asyncio.create_task(report_ended(store.connect, "one"))
        await asyncio.sleep(0)
        await store.start()
        await report
        await connected(other)
        assert await other.exists("/one") is None


# --- a connection takes over


async def test_a_later_connection_takes_the_session_over(store: SharedStore) -> None:
    first = await RawPeer(store).connect()
    welcome = await first.greet()
    second = await RawPeer(store).connect()
    assert await second.greet(welcome.session_id) == welcome
    await first.until_lost()
    await second.link.ask(Ping())


async def test_a_read_of_the_next_connection_waits_for_the_writes_of_the_last(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write whose answer is lost with the connection may still be on its way to the disk."""
    first = await RawPeer(store).connect()
    welcome = await first.greet()
    loop, begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    append = store.store._journal.append

    def slowly(frames: bytes) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(PATIENCE_S)
        append(frames)

    monkeypatch.setattr(store.store._journal, "append", slowly)
    first.link.ask(Write([Create("/late")], make_parents=False))
    await begun.wait()
    first.link.drop()
    second = await RawPeer(store).connect()
    await second.greet(welcome.session_id)
    reading = second.link.ask(Children("/", watched=False))
    await second.link.ask(Ping())
    assert not reading.done()
    may_end.set()
    assert "late" in (await reading).names


# --- bounds and rights


async def test_the_store_and_its_socket_are_private(store: SharedStore) -> None:
    assert stat.S_IMODE(store.socket.stat().st_mode) == 0o600


async def test_a_peer_of_another_user_is_refused(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = unix_socket.connect(store.socket)
    monkeypatch.setattr(unix_socket, "_peer_uid", lambda _: 4_242)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(unix_socket.ForeignPeer, match="4242"):
        unix_socket.connect(store.socket)
    with raw:
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.get_running_loop().sock_recv(raw, 1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", REQUEST_BYTES_MAX + 1),
        struct.pack(">I", 0),
        struct.pack(">I", 9) + bytes(8) + b"\xff",
        struct.pack(">I", 9) + bytes(8) + b"\x02",  # a ping before any greeting
    ],
)
async def test_what_is_no_request_closes_its_connection_alone(store: SharedStore, sent: bytes) -> None:
    async with store.session() as bystander:
        peer = unix_socket.connect(store.socket)
        with peer:
            peer.sendall(sent)
            async with asyncio.timeout(PATIENCE_S):
                assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
        assert await bystander.exists("/") is not None
        assert bystander.state is SessionState.CONNECTED


async def test_the_part_of_the_tree_that_belongs_to_the_store_is_not_written(store: SharedStore) -> None:
    async with store.session() as znodes:
        for path in ("/coordination", SESSIONS, f"{SESSIONS}/s0000000000"):
            with pytest.raises(BadArguments):
                await znodes.delete(path)
        with pytest.raises(BadArguments):
            await znodes.make_paths([f"{SESSIONS}/mine"])


async def test_many_large_nodes_come_in_several_answers(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "PAGE_BYTES", 1_000)
    async with store.session() as znodes:
        paths = [f"/n{number}" for number in range(10)]
        for path in paths:
            await znodes.create(path, path.encode() * 200)
        found = await znodes.get_many([*paths, "/no"])
        assert [None if each is None else each[0] for each in found] == [
            *(path.encode() * 200 for path in paths),
            None,
        ]


async def test_a_store_that_cannot_write_reports_it_and_answers_nothing(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.session() as znodes:
        seen = states_of(znodes)

        def full(frames: bytes) -> None:
            raise OSError(errno.ENOSPC, f"no room for {len(frames)} bytes")

        monkeypatch.setattr(store.store._journal, "append", full)
        with pytest.raises(ConnectionLoss):
            await znodes.create("/a")
        async with asyncio.timeout(PATIENCE_S):
            await store.server.failure
        await store.restart()
        await seen.until(SessionState.CONNECTED)
        await znodes.create("/a")
        assert SessionState.LOST not in seen.all


async def test_a_store_that_fails_takes_no_session_for_ended(store: SharedStore) -> None:
    """The sessions inside the store's process are lost with it; those of brokers are not."""
    peer = await RawPeer(store).connect()
    await peer.greet()
    asked = peer.link.ask(Write([Create("/a")], make_parents=False))
    store.store._fail(OSError(errno.ENOSPC, "no room"), [])
    with pytest.raises(ConnectionLoss):
        await asked
    assert store.server.failure.done()


async def test_the_end_of_a_session_is_told_when_it_is_on_disk(
    store: SharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await RawPeer(store).connect()
    welcome = await peer.greet()
    loop, begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    append = store.store._journal.append

    def slowly(frames: bytes) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(PATIENCE_S)
        append(frames)

    monkeypatch.setattr(store.store._journal, "append", slowly)
    ending = asyncio.create_task(store.server.end_session(welcome.session_id))
    await begun.wait()
    await peer.until_lost()
    again = await RawPeer(store).connect()
    greeting = again.link.ask(Hello(VERSION, welcome.session_id, 60_000, ""))
    await again.link.ask(ProcessEnded("nobody"))  # the store has read the greeting before
    assert not greeting.done()
    may_end.set()
    assert isinstance(await greeting, Expired)
    await ending


async def test_a_path_of_any_length_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with serving(deep) as store, store.session() as znodes:
        assert await znodes.exists("/") is not None
