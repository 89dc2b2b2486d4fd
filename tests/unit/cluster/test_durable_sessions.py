"""Sessions of other processes in the embedded store: they outlive it, with their ephemeral nodes."""

from __future__ import annotations

from pathlib import Path

from tests.support.manual_time import ManualClock

from barnabas.cluster.coordination.contract import Create
from barnabas.cluster.embedded.durable_sessions import (
    SESSIONS,
    DurableSession,
    create_session,
    read_sessions,
    session_id_of,
    session_path,
)
from barnabas.cluster.embedded.session import EmbeddedStore, open_embedded
from barnabas.core.files import RealFiles
from barnabas.core.scheduler import InlineBackground

SESSION = DurableSession(18_000, "broker-1")


def opened(directory: Path) -> EmbeddedStore:
    return EmbeddedStore.open(RealFiles(), str(directory), ManualClock(), InlineBackground())


async def with_session(store: EmbeddedStore) -> int:
    await store.submit(store.missing([SESSIONS]), 0)
    (path,) = await store.submit([create_session(SESSION)], 0)
    assert isinstance(path, str)
    session_id = session_id_of(path)
    assert session_path(session_id) == path
    return session_id


async def test_a_durable_session_and_its_ephemeral_nodes_survive_the_process(tmp_path: Path) -> None:
    store = opened(tmp_path)
    session_id = await with_session(store)
    await store.submit([Create("/mine", b"", ephemeral=True)], session_id)
    own = store.connect()
    await own.create("/of-the-process", ephemeral=True)
    store.forget(own)  # as a crash does, which closes no session
    await store.close()

    store = opened(tmp_path)
    assert read_sessions(store.tree) == {session_id: SESSION}
    assert "/mine" in store.nodes
    assert "/of-the-process" not in store.nodes
    await store.close()


async def test_an_ended_session_and_its_ephemeral_nodes_go_in_one_transaction(tmp_path: Path) -> None:
    store = opened(tmp_path)
    session_id = await with_session(store)
    await store.submit([Create("/a", b"", ephemeral=True), Create("/b", b"", ephemeral=True)], session_id)
    before = store.tree.zxid
    await store.end_session(session_id)
    assert store.tree.zxid == before + 1
    assert not {"/a", "/b", session_path(session_id)} & store.nodes.keys()
    assert read_sessions(store.tree) == {}
    await store.close()


async def test_an_id_is_never_given_out_twice(tmp_path: Path) -> None:
    ids: list[int] = []
    for _ in range(3):
        store = opened(tmp_path)
        ids += [await with_session(store), await with_session(store), store.connect().session_id]
        await store.end_session(ids[-3])
        await store.close()
    assert len(set(ids)) == len(ids)
    assert [each for each in ids if session_path(each) is None] == ids[2::3]


async def test_a_command_that_opens_the_store_leaves_the_sessions_of_brokers(tmp_path: Path) -> None:
    store = opened(tmp_path)
    session_id = await with_session(store)
    await store.submit([Create("/mine", b"", ephemeral=True)], session_id)
    await store.close()
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as znodes:
        assert await znodes.exists("/mine") is not None
    store = opened(tmp_path)
    assert read_sessions(store.tree) == {session_id: SESSION}
    await store.close()
