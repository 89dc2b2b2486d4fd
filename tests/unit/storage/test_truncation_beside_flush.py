"""A full truncation while a flush writes the epoch file in a thread: the directory stays in service."""

from __future__ import annotations

import threading
from pathlib import Path

from barnabas.core.files import RealFiles
from barnabas.storage.files.names import LEADER_EPOCHS
from barnabas.storage.log.truncation import truncate_fully_and_start_at
from tests.unit.storage.support import Bench, produce

WAIT_S = 30.0


class SlowEpochs(RealFiles):
    """Files on which the flush stops inside the replacement of the epoch file."""

    def __init__(self) -> None:
        self.is_slow = False
        self.reached = threading.Event()
        self.released = threading.Event()
        self.writers = 0
        self.writers_max = 0

    def replace(self, path: str, content: bytes) -> None:
        if not path.endswith(LEADER_EPOCHS):
            super().replace(path, content)
            return
        self.writers += 1
        self.writers_max = max(self.writers_max, self.writers)
        if self.is_slow and threading.current_thread() is not threading.main_thread():
            self.reached.set()
            self.released.wait(WAIT_S)
        super().replace(path, content)
        self.writers -= 1


def test_a_full_truncation_waits_for_the_flush_that_writes_the_epoch_file(tmp_path: Path) -> None:
    files = SlowEpochs()
    bench = Bench(str(tmp_path), files)
    log = bench.open()
    produce(log, 3)
    work = log.flush_state.plan(log.log_end_offset, log.segments, log.leader_epochs)
    assert work is not None
    files.is_slow = True
    flush = threading.Thread(target=work)
    flush.start()
    assert files.reached.wait(WAIT_S)
    threading.Timer(0.2, files.released.set).start()
    truncate_fully_and_start_at(log, 100)
    flush.join()
    assert files.writers_max == 1
    assert log.log_directory.failure is None
    assert log.log_end_offset == 100
