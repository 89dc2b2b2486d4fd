"""Start time of a broker with many partitions, and time to create a topic.

Makes N partitions once (topics of 10), then starts the broker on them again and again:

    python bench/startup.py --partitions 5000 --starts 5 --data-dir /tmp/startup
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import statistics
import time
from pathlib import Path

from barnabas.client.aio.channel import Channel
from barnabas.config.broker_config import BrokerConfig
from barnabas.node.broker import Broker
from barnabas.node.gc_tuning import collect_seldom
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

PARTITIONS_PER_TOPIC = 10


def new_broker(directory: Path) -> Broker:
    given = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker(BrokerConfig.load(given))


async def create(channel: Channel, *names: str, partitions: int) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics, timeout_ms=600_000)
    answer = await channel.send(request, CreateTopicsResponse)
    assert not any(topic.error_code for topic in answer.topics), answer


async def fill(directory: Path, partitions: int) -> None:
    broker = new_broker(directory)
    await broker.startup()
    channel = await Channel.connect(broker.bound_listeners[0].endpoint)
    one_at_a_time = []
    for number in range(20):
        began = time.perf_counter()
        await create(channel, f"single-{number}", partitions=1)
        one_at_a_time.append(1_000 * (time.perf_counter() - began))
    began = time.perf_counter()
    for start in range(0, partitions // PARTITIONS_PER_TOPIC, 100):
        names = [f"t-{n}" for n in range(start, min(start + 100, partitions // PARTITIONS_PER_TOPIC))]
        await create(channel, *names, partitions=PARTITIONS_PER_TOPIC)
    took_s = time.perf_counter() - began
    print(
        f"create: {statistics.median(one_at_a_time):.1f} ms a topic, {partitions} partitions {took_s:.2f} s"
    )
    channel.close()
    await broker.shutdown()


async def start_once(directory: Path) -> None:
    broker = new_broker(directory)
    wall, cpu = time.perf_counter(), time.process_time()
    await broker.startup()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stop = time.perf_counter()
    await broker.shutdown()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"start: {wall:.3f} s, cpu {cpu:.3f} s, stop {time.perf_counter() - stop:.3f} s, {memory_mb:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, required=True, help="kept if it is there already")
    parser.add_argument("--fresh", action="store_true", help="begin with an empty directory")
    options = parser.parse_args()
    collect_seldom()
    if options.fresh:
        shutil.rmtree(options.data_dir, ignore_errors=True)
    if not options.data_dir.exists():
        asyncio.run(fill(options.data_dir, options.partitions))
    for _ in range(options.starts):
        asyncio.run(start_once(options.data_dir))


if __name__ == "__main__":
    main()
