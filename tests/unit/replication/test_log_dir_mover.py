"""A log that changes while it is copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from barnabas.core.scheduler import InlineBackground
from barnabas.replication import log_dir_mover
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import AppendInfo, Outcome
from barnabas.storage.log.threaded_append import append_elsewhere
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.cleaner.support import pairs, put, settle
from tests.unit.storage.support import batch, produce, read_batches
from tests.unit.storage.test_log_manager import Broker, partition

ZERO = partition(0)


class Followed:
    topic_partition = ZERO

    def __init__(self, log: Log) -> None:
        self.log = log

    def replace_log(self, log: Log) -> None:
        self.log = log


class Steps:
    """A scheduler that runs one thing at a time."""

    def __init__(self) -> None:
        self.tasks: deque[Callable[[], None]] = deque()

    def after(self, _: float, task: Callable[[], None]) -> Any:
        self.tasks.append(task)

    def every(self, *_: object, **__: object) -> Any: ...

    def run_one(self) -> None:
        self.tasks.popleft()()


def test_a_truncation_during_the_copying_starts_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "SLICE_BYTES", 100)
    manager = Broker("/old", "/new", files=PowerCutFiles()).start()
    log = manager.get_or_create(ZERO, directory="/old")
    for _ in range(20):
        produce(log, 2, epoch=1)
    followed = cast("Any", Followed(log))
    steps = Steps()
    mover = LogDirMover(manager, {ZERO: followed}, steps, InlineBackground())
    mover.move(ZERO, "/new")
    future = manager.future(ZERO)
    assert future is not None
    while future.log_end_offset < 30:
        steps.run_one()
    manager.truncate_to({ZERO: 10})
    for _ in range(20):
        produce(log, 2, epoch=2, size=33)
    expected = [bytes(batch.view()) for batch in read_batches(log)]
    while steps.tasks:
        steps.run_one()
    assert followed.log.log_directory.path == "/new"
    assert [bytes(batch.view()) for batch in read_batches(followed.log)] == expected
    assert followed.log.leader_epochs.entries == [(1, 0), (2, 10)]
    manager.abandon()


def test_what_a_thread_is_writing_comes_along() -> None:
    manager = Broker("/old", "/new", files=PowerCutFiles()).start()
    log = manager.get_or_create(ZERO, directory="/old")
    produce(log, 2)
    disk = ManualBackground()
    log.environment.background = disk
    outcomes: list[Outcome] = []
    append_elsewhere(log, batch([b"large"]), 0, outcomes.append)
    followed = cast("Any", Followed(log))
    steps = Steps()
    mover = LogDirMover(manager, {ZERO: followed}, steps, InlineBackground())
    mover.move(ZERO, "/new")
    while steps.tasks:
        steps.run_one()
    assert followed.log.log_directory.path == "/new"
    assert followed.log.log_end_offset == 3
    disk.run_one()
    (info,) = outcomes
    assert isinstance(info, AppendInfo)
    assert info.first_offset == 2
    manager.abandon()


def test_a_log_is_not_compacted_while_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has the value already. Were the tombstone to go before it is copied, the key would be back."""
    monkeypatch.setattr(log_dir_mover, "SLICE_BYTES", 100)
    broker = Broker(
        "/old",
        "/new",
        files=PowerCutFiles(),
        cleanup_policy=("compact",),
        delete_retention_ms=0,
        min_cleanable_dirty_ratio=0.0,
    )
    manager = broker.start()
    log = manager.get_or_create(ZERO, directory="/old")
    put(log, ("user", "secret"))
    for number in range(20):
        put(log, (f"filler-{number}", "x"))
    put(log, ("user", None))
    settle(log)
    followed, steps = cast("Any", Followed(log)), Steps()
    mover = LogDirMover(manager, {ZERO: followed}, steps, InlineBackground())
    mover.move(ZERO, "/new")
    for number in range(10):
        steps.run_one()
        manager.cleaner.clean_what_is_due()
        broker.clock.advance(1)
        put(log, (f"more-{number}", "x"))
        settle(log)
    while steps.tasks:
        steps.run_one()
    moved = followed.log
    assert moved.log_directory.path == "/new"
    for _ in range(2):
        broker.clock.advance(1)
        put(moved, ("last", "x"))
        settle(moved)
        manager.cleaner.clean_what_is_due()
    assert [pair for pair in pairs(moved) if pair[1] == "user"] == [], "and it is compacted afterwards"
    manager.abandon()


