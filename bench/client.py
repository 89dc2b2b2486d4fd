"""Producers of several Python clients beside each other: CPU of the client for each record.

    python -m bench.client                 # starts a broker of its own
    python -m bench.client --records 200000 --size 100 --bootstrap 127.0.0.1:9092

Each client runs in a process of its own, so that the CPU time is its own: user and system, without the
broker's. Clients that are not installed are left out. The last column is the median of one awaited send at a
time, with linger.ms=0. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOPIC = "bench-client"
LONE_SENDS = 500
IN_A_ROW = 50_000
"""Records between two waits: the clients without a bound on memory would hold all of them."""


def measured(records: int, lone: Callable[[int], list[float]], many: Callable[[int], None]) -> dict[str, Any]:
    many(2_000)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    many(records)
    cpu_us = (time.process_time() - cpu_s) / records * 1e6
    rate = records / (time.perf_counter() - began_s)
    return {"cpu_us": cpu_us, "rate": rate, "p50_us": statistics.median(lone(LONE_SENDS)) * 1e6}


async def barnabas(bootstrap: str, records: int, size: int, *, many: str = "send") -> dict[str, Any]:
    from barnabas.client import Producer

    value = b"x" * size

    async def write(producer: Producer, count: int) -> None:
        if many == "send_many":
            for start in range(0, count, IN_A_ROW):
                await producer.send_many(TOPIC, [value] * min(IN_A_ROW, count - start))
        else:
            for _ in range(count):
                await producer.send(TOPIC, value)
        await producer.flush()

    async with Producer(bootstrap, linger_ms=5) as producer:
        await write(producer, 2_000)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await write(producer, records)
        cpu_us = (time.process_time() - cpu_s) / records * 1e6
        rate = records / (time.perf_counter() - began_s)
    async with Producer(bootstrap, linger_ms=0) as producer:
        await producer.publish(TOPIC, value)
        times = []
        for _ in range(LONE_SENDS):
            sent_s = time.perf_counter()
            await producer.publish(TOPIC, value)
            times.append(time.perf_counter() - sent_s)
    return {"cpu_us": cpu_us, "rate": rate, "p50_us": statistics.median(times) * 1e6}


async def aiokafka(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from aiokafka import AIOKafkaProducer

    value = b"x" * size
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, value)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(records):
            await producer.send(TOPIC, value)
        await producer.flush()
        cpu_us = (time.process_time() - cpu_s) / records * 1e6
        rate = records / (time.perf_counter() - began_s)
    finally:
        await producer.stop()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        times = []
        for _ in range(LONE_SENDS):
            sent_s = time.perf_counter()
            await producer.send_and_wait(TOPIC, value)
            times.append(time.perf_counter() - sent_s)
    finally:
        await producer.stop()
    return {"cpu_us": cpu_us, "rate": rate, "p50_us": statistics.median(times) * 1e6}


def kafka_python(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from kafka import KafkaProducer

    value = b"x" * size
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    lonely = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)

    def many(count: int) -> None:
        for _ in range(count):
            producer.send(TOPIC, value)
        producer.flush()

    def lone(count: int) -> list[float]:
        times = []
        for _ in range(count):
            sent_s = time.perf_counter()
            lonely.send(TOPIC, value).get(30)
            times.append(time.perf_counter() - sent_s)
        return times

    return measured(records, lone, many)


def confluent_kafka(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from confluent_kafka import Producer

    value = b"x" * size
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 5})
    lonely = Producer({**settings, "linger.ms": 0})

    def many(count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(TOPIC, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush()

    def lone(count: int) -> list[float]:
        times = []
        for _ in range(count):
            sent_s = time.perf_counter()
            lonely.produce(TOPIC, value)
            lonely.flush()
            times.append(time.perf_counter() - sent_s)
        return times

    return measured(records, lone, many)


CLIENTS: dict[str, tuple[str, Callable[[str, int, int], Any]]] = {
    "barnabas, send": ("barnabas", barnabas),
    "barnabas, send_many": ("barnabas", lambda *given: barnabas(*given, many="send_many")),
    "aiokafka": ("aiokafka", aiokafka),
    "kafka-python": ("kafka", kafka_python),
    "confluent-kafka": ("confluent_kafka", confluent_kafka),
}


def measure(name: str, bootstrap: str, records: int, size: int) -> dict[str, Any]:
    found = CLIENTS[name][1](bootstrap, records, size)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def table(bootstrap: str, records: int, size: int) -> None:
    print(f"{records} records of {size} B, one broker")
    print(f"{'client':<22}{'µs CPU a record':>18}{'records/s':>12}{'p50 of one, µs':>17}")
    for name, (package, _) in CLIENTS.items():
        if find_spec(package) is None:
            print(f"{name:<22}{'not installed':>18}")
            continue
        command = [sys.executable, "-m", "bench.client", "--client", name, "--bootstrap", bootstrap]
        command += ["--records", str(records), "--size", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{name:<22}{found['cpu_us']:>18.2f}{found['rate']:>12.0f}{found['p50_us']:>17.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--bootstrap")
    parser.add_argument("--client", choices=CLIENTS, help="measure one client, and print JSON")
    given = parser.parse_args()
    if given.client is not None:
        print(json.dumps(measure(given.client, given.bootstrap, given.records, given.size)))
    elif given.bootstrap is not None:
        table(given.bootstrap, given.records, given.size)
    else:
        from tests.support.broker import BarnabasBroker, running

        with tempfile.TemporaryDirectory() as directory, running(BarnabasBroker(Path(directory))) as broker:
            table(broker.bootstrap, given.records, given.size)


if __name__ == "__main__":
    main()
