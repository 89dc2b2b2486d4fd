"""Contract of coordination stores, for each implementation.

A `Store` opens sessions with one store and can end a session from outside. The suite runs once per entry of
`STORES`, and on a real ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
from kazoo.client import KazooClient
from tests.support.embedded_sessions import expire_session
from tests.support.shared_store import SharedStore, ThreadBackground, serving
from tests.support.waiting import PATIENCE_S

from barnabas.cluster.coordination.contract import (
    DATA_BYTES_MAX,
    BadArguments,
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    DataTooLarge,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.shared.session import SharedSession
from barnabas.cluster.zookeeper import ZooKeeperSession, open_zookeeper
from barnabas.config.connect_string import ConnectString
from barnabas.core.clock import SystemClock
from barnabas.core.files import RealFiles
from barnabas.core.scheduler import InlineBackground


class Store(Protocol):
    async def connect(self) -> Coordination: ...
    async def expire(self, session: Coordination) -> None: ...


class Embedded:
    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    async def connect(self) -> Coordination:
        return self._store.connect()

    async def expire(self, session: Coordination) -> None:
        assert isinstance(session, EmbeddedSession)
        await expire_session(session)


@asynccontextmanager
async def open_embedded(path: Path) -> AsyncIterator[Store]:
    with ThreadPoolExecutor(1) as pool:
        store = EmbeddedStore.open(RealFiles(), str(path), SystemClock(), ThreadBackground(pool))
        yield Embedded(store)
        await store.close()


@asynccontextmanager
async def open_embedded_inline(path: Path) -> AsyncIterator[Store]:
    store = EmbeddedStore.open(RealFiles(), str(path), SystemClock(), InlineBackground())
    yield Embedded(store)
    await store.close()


class Shared:
    """Sessions with a store that is served over a unix socket."""

    def __init__(self, store: SharedStore, stack: AsyncExitStack) -> None:
        self._store = store
        self._stack = stack

    async def connect(self) -> Coordination:
        return await self._stack.enter_async_context(self._store.session())

    async def expire(self, session: Coordination) -> None:
        assert isinstance(session, SharedSession)
        lost = asyncio.Event()
        session.add_listener(lambda state: lost.set() if state is SessionState.LOST else None)
        await self._store.server.end_session(session.session_id)
        async with asyncio.timeout(PATIENCE_S):
            await lost.wait()


@asynccontextmanager
async def open_shared(path: Path) -> AsyncIterator[Store]:
    async with serving(path) as store, AsyncExitStack() as stack:
        yield Shared(store, stack)


class RealZooKeeper:
    """Sessions in one chroot of a real server."""

    def __init__(self, connect: str, stack: AsyncExitStack) -> None:
        self._connect = connect
        self._stack = stack

    async def connect(self) -> Coordination:
        return await self._stack.enter_async_context(
            open_zookeeper(
                self._connect, session_timeout_ms=10_000, connection_timeout_ms=60_000, clock=SystemClock()
            )
        )

    async def expire(self, session: Coordination) -> None:
        """Another connection takes the session over and closes it, which is all that a server would do."""
        assert isinstance(session, ZooKeeperSession)
        lost = asyncio.Event()
        session.add_listener(lambda state: lost.set() if state is SessionState.LOST else None)
        usurper = KazooClient(ConnectString.parse(self._connect).hosts[0], client_id=session.client_id)
        await asyncio.to_thread(_start_and_stop, usurper)
        async with asyncio.timeout(60):
            await lost.wait()


def _start_and_stop(client: KazooClient) -> None:
    client.start(60)
    client.stop()
    client.close()


@asynccontextmanager
async def open_real_zookeeper(connect: str) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        yield RealZooKeeper(connect, stack)


Opener = Callable[[Path], AbstractAsyncContextManager[Store]]

STORES: dict[str, Opener] = {
    "embedded": open_embedded,
    "embedded_inline": open_embedded_inline,
    "shared": open_shared,
}
"""Those that need nothing but a directory."""


@pytest.fixture(params=[*STORES, "zookeeper"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: AbstractAsyncContextManager[Store]
    if request.param == "zookeeper":
        opened = open_real_zookeeper(request.getfixturevalue("zookeeper_server").chroot())
    else:
        opened = STORES[request.param](tmp_path / "coordination")
    async with opened as store:
        yield store


@pytest.fixture
async def znodes(store: Store) -> Coordination:
    return await store.connect()


class Seen:
    """A watch that remembers, and lets a test wait for what it saw."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self._changed = asyncio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def wait_for(self, count: int) -> list[WatchEvent]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.events) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.events


