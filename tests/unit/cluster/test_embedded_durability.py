"""Content of the embedded store after a crash: a prefix of its history with everything acknowledged."""

from __future__ import annotations

import asyncio
import errno
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_time import ManualClock
from tests.unit.cluster.later import Later
from tests.unit.cluster.simulated_disk import STORE, PowerCut, SimulatedDisk

from barnabas.cluster.coordination.contract import (
    Create,
    Result,
    SessionExpired,
    SessionState,
    StoreDamaged,
    StoreFailed,
    StoreLocked,
)
from barnabas.cluster.embedded import session as embedded
from barnabas.cluster.embedded.session import EmbeddedStore, open_embedded
from barnabas.core.files import RealFile, RealFiles
from barnabas.core.scheduler import InlineBackground


def open_at(path: Path) -> EmbeddedStore:
    return EmbeddedStore.open(RealFiles(), str(path), ManualClock(), InlineBackground())


def state(store: EmbeddedStore) -> dict[str, tuple[bytes, int, int]]:
    return {path: (node.data, node.version, node.czxid) for path, node in store.nodes.items()}


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


async def test_everything_but_ephemerals_survives_a_restart(tmp_path: Path) -> None:
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as znodes:
        await znodes.create("/a/b", b"data", make_parents=True)
        await znodes.set("/a/b", b"more")
        await znodes.create("/a/n_", sequential=True)
        await znodes.delete("/a/n_0000000001")
        _, before = await znodes.get("/a/b")
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as znodes:
        assert await znodes.get("/a/b") == (b"more", before)
        assert await znodes.create("/a/n_", sequential=True) == "/a/n_0000000002"


