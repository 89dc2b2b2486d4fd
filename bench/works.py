"""The works of the table: each puts one kind of load on a running broker and returns its figures.

Load comes from librdkafka where batching is the client's business, and from prebuilt frames
(`raw_load`) where the broker's cost for one request is asked. CPU seconds are the broker's own,
taken from the operating system around the load.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from raw_load import LoadResult, run_load
from tests.support import wire
from tests.support.broker import Broker, cpu_seconds, resident_bytes
from tests.support.fixtures import create_topic
from warm_memory import warm_memory

Figures = dict[str, float]
BATCH_OF_MESSAGES = 1_000
QUEUED_MESSAGES_MAX = 90_000
TIMEOUT_S = 60.0
UNHINDERED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}
"""By default librdkafka stops fetching for a second once 100,000 records wait."""
MEGABYTE = 1_000_000
GIGABYTE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of each work in one round."""

    produce_bytes: int
    small_records: int
    seconds: float
    paced_seconds: float
    warm_up_seconds: float
    connections: int = 1_000
    members: int = 50
    partitions: int = 1_000


FULL = Scale(GIGABYTE, 3_000_000, seconds=5.0, paced_seconds=10.0, warm_up_seconds=15.0)
QUICK = Scale(
    GIGABYTE // 10,
    300_000,
    seconds=1.0,
    paced_seconds=2.0,
    warm_up_seconds=5.0,
    connections=200,
    members=10,
    partitions=200,
)


class Spent:
    """Wall and CPU seconds of a block."""

    wall_s = 0.0
    cpu_s = 0.0


@contextmanager
def spending(broker: Broker, *, written_bytes: int = 0) -> Iterator[Spent]:
    """With warm memory for what the block is going to write, if that is much."""
    spent = Spent()
    with warm_memory(written_bytes):
        cpu_before_s = cpu_seconds(broker)
        begun = time.perf_counter()
        yield spent
        spent.wall_s = time.perf_counter() - begun
        spent.cpu_s = cpu_seconds(broker) - cpu_before_s


def librdkafka_produce(broker: Broker, topic: str, record_bytes: int, count: int, **settings: object) -> None:
    """`count` records with default batching and acks=all, all acknowledged on return."""
    sender = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    pour(sender, topic, bytes(record_bytes), count)
    with wire.WireConnection(broker.host, broker.port) as connection:
        stored = connection.latest_offset(topic)
    assert stored == count, f"{stored} of {count} records were stored"


