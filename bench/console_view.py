"""Price of the console's view: the time of its pages with many topics and groups, and what producers notice.

One broker has the topics, with a record in some, and as many groups, each with a committed offset. A producer
sends small records one after the other. Quiet phases and phases with a viewer take turns, so that both meet
the same machine. A viewer asks for what a page asks: the overview, a page of topics and a page of groups, by
name and by lag, every two seconds.

    python bench/console_view.py --topics 10000 --groups 10000 --rounds 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

import psutil
from scratch import scratch_directory
from tests.support.broker import BarnabasBroker, running

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.producer.producer import Producer
from barnabas.console.view.local.brokers import LocalBrokers, find_sockets
from barnabas.console.view.local.local_view import LocalView
from barnabas.console.view.rows import GroupQuery, TopicQuery
from barnabas.core.ids import TopicPartition

AT_ONCE = 50
PAGE_INTERVAL_S = 2.0
VIEWERS_DEFAULT = 1
START_S = 2.0
"""Start of the viewers, which takes processor time too."""
MEASURED = "measured"

Ask = Callable[[LocalView], Awaitable[object]]
PAGES: dict[str, Ask] = {
    "overview": lambda view: view.overview(),
    "topics by name": lambda view: view.topics(TopicQuery()),
    "topics by size": lambda view: view.topics(TopicQuery(sort="size", descending=True)),
    "topics by traffic": lambda view: view.topics(TopicQuery(sort="in", descending=True)),
    "groups by name": lambda view: view.groups(GroupQuery()),
    "groups by lag": lambda view: view.groups(GroupQuery(sort="lag", descending=True)),
    "groups by time": lambda view: view.groups(GroupQuery(sort="time", descending=True)),
}
VIEWED = ("overview", "topics by name", "groups by lag")
"""Pages that a viewer keeps open while the producer is measured."""


async def in_parts(count: int, do: Callable[[range], Awaitable[object]]) -> None:
    for start in range(0, count, AT_ONCE):
        await do(range(start, min(start + AT_ONCE, count)))


async def fill(bootstrap: str, topics: int, groups: int) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:

        async def create(part: range) -> None:
            with suppress(SomeFailed):  # a retry after a timeout finds them created
                await admin.create_topics([NewTopic(f"topic-{number:05}", 1, 1) for number in part])

        await in_parts(topics, create)
        await admin.create_topics([NewTopic(MEASURED, 1, 1)])
        for number in range(0, topics, 10):
            for _ in range(5):
                await producer.send(f"topic-{number:05}", b"x" * 100)
        await producer.flush()

        async def commit(number: int) -> None:
            place = TopicPartition(f"topic-{number % topics:05}", 0)
            await admin.alter_group_offsets(f"group-{number:05}", {place: 0})

        await in_parts(groups, lambda part: asyncio.gather(*map(commit, part)))


async def latencies(producer: Producer[Any, Any], seconds: float) -> list[float]:
    """Milliseconds of each record, one after the other with small pauses."""
    found = []
    ends = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < ends:
        await producer.publish(MEASURED, b"x" * 100)
        found.append((time.perf_counter() - begun) * 1_000)
        await asyncio.sleep(0.001 + random.random() * 0.002)
    return found


async def watch(directory: Path) -> None:
    """Look at pages until the end of this process: the console is a process of its own too."""
    brokers = LocalBrokers(find_sockets(directory))
    view = LocalView(brokers, None)
    while True:
        for name in VIEWED:
            await PAGES[name](view)
        await asyncio.sleep(PAGE_INTERVAL_S * (0.5 + random.random()))


@contextmanager
def viewers(count: int, directory: Path) -> Iterator[None]:
    command = [sys.executable, __file__, "--watch", str(directory)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in processes:
            each.terminate()
            each.wait()


async def page_times(directory: Path, process: psutil.Process) -> dict[str, dict[str, float]]:
    """First and median time of each page, and the broker's CPU time for one."""
    found = {}
    for name, ask in PAGES.items():
        times, cpu_s = [], []
        for _ in range(7):
            brokers = LocalBrokers(find_sockets(directory))
            view = LocalView(brokers, None)
            begun, cpu = time.perf_counter(), sum(process.cpu_times()[:2])
            await ask(view)
            times.append((time.perf_counter() - begun) * 1_000)
            cpu_s.append(sum(process.cpu_times()[:2]) - cpu)
            await brokers.close()
        found[name] = {
            "first_ms": round(times[0], 1),
            "median_ms": round(statistics.median(times), 1),
            "cpu_ms": round(statistics.mean(cpu_s) * 1_000, 1),
        }
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def measure(broker: BarnabasBroker, options: argparse.Namespace) -> dict[str, object]:
    begun = time.perf_counter()
    await fill(broker.bootstrap, options.topics, options.groups)
    filled_s = time.perf_counter() - begun
    pages = await page_times(broker.data_directory, psutil.Process(broker.pid))
    quiet: list[float] = []
    viewed: list[float] = []
    ratios = []
    async with Producer(broker.bootstrap, linger_ms=0) as producer:
        await latencies(producer, 1.0)
        for _ in range(options.rounds):
            alone = await latencies(producer, options.seconds)
            with viewers(options.viewers, broker.data_directory):
                await latencies(producer, START_S)
                beside = await latencies(producer, options.seconds)
            quiet += alone
            viewed += beside
            ratios.append(quantile(beside, 0.99) / quantile(alone, 0.99))
    return {
        "topics": options.topics,
        "groups": options.groups,
        "viewers": options.viewers,
        "filled_s": round(filled_s, 1),
        "pages": pages,
        "quiet_p50_ms": round(quantile(quiet, 0.5), 2),
        "quiet_p99_ms": round(quantile(quiet, 0.99), 2),
        "viewed_p50_ms": round(quantile(viewed, 0.5), 2),
        "viewed_p99_ms": round(quantile(viewed, 0.99), 2),
        "p99_ratio": round(quantile(viewed, 0.99) / quantile(quiet, 0.99), 2),
        "p99_ratio_of_rounds_median": round(statistics.median(ratios), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a phase")
    parser.add_argument("--viewers", type=int, default=VIEWERS_DEFAULT)
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        asyncio.run(watch(options.watch))
        return
    with scratch_directory("view") as directory, running(BarnabasBroker(directory / "data")) as broker:
        assert isinstance(broker, BarnabasBroker)
        print(json.dumps(asyncio.run(measure(broker, options)), indent=2))


if __name__ == "__main__":
    main()
