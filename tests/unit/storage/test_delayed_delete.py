"""Delayed deletion of files, also beside the end of a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.core.files import RealFiles
from barnabas.node.background_threads import ThreadBackground
from barnabas.storage.files.delayed_delete import remove_later, unlink_later
from tests.support.manual_time import ManualClock, ManualScheduler


async def test_a_deletion_that_is_due_after_the_threads_have_ended_is_left_to_the_next_start(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    background = ThreadBackground(asyncio.get_running_loop(), 1)
    scheduler = ManualScheduler(clock)
    environment: Any = SimpleNamespace(scheduler=scheduler, background=background, files=RealFiles())
    directory, file = tmp_path / "topic-0.deleted", tmp_path / "0.log.deleted"
    directory.mkdir()
    file.touch()
    failures: list[BaseException] = []
    remove_later(environment, str(directory), delay_ms=10)
    unlink_later(environment, [str(file)], failures.append, delay_ms=10)
    await background.close()
    clock.advance(10)
    assert scheduler.run_due() == 2
    assert directory.exists()
    assert file.exists()
    assert failures == []