def pour(
    sender: Producer,
    topic: str,
    value: bytes,
    count: int,
    *,
    partitions: int = 1,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """The same record `count` times, as fast as the client batches; all are acknowledged on return.

    Partitions come in turn, a thousand records at a time."""
    sent = 0
    while sent < count:
        size = min(count - sent, BATCH_OF_MESSAGES)
        while len(sender) > QUEUED_MESSAGES_MAX:
            sender.poll(0.001)
        partition = sent // BATCH_OF_MESSAGES % partitions
        queued = sender.produce_batch(topic, [{"value": value} for _ in range(size)], partition=partition)
        assert queued == size, f"{size - queued} records were not queued"
        sent += size
        sender.poll(0)
    assert sender.flush(timeout_s) == 0, "records left unsent"


def warm_up(broker: Broker, scale: Scale) -> None:
    """A JVM compiles what runs often; a peer that has not done so yet would be measured unfairly."""
    create_topic(broker, "warm-up")
    body = wire.fetch_body("warm-up", 0, max_bytes=100_000, max_wait_ms=0)
    ask = wire.framed(wire.request_header(wire.FETCH, 4, 1, "bench") + body)
    frame = produce_frame("warm-up", [bytes(100)])
    run_load(broker.port, frame, depth=8, seconds=scale.warm_up_seconds * 0.7)
    run_load(broker.port, ask, depth=8, seconds=scale.warm_up_seconds * 0.3)
    consumer_at_the_start(broker, "warm-up").close()


def consumer_at_the_start(broker: Broker, topic: str) -> Consumer:
    """A consumer that has its first record: connections and lookups are behind it."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    receiver = Consumer({**settings, **UNHINDERED})
    receiver.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    first = receiver.poll(TIMEOUT_S)
    assert first is not None, f"nothing in {topic}"
    assert first.error() is None, first.error()
    return receiver


def produce_1k(broker: Broker, scale: Scale) -> Figures:
    create_topic(broker, "warm-1k")
    librdkafka_produce(broker, "warm-1k", 1_000, scale.produce_bytes // 10_000)
    create_topic(broker, "produce-1k")
    count = scale.produce_bytes // 1_000
    moved = count * 1_000
    with spending(broker, written_bytes=moved) as spent:
        librdkafka_produce(broker, "produce-1k", 1_000, count)
    return {
        "produce_1k_mb_s": moved / MEGABYTE / spent.wall_s,
        "produce_1k_cpu_s_gb": spent.cpu_s / (moved / GIGABYTE),
        "resident_after_mb": resident_bytes(broker) / MEGABYTE,
    }


def produce_100b(broker: Broker, scale: Scale) -> Figures:
    create_topic(broker, "warm-100b")
    librdkafka_produce(broker, "warm-100b", 100, scale.small_records // 10)
    create_topic(broker, "produce-100b")
    with spending(broker, written_bytes=100 * scale.small_records) as spent:
        librdkafka_produce(broker, "produce-100b", 100, scale.small_records)
    return {
        "produce_100b_records_s": scale.small_records / spent.wall_s,
        "produce_100b_cpu_us_record": spent.cpu_s / scale.small_records * 1e6,
    }


def consume(broker: Broker, scale: Scale) -> Figures:
    """Reads back what `produce_1k` wrote, from the page cache."""
    count = scale.produce_bytes // 1_000
    receiver = consumer_at_the_start(broker, "produce-1k")
    read = 1
    with spending(broker) as spent:
        while read < count:
            messages = receiver.consume(min(10_000, count - read), timeout=TIMEOUT_S)
            assert messages, f"silence after {read} of {count} records"
            read += sum(message.error() is None for message in messages)
    receiver.close()
    moved = count * 1_000
    return {
        "consume_mb_s": moved / MEGABYTE / spent.wall_s,
        "consume_cpu_s_gb": spent.cpu_s / (moved / GIGABYTE),
    }


def one_record_requests(broker: Broker, scale: Scale) -> Figures:
    figures: Figures = {}
    for depth in (1, 32):
        topic = f"requests-{depth}"
        create_topic(broker, topic)
        frame = produce_frame(topic, [bytes(100)])
        run_load(broker.port, frame, depth=depth, seconds=scale.seconds / 2)
        with spending(broker) as spent:
            load = run_load(broker.port, frame, depth=depth, seconds=scale.seconds)
        assert_all_stored(broker, topic, load)
        figures[f"requests_{depth}_s"] = load.requests_per_s
        figures[f"requests_{depth}_p50_us"] = load.latency.percentile_us(50)
        figures[f"requests_{depth}_p99_us"] = load.latency.percentile_us(99)
        figures[f"requests_{depth}_cpu_us"] = spent.cpu_s / load.requests * 1e6
    return figures


def produce_frame(topic: str, values: list[bytes], *, partition: int = 0) -> bytes:
    body = wire.produce_body(topic, wire.batch(values), partition=partition)
    return wire.framed(wire.request_header(wire.PRODUCE, wire.PRODUCE_VERSION, 1, "bench") + body)


def assert_all_stored(broker: Broker, topic: str, load: LoadResult) -> None:
    """A load generator does not look into answers; the log tells whether they were errors."""
    with wire.WireConnection(broker.host, broker.port) as connection:
        stored = connection.latest_offset(topic)
    assert stored >= load.requests, f"{stored} records after {load.requests} requests"


def large_batches(broker: Broker, scale: Scale) -> Figures:
    """Frames of almost a megabyte in, answers of a megabyte out: beside the bare loops."""
    create_topic(broker, "large")
    frame = produce_frame("large", [bytes(960_000)])
    run_load(broker.port, frame, depth=5, requests=50)
    with spending(broker, written_bytes=scale.produce_bytes) as written:
        into = run_load(broker.port, frame, depth=5, requests=scale.produce_bytes // len(frame))
    assert_all_stored(broker, "large", into)
    body = wire.fetch_body("large", 0, max_bytes=1_000_000, max_wait_ms=0)
    ask = wire.framed(wire.request_header(wire.FETCH, 4, 1, "bench") + body)
    run_load(broker.port, ask, depth=1, requests=50)
    with spending(broker) as read:
        out = run_load(broker.port, ask, depth=1, requests=scale.produce_bytes // 1_000_000)
    assert out.received_bytes > out.requests * 900_000, "fetches came back empty"
    return {
        "large_in_mb_s": into.sent_bytes / MEGABYTE / into.seconds,
        "large_in_cpu_s_gb": written.cpu_s / (into.sent_bytes / GIGABYTE),
        "large_out_mb_s": out.received_bytes / MEGABYTE / out.seconds,
        "large_out_cpu_s_gb": read.cpu_s / (out.received_bytes / GIGABYTE),
    }


def growth(broker: Broker, scale: Scale) -> Figures:
    """One record from the middle of a log, ten times larger than another: it must not matter."""
    p50_us = []
    for topic, records in (
        ("warm-1k", scale.produce_bytes // 10_000),
        ("produce-1k", scale.produce_bytes // 1_000),
    ):
        body = wire.fetch_body(topic, records // 2, max_bytes=1, max_wait_ms=0)
        ask = wire.framed(wire.request_header(wire.FETCH, 4, 1, "bench") + body)
        run_load(broker.port, ask, depth=1, requests=200)
        load = run_load(broker.port, ask, depth=1, seconds=scale.seconds / 2)
        p50_us.append(load.latency.percentile_us(50))
    return {"growth_fetch": p50_us[1] / p50_us[0]}


def end_to_end(broker: Broker, scale: Scale) -> Figures:
    """5,000 records a second, from `produce` to `poll`."""
    create_topic(broker, "latency")
    latencies_ms: list[float] = []
    expected = int(5_000 * scale.paced_seconds)
    librdkafka_produce(broker, "latency", 100, 1)
    receiver = consumer_at_the_start(broker, "latency")

    def receive() -> None:
        while len(latencies_ms) < expected:
            message = receiver.poll(TIMEOUT_S)
            if message is None or message.error() is not None:
                return
            latencies_ms.append((time.perf_counter() - float(message.value()[:24])) * 1e3)

    thread = threading.Thread(target=receive)
    thread.start()
    sender = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    with spending(broker) as spent:
        begun = time.perf_counter()
        for i in range(expected):
            due = begun + i / 5_000
            while (now := time.perf_counter()) < due:
                sender.poll(due - now)
            # From when it was due, not from when we got to it: a stall counts for all who wait in it.
            sender.produce("latency", f"{due:24.9f}".encode().ljust(100), partition=0)
        assert sender.flush(TIMEOUT_S) == 0
        thread.join(TIMEOUT_S)
    receiver.close()
    assert len(latencies_ms) == expected, f"{len(latencies_ms)} of {expected} records arrived"
    steady = latencies_ms[expected // 4 :]
    quantiles = statistics.quantiles(steady, n=100)
    return {
        "end_to_end_p50_ms": quantiles[49],
        "end_to_end_p99_ms": quantiles[98],
        "end_to_end_cpu_percent": 100 * spent.cpu_s / spent.wall_s,
    }
