"""Background tasks of one owner."""

import asyncio
import gc

from barnabas.core.tasks import Tasks


async def test_a_task_is_kept_until_it_is_done() -> None:
    tasks, done = Tasks(), []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    tasks.start(work())
    gc.collect()
    assert len(tasks) == 1
    await tasks.finished()
    assert (len(tasks), done) == (0, [1])


async def test_closing_cancels_what_runs_and_waits_for_its_end() -> None:
    tasks, ended = Tasks(), []

    async def work() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    tasks.start(work())
    await asyncio.sleep(0)
    await tasks.close()
    assert (len(tasks), ended) == (0, [1])