async def gone(znodes: Coordination, path: str) -> None:
    """Wait until `path` does not exist."""
    while True:
        seen = Seen()
        if await znodes.exists(path, seen) is None:
            return
        await seen.wait_for(1)


# --- nodes and versions


async def test_a_new_node_has_its_data_and_version_zero(znodes: Coordination) -> None:
    assert await znodes.create("/a", b"data") == "/a"
    data, stat = await znodes.get("/a")
    assert data == b"data"
    assert (stat.version, stat.cversion, stat.num_children, stat.data_length) == (0, 0, 0, 4)
    assert stat.ephemeral_owner == 0
    assert stat.czxid == stat.mzxid == stat.pzxid > 0


async def test_a_set_raises_the_version_and_leaves_the_creation_zxid(znodes: Coordination) -> None:
    await znodes.create("/a", b"one")
    _, before = await znodes.get("/a")
    after = await znodes.set("/a", b"two")
    assert after.version == 1
    assert after.czxid == before.czxid
    assert after.mzxid > before.mzxid
    assert (await znodes.get("/a")) == (b"two", after)


async def test_a_conditional_set_needs_the_right_version(znodes: Coordination) -> None:
    await znodes.create("/a", b"")
    await znodes.set("/a", b"x", version=0)
    with pytest.raises(BadVersion):
        await znodes.set("/a", b"y", version=0)
    assert (await znodes.get("/a"))[0] == b"x"


async def test_a_conditional_delete_needs_the_right_version(znodes: Coordination) -> None:
    await znodes.create("/a", b"")
    await znodes.set("/a", b"x")
    with pytest.raises(BadVersion):
        await znodes.delete("/a", version=0)
    await znodes.delete("/a", version=1)
    assert await znodes.exists("/a") is None


async def test_a_node_is_created_once(znodes: Coordination) -> None:
    await znodes.create("/a")
    with pytest.raises(NodeExists):
        await znodes.create("/a")


async def test_of_many_racing_creations_one_wins(store: Store) -> None:
    sessions = [await store.connect() for _ in range(5)]
    outcomes = await asyncio.gather(
        *(session.create("/controller", b"", ephemeral=True) for session in sessions), return_exceptions=True
    )
    assert outcomes.count("/controller") == 1
    assert sum(isinstance(outcome, NodeExists) for outcome in outcomes) == 4


async def test_a_node_recreated_starts_over(znodes: Coordination) -> None:
    await znodes.create("/a", b"1")
    await znodes.set("/a", b"2")
    _, first = await znodes.get("/a")
    await znodes.delete("/a")
    await znodes.create("/a", b"3")
    _, second = await znodes.get("/a")
    assert second.version == 0
    assert second.czxid > first.czxid


async def test_missing_nodes_raise(znodes: Coordination) -> None:
    for attempt in (
        znodes.get("/no"),
        znodes.set("/no", b""),
        znodes.delete("/no"),
        znodes.children("/no"),
        znodes.create("/no/child"),
    ):
        with pytest.raises(NoNode):
            await attempt
    assert await znodes.exists("/no") is None


async def test_many_nodes_are_read_at_once(znodes: Coordination) -> None:
    await znodes.create("/a", b"1")
    await znodes.create("/b", b"2")
    found = await znodes.get_many(["/b", "/no", "/a"])
    assert found == [await znodes.get("/b"), None, await znodes.get("/a")]
    assert await znodes.get_many([]) == []


