"""A session through the troubles of a network and of its server, with a real ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from barnabas.cluster.coordination.contract import (
    BadArguments,
    Check,
    ConnectionLoss,
    Create,
    EventType,
    NoAuth,
    NodeExists,
    SessionClosed,
    SessionExpired,
    SessionState,
    WatchEvent,
)
from barnabas.cluster.stores.registration import Registration, make_persistent_paths
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo
from barnabas.cluster.zookeeper import ServerAccess, ZooKeeperSession, open_zookeeper, wire
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.node.runtime import LoopScheduler
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxied
from tests.support.zookeeper import ZooKeeper, running_zookeeper

SOURCE = Path(__file__).resolve().parents[3] / "src"
SHORT_MS = 1_000
LONG_MS = 60_000

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


class Watched:
    """A session with its states and events, and a way to wait for them."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.states: list[SessionState] = []
        self.events: list[WatchEvent] = []
        self._changed = asyncio.Event()
        session.add_listener(self._on_state)

    def _on_state(self, state: SessionState) -> None:
        self.states.append(state)
        self._changed.set()

    def watch(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def opened(connect: str, timeout_ms: int = LONG_MS, **options: object) -> AsyncIterator[Watched]:
    async with open_zookeeper(
        connect,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=60_000,
        clock=SystemClock(),
        **options,  # type: ignore[arg-type]
    ) as session:
        yield Watched(session)


class Pair:
    """One session through a proxy, one beside it, in the same chroot."""

    def __init__(self, proxy: Proxy, far: Watched, near: ZooKeeperSession) -> None:
        self.proxy = proxy
        self.far = far
        self.near = near


@asynccontextmanager
async def pair(server: ZooKeeper, timeout_ms: int = LONG_MS) -> AsyncIterator[Pair]:
    chroot = server.chroot()
    path = chroot.removeprefix(server.connect)
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(opened(chroot))
        proxy = await stack.enter_async_context(proxied(server.host, server.port))
        far = await stack.enter_async_context(opened(proxy.address + path, timeout_ms))
        yield Pair(proxy, far, near.session)


# --- a connection that breaks


async def test_a_broken_connection_is_made_again_in_the_same_session(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server) as both:
        session = both.far.session
        session_id = session.session_id
        await session.create("/e", ephemeral=True)
        both.proxy.drop()
        await both.far.until(lambda: both.far.states == [SUSPENDED, CONNECTED])
        assert session.session_id == session_id
        assert await session.exists("/e") is not None


async def test_checks_alone_have_their_place_in_the_order_of_writes(zookeeper: str) -> None:
    """So all servers agree on them, and the one that answers has seen everything that was before them."""
    async with opened(zookeeper) as near:
        await near.session.create("/checked")
        before = await near.session.set("/checked", b"one")
        await near.session.multi([Check("/checked")])
        after = await near.session.set("/checked", b"two")
        assert after.mzxid >= before.mzxid + 2


async def test_an_unforeseen_error_costs_the_connection_and_not_the_session(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(zookeeper) as near:
        session_id = near.session.session_id
        whole, errors = wire._Connection._read_socket, [RuntimeError("as if by a mistake")]

        def read_once_wrongly(self: wire._Connection, read_timeout: float) -> object:
            if errors:
                raise errors.pop()
            return whole(self, read_timeout)

        monkeypatch.setattr(wire._Connection, "_read_socket", read_once_wrongly)
        with pytest.raises(ConnectionLoss):
            await near.session.exists("/")
        await near.until(lambda: near.states == [SUSPENDED, CONNECTED])
        assert near.session.session_id == session_id


async def test_while_the_connection_is_down_operations_fail_at_once(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server) as both:
        both.proxy.cut()
        await both.far.until(lambda: both.far.states == [SUSPENDED])
        with pytest.raises(ConnectionLoss):
            await both.far.session.get("/")
        both.proxy.heal()
        await both.far.until(lambda: both.far.states[-1] is CONNECTED)
        await both.far.session.get("/")


async def test_watches_tell_what_happened_while_the_connection_was_down(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server) as both:
        far, near = both.far, both.near
        for path in ("/changed", "/deleted", "/quiet", "/parent", "/quiet-parent"):
            await near.create(path)
        await far.session.get("/changed", far.watch)
        await far.session.exists("/deleted", far.watch)
        await far.session.get("/quiet", far.watch)
        await far.session.exists("/created", far.watch)
        await far.session.exists("/absent", far.watch)
        await far.session.children("/parent", far.watch)
        await far.session.children("/quiet-parent", far.watch)
        both.proxy.cut()
        await far.until(lambda: far.states == [SUSPENDED])
        await near.set("/changed", b"1")
        await near.delete("/deleted")
        await near.create("/created")
        await near.create("/parent/child")
        both.proxy.heal()
        await far.until(lambda: len(far.events) >= 4)
        assert set(far.events) == {
            WatchEvent(EventType.CHANGED, "/changed"),
            WatchEvent(EventType.DELETED, "/deleted"),
            WatchEvent(EventType.CREATED, "/created"),
            WatchEvent(EventType.CHILD, "/parent"),
        }
        # Watches without an event are still set, and each fires once.
        await near.set("/quiet", b"1")
        await near.create("/absent")
        await near.create("/quiet-parent/child")
        await near.set("/changed", b"2")
        await far.until(lambda: len(far.events) >= 7)
        await far.session.exists("/")
        assert set(far.events[4:]) == {
            WatchEvent(EventType.CHANGED, "/quiet"),
            WatchEvent(EventType.CREATED, "/absent"),
            WatchEvent(EventType.CHILD, "/quiet-parent"),
        }


async def test_the_lost_answer_to_a_creation_is_a_connection_loss(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server) as both:
        both.proxy.lose_replies()
        creating = asyncio.create_task(both.far.session.create("/made"))
        seen = Watched(both.near)
        while await both.near.exists("/made", seen.watch) is None:
            await seen.until(lambda: seen.events)
        both.proxy.drop()
        with pytest.raises(ConnectionLoss):
            await creating
        both.proxy.heal()
        await both.far.until(lambda: both.far.states[-1:] == [CONNECTED])
        with pytest.raises(NodeExists):
            await both.far.session.create("/made")


async def test_the_lost_answer_to_a_registration_does_not_wedge_it(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server) as both:
        await make_persistent_paths(both.near)
        scheduler = LoopScheduler(asyncio.get_running_loop())
        registration = Registration(both.far.session, SystemClock(), scheduler)
        broker = BrokerInfo(7, (ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092)),), None)
        both.proxy.lose_replies()
        registering = asyncio.create_task(registration.register(broker))
        seen = Watched(both.near)
        while await both.near.exists(BrokerIdZnode.path(7), seen.watch) is None:
            await seen.until(lambda: seen.events)
        both.proxy.heal()
        both.proxy.drop()
        async with asyncio.timeout(60):
            registered = await registering
        stat = await both.near.exists(BrokerIdZnode.path(7))
        assert stat is not None
        assert (registered.epoch, stat.ephemeral_owner) == (stat.czxid, both.far.session.session_id)
        scheduler.close()


