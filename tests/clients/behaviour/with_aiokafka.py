"""aiokafka, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.behaviour.driver import (
    POLL_S,
    Absent,
    At,
    Driver,
    Got,
    LoopThread,
    Member,
    Placed,
    Sender,
    underscored,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
NO_SUCH = ("buffer.memory", "group.protocol", "interceptors")


def keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(settings)
    for name in NO_SUCH:
        if name in settings:
            raise Absent(f"no {name}")
    strategy = settings.pop("partition.assignment.strategy", None)
    if strategy is not None:
        if strategy not in ASSIGNORS:
            raise Absent(f"no assignor {strategy}")
        settings["partition_assignment_strategy"] = (ASSIGNORS[strategy],)
    if settings.get("compression.type") == "none":
        del settings["compression.type"]
    return underscored(settings)


class AiokafkaSender(Sender):
    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self._options = {"bootstrap_servers": bootstrap, **keywords(settings)}
        self._loop = LoopThread()
        self.producer = self._loop.run(self._start())

    async def _start(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**self._options)
        await producer.start()
        return producer

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Callable[[], Placed]:
        sent = self._loop.run(
            self.producer.send(
                topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
            )
        )

        async def done() -> Placed:
            metadata = await sent
            return Placed(metadata.partition, metadata.offset)

        return lambda: self._loop.run(done())

    def begin(self) -> None:
        self._loop.run(self.producer.begin_transaction())

    def commit(self) -> None:
        self._loop.run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self.producer.abort_transaction())

    def send_offsets(self, offsets: Mapping[At, int], member: Any) -> None:
        named = {TopicPartition(*at): offset for at, offset in offsets.items()}
        self._loop.run(self.producer.send_offsets_to_transaction(named, member.group))

    def close(self) -> None:
        self._loop.run(self.producer.stop())
        self._loop.close()


class AiokafkaMember(Member):
    def __init__(
        self,
        bootstrap: str,
        topics: Collection[str],
        pattern: str | None,
        assigned: Collection[At],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.group = settings.get("group.id")
        options = keywords(settings)
        self._loop = LoopThread()

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, metadata_max_age_ms=1_000, **options)
            if assigned:
                consumer.assign([TopicPartition(*at) for at in assigned])
            elif pattern is None:
                consumer.subscribe(list(topics), listener=_Listener(self))
            else:
                consumer.subscribe(pattern=pattern, listener=_Listener(self))
            await consumer.start()
            return consumer

        self.consumer = self._loop.run(start())

    def poll(self) -> list[Got]:
        found = self._loop.run(self.consumer.getmany(timeout_ms=int(POLL_S * 1_000)))
        return [
            Got(each.topic, each.partition, each.offset, each.key, each.value, each.headers, each.timestamp)
            for records in found.values()
            for each in records
        ]

    def assignment(self) -> set[At]:
        return {(at.topic, at.partition) for at in self.consumer.assignment()}

    def seek(self, at: At, offset: int) -> None:
        async def seek() -> None:
            self.consumer.seek(TopicPartition(*at), offset)

        self._loop.run(seek())

    def offset_for_time(self, at: At, timestamp_ms: int) -> int | None:
        where = TopicPartition(*at)
        found = self._loop.run(self.consumer.offsets_for_times({where: timestamp_ms}))[where]
        return None if found is None else int(found.offset)

    def pause(self, at: At) -> None:
        async def pause() -> None:
            self.consumer.pause(TopicPartition(*at))

        self._loop.run(pause())

    def resume(self, at: At) -> None:
        async def resume() -> None:
            self.consumer.resume(TopicPartition(*at))

        self._loop.run(resume())

    def commit(self) -> None:
        self._loop.run(self.consumer.commit())

    def close(self) -> None:
        self._loop.run(self.consumer.stop())
        self._loop.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned.append({(at.topic, at.partition) for at in assigned})

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revoked.append({(at.topic, at.partition) for at in revoked})


class Aiokafka(Driver):
    name = "aiokafka"
    package = "aiokafka"

    def sender(self, bootstrap: str, **settings: Any) -> AiokafkaSender:
        return AiokafkaSender(bootstrap, settings)

    def member(
        self,
        bootstrap: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        assigned: Collection[At] = (),
        **settings: Any,
    ) -> AiokafkaMember:
        common = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        return AiokafkaMember(bootstrap, topics, pattern, assigned, common | settings)

    def on_the_loop(self, bootstrap: str, topic: str) -> None:
        async def round_trip() -> None:
            before = threading.active_count()
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                await producer.send_and_wait(topic, b"v", headers=[("h", b"1")])
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
            async with consumer:
                record = await consumer.getone()
            assert (record.value, record.headers) == (b"v", (("h", b"1"),))
            assert threading.active_count() == before

        asyncio.run(round_trip())

    def iterate(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        async def read() -> list[bytes]:
            values: list[bytes] = []
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
            async with consumer:
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == count:
                        break
            return values

        return asyncio.run(read())

    def partition_by(self) -> dict[str, Any]:
        return {"partitioner": lambda key, partitions, available: 2}

    def json_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        encode = lambda value: json.dumps(value).encode()  # noqa: E731
        return {"value.serializer": encode}, {"value.deserializer": json.loads}
