"""Clients from before Kafka 0.11, which know messages instead of batches, beside current clients.

Records of a client of any age are read by clients of every age: the same offset, key, value and, where the
format has one, timestamp. Messages are built and read here, by other code than the broker's.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.core.transaction_steps import add_partitions, begin, end
from barnabas.core.errors import KafkaError, NotLeaderOrFollower, error_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.batch import iterate_whole_batches
from barnabas.records.record import iterate_records
from tests.chaos.history import ALL_REPLICAS, History
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import REQUEST_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, Batches, World
from tests.simulation.trials import SERVED_WITHIN_S

MESSAGE_PREFIX = struct.Struct(">qi")
GZIP = 1
NO_TIME = -1
VERSION_WITH_MAGIC_1 = 2
FIRST_VERSION_WITH_BATCHES_READ = 4
FETCH_BYTES = 1 << 16
FETCH_VERSIONS = (0, 1, 2, 3, 4, 10, 12)


class Line(NamedTuple):
    """A record as every format has it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def message(line: Line, magic: int, codec: int = 0) -> bytes:
    body = bytes((magic, codec)) + (struct.pack(">q", line.timestamp) if magic else b"")
    for field in (line.key, line.value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return MESSAGE_PREFIX.pack(line.offset, 4 + len(body)) + struct.pack(">I", zlib.crc32(body)) + body


def message_set(lines: Sequence[Line], magic: int, *, is_compressed: bool) -> bytes:
    """Numbered from 0, as a producer sends them."""
    messages = b"".join(message(line._replace(offset=n), magic) for n, line in enumerate(lines))
    if not is_compressed:
        return messages
    last = Line(len(lines) - 1, max(line.timestamp for line in lines), None, gzip.compress(messages))
    return message(last, magic, GZIP)


def lines_in(data: bytes) -> Iterator[Line]:
    """Whole messages of a set; what a wrapper holds, at the offsets that it has in the log."""
    position = 0
    while position + MESSAGE_PREFIX.size <= len(data):
        offset, size = MESSAGE_PREFIX.unpack_from(data, position)
        start = position + MESSAGE_PREFIX.size
        position = start + size
        if position > len(data):
            return
        (crc,) = struct.unpack_from(">I", data, start)
        body = data[start + 4 : position]
        assert zlib.crc32(body) == crc, "a message with a wrong checksum"
        magic, codec = body[0], body[1] & 7
        timestamp = struct.unpack_from(">q", body, 2)[0] if magic else NO_TIME
        fields: list[bytes | None] = []
        at = 10 if magic else 2
        for _ in range(2):
            (length,) = struct.unpack_from(">i", body, at)
            fields.append(None if length < 0 else body[at + 4 : at + 4 + length])
            at += 4 + max(length, 0)
        if codec:
            inner = list(lines_in(gzip.decompress(fields[1] or b"")))
            shift = offset - inner[-1].offset if magic else 0
            yield from (line._replace(offset=line.offset + shift) for line in inner)
        else:
            yield Line(offset, timestamp, fields[0], fields[1])


class Elderly(Part):
    TOPIC = "elderly"
    ROUNDS = 14
    BATCH_MAX = 5

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._written: list[Line] = []
        self._complaints: list[str] = []
        self._is_compressed = chance.random() < 0.5

    def topics(self) -> dict[str, Topic]:
        configs = {
            "compression.type": "gzip" if self._is_compressed else "producer",
            "message.timestamp.type": "CreateTime",
            "segment.bytes": "2000",
        }
        return {self.TOPIC: Topic(1, configs=configs)}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        for number in range(self.ROUNDS):
            lines = [self._line(world) for _ in range(self.chance.randint(1, self.BATCH_MAX))]
            if number % 4 == 3:
                await self._write_batch(world, cluster, lines)
            else:
                await self._write_messages(cluster, lines, version=number % 4)
        for version in FETCH_VERSIONS:
            for start in (0, self.chance.randrange(self._written[-1].offset + 1)):
                await self._compare(cluster, version, start)

    def _line(self, world: World) -> Line:
        key = self.chance.choice((None, b"key", b""))
        return Line(0, world.clock.now_ms(), key, b"value-%d" % self.chance.randrange(1 << 30))

    def _note(self, lines: list[Line], offset: int) -> None:
        self._written += [line._replace(offset=offset + n) for n, line in enumerate(lines)]

    async def _write_messages(self, cluster: ClusterClient, lines: list[Line], version: int) -> None:
        magic = 1 if version >= VERSION_WITH_MAGIC_1 else 0
        if not magic:
            lines = [line._replace(timestamp=NO_TIME) for line in lines]
        sent = message_set(lines, magic, is_compressed=self.chance.random() < 0.5)
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=REQUEST_TIMEOUT_MS - 500,
            topic_data=[
                TopicProduceData(
                    name=self.TOPIC, partition_data=[PartitionProduceData(index=0, records=bytearray(sent))]
                )
            ],
        )
        while True:
            topic = await cluster.topic(self.TOPIC)
            channel = await cluster.channel_to(topic.partitions[0].leader_id)
            answer = await channel.send(request, ProduceResponse, version_max=version)
            row = answer.responses[0].partition_responses[0]
            if row.error_code != NotLeaderOrFollower.code:  # another leader was elected meanwhile
                break
            cluster.state.forget_topic(self.TOPIC)
            await asyncio.sleep(0.2)
        if row.error_code:
            raise error_for(row.error_code, f"Produce v{version}")
        self._note(lines, row.base_offset)

    async def _write_batch(self, world: World, cluster: ClusterClient, lines: list[Line]) -> None:
        """As a producer of today, in a transaction: its marker takes an offset, and is no record."""
        txn = await cluster.run(begin(cluster.state, self.TOPIC, TRANSACTION_TIMEOUT_MS))
        await cluster.run(add_partitions(cluster.state, txn, [TopicPartition(self.TOPIC, 0)]))
        times = iter([line.timestamp for line in lines])
        batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, lambda: next(times))
        batches.identify(txn.producer_id, txn.epoch)
        rows = [(line.key, line.value) for line in lines]
        self._note(lines, await batches.write_rows(rows, 0, txn.transactional_id))
        await cluster.run(end(cluster.state, txn, commit=True))

    async def _compare(self, cluster: ClusterClient, version: int, start: int) -> None:
        wanted = [line for line in self._written if line.offset >= start]
        if version < VERSION_WITH_MAGIC_1:
            wanted = [line._replace(timestamp=NO_TIME) for line in wanted]
        found: list[Line] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVED_WITHIN_S / 2):
                await self._read(cluster, version, start, wanted[-1].offset, found)
        for line, other in zip(wanted, [*found, *[None] * len(wanted)], strict=False):
            if line != other:
                self._complaints.append(
                    f"converted wrongly: {self.TOPIC}-0 has {line}, and Fetch v{version} at {start} gives"
                    f" {other}"
                )
                return

    async def _read(
        self, cluster: ClusterClient, version: int, start: int, last: int, found: list[Line]
    ) -> None:
        position = start
        while position <= last:
            topic = await cluster.topic(self.TOPIC)
            row = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                topics=[FetchTopic(topic=self.TOPIC, partitions=[row])],
            )
            with suppress(KafkaError, ClusterUnreachable):
                channel = await cluster.channel_to(topic.partitions[0].leader_id)
                answer = await channel.send(request, FetchResponse, version_max=version)
                data = answer.responses[0].partitions[0].records
                if data is None or not data:
                    position += 1  # a marker, which is no message
                    continue
                assert isinstance(data, bytes | bytearray | memoryview)
                lines = [line for line in _lines(data, version) if line.offset >= position]
                found += lines
                position = max([position + 1, *(line.offset + 1 for line in lines)])

    def complaints(self) -> list[str]:
        return self._complaints[:5]


def _lines(data: bytes | bytearray | memoryview, version: int) -> Iterator[Line]:
    if version < FIRST_VERSION_WITH_BATCHES_READ:
        yield from lines_in(bytes(data))
        return
    for batch in iterate_whole_batches(data):
        if not batch.is_control:
            for offset, timestamp, key, value, _ in iterate_records(batch):
                yield Line(
                    offset,
                    timestamp,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                )
