"""Our client: the synchronous face, and asyncio where a behaviour is about it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from barnabas.client import Consumer, Producer, RebalanceListener, TopicPartition, sync
from tests.clients.behaviour.driver import (
    POLL_S,
    TIMEOUT_S,
    At,
    Driver,
    Got,
    Member,
    Placed,
    Sender,
    underscored,
)


class OurSender(Sender):
    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self.producer = sync.Producer(bootstrap, **underscored(settings))

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
        future = self.producer.send(
            topic, value, key=key, headers=headers or None, partition=partition, timestamp_ms=timestamp_ms
        )

        def wait() -> Placed:
            done = future.result(TIMEOUT_S)
            return Placed(done.partition, done.offset)

        return wait

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def send_offsets(self, offsets: Mapping[At, int], member: Any) -> None:
        named = {TopicPartition(*at): offset for at, offset in offsets.items()}
        self.producer.send_offsets_to_transaction(named, member.consumer.group_metadata())

    def close(self) -> None:
        self.producer.close()


class OurMember(Member):
    def __init__(
        self,
        bootstrap: str,
        topics: Collection[str],
        pattern: str | None,
        assigned: Collection[At],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.consumer: sync.Consumer[Any, Any] = sync.Consumer(bootstrap, **underscored(settings))
        if assigned:
            self.consumer.assign([TopicPartition(*at) for at in assigned])
        else:
            self.consumer.subscribe(topics, pattern=pattern, listener=_Listener(self))

    def poll(self) -> list[Got]:
        found = self.consumer.poll(timeout_ms=POLL_S * 1_000)
        return [
            Got(
                each.topic, each.partition, each.offset, each.key, each.value, each.headers, each.timestamp_ms
            )
            for each in found
        ]

    def assignment(self) -> set[At]:
        return {(at.topic, at.partition) for at in self.consumer.assignment}

    def seek(self, at: At, offset: int) -> None:
        self.consumer.seek(TopicPartition(*at), offset)

    def offset_for_time(self, at: At, timestamp_ms: int) -> int | None:
        where = TopicPartition(*at)
        found = self.consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else found.offset

    def pause(self, at: At) -> None:
        self.consumer.pause(TopicPartition(*at))

    def resume(self, at: At) -> None:
        self.consumer.resume(TopicPartition(*at))

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class _Listener(RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._member.assigned.append({(at.topic, at.partition) for at in partitions})

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._member.revoked.append({(at.topic, at.partition) for at in partitions})


class Ours(Driver):
    name = "Barnabas"
    package = "barnabas"

    def sender(self, bootstrap: str, **settings: Any) -> OurSender:
        return OurSender(bootstrap, settings)

    def member(
        self,
        bootstrap: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        assigned: Collection[At] = (),
        **settings: Any,
    ) -> OurMember:
        common = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        return OurMember(bootstrap, topics, pattern, assigned, common | settings)

    def on_the_loop(self, bootstrap: str, topic: str) -> None:
        import asyncio

        async def round_trip() -> None:
            before = threading.active_count()
            async with Producer(bootstrap) as producer:
                await producer.publish(topic, b"v", headers={"h": b"1"})
            async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                record = await consumer.get_one()
            assert (record.value, record.headers) == (b"v", (("h", b"1"),))
            assert threading.active_count() == before

        asyncio.run(round_trip())

    def iterate(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        import asyncio

        async def read() -> list[bytes]:
            values: list[bytes] = []
            async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == count:
                        break
            return values

        return asyncio.run(read())

    def partition_by(self) -> dict[str, Any]:
        return {"partitioner.class": lambda topic, key, count: 2}

    def json_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        encode = lambda value: json.dumps(value).encode()  # noqa: E731
        return {"value.serializer": encode}, {"value.deserializer": json.loads}

    def numbers(self, bootstrap: str, topic: str) -> float:
        sender = self.sender(bootstrap)
        sender.send(topic, b"v")()
        found = sender.producer.metrics.snapshot()
        sender.close()
        return sum(value for name, value in found.items() if name.startswith("producer_record_send_total"))
