"""How well a quota holds its rate: bytes a second of a producer and of a consumer that would go faster.

The quota is far below what the machine can do, so that a machine that does other things, too, can tell.
Kafka's windows let a burst through first, whose echo returns every eleven seconds and fades: a short run
says little.

    python bench/quota.py --seconds 300 --rate 200000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from confluent_kafka import Consumer, Producer

from barnabas.client.client_quotas import alter_quotas
from barnabas.client.cluster_client import ClusterClient
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.testing.broker import run_broker

RECORD_BYTES = 10_000
WARM_UP_S = 12.0
"""As long as all samples of a quota: what was allowed at once before there were any has left them by then."""
TOPIC = "limited"


async def limit(bootstrap: str, client_id: str, **quotas: float) -> None:
    host, _, port = bootstrap.rpartition(":")
    clock, chance = SystemClock(), random.Random()
    async with ClusterClient([Endpoint(host, int(port))], clock=clock, randomness=chance) as cluster:
        await cluster.run(alter_quotas({"client-id": client_id}, quotas, ()))


def produced(bootstrap: str, client_id: str, seconds: float) -> float:
    delivered = 0

    def note(error: object, _: object) -> None:
        nonlocal delivered
        delivered += 0 if error else RECORD_BYTES

    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 5 * RECORD_BYTES}
    producer = Producer({**settings, "queue.buffering.max.messages": 200, "message.timeout.ms": 0})
    begun, at_first = time.monotonic(), 0
    is_warm = False
    while (passed := time.monotonic() - begun) < WARM_UP_S + seconds:
        if not is_warm and passed >= WARM_UP_S:
            is_warm, at_first, warm_since = True, delivered, time.monotonic()
        try:
            producer.produce(TOPIC, bytes(RECORD_BYTES), on_delivery=note)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    rate = (delivered - at_first) / (time.monotonic() - warm_since)
    producer.purge()
    return rate


def consumed(bootstrap: str, client_id: str, seconds: float) -> float:
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "fetch.message.max.bytes": 5 * RECORD_BYTES, "group.id": client_id})
    consumer.subscribe([TOPIC])
    received = at_first = 0
    begun, is_warm = time.monotonic(), False
    while (passed := time.monotonic() - begun) < WARM_UP_S + seconds:
        if not is_warm and passed >= WARM_UP_S:
            is_warm, at_first, warm_since = True, received, time.monotonic()
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            received += len(message.value() or b"")
    rate = (received - at_first) / (time.monotonic() - warm_since)
    consumer.close()
    return rate


def fill(bootstrap: str, size_bytes: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 5 * RECORD_BYTES})
    for _ in range(int(size_bytes / RECORD_BYTES)):
        producer.produce(TOPIC, bytes(RECORD_BYTES))
        producer.poll(0)
    assert producer.flush(300) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=200_000.0)
    arguments = parser.parse_args()
    wanted, seconds = arguments.rate, arguments.seconds
    with run_broker({"num.partitions": "1", "offsets.topic.num.partitions": "1"}) as broker:
        asyncio.run(limit(broker.bootstrap, "writer", producer_byte_rate=wanted))
        asyncio.run(limit(broker.bootstrap, "reader", consumer_byte_rate=wanted))
        rate = produced(broker.bootstrap, "writer", seconds)
        print(f"producer {rate:>12,.0f} bytes/s of {wanted:,.0f}: {rate / wanted - 1:+.1%}")
        fill(broker.bootstrap, wanted * (seconds + 2 * WARM_UP_S))
        rate = consumed(broker.bootstrap, "reader", seconds)
        print(f"consumer {rate:>12,.0f} bytes/s of {wanted:,.0f}: {rate / wanted - 1:+.1%}")


if __name__ == "__main__":
    main()
