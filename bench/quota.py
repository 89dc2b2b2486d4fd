"""Accuracy of a quota: bytes a second of a producer and of a consumer that would go faster.

The clients are librdkafka, and the bytes are those that it counts on its sockets, which are what a quota
limits. An application gets less of them: a fetch ends in the middle of a batch, whose beginning is sent again
with the next one. A request carries a twentieth of a second of the quota. A consumer that asks for more at
once than is left to it is sent nothing for now, so that large fetches cost it some of its rate: those of a
whole second about 8 %, by Kafka's arithmetic.

All run at the same time, far below what the machine can do, so that a machine that does other things, too,
can tell. Kafka's windows let a burst through first, whose echo returns every eleven seconds and fades: a
short run says little.

    python bench/quota.py --seconds 300 --rate 1000000 --kafka
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from confluent_kafka import Consumer, Producer
from tests.peers.kafka import KafkaBroker
from tests.support.broker import BarnabasBroker, Broker

from barnabas.client.admin.client_quotas import alter_quotas
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock

REQUESTS_PER_SECOND = 20
BATCHES_PER_REQUEST = 10
WARM_UP_S = 24.0
"""Twice as long as all samples of a quota: what was allowed at once before there were any has left them."""
WRITTEN, READ = "written", "read"


class Sample(NamedTuple):
    at_s: float
    moved_bytes: int


class Wire:
    """Bytes on the sockets of a librdkafka client, by its own count twice a second."""

    def __init__(self, counter: str) -> None:
        self._counter = counter
        self._samples: list[Sample] = []
        self.settings = {"statistics.interval.ms": 500, "stats_cb": self._note}

    def _note(self, text: str) -> None:
        found = json.loads(text)
        moved = sum(broker[self._counter] for broker in found["brokers"].values())
        self._samples.append(Sample(found["ts"] / 1e6, moved))

    def rate(self) -> float:
        """Bytes a second after the warm-up."""
        begun_s = self._samples[0].at_s + WARM_UP_S
        counted = [each for each in self._samples if each.at_s >= begun_s]
        first, last = counted[0], counted[-1]
        return (last.moved_bytes - first.moved_bytes) / (last.at_s - first.at_s)


async def limit(broker: Broker, client_id: str, **quotas: float) -> None:
    clock, chance = SystemClock(), random.Random()
    endpoint = Endpoint(broker.host, broker.port)
    async with ClusterClient([endpoint], clock=clock, randomness=chance) as cluster:
        await cluster.run(alter_quotas({"client-id": client_id}, quotas, ()))


def produced(broker: Broker, request_bytes: int, seconds: float) -> float:
    wire = Wire("txbytes")
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "writer", "message.timeout.ms": 0}
    batching = {"batch.size": request_bytes, "linger.ms": 50, "queue.buffering.max.messages": 1_000}
    producer = Producer({**settings, **batching, **wire.settings})
    value = bytes(request_bytes // BATCHES_PER_REQUEST)
    until = time.monotonic() + WARM_UP_S + seconds
    while time.monotonic() < until:
        try:
            producer.produce(WRITTEN, value)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    return wire.rate()


def consumed(broker: Broker, request_bytes: int, seconds: float) -> float:
    wire = Wire("rxbytes")
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "reader", "group.id": "reader"}
    fetching = {"auto.offset.reset": "earliest", "fetch.message.max.bytes": request_bytes}
    consumer = Consumer({**settings, **fetching, **wire.settings})
    consumer.subscribe([READ])
    until = time.monotonic() + WARM_UP_S + seconds
    while time.monotonic() < until:
        consumer.poll(0.05)
    consumer.close()
    return wire.rate()


def fill(broker: Broker, request_bytes: int, size_bytes: float) -> None:
    value = bytes(request_bytes // BATCHES_PER_REQUEST)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": len(value)})
    for _ in range(int(size_bytes / len(value))):
        while True:
            try:
                producer.produce(READ, value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=1_000_000.0)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka, too (needs Java and Maven)")
    arguments = parser.parse_args()
    wanted, seconds = arguments.rate, arguments.seconds
    request_bytes = int(wanted / REQUESTS_PER_SECOND)
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack, ThreadPoolExecutor() as threads:
        brokers: list[Broker] = [BarnabasBroker(Path(text) / "barnabas")]
        if arguments.kafka:
            brokers.append(KafkaBroker(Path(text) / "kafka"))
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
            asyncio.run(limit(broker, "writer", producer_byte_rate=wanted))
            asyncio.run(limit(broker, "reader", consumer_byte_rate=wanted))
            fill(broker, request_bytes, wanted * (seconds + 2 * WARM_UP_S))
        works: dict[str, Callable[[Broker, int, float], float]] = {"producer": produced, "consumer": consumed}
        running = {
            (work, broker.name): threads.submit(run, broker, request_bytes, seconds)
            for work, run in works.items()
            for broker in brokers
        }
        for (work, name), rate in running.items():
            found = rate.result()
            print(f"{work} {name:<9} {found:>12,.0f} bytes/s of {wanted:,.0f}: {found / wanted - 1:+.1%}")


if __name__ == "__main__":
    main()
