"""Truncation of many logs after an election: together, and without blocking the loop."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from barnabas.core.files import DataFile, RealFile, RealFiles
from barnabas.core.ids import TopicPartition
from barnabas.storage.files.checkpoints import RECOVERY_POINTS
from tests.scenario.replication.support import TOPIC, eventually, trio

KEYS = [TopicPartition(TOPIC, number) for number in range(60)]


class _WatchedFile(RealFile):
    __slots__ = ("files",)
    files: WatchedFiles

    def sync(self) -> None:
        self.files.synced_by.append(threading.get_ident())
        super().sync()


class WatchedFiles(RealFiles):
    """Counts written recovery points, and notes the threads that sync records."""

    def __init__(self) -> None:
        self.checkpoints = 0
        self.synced_by: list[int] = []

    def open(self, path: str, *, create: bool = False) -> DataFile:
        opened = super().open(path, create=create)
        file = _WatchedFile(os.dup(opened.fileno()))
        file.files = self
        return file

    def replace(self, path: str, content: bytes) -> None:
        self.checkpoints += path.endswith(RECOVERY_POINTS)
        super().replace(path, content)


async def test_many_logs_are_cut_with_one_checkpoint_and_synced_off_the_loop(tmp_path: Path) -> None:
    files = WatchedFiles()
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0, keys=KEYS)
        for key in KEYS:
            await cluster[1].produce(b"both have it", key=key)
        await eventually(lambda: all(cluster[2].end(key) == 1 for key in KEYS))
        await cluster[2].stop()
        cluster[2].files = files
        await cluster[2].restart()
        cluster.cut_link(1, 2)
        cluster.cut_link(2, 1)
        for leader in (2, 1):
            await cluster.lead(leader, epoch=3 - leader, isr=[leader], keys=KEYS, tell=[leader])
            for key in KEYS:
                await cluster[leader].produce(b"only %d has it" % leader, key=key, acks=1)
        for key in KEYS:
            cluster[2].partition(key).log.flush()
        files.checkpoints, files.synced_by = 0, []
        cluster.mend_link(1, 2)
        cluster.mend_link(2, 1)
        await cluster.lead(1, epoch=3, isr=[1], keys=KEYS)
        await eventually(lambda: all(cluster.store.states[key].isr == (1, 2) for key in KEYS))
        assert [cluster[2].bytes_of(key) for key in KEYS] == [cluster[1].bytes_of(key) for key in KEYS]
        assert files.checkpoints <= 3
        assert threading.get_ident() not in files.synced_by
        assert len(files.synced_by) >= len(KEYS)
