"""The console with many topics and groups: how long its pages take, and what viewers cost producers.

    PYTHONPATH=src:. python bench/console.py --topics 10000 --groups 10000

Prints a table. Each page is asked for five times; the first time and the median are shown. `beside` asks the
broker's memory, as the console of `barnabas start` does; `by client` asks as of any Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from tests.support.broker import BarnabasBroker, running
from tests.support.console import RunningConsole, running_console

from barnabas.client import Admin, Producer
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.core.ids import TopicPartition

CHUNK = 500
ROUNDS = 5
PAGES = (
    "/",
    "/topics",
    "/topics?sort=records&order=desc",
    "/topics?search=topic-09",
    "/topics?offset=5000",
    "/topics/topic-00042",
    "/topics/topic-00042/groups",
    "/topics/topic-00042/messages",
    "/groups",
    "/groups?sort=lag&order=desc",
    "/groups?search=group-09",
    "/group?id=group-00042",
    "/topics/topic-00042/partitions/0",
)
PRODUCES = 2_000
VIEWERS = 10


async def fill(bootstrap: str, topics: int, groups: int) -> None:
    names = [f"topic-{number:05d}" for number in range(topics)]
    async with Admin(bootstrap, default_api_timeout_ms=600_000, request_timeout_ms=300_000) as admin:
        for start in range(0, topics, CHUNK):
            await admin.create_topics([NewTopic(name, 1) for name in names[start : start + CHUNK]])
        async with Producer(bootstrap) as producer:
            for name in names[:200]:
                await producer.send(name, b"x" * 100)
            await producer.flush()
        limit = asyncio.Semaphore(64)

        async def commit(number: int) -> None:
            async with limit:
                at = TopicPartition(names[number % topics], 0)
                await admin.alter_group_offsets(f"group-{number:05d}", {at: 0})

        for start in range(0, groups, CHUNK):
            await asyncio.gather(*map(commit, range(start, min(start + CHUNK, groups))))


def measure(console: RunningConsole) -> list[tuple[str, float, float]]:
    rows = []
    with console.client() as client:
        for path in PAGES:
            times = []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                client.get(path).raise_for_status()
                times.append((time.perf_counter() - started) * 1_000)
            rows.append((path, times[0], statistics.median(times)))
    return rows


@contextmanager
def viewers(console: RunningConsole, topic: str) -> Iterator[None]:
    """Viewers that read a tail, each in a thread."""
    stopped = threading.Event()

    def follow(client: httpx.Client) -> None:
        with client.stream("GET", f"/topics/{topic}/messages/live") as answer:
            for _ in answer.iter_lines():
                if stopped.is_set():
                    return

    with ExitStack() as stack:
        clients = [stack.enter_context(console.client()) for _ in range(VIEWERS)]
        threads = [threading.Thread(target=follow, args=(each,), daemon=True) for each in clients]
        for each in threads:
            each.start()
        time.sleep(1)
        yield
        stopped.set()


async def produce_p99_ms(bootstrap: str, topic: str) -> float:
    times = []
    async with Producer(bootstrap) as producer:
        for _ in range(PRODUCES):
            started = time.perf_counter()
            await producer.publish(topic, b"x" * 100)
            times.append((time.perf_counter() - started) * 1_000)
            await asyncio.sleep(0.001)
    return statistics.quantiles(times, n=100)[98]


def three_p99_ms(bootstrap: str) -> float:
    return statistics.median(asyncio.run(produce_p99_ms(bootstrap, "topic-00001")) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = BarnabasBroker(Path(directory) / "data")
        with running(broker):
            started = time.perf_counter()
            asyncio.run(fill(broker.bootstrap, given.topics, given.groups))
            print(
                f"{given.topics} topics, {given.groups} groups, made in {time.perf_counter() - started:.0f} s"
            )
            local = ("--broker-directory", str(broker.data_directory))
            found = {}
            for name, arguments in (("beside", local), ("by client", ())):
                with running_console(broker.bootstrap, *arguments) as console:
                    found[name] = measure(console)
            print(f"\n{'page':<42}{'beside 1st':>13}{'median':>13}{'client 1st':>13}{'median':>13}")
            for (path, *beside), (_, *by_client) in zip(found["beside"], found["by client"], strict=True):
                shown = [f"{each:>10.0f} ms" for each in (*beside, *by_client)]
                print(f"{path:<42}{''.join(shown)}")
            with running_console(broker.bootstrap, *local) as console:
                quiet = three_p99_ms(broker.bootstrap)
                with viewers(console, "topic-00001"):
                    watched = three_p99_ms(broker.bootstrap)
            print(f"\np99 of a produce of 100 bytes, median of three runs: {quiet:.2f} ms quiet,")
            print(f"{watched:.2f} ms with {VIEWERS} viewers of a tail")


if __name__ == "__main__":
    main()