async def test_many_nodes_are_watched_at_once_missing_ones_too(znodes: Coordination) -> None:
    await znodes.create("/a")
    seen = Seen()
    await znodes.watch_many({"/a": seen, "/no": seen})
    await znodes.watch_many({})
    await znodes.set("/a", b"1")
    await znodes.set("/a", b"2")
    await znodes.create("/no")
    assert await seen.wait_for(2) == [
        WatchEvent(EventType.CHANGED, "/a"),
        WatchEvent(EventType.CREATED, "/no"),
    ]


async def test_parents_are_made_on_request(znodes: Coordination) -> None:
    await znodes.create("/a/b/c", b"deep", make_parents=True)
    assert (await znodes.get("/a/b"))[0] == b""
    assert (await znodes.get("/a/b/c"))[0] == b"deep"
    await znodes.create("/a/b/d", make_parents=True)
    with pytest.raises(NodeExists):
        await znodes.create("/a/b/d", make_parents=True)


async def test_paths_are_made_where_there_are_none(znodes: Coordination) -> None:
    await znodes.create("/a/b", b"kept", make_parents=True)
    await znodes.make_paths(["/a/b", "/a/c/d", "/a/c", "/e/f/g"])
    await znodes.make_paths(["/e/f/g"])
    assert (await znodes.get("/a/b"))[0] == b"kept"
    for path in ("/a/c/d", "/e/f/g"):
        assert (await znodes.get(path))[0] == b""
    with pytest.raises(BadArguments):
        await znodes.make_paths(["/fine", "//"])


async def test_concurrent_creations_may_make_the_same_parents(znodes: Coordination) -> None:
    await asyncio.gather(*(znodes.create(f"/a/b/{n}", make_parents=True) for n in range(10)))
    assert len(await znodes.children("/a/b")) == 10


async def test_a_node_with_children_is_not_deleted(znodes: Coordination) -> None:
    await znodes.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty):
        await znodes.delete("/a")
    await znodes.delete("/a/b")
    await znodes.delete("/a")


async def test_children_are_names(znodes: Coordination) -> None:
    for name in ("c", "a", "b"):
        await znodes.create(f"/p/{name}", make_parents=True)
    await znodes.create("/p/a/grandchild")
    assert await znodes.children("/p") == ["a", "b", "c"]
    assert await znodes.children("/p/b") == []
    assert "p" in await znodes.children("/")


async def test_the_parents_stat_counts_children_come_and_gone(znodes: Coordination) -> None:
    await znodes.create("/p")
    await znodes.create("/p/a")
    await znodes.create("/p/b")
    await znodes.delete("/p/a")
    stat = await znodes.exists("/p")
    assert stat is not None
    assert (stat.version, stat.cversion, stat.num_children) == (0, 3, 1)
    assert stat.pzxid > stat.mzxid


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/..", "/a\0b"])
async def test_what_is_no_path_is_refused(znodes: Coordination, path: str) -> None:
    for attempt in (znodes.create(path), znodes.exists(path), znodes.delete(path)):
        with pytest.raises(BadArguments):
            await attempt


async def test_the_root_is_there_to_stay(znodes: Coordination) -> None:
    assert await znodes.exists("/") is not None
    with pytest.raises(BadArguments):
        await znodes.delete("/")
    with pytest.raises(NodeExists):
        await znodes.create("/")


async def test_names_and_data_are_what_they_were(znodes: Coordination) -> None:
    await znodes.create("/größe-火", bytes(range(256)))
    assert (await znodes.get("/größe-火"))[0] == bytes(range(256))
    assert "größe-火" in await znodes.children("/")


# --- sequential


async def test_sequential_names_count_the_creations_under_the_parent(znodes: Coordination) -> None:
    await znodes.create("/p")
    assert await znodes.create("/p/n_", sequential=True) == "/p/n_0000000000"
    assert await znodes.create("/p/n_", sequential=True) == "/p/n_0000000001"
    await znodes.create("/p/other")
    assert await znodes.create("/p/n_", sequential=True) == "/p/n_0000000003"
    await znodes.delete("/p/n_0000000003")
    assert await znodes.create("/p/m_", sequential=True) == "/p/m_0000000004"


