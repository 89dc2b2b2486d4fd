"""Several Python clients beside each other: CPU of the client for each record sent and received.

    python -m bench.client                 # starts a broker of its own
    python -m bench.client --records 200000 --size 100 --bootstrap 127.0.0.1:9092

Each client runs in a process of its own, so that the CPU time is its own: user and system, without the
broker's. Clients that are not installed are left out. `one` is the median of one awaited send at a time, with
linger.ms=0. Consumers read the records that the producers have sent, from one partition. Nothing here is
asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOPIC = "bench-client"
LONE_SENDS = 500
WARMING = 1_000
"""Records received before the clock starts."""
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


class Reading:
    """Counts records, and the CPU time after the first thousand."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._warming = WARMING
        self._records = 0
        self._cpu_s = self._began_s = 0.0

    def got(self, count: int) -> bool:
        """True when there are enough."""
        if self._warming > 0:
            self._warming -= count
            if self._warming <= 0:
                self._began_s, self._cpu_s = time.perf_counter(), time.process_time()
            return False
        self._records += count
        return self._records >= self._left

    def result(self) -> dict[str, Any]:
        cpu_us = (time.process_time() - self._cpu_s) / self._records * 1e6
        return {"cpu_us": cpu_us, "rate": self._records / (time.perf_counter() - self._began_s)}


async def barnabas_iterates(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from barnabas.client import Consumer, TopicPartition

    del size
    reading = Reading(records)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(TOPIC, 0)])
        async for _ in consumer:
            if reading.got(1):
                break
    return reading.result()


async def barnabas_arrow(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from barnabas.client import Consumer, TopicPartition

    del size
    reading = Reading(records)
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(TOPIC, 0)])
        async for batch in consumer.arrow():
            if reading.got(batch.num_rows):
                break
    return reading.result()


async def aiokafka_iterates(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition

    del size
    reading = Reading(records)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(TOPIC, 0)])
        async for _ in consumer:
            if reading.got(1):
                break
    finally:
        await consumer.stop()
    return reading.result()


def kafka_python_iterates(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from kafka import KafkaConsumer, TopicPartition

    del size
    reading = Reading(records)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(TOPIC, 0)])
    for _ in consumer:
        if reading.got(1):
            break
    found = reading.result()
    consumer.close()
    return found


def confluent_kafka_consumes(bootstrap: str, records: int, size: int) -> dict[str, Any]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    del size
    reading = Reading(records)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    while not reading.got(len([each.value() for each in consumer.consume(500, 1.0)])):
        pass
    found = reading.result()
    consumer.close()
    return found


CLIENTS: dict[str, tuple[str, Callable[[str, int, int], Any]]] = {
    "barnabas, send": ("barnabas", barnabas),
    "barnabas, send_many": ("barnabas", lambda *given: barnabas(*given, many="send_many")),
    "aiokafka": ("aiokafka", aiokafka),
    "kafka-python": ("kafka", kafka_python),
    "confluent-kafka": ("confluent_kafka", confluent_kafka),
}
CONSUMERS: dict[str, tuple[str, Callable[[str, int, int], Any]]] = {
    "barnabas, async for": ("barnabas", barnabas_iterates),
    "barnabas, arrow()": ("pyarrow", barnabas_arrow),
    "aiokafka, async for": ("aiokafka", aiokafka_iterates),
    "kafka-python, for": ("kafka", kafka_python_iterates),
    "confluent-kafka, consume": ("confluent_kafka", confluent_kafka_consumes),
}
EVERY = {**CLIENTS, **CONSUMERS}


def measure(name: str, bootstrap: str, records: int, size: int) -> dict[str, Any]:
    found = EVERY[name][1](bootstrap, records, size)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def table(bootstrap: str, records: int, size: int) -> dict[str, dict[str, Any]]:
    measured: dict[str, dict[str, Any]] = {}
    print(f"{records} records of {size} B, one broker")
    print(f"{'client':<26}{'µs CPU a record':>18}{'records/s':>12}{'p50 of one, µs':>17}")
    for name, (package, _) in EVERY.items():
        if find_spec(package) is None:
            print(f"{name:<26}{'not installed':>18}")
            continue
        command = [sys.executable, "-m", "bench.client", "--client", name, "--bootstrap", bootstrap]
        command += ["--records", str(records), "--size", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        measured[_with_code(name)] = found
        one = f"{found['p50_us']:>17.0f}" if "p50_us" in found else ""
        print(f"{name:<26}{found['cpu_us']:>18.2f}{found['rate']:>12.0f}{one}", flush=True)
    return measured


def _with_code(name: str) -> str:
    """Name of a row: our own client is source or compiled."""
    from barnabas.client.producer.core import accumulator

    is_compiled = not str(accumulator.__file__).endswith(".py")
    return f"{name} (compiled)" if name.startswith("barnabas") and is_compiled else name


def _about(records: int, size: int, machine: str) -> dict[str, str]:
    found = {"records": f"{records:,}", "size": str(size), "machine": machine}
    for package in ("aiokafka", "kafka-python", "confluent-kafka"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return {**found, "Python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--bootstrap")
    parser.add_argument("--client", choices=EVERY, help="measure one client, and print JSON")
    parser.add_argument("--results", type=Path, help="directory whose RESULTS.md gets the table")
    parser.add_argument("--machine", default="alone on the machine", help="what RESULTS.md says of it")
    given = parser.parse_args()
    if given.client is not None:
        print(json.dumps(measure(given.client, given.bootstrap, given.records, given.size)))
        return
    with ExitStack() as stack:
        bootstrap = given.bootstrap
        if bootstrap is None:
            from tests.support.broker import BarnabasBroker, running

            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            bootstrap = stack.enter_context(running(BarnabasBroker(directory))).bootstrap
        measured = table(bootstrap, given.records, given.size)
    if given.results is not None:
        sys.path.insert(0, str(Path(__file__).parent))  # `report` is found as from the other programs here
        from report import write_clients

        write_clients(given.results, measured, _about(given.records, given.size, given.machine))


if __name__ == "__main__":
    main()
