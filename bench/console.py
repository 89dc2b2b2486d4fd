"""The console with many topics and groups: how long its pages take, and what viewers cost producers.

    PYTHONPATH=src:. python bench/console.py --topics 10000 --groups 10000

Prints a table. Each page is asked for five times; the first time and the median are shown. `beside` asks the
broker's memory, as the console of `barnabas start` does; `by client` asks as of any Kafka.

On a machine with other work, `nice -n -15` puts the broker, the producer, the console and the viewers before
it, with the same distances between them. `--only-tail --topics 100 --groups 100` measures the tail alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from tests.support.broker import BarnabasBroker, running
from tests.support.console import RunningConsole, running_console
from tests.support.ports import free_port

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
RECORDS = 2_000
"""Of a phase of the tail."""
VIEWERS = 10
START_S = 2.0
"""Start of the viewers, which takes processor time too."""


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


def follow(url: str, topic: str) -> None:
    """Read tails until the end of this process, as browsers of other machines do."""

    def read() -> None:
        with (
            httpx.Client(base_url=url, timeout=None, trust_env=False) as client,
            client.stream("GET", f"/topics/{topic}/messages/live") as answer,
        ):
            for _ in answer.iter_raw():
                pass

    threads = [threading.Thread(target=read) for _ in range(VIEWERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


@contextmanager
def viewers(console: RunningConsole, topic: str) -> Iterator[None]:
    """Viewers of a tail, in a process of their own that gives way to those that are measured."""
    command = ["nice", "-n", "19", sys.executable, __file__, "--follow", console.url, topic]
    with subprocess.Popen(command) as process:
        time.sleep(START_S)
        try:
            yield
        finally:
            process.terminate()


async def produce(bootstrap: str, topic: str, records: int) -> list[float]:
    """Milliseconds of each record, one after the other with small pauses."""
    times = []
    async with Producer(bootstrap) as producer:
        for _ in range(records):
            started = time.perf_counter()
            await producer.publish(topic, b"x" * 100)
            times.append((time.perf_counter() - started) * 1_000)
            await asyncio.sleep(0.001)
    return times


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def fetches(metrics: str) -> int:
    """Fetch requests so far."""
    page = httpx.get(f"http://{metrics}/metrics", trust_env=False).text
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in page.splitlines()
        if line.startswith("kafka_requests_total") and 'api="FetchConsumer"' in line
    )


def measure_tail(
    broker: BarnabasBroker, metrics: str, console: RunningConsole, topic: str, rounds: int, each: int
) -> None:
    """Quiet phases and phases with viewers take turns, so that both meet the same machine."""
    found: dict[str, list[float]] = {"quiet": [], "watched": []}
    broker_s = dict.fromkeys(found, 0.0)
    console_s = fetched = 0.0
    ratios = []

    def phase(name: str) -> float:
        before = cpu_s(broker.pid)
        times = asyncio.run(produce(broker.bootstrap, topic, each))
        broker_s[name] += cpu_s(broker.pid) - before
        found[name] += times
        return p99(times)

    print(f"\np99 of a small produce, quiet and with {VIEWERS} viewers of the tail:")
    for _ in range(rounds):
        quiet = phase("quiet")
        with viewers(console, topic):
            console_before, fetches_before = cpu_s(console.process.pid), fetches(metrics)
            watched = phase("watched")
            ratios.append(watched / quiet)
            print(f"  {quiet:.2f} ms, {watched:.2f} ms: {ratios[-1]:.2f}", flush=True)
            console_s += cpu_s(console.process.pid) - console_before
            fetched += fetches(metrics) - fetches_before
    records = rounds * each
    print(f"\n{VIEWERS} viewers of a tail of {records:,} records, {rounds} rounds:")
    for name, times in found.items():
        print(f"  {name:<8} p50 {statistics.median(times):.2f} ms, p99 {p99(times):.2f} ms")
        print(f"           the broker used {broker_s[name] / records * 1e6:.0f} us of CPU for a record")
    print(f"  p99 watched / quiet: {p99(found['watched']) / p99(found['quiet']):.2f},")
    print(f"  median of the rounds {statistics.median(ratios):.2f}")
    print(f"  CPU of the broker watched / quiet: {broker_s['watched'] / broker_s['quiet']:.2f}")
    print(f"  CPU of the console: {console_s / records * 1e6:.0f} us for a record")
    print(f"  {fetched / records:.3f} fetches for a record")


def measure_pages(broker: BarnabasBroker, local: tuple[str, str]) -> None:
    found = {}
    for name, arguments in (("beside", local), ("by client", ())):
        with running_console(broker.bootstrap, *arguments) as console:
            found[name] = measure(console)
    print(f"\n{'page':<42}{'beside 1st':>13}{'median':>13}{'client 1st':>13}{'median':>13}")
    for (path, *beside), (_, *by_client) in zip(found["beside"], found["by client"], strict=True):
        shown = [f"{each:>10.0f} ms" for each in (*beside, *by_client)]
        print(f"{path:<42}{''.join(shown)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="of the tail")
    parser.add_argument("--records", type=int, default=RECORDS, help="of a phase of the tail")
    parser.add_argument("--only-tail", action="store_true", help="leave the pages out")
    parser.add_argument("--follow", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        follow(*given.follow)
        return
    with tempfile.TemporaryDirectory() as directory:
        metrics = f"127.0.0.1:{free_port()}"
        broker = BarnabasBroker(Path(directory) / "data", arguments=["--metrics", metrics])
        with running(broker):
            started = time.perf_counter()
            asyncio.run(fill(broker.bootstrap, given.topics, given.groups))
            print(
                f"{given.topics} topics, {given.groups} groups, made in {time.perf_counter() - started:.0f} s"
            )
            local = ("--broker-directory", str(broker.data_directory))
            if not given.only_tail:
                measure_pages(broker, local)
            # As `barnabas start --console` runs it: it gives way to the broker.
            with running_console(broker.bootstrap, *local, "--beside-broker") as console:
                measure_tail(broker, metrics, console, "topic-00001", given.rounds, given.records)


if __name__ == "__main__":
    main()