async def test_concurrent_sequential_creations_get_different_names(store: Store) -> None:
    sessions = [await store.connect() for _ in range(3)]
    await sessions[0].create("/p")
    made = await asyncio.gather(*(sessions[n % 3].create("/p/n_", sequential=True) for n in range(30)))
    assert sorted(made) == [f"/p/n_{n:010d}" for n in range(30)]


# --- ephemeral


async def test_an_ephemeral_belongs_to_its_session(znodes: Coordination) -> None:
    await znodes.create("/e", b"", ephemeral=True)
    _, stat = await znodes.get("/e")
    assert stat.ephemeral_owner == znodes.session_id != 0


async def test_an_ephemeral_dies_when_its_session_is_closed(store: Store, znodes: Coordination) -> None:
    other = await store.connect()
    await znodes.create("/p")
    await other.create("/p/e", ephemeral=True)
    await other.create("/stays")
    seen = Seen()
    assert await znodes.exists("/p/e", seen) is not None
    await other.close()
    assert await seen.wait_for(1) == [WatchEvent(EventType.DELETED, "/p/e")]
    assert await znodes.exists("/stays") is not None


async def test_an_ephemeral_dies_when_its_session_expires(store: Store, znodes: Coordination) -> None:
    other = await store.connect()
    states: list[SessionState] = []
    other.add_listener(states.append)
    await other.create("/e", ephemeral=True)
    await store.expire(other)
    await gone(znodes, "/e")
    assert SessionState.LOST in states


async def test_operations_of_an_expired_session_fail(store: Store) -> None:
    other = await store.connect()
    await store.expire(other)
    if other.state is SessionState.LOST:
        with pytest.raises(SessionExpired):
            await other.create("/x")


async def test_an_ephemeral_has_no_children(znodes: Coordination) -> None:
    await znodes.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await znodes.create("/e/child")


async def test_an_ephemeral_may_be_sequential(znodes: Coordination) -> None:
    path = await znodes.create("/e_", ephemeral=True, sequential=True)
    assert path.startswith("/e_")
    assert len(path) == len("/e_") + 10
    stat = await znodes.exists(path)
    assert stat is not None
    assert stat.ephemeral_owner == znodes.session_id


async def test_another_session_may_delete_an_ephemeral(store: Store, znodes: Coordination) -> None:
    other = await store.connect()
    await other.create("/e", ephemeral=True)
    await znodes.delete("/e")
    await znodes.create("/e", b"mine")
    await other.close()
    assert (await znodes.get("/e"))[0] == b"mine"


async def test_sessions_have_different_ids_and_are_connected(store: Store) -> None:
    sessions = [await store.connect() for _ in range(3)]
    assert len({session.session_id for session in sessions}) == 3
    assert {session.state for session in sessions} == {SessionState.CONNECTED}
    assert all(session.session_timeout_ms > 0 for session in sessions)


async def test_closing_tells_the_listeners_and_may_be_done_twice(store: Store) -> None:
    session = await store.connect()
    states: list[SessionState] = []
    session.add_listener(states.append)
    await session.close()
    await session.close()
    assert states[-1] is SessionState.CLOSED
    with pytest.raises(CoordinationError):
        await session.create("/x")


# --- watches


async def test_a_data_watch_fires_once_on_change(znodes: Coordination) -> None:
    await znodes.create("/a")
    seen = Seen()
    await znodes.get("/a", seen)
    await znodes.set("/a", b"1")
    await znodes.set("/a", b"2")
    await znodes.exists("/a")
    assert await seen.wait_for(1) == [WatchEvent(EventType.CHANGED, "/a")]


async def test_a_data_watch_fires_on_deletion(znodes: Coordination) -> None:
    await znodes.create("/a")
    seen = Seen()
    await znodes.get("/a", seen)
    await znodes.delete("/a")
    assert await seen.wait_for(1) == [WatchEvent(EventType.DELETED, "/a")]


