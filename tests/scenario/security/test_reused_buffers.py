"""No record goes to another topic than its own, even if its connection breaks (KAFKA-19012).

Each value is the name of its topic, many times. Requests are large and small, pipelined and cut anywhere, so
that the broker's buffers are shared, kept and used again; connections end within a request; batches that our
own producer gives up are still on their way while others follow them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.records.batch import iterate_batches
from barnabas.records.record import iterate_records
from tests.support import wire
from tests.support.in_process import InProcessBroker, in_process_broker
from tests.support.plain_producer import OutgoingRecord, Producer
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxied

TOPICS = ("black", "white")
SIZES = (10, 3_000, 70_000, 300_000)
ROUNDS = 12


def value_of(topic: str, random: Random) -> bytes:
    size = random.choice(SIZES)
    return topic.encode() * (size // len(topic))


async def check_all(broker: InProcessBroker) -> None:
    for topic in TOPICS:
        offset = 0
        while True:
            part = await broker.fetch(topic, offset, max_bytes=1, max_wait_ms=0)  # one batch at a time
            if offset >= part.high_watermark:
                break
            (found,) = iterate_batches(wire.content(part.records))
            for record in iterate_records(found):
                value = record.value or b""
                assert value == topic.encode() * (len(value) // len(topic)), f"{value[:20]!r} is in {topic}"
            offset = found.next_offset
        assert offset > 0


async def write_raw(address: Endpoint, random: Random, *, is_cut: bool) -> None:
    """Some requests in one stream; the last is cut short, or all are answered."""
    count = random.randrange(2, 7)
    stream = bytearray()
    for number in range(count):
        topic = random.choice(TOPICS)
        body = wire.produce_body(topic, wire.batch([value_of(topic, random)]))
        stream += wire.framed(wire.request_header(wire.PRODUCE, wire.PRODUCE_VERSION, number) + body)
    if is_cut:
        del stream[-random.randrange(1, 60_000) :]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    at = 0
    while at < len(stream):
        size = random.choice((5, 1_000, 50_000, 400_000))
        writer.write(bytes(stream[at : at + size]))
        await writer.drain()
        at += size
    if not is_cut:
        for number in range(count):
            answer = wire.Reader(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
            assert answer.unpack("ii") == (number, 1)
            assert answer.string() in TOPICS
            assert answer.unpack("iih") == (1, 0, 0)
    writer.transport.abort()


async def test_the_broker_mixes_no_requests(tmp_path: Path) -> None:
    random = Random(19012)
    async with in_process_broker(tmp_path) as broker:
        for topic in TOPICS:
            assert await broker.create_topic(topic) == 0
        for _ in range(ROUNDS):
            await asyncio.gather(
                *(write_raw(broker.address, random, is_cut=random.random() < 0.4) for _ in range(4))
            )
        await check_all(broker)


async def write_by_producer(cluster: ClusterClient, topic: str, random: Random, proxy: Proxy) -> None:
    producer = Producer(cluster, batch_bytes=50_000)
    for turn in range(ROUNDS):
        if turn % 3 == 1:
            proxy.lose_replies()
        records = [OutgoingRecord(None, value_of(topic, random)) for _ in range(random.randrange(1, 5))]
        sending = asyncio.ensure_future(producer.send(topic, records))
        await asyncio.wait([sending], timeout=0.05 if turn % 3 == 1 else None)
        if turn % 3 == 1:
            proxy.drop()
            if turn % 2:
                sending.cancel()
        proxy.heal()
        with suppress(KafkaError, asyncio.CancelledError):
            await sending


async def test_our_producer_mixes_no_batches(tmp_path: Path) -> None:
    random = Random(19012)
    port = free_port()
    async with (
        proxied("127.0.0.1", port) as proxy,
        in_process_broker(
            tmp_path,
            listeners=f"PLAINTEXT://127.0.0.1:{port}",
            advertised_listeners=f"PLAINTEXT://{proxy.address}",
        ) as broker,
    ):
        for topic in TOPICS:
            assert await broker.create_topic(topic) == 0
        async with ClusterClient(
            [Endpoint(proxy.host, proxy.port)], clock=SystemClock(), randomness=random
        ) as cluster:
            await asyncio.gather(*(write_by_producer(cluster, topic, random, proxy) for topic in TOPICS))
        await check_all(broker)