# --- a session that ends


async def test_after_its_expiry_another_session_begins(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server, SHORT_MS) as both:
        far, near = both.far, both.near
        first_id = far.session.session_id
        await far.session.create("/e", ephemeral=True)
        await near.create("/watched")
        await far.session.get("/watched", far.watch)
        both.proxy.cut()
        seen = Watched(near)
        if await near.exists("/e", seen.watch) is not None:
            await seen.until(lambda: seen.events)
        assert far.session.lease_expires_ms < SystemClock().monotonic_ms()
        both.proxy.heal()
        await far.until(lambda: far.states == [SUSPENDED, LOST, CONNECTED])
        assert far.session.session_id != first_id
        assert far.session.lease_expires_ms > SystemClock().monotonic_ms()
        await near.set("/watched", b"1")
        await far.session.exists("/watched")
        assert far.events == []


async def test_listeners_that_ask_while_the_session_is_lost_are_told_so(zookeeper_server: ZooKeeper) -> None:
    async with pair(zookeeper_server, SHORT_MS) as both:
        outcomes: list[asyncio.Task[None]] = []

        async def ask() -> None:
            await both.far.session.get("/")

        def on_state(state: SessionState) -> None:
            if state is LOST:
                with pytest.raises(SessionExpired):
                    ask().send(None)
                outcomes.append(asyncio.create_task(asyncio.sleep(0)))

        both.far.session.add_listener(on_state)
        await both.far.session.create("/e", ephemeral=True)
        both.proxy.cut()
        seen = Watched(both.near)
        if await both.near.exists("/e", seen.watch) is not None:
            await seen.until(lambda: seen.events)
        both.proxy.heal()
        await both.far.until(lambda: both.far.states[-1:] == [CONNECTED])
        assert len(outcomes) == 1


