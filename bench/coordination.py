"""The embedded store: latency of a lone write, a burst, a wide topic, and opening again.

Two widths of topic show that the cost of a partition does not grow with their number.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import create_topic, read_topics
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.clock import SystemClock
from barnabas.core.ids import Uuid

T = TypeVar("T")


class ThreadBackground:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)

    def submit(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            failed(error) if error is not None else then(future.result())

        asyncio.get_running_loop().run_in_executor(self._pool, work).add_done_callback(done)


def ms(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


async def main(path: Path) -> None:
    async with open_embedded(path, SystemClock(), ThreadBackground()) as znodes:
        began = time.perf_counter()
        await make_persistent_paths(znodes)
        print(f"persistent paths            {ms(began):8.2f} ms")
        lone = []
        for number in range(200):
            began = time.perf_counter()
            await znodes.set("/brokers/seqid", b"%d" % number)
            lone.append(ms(began))
        print(f"a lone write, median        {statistics.median(lone):8.3f} ms")
        began = time.perf_counter()
        await asyncio.gather(*(znodes.create(f"/consumers/{n}") for n in range(1_000)))
        print(f"a burst of 1,000 writes     {ms(began):8.2f} ms")
        for width in (500, 5_000):
            state = PartitionState(1, 0, (1,), 1)
            numbers = range(width)
            began = time.perf_counter()
            await create_topic(
                znodes,
                f"t{width}",
                Uuid.parse("AAECAwQFBgcICQoLDA0ODw"),
                {n: [1] for n in numbers},
                {},
                dict.fromkeys(numbers, state),
            )
            took = ms(began)
            print(
                f"a topic of {width:>5} partitions  {took:8.2f} ms, {took / width * 1e3:.1f} us a partition"
            )
    began = time.perf_counter()
    async with open_embedded(path, SystemClock(), ThreadBackground()) as znodes:
        print(f"open again                  {ms(began):8.2f} ms")
        began = time.perf_counter()
        topics = await read_topics(znodes)
        count = sum(len(topic.states) for topic in topics.values())
        print(f"read {count} partitions        {ms(began):8.2f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
