"""A log that changes under the hands of who copies it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.replication import log_dir_mover
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.storage.log.log import Log
from barnabas.testing.files import PowerCutFiles
from tests.unit.storage.support import produce, read_batches
from tests.unit.storage.test_log_manager import Broker, partition

ZERO = partition(0)


class Followed:
    topic_partition = ZERO

    def __init__(self, log: Log) -> None:
        self.log = log

    def replace_log(self, log: Log) -> None:
        self.log = log


async def test_a_truncation_during_the_copying_starts_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_mover, "SLICE_BYTES", 100)
    manager = Broker("/old", "/new", files=PowerCutFiles()).start()
    log = manager.get_or_create(ZERO, directory="/old")
    for _ in range(20):
        produce(log, 2, epoch=1)
    followed = cast("Any", Followed(log))
    mover = LogDirMover(manager, {ZERO: followed})
    mover.move(ZERO, "/new")
    future = manager.future(ZERO)
    assert future is not None
    while future.log_end_offset < 30:  # noqa: ASYNC110 - a log tells nobody
        await asyncio.sleep(0)
    manager.truncate_to({ZERO: 10})
    for _ in range(20):
        produce(log, 2, epoch=2, size=33)
    expected = [bytes(batch.view()) for batch in read_batches(log)]
    async with asyncio.timeout(30):
        while followed.log is log:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0)
    assert followed.log.log_directory.path == "/new"
    assert [bytes(batch.view()) for batch in read_batches(followed.log)] == expected
    assert followed.log.leader_epochs.entries == [(1, 0), (2, 10)]
    await mover.close()
    manager.abandon()