def test_the_loop_syncs_little_of_a_large_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of the copy are full, and more is written during every sync: threads sync all but the rest."""
    monkeypatch.setattr(log_dir_mover, "SLICE_BYTES", 500)
    monkeypatch.setattr(log_dir_mover, "SYNC_EVERY_BYTES", 2_000)
    monkeypatch.setattr(log_dir_mover, "SYNCED_ON_THE_LOOP_BYTES_MAX", 500)
    files = PowerCutFiles()
    manager = Broker("/old", "/new", files=files, segment_bytes=1_000).start()
    log = manager.get_or_create(ZERO, directory="/old")
    for _ in range(60):
        produce(log, 2)
    followed, steps, disk = cast("Any", Followed(log)), Steps(), ManualBackground()
    mover = LogDirMover(manager, {ZERO: followed}, steps, disk)
    mover.move(ZERO, "/new")
    on_the_loop: list[str] = []

    def note(what: str, path: str) -> None:
        if what == "sync" and path.startswith("/new/topic-0") and path.endswith(".log"):
            on_the_loop.append(path)

    files.before = note
    syncs = 0
    while steps.tasks or disk.waiting:
        if disk.waiting:
            syncs += 1
            for _ in range(max(0, 12 - syncs)):  # less and less, while syncs last
                produce(log, 2)
            work, then, _ = disk.waiting.pop()
            files.before = None
            work()
            files.before = note
            then(None)
        else:
            steps.run_one()
    assert followed.log.log_directory.path == "/new"
    assert followed.log.log_end_offset == followed.log.flush_state.recovery_point == log.log_end_offset
    assert len(on_the_loop) <= 1
    assert 5 < syncs < 30
    manager.abandon()


def test_a_large_segment_is_synced_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync of a gigabyte holds up every other write to that disk, in any thread."""
    monkeypatch.setattr(log_dir_mover, "SLICE_BYTES", 500)
    monkeypatch.setattr(log_dir_mover, "SYNC_EVERY_BYTES", 2_000)
    manager = Broker("/old", "/new", files=PowerCutFiles()).start()
    log = manager.get_or_create(ZERO, directory="/old")
    for _ in range(200):
        produce(log, 2)
    steps, disk = Steps(), ManualBackground()
    mover = LogDirMover(manager, {ZERO: cast("Any", Followed(log))}, steps, disk)
    mover.move(ZERO, "/new")
    future = manager.future(ZERO)
    assert future is not None
    synced_bytes = [0]
    while steps.tasks or disk.waiting:
        if disk.waiting:
            synced_bytes.append(future.segments.active.size_bytes)
            disk.run_one()
        else:
            steps.run_one()
    pieces = [after - before for before, after in pairwise(synced_bytes)]
    assert sum(pieces) == log.segments.active.size_bytes > 10_000
    assert max(pieces) < 2_000 + 2 * 500
    manager.abandon()


def test_a_move_ends_though_producers_outrun_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "SYNCED_ON_THE_LOOP_BYTES_MAX", 100)
    manager = Broker("/old", "/new", files=PowerCutFiles(), segment_bytes=1_000).start()
    log = manager.get_or_create(ZERO, directory="/old")
    produce(log, 2)
    followed, steps, disk = cast("Any", Followed(log)), Steps(), ManualBackground()
    LogDirMover(manager, {ZERO: followed}, steps, disk).move(ZERO, "/new")
    for _ in range(500):
        if disk.waiting:
            for _ in range(10):
                produce(log, 2)
            disk.run_one()
        elif steps.tasks:
            steps.run_one()
    assert followed.log.log_directory.path == "/new"
    manager.abandon()