async def test_an_exists_watch_waits_for_creation(znodes: Coordination) -> None:
    seen = Seen()
    assert await znodes.exists("/a", seen) is None
    await znodes.create("/a")
    assert await seen.wait_for(1) == [WatchEvent(EventType.CREATED, "/a")]


async def test_get_of_a_missing_node_leaves_no_watch(znodes: Coordination) -> None:
    seen = Seen()
    with pytest.raises(NoNode):
        await znodes.get("/a", seen)
    with pytest.raises(NoNode):
        await znodes.children("/a", seen)
    await znodes.create("/a")
    await znodes.exists("/a")
    assert seen.events == []


async def test_a_child_watch_fires_on_coming_and_going_but_not_on_data(znodes: Coordination) -> None:
    await znodes.create("/p/a", make_parents=True)
    seen = Seen()
    await znodes.children("/p", seen)
    await znodes.set("/p", b"data")
    await znodes.set("/p/a", b"data")
    await znodes.create("/p/a/grandchild")
    await znodes.exists("/p")
    assert seen.events == []
    await znodes.create("/p/b")
    assert await seen.wait_for(1) == [WatchEvent(EventType.CHILD, "/p")]
    await znodes.children("/p", seen)
    await znodes.delete("/p/b")
    assert await seen.wait_for(2) == [WatchEvent(EventType.CHILD, "/p")] * 2


async def test_a_child_watch_fires_when_its_node_is_deleted(znodes: Coordination) -> None:
    await znodes.create("/p")
    seen = Seen()
    await znodes.children("/p", seen)
    await znodes.delete("/p")
    assert await seen.wait_for(1) == [WatchEvent(EventType.DELETED, "/p")]


async def test_one_callback_set_twice_fires_once(znodes: Coordination) -> None:
    await znodes.create("/a")
    seen = Seen()
    await znodes.get("/a", seen)
    await znodes.exists("/a", seen)
    await znodes.delete("/a")
    await znodes.exists("/")
    assert await seen.wait_for(1) == [WatchEvent(EventType.DELETED, "/a")]


async def test_watches_see_the_changes_of_other_sessions_in_order(store: Store, znodes: Coordination) -> None:
    other = await store.connect()
    seen = Seen()
    names = [f"/n{number}" for number in range(20)]
    for name in names:
        await znodes.exists(name, seen)
    for name in names:
        await other.create(name)
    assert [event.path for event in await seen.wait_for(20)] == names


async def test_who_was_told_of_a_change_can_read_it(store: Store, znodes: Coordination) -> None:
    other = await store.connect()
    await znodes.create("/a", b"old")
    seen = Seen()
    await znodes.get("/a", seen)
    write = asyncio.create_task(other.set("/a", b"new"))
    await seen.wait_for(1)
    assert (await znodes.get("/a"))[0] == b"new"
    await write


async def test_a_failing_watch_harms_no_other(znodes: Coordination) -> None:
    def broken(event: WatchEvent) -> None:
        raise RuntimeError(event.path)

    seen = Seen()
    await znodes.exists("/a", broken)
    await znodes.exists("/a", seen)
    await znodes.create("/a")
    await seen.wait_for(1)


async def test_a_refused_write_fires_nothing(znodes: Coordination) -> None:
    await znodes.create("/a")
    seen = Seen()
    await znodes.get("/a", seen)
    with pytest.raises(BadVersion):
        await znodes.set("/a", b"", version=7)
    await znodes.exists("/")
    assert seen.events == []


# --- multi


async def test_multi_applies_all_and_answers_each(znodes: Coordination) -> None:
    await znodes.create("/old")
    results = await znodes.multi(
        [
            Check("/old", 0),
            Create("/new", b"1"),
            Create("/new/child", b"2"),
            SetData("/new", b"3", 0),
            Delete("/old"),
            Create("/new/n_", sequential=True),
        ]
    )
    assert results[0] is None
    assert results[1:3] == ["/new", "/new/child"]
    assert isinstance(results[3], Stat)
    assert results[3].version == 1
    assert results[4] is None
    assert results[5] == "/new/n_0000000001"
    assert (await znodes.get("/new"))[0] == b"3"
    assert await znodes.exists("/old") is None


