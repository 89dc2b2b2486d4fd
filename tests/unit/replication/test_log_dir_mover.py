"""A log that changes under the hands of who copies it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.core.scheduler import InlineBackground
from barnabas.replication import log_dir_mover
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.append_elsewhere import append_elsewhere
from barnabas.storage.log.log import Log
from barnabas.storage.log.write_elsewhere import Outcome
from barnabas.testing.files import PowerCutFiles
from tests.support.background import ManualBackground
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