async def test_ephemerals_of_a_killed_process_are_gone_but_their_zxids_are_not_reused(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    session = store.connect()
    await session.create("/broker", b"", ephemeral=True)
    _, stat = await session.get("/broker")
    store._journal.close()

    store = open_at(tmp_path)
    session = store.connect()
    assert await session.exists("/broker") is None
    await session.create("/broker", b"", ephemeral=True)
    _, again = await session.get("/broker")
    assert again.czxid > stat.czxid
    assert again.ephemeral_owner != stat.ephemeral_owner
    await store.close()


async def test_a_log_cut_at_any_byte_opens_as_a_prefix(tmp_path: Path) -> None:
    """Every length of the log file is tried; the state found is one that history went through."""
    source = tmp_path / "source"
    store = open_at(source)
    session = store.connect()
    history = [state(store)]
    await session.create("/a", b"x")
    history.append(state(store))
    await session.multi([Create("/a/1", b"one"), Create("/a/2", b"two")])
    history.append(state(store))
    await session.set("/a", b"changed")
    history.append(state(store))
    await session.delete("/a/1")
    history.append(state(store))
    store._journal.close()

    log = (source / "log").read_bytes()
    reached = []
    torn = tmp_path / "torn"
    torn.mkdir()
    for length in range(len(log) + 1):
        (torn / "log").write_bytes(log[:length])
        store = open_at(torn)
        reached.append(history.index(state(store)))
        store._journal.close()
        assert (torn / "log").stat().st_size <= length
    assert reached == sorted(reached)
    assert set(reached) == set(range(len(history)))


@pytest.mark.parametrize("tail", [bytes(64), b"\xff" * 64, b"\0\0\0\x10garbage that is not a record"])
async def test_a_corrupt_tail_is_cut_and_the_log_goes_on(tmp_path: Path, tail: bytes) -> None:
    store = open_at(tmp_path)
    await store.connect().create("/a", b"kept")
    store._journal.close()
    with (tmp_path / "log").open("ab") as log:
        log.write(tail)

    store = open_at(tmp_path)
    await store.connect().create("/b", b"after")
    store._journal.close()

    store = open_at(tmp_path)
    assert (store.nodes["/a"].data, store.nodes["/b"].data) == (b"kept", b"after")
    await store.close()


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


async def written(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """A store with a snapshot and a log of several appends; returns its state."""
    store = open_at(path)
    session = store.connect()
    for number in range(3):
        await session.create(f"/old{number}", b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
        await session.create("/compacted", b"x")
    for number in range(4):
        await session.create(f"/n{number}", b"%d" % number)
    found = state(store)
    store._journal.close()
    return found


@pytest.mark.parametrize("damaged", ["log", "log.copy", "snapshot", "snapshot.copy"])
async def test_a_flipped_bit_in_any_one_file_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    before = await written(tmp_path)
    path = tmp_path / damaged
    for place in range(path.stat().st_size):
        flip(path, place)
        store = open_at(tmp_path)
        assert state(store) == before, place
        store._journal.close()
        for name in ("log", "snapshot"):
            assert (tmp_path / name).read_bytes() == (tmp_path / f"{name}.copy").read_bytes()
    if damaged != "log.copy":
        assert "is repaired" in caplog.text


@pytest.mark.parametrize("missing", ["log", "log.copy", "snapshot", "snapshot.copy"])
async def test_a_missing_file_is_made_from_its_copy(tmp_path: Path, missing: str) -> None:
    before = await written(tmp_path)
    (tmp_path / missing).unlink()
    store = open_at(tmp_path)
    assert state(store) == before
    store._journal.close()
    assert (tmp_path / missing).exists()


async def test_acknowledged_records_that_are_damaged_in_both_files_are_never_cut_off(tmp_path: Path) -> None:
    """Also the last record: its copy proves that it was on disk."""
    await written(tmp_path)
    log, copy = (tmp_path / name for name in ("log", "log.copy"))
    whole = log.read_bytes()
    for place in range(len(whole)):
        flip(log, place)
        flip(copy, place)
        with pytest.raises(StoreDamaged, match=r"acknowledged changes .*truncate -s \d+ "):
            open_at(tmp_path)
        assert len(log.read_bytes()) == len(whole), "nothing was touched"
        for path in (log, copy):
            path.write_bytes(whole)


async def test_damage_is_told_from_a_torn_write_in_a_store_without_copies(tmp_path: Path) -> None:
    """Earlier versions left stores without copies."""
    await written(tmp_path)
    log, copy = (tmp_path / name for name in ("log", "log.copy"))
    whole = log.read_bytes()
    last_record = whole.rindex(b"/n3") - 46
    for place in range(last_record):
        log.write_bytes(whole)
        copy.unlink(missing_ok=True)
        flip(log, place)
        with pytest.raises(StoreDamaged):
            open_at(tmp_path)


class BadSector(RealFiles):
    """One file cannot be read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, path: str) -> bytes:
        if path.endswith(f"/{self._name}"):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path)


@pytest.mark.parametrize("name", ["log", "log.copy", "snapshot", "snapshot.copy"])
async def test_a_file_that_cannot_be_read_is_made_from_its_copy(tmp_path: Path, name: str) -> None:
    before = await written(tmp_path)
    (tmp_path / name).write_bytes(b"")
    store = EmbeddedStore.open(BadSector(name), str(tmp_path), ManualClock(), InlineBackground())
    assert state(store) == before
    store._journal.close()
    assert (tmp_path / name).read_bytes() == (tmp_path / name.removesuffix(".copy")).read_bytes() != b""


async def test_a_file_that_cannot_be_read_and_has_no_copy_is_an_error(tmp_path: Path) -> None:
    await written(tmp_path)
    (tmp_path / "log.copy").unlink()
    with pytest.raises(OSError, match="Input/output error"):
        EmbeddedStore.open(BadSector("log"), str(tmp_path), ManualClock(), InlineBackground())


async def test_a_log_that_does_not_follow_the_snapshot_is_refused(tmp_path: Path) -> None:
    await written(tmp_path)
    for name in ("snapshot", "snapshot.copy"):
        (tmp_path / name).unlink()
    with pytest.raises(StoreDamaged, match="are missing"):
        open_at(tmp_path)


async def history_of_writes(store: EmbeddedStore, acknowledged: list[str]) -> None:
    session = store.connect()
    for number in range(12):
        await session.create(f"/n{number}", b"x" * (number * 10))
        acknowledged.append(f"/n{number}")


def cut_points() -> list[tuple[int, int]]:
    return [(steps, seed) for steps in range(60) for seed in range(4)]


async def run_until_cut(disk: SimulatedDisk, acknowledged: list[str]) -> bool:
    """Write until the power goes; returns whether it did."""
    try:
        store = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
        await history_of_writes(store, acknowledged)
    except (PowerCut, SessionExpired, StoreFailed):
        return True
    return False


@pytest.mark.parametrize("compacting", [False, True])
async def test_a_power_cut_at_any_step_loses_nothing_acknowledged(
    monkeypatch: pytest.MonkeyPatch, compacting: bool
) -> None:
    """With `compacting`, snapshots are taken all the time, so the cuts fall inside them too."""
    if compacting:
        monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 150)
    cuts = 0
    for steps, seed in cut_points():
        disk = SimulatedDisk(seed)
        disk.steps_until_cut = steps
        acknowledged: list[str] = []
        cuts += await run_until_cut(disk, acknowledged)
        disk.restart()

        store = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
        found = [path for path in store.nodes if path != "/"]
        assert found[: len(acknowledged)] == acknowledged, (steps, seed)
        assert len(found) <= len(acknowledged) + 1, "at most the write in flight"
        await store.connect().create("/alive")
    assert cuts > 50


async def test_a_power_cut_while_recovering_loses_nothing_either() -> None:
    for steps in range(6):
        for seed in range(20):
            disk = SimulatedDisk(seed)
            disk.steps_until_cut = 15
            acknowledged: list[str] = []
            assert await run_until_cut(disk, acknowledged)
            disk.restart()
            disk.steps_until_cut = steps
            with suppress(PowerCut):
                EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
            disk.restart()
            store = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
            assert set(acknowledged) <= set(store.nodes)


async def test_compaction_keeps_the_state_and_shrinks_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 10_000)
    store = open_at(tmp_path)
    session = store.connect()
    await session.create("/a", b"")
    for number in range(1_000):
        await session.set("/a", b"%d" % number)
    await session.create("/b/n_", sequential=True, make_parents=True)
    before = state(store)
    store._journal.close()
    assert size_of(tmp_path) < 25_000

    store = open_at(tmp_path)
    assert state(store) == before
    assert store.nodes["/a"].data == b"999"
    assert await store.connect().create("/b/n_", sequential=True) == "/b/n_0000000001"
    await store.close()


@pytest.mark.parametrize("step", ["replace", "sync_directory"])
async def test_without_a_file_descriptor_the_log_is_compacted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 10_000)
    files = RealFiles()
    store = EmbeddedStore.open(files, str(tmp_path), ManualClock(), InlineBackground())
    session = store.connect()
    await session.create("/a", b"")

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as short:
        short.setattr(files, step, refuse)
        for number in range(500):
            await session.set("/a", b"%d" % number)
    assert size_of(tmp_path) > 20_000
    before = state(store)
    await session.set("/a", b"499")
    assert size_of(tmp_path) < 10_000
    store._journal.close()
    again = open_at(tmp_path)
    assert again.nodes["/a"].data == before["/a"][0]
    await again.close()


async def test_without_space_for_a_snapshot_the_log_grows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
    files = RealFiles()
    store = EmbeddedStore.open(files, str(tmp_path), ManualClock(), InlineBackground())
    session = store.connect()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(files, "replace", refuse)
        await session.create("/a")
        await session.create("/b")
    await session.create("/c")
    assert (tmp_path / "log").stat().st_size == 0
    before = state(store)
    await store.close()
    assert state(open_at(tmp_path)) == before


async def test_a_log_that_could_not_be_emptied_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been emptied: a record behind what is gone would look like one that a crash tore."""
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
    store = open_at(tmp_path)
    session = store.connect()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(RealFile, "truncate", fail)
        await session.create("/a")
    assert store.failure is not None
    with pytest.raises(SessionExpired):
        await session.create("/b")
    await store.close()
    assert "/a" in open_at(tmp_path).nodes


class Refusing(InlineBackground):
    """Takes no work for a moment."""

    refusals = 0

    def submit(self, work: Any, then: Any, failed: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("can't start new thread")
        super().submit(work, then, failed)


@pytest.mark.parametrize("compact_bytes_min", [1, 1_000_000])
async def test_a_write_that_the_background_does_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact_bytes_min: int
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", compact_bytes_min)
    monkeypatch.setattr(embedded, "WRITE_RETRY_S", 0)
    background = Refusing()
    store = EmbeddedStore.open(RealFiles(), str(tmp_path), ManualClock(), background)
    session = store.connect()
    background.refusals = 3
    for path in ("/a", "/b"):
        async with asyncio.timeout(30):
            assert await session.create(path) == path
    assert session.state is SessionState.CONNECTED
    before = state(store)
    await store.close()
    assert state(open_at(tmp_path)) == before


async def test_records_that_the_snapshot_holds_already_are_not_applied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash after the snapshot got its name and before the log was emptied."""
    store = open_at(tmp_path)
    session = store.connect()
    await session.create("/p", b"")
    await session.create("/p/n_", sequential=True)
    await session.set("/p", b"data")
    log = (tmp_path / "log").read_bytes()
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
    await session.set("/p", b"more")
    before = state(store)
    store._journal.close()
    assert (tmp_path / "log").read_bytes() == b""
    (tmp_path / "log").write_bytes(log)

    store = open_at(tmp_path)
    assert state(store) == before
    assert await store.connect().create("/p/n_", sequential=True) == "/p/n_0000000001"
    await store.close()


async def test_a_check_counts_every_write_in_flight() -> None:
    background = Later()
    store = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), background)
    session = store.connect()
    writes = [asyncio.create_task(session.create("/a"))]
    writes += [asyncio.create_task(session.set("/a", b"")) for _ in range(2)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    background.run_one()
    last = asyncio.create_task(session.set("/a", b"", version=2))
    await asyncio.sleep(0)
    await background.run_all()
    assert (await last).version == 3
    await asyncio.gather(*writes)


async def test_ephemerals_in_a_snapshot_die_at_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
    store = open_at(tmp_path)
    session = store.connect()
    await session.create("/e", ephemeral=True)
    await session.create("/p")
    store._journal.close()
    assert (tmp_path / "snapshot").exists()
    store = open_at(tmp_path)
    assert set(store.nodes) == {"/", "/p"}
    await store.close()


async def test_a_damaged_snapshot_is_an_error_not_an_empty_store(tmp_path: Path) -> None:
    store = open_at(tmp_path)
    await store.connect().create("/a")
    await store.close()
    (tmp_path / "snapshot").write_bytes(b"not a snapshot")
    with pytest.raises(StoreDamaged, match=r"Restore .* from a backup"):
        open_at(tmp_path)


async def test_a_burst_of_writes_is_synced_together() -> None:
    disk = SimulatedDisk()
    background = Later()
    store = EmbeddedStore.open(disk, STORE, ManualClock(), background)
    session = store.connect()
    before = disk.syncs
    writes = [asyncio.create_task(session.create(f"/n{number}")) for number in range(100)]
    await asyncio.sleep(0)
    await background.run_all()
    await asyncio.gather(*writes)
    in_two_batches, of_two_files = 2, 2
    assert disk.syncs - before == in_two_batches * of_two_files


async def test_nothing_is_visible_before_it_is_durable() -> None:
    background = Later()
    store = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), background)
    writer, reader = store.connect(), store.connect()
    events: list[object] = []
    await reader.exists("/a", events.append)
    write = asyncio.create_task(writer.create("/a"))
    await asyncio.sleep(0)
    assert await reader.exists("/a") is None
    assert events == []
    assert not write.done()
    background.run_one()
    assert len(events) == 1
    assert await reader.exists("/a") is not None
    assert await write == "/a"


async def test_a_refusal_waits_for_the_write_it_rests_on() -> None:
    background = Later()
    store = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), background)
    first, second = store.connect(), store.connect()
    writes = [asyncio.create_task(session.create("/a")) for session in (first, second)]
    await asyncio.sleep(0)
    assert not any(write.done() for write in writes)
    while background.run_one():
        pass
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert outcomes[0] == "/a"
    assert type(outcomes[1]).__name__ == "NodeExists"


async def test_an_ephemeral_still_being_written_dies_with_its_closing_session() -> None:
    background = Later()
    store = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), background)
    session = store.connect()
    write = asyncio.create_task(session.create("/e", ephemeral=True))
    await asyncio.sleep(0)
    close = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    await background.run_all()
    await asyncio.gather(write, close)
    assert "/e" not in store.nodes


async def test_after_a_write_error_the_store_accepts_nothing(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    store = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
    session = store.connect()
    states: list[SessionState] = []
    session.add_listener(states.append)
    await session.create("/a")
    disk.steps_until_cut = 1
    with pytest.raises(StoreFailed):
        await session.create("/b")
    assert states == [SessionState.LOST]
    assert "/b" not in store.nodes
    with pytest.raises(StoreFailed):
        await store.connect().create("/c")
    await store.close()


async def test_a_second_opening_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()):
        with pytest.raises(StoreLocked):
            open_at(tmp_path)
        script = (
            "import sys\n"
            "from barnabas.cluster.coordination.contract import StoreLocked\n"
            "from barnabas.cluster.embedded.journal import open_journal\n"
            "from barnabas.core.files import RealFiles\n"
            "try:\n"
            "    open_journal(RealFiles(), sys.argv[1])\n"
            "except StoreLocked:\n"
            "    print('locked')\n"
        )
        other = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": "src"},
            check=True,
        )
        assert other.stdout == "locked\n"
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()):
        pass


async def test_a_topic_of_5000_partitions_is_one_record() -> None:
    disk = SimulatedDisk()
    store = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
    before = disk.syncs
    operations = [Create("/topic")]
    operations += [Create(f"/topic/{number}", b'{"leader":0}') for number in range(5_000)]
    await store.connect().multi(operations)
    assert disk.syncs - before == 2, "of the log and its copy"
    assert len(store.nodes) == 5_002


async def test_a_write_begun_by_a_watch_waits_for_the_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "COMPACT_BYTES_MIN", 1)
    background, disk = Later(), SimulatedDisk()
    store = EmbeddedStore.open(disk, STORE, ManualClock(), background)
    session = store.connect()
    begun: list[asyncio.Future[list[Result]]] = []
    await session.exists(
        "/a", lambda _: begun.append(store.submit([Create("/b", b"kept")], session.session_id))
    )
    write = asyncio.create_task(session.create("/a"))
    await asyncio.sleep(0)
    assert background.run_one()
    await write
    assert len(begun) == 1
    assert background.run_one()
    assert not begun[0].done(), "one at a time: first the compaction"
    await background.run_all()
    assert await begun[0] == ["/b"]


@pytest.mark.parametrize("is_there", [False, True])
async def test_no_other_user_may_look_into_the_store(tmp_path: Path, is_there: bool) -> None:
    """It holds the credentials of users."""
    path = tmp_path / "data" / "coordination"
    if is_there:
        path.mkdir(mode=0o755, parents=True)
    async with open_embedded(path, ManualClock(), InlineBackground()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