async def test_a_silent_server_is_noticed_before_the_session_ends(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:
        async with opened(server.connect, 3_000) as far:
            now_ms = SystemClock().monotonic_ms
            server.pause()
            await far.until(lambda: far.states == [SUSPENDED])
            assert now_ms() < far.session.lease_expires_ms
            server.resume()
            await far.until(lambda: far.states[-1] is CONNECTED)


async def test_a_restarted_server_knows_the_session(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:
        async with opened(server.connect) as far:
            session_id = far.session.session_id
            await far.session.create("/e", b"data", ephemeral=True)
            server.kill()
            await far.until(lambda: far.states == [SUSPENDED])
            server.start()
            await far.until(lambda: far.states == [SUSPENDED, CONNECTED])
            assert far.session.session_id == session_id
            assert (await far.session.get("/e"))[0] == b"data"


async def test_closing_without_a_server_does_not_hang(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:
        async with opened(server.connect) as far:
            server.kill()
            await far.until(lambda: far.states == [SUSPENDED])
            async with asyncio.timeout(60):
                await far.session.close()
            with pytest.raises(SessionClosed):
                await far.session.get("/")


# --- the lease of a process that stood still

HOLDER = """
import asyncio, sys
from barnabas.cluster.zookeeper import open_zookeeper
from barnabas.core.clock import SystemClock

async def main():
    clock = SystemClock()
    async with open_zookeeper(
        sys.argv[1], session_timeout_ms=1_000, connection_timeout_ms=60_000, clock=clock
    ) as znodes:
        await znodes.create("/holder", ephemeral=True)
        def answer():
            sys.stdin.readline()
            print("held" if clock.monotonic_ms() < znodes.lease_expires_ms else "expired", flush=True)
        asyncio.get_running_loop().add_reader(0, answer)
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_that_stood_still_beyond_its_session_finds_its_lease_expired(
    zookeeper_server: ZooKeeper,
) -> None:
    chroot = zookeeper_server.chroot()
    async with opened(chroot) as near:
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, chroot,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert await holder.stdout.readline() == b"ready\n"
            holder.stdin.write(b"?\n")
            assert await holder.stdout.readline() == b"held\n"
            holder.send_signal(signal.SIGSTOP)
            if await near.session.exists("/holder", near.watch) is not None:
                await near.until(lambda: near.events)
            holder.stdin.write(b"?\n")
            holder.send_signal(signal.SIGCONT)
            assert await holder.stdout.readline() == b"expired\n"
        finally:
            holder.kill()
            await holder.wait()


async def test_the_lease_is_renewed_as_long_as_the_server_answers(zookeeper: str) -> None:
    async with opened(zookeeper, SHORT_MS) as far:
        first = far.session.lease_expires_ms
        async with asyncio.timeout(60):
            while far.session.lease_expires_ms < first + 2 * SHORT_MS:
                assert SystemClock().monotonic_ms() < far.session.lease_expires_ms
                await asyncio.sleep(0.01)
        assert far.states == []


async def test_the_lease_counts_the_timeout_that_the_server_granted(zookeeper_server: ZooKeeper) -> None:
    async with opened(zookeeper_server.connect, 1) as far:
        granted_ms = far.session.session_timeout_ms
        assert granted_ms == 400
        assert far.session.lease_expires_ms <= SystemClock().monotonic_ms() + granted_ms


# --- addresses and credentials ---


async def test_a_chroot_is_made_and_hidden(zookeeper_server: ZooKeeper) -> None:
    chroot = zookeeper_server.chroot() + "/deep/inside"
    async with opened(chroot) as inside, opened(zookeeper_server.connect) as outside:
        znodes = inside.session
        path = chroot.removeprefix(zookeeper_server.connect)
        assert await outside.session.exists(path) is not None
        assert await znodes.exists("/a", inside.watch) is None
        assert await znodes.create("/a", b"data") == "/a"
        await inside.until(lambda: inside.events)
        assert inside.events == [WatchEvent(EventType.CREATED, "/a")]
        assert await znodes.create("/a/n_", sequential=True) == "/a/n_0000000000"
        assert await znodes.multi([Create("/b"), Create("/b/n_", sequential=True)]) == [
            "/b",
            "/b/n_0000000000",
        ]
        assert (await outside.session.get(f"{path}/a"))[0] == b"data"
        assert await znodes.children("/") == ["a", "b"]


async def test_an_address_without_a_broker_is_reported_in_a_sentence() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionLoss, match=f"no ZooKeeper answers at {address} within 300 ms"):
        async with open_zookeeper(
            address, session_timeout_ms=1_000, connection_timeout_ms=300, clock=SystemClock()
        ):
            pass


async def test_the_first_server_of_several_that_answers_is_taken(zookeeper_server: ZooKeeper) -> None:
    silent = f"127.0.0.1:{free_port()}"
    async with opened(f"{silent},{zookeeper_server.chroot()}") as far:
        await far.session.create("/a")


async def test_more_than_fits_in_flight_waits_in_order(zookeeper: str) -> None:
    async with opened(zookeeper) as far:
        await far.session.create("/p")
        made = await asyncio.gather(*(far.session.create("/p/n_", sequential=True) for _ in range(500)))
        assert made == [f"/p/n_{n:010d}" for n in range(500)]
        assert None not in await far.session.get_many(made)


async def test_what_credentials_made_is_theirs_to_change(zookeeper: str) -> None:
    async with (
        opened(zookeeper, access=ServerAccess("kafka:secret"), set_acl=True) as owner,
        opened(zookeeper, access=ServerAccess("kafka:secret")) as colleague,
        opened(zookeeper, access=ServerAccess("kafka:guessed")) as stranger,
        opened(zookeeper) as nobody,
    ):
        await make_persistent_paths(owner.session)
        await owner.session.create("/config/topics/orders", b"public", make_parents=True)
        await owner.session.create("/config/users/alice", b"scram", make_parents=True)
        for other in (stranger.session, nobody.session):
            assert (await other.get("/config/topics/orders"))[0] == b"public"
            for attempt in (
                other.set("/config/topics/orders", b"mine"),
                other.create("/brokers/ids/1"),
                other.delete("/config/topics/orders"),
                other.multi([Create("/brokers/ids/1")]),
                other.get("/config/users/alice"),
                other.get_many(["/config/users/alice"]),
            ):
                with pytest.raises(NoAuth):
                    await attempt
            await other.create("/consumers/group-", sequential=True)
        await colleague.session.set("/config/topics/orders", b"ours")
        assert (await colleague.session.get("/config/users/alice"))[0] == b"scram"


async def replace_at_the_top(nobody: ZooKeeperSession) -> None:
    await nobody.delete("/controller")
    await nobody.create("/controller", b"mine")


@pytest.mark.parametrize("place", ["chroot", "own server"])
async def test_what_credentials_made_cannot_be_replaced(
    zookeeper: str, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where the root was open to all when the owner came."""
    with running_zookeeper(tmp_path) if place == "own server" else nullcontext() as own:
        connect = zookeeper if own is None else own.connect
        async with opened(connect) as nobody:
            for _ in range(2):
                async with opened(
                    connect, access=ServerAccess("kafka:secret"), set_acl=True, owns_server=own is not None
                ) as owner:
                    if await owner.session.exists("/controller") is None:
                        await owner.session.create("/controller", b"owned")
                    with pytest.raises(NoAuth):
                        await replace_at_the_top(nobody.session)
                    with pytest.raises(NoAuth):
                        await nobody.session.create("/brokers")
                    assert (await nobody.session.get("/controller"))[0] == b"owned"
                    assert "controller" in await nobody.session.children("/")
    assert "ZooKeeper" not in caplog.text


async def test_a_root_that_others_may_need_is_left_open_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_zookeeper(tmp_path) as server:
        async with (
            opened(server.connect, access=ServerAccess("kafka:secret"), set_acl=True),
            opened(server.connect) as other,
        ):
            await other.session.create("/hbase")
    assert "every client may create and delete nodes in /" in caplog.text


async def test_a_root_of_another_owner_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All clients have every right there except changing the ACL."""
    with running_zookeeper(tmp_path) as server:
        theirs = KazooClient(server.connect)
        theirs.start()
        everybody = make_acl("world", "anyone", read=True, write=True, create=True, delete=True)
        theirs.set_acls("/", [make_digest_acl("somebody", "else", all=True), everybody])
        before = theirs.get_acls("/")[0]
        async with opened(
            server.connect, access=ServerAccess("kafka:secret"), set_acl=True, owns_server=True
        ) as owner:
            await owner.session.create("/controller")
        assert theirs.get_acls("/")[0] == before
        theirs.stop()
        theirs.close()
    assert "/ belongs to another identity" in caplog.text


async def test_access_control_needs_credentials(zookeeper: str) -> None:
    with pytest.raises(BadArguments, match="needs credentials"):
        async with opened(zookeeper, set_acl=True):
            pass