async def test_multi_applies_nothing_when_one_operation_fails(znodes: Coordination) -> None:
    await znodes.create("/a", b"old")
    seen = Seen()
    await znodes.get("/a", seen)
    with pytest.raises(BadVersion) as caught:
        await znodes.multi([Create("/b"), SetData("/a", b"new"), Check("/a", 5), Create("/c")])
    assert caught.value.index == 2
    assert await znodes.exists("/b") is None
    assert (await znodes.get("/a"))[0] == b"old"
    assert seen.events == []
    assert await znodes.create("/n_", sequential=True) is not None
    await znodes.create("/b")


async def test_multi_is_one_transaction(znodes: Coordination) -> None:
    await znodes.multi([Create("/a"), Create("/a/b")])
    first, second = await znodes.exists("/a"), await znodes.exists("/a/b")
    assert first is not None
    assert second is not None
    assert first.czxid == second.czxid


async def test_multi_fires_watches(znodes: Coordination) -> None:
    seen = Seen()
    await znodes.exists("/a", seen)
    await znodes.exists("/b", seen)
    await znodes.multi([Create("/b"), Create("/a")])
    assert await seen.wait_for(2) == [
        WatchEvent(EventType.CREATED, "/b"),
        WatchEvent(EventType.CREATED, "/a"),
    ]


async def test_checks_alone_change_nothing(znodes: Coordination) -> None:
    path = await znodes.create("/a", b"x")
    before = (await znodes.get(path))[1]
    assert await znodes.multi([Check(path)]) == [None]
    assert (await znodes.get(path))[1] == before
    with pytest.raises(NoNode):
        await znodes.multi([Check("/missing")])


async def test_an_empty_multi_does_nothing(znodes: Coordination) -> None:
    assert await znodes.multi([]) == []


async def test_a_check_after_a_write_in_flight_sees_it(znodes: Coordination) -> None:
    await znodes.create("/epoch", b"1")
    write = asyncio.create_task(znodes.set("/epoch", b"2"))
    await asyncio.sleep(0)
    with pytest.raises(BadVersion):
        await znodes.multi([Check("/epoch", 0), Create("/late")])
    await write
    await znodes.multi([Check("/epoch", 1), Create("/in-time")])


async def test_a_read_sees_the_writes_its_session_started_before(znodes: Coordination) -> None:
    await znodes.create("/a", b"0")
    writes = [asyncio.create_task(znodes.set("/a", str(n).encode())) for n in range(1, 20)]
    await asyncio.sleep(0)
    assert (await znodes.get("/a"))[0] == b"19"
    stats = await asyncio.gather(*writes)
    assert [stat.version for stat in stats] == list(range(1, 20))


async def test_a_node_holds_a_million_bytes_and_no_more(znodes: Coordination) -> None:
    await znodes.create("/large", bytes(DATA_BYTES_MAX))
    for attempt in (
        znodes.create("/larger", bytes(DATA_BYTES_MAX + 1)),
        znodes.set("/large", bytes(DATA_BYTES_MAX + 1)),
        znodes.multi([Create("/a", bytes(DATA_BYTES_MAX)), Create("/b", b"1")]),
    ):
        with pytest.raises(DataTooLarge):
            await attempt
    assert await znodes.exists("/larger") is None
    assert len((await znodes.get("/large"))[0]) == DATA_BYTES_MAX


# --- the lease


async def test_the_lease_of_a_live_session_lies_in_the_future(znodes: Coordination) -> None:
    await znodes.exists("/")
    assert znodes.lease_expires_ms > SystemClock().monotonic_ms()


async def test_the_lease_ends_with_its_session(store: Store) -> None:
    other = await store.connect()
    leases: list[float] = []
    other.add_listener(lambda state: leases.append(other.lease_expires_ms))
    await store.expire(other)
    now_ms = SystemClock().monotonic_ms()
    assert any(lease < now_ms for lease in leases)
