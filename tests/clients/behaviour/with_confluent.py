"""confluent-kafka, on librdkafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Producer,
    SerializingProducer,
    TopicPartition,
)

from tests.clients.behaviour.driver import POLL_S, TIMEOUT_S, Absent, At, Driver, Got, Member, Placed, Sender

NO_SUCH = ("buffer.memory", "interceptors")


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in NO_SUCH:
        if name in settings:
            raise Absent(f"no {name}")
    if settings.get("partition.assignment.strategy") == "sticky":
        raise Absent("no assignor sticky")
    return dict(settings)


class ConfluentSender(Sender):
    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        given = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", **checked(settings)}
        kind = SerializingProducer if "value.serializer" in given else Producer
        self.producer = kind(given)
        if "transactional.id" in settings:
            self.producer.init_transactions(TIMEOUT_S)

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
        placed: list[Placed] = []
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                placed.append(Placed(message.partition(), message.offset()))
            else:
                failed.append(error)

        options: dict[str, Any] = {} if partition is None else {"partition": partition}
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms
        self.producer.produce(
            topic, value=value, key=key, headers=list(headers), on_delivery=delivered, **options
        )

        def wait() -> Placed:
            self.producer.flush(TIMEOUT_S)
            assert not failed, failed
            return placed[0]

        return wait

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def send_offsets(self, offsets: Mapping[At, int], member: Any) -> None:
        named = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        self.producer.send_offsets_to_transaction(named, member.consumer.consumer_group_metadata())

    def close(self) -> None:
        self.producer.flush(TIMEOUT_S)


class ConfluentMember(Member):
    def __init__(
        self,
        bootstrap: str,
        topics: Collection[str],
        pattern: str | None,
        assigned: Collection[At],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        given = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.interval.ms": 1_000,
            **checked(settings),
        }
        given.setdefault("group.id", "of-assigned-partitions")
        self._deserializes = "value.deserializer" in given
        self.consumer = (DeserializingConsumer if self._deserializes else Consumer)(given)
        if assigned:
            self.consumer.assign([TopicPartition(*at, OFFSET_BEGINNING) for at in assigned])
        else:
            wanted = list(topics) if pattern is None else [f"^{pattern}"]
            self.consumer.subscribe(wanted, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        self.assigned.append({(at.topic, at.partition) for at in partitions})

    def _on_revoke(self, consumer: Any, partitions: Any) -> None:
        self.revoked.append({(at.topic, at.partition) for at in partitions})

    def poll(self) -> list[Got]:
        found = []
        if self._deserializes:
            one = self.consumer.poll(POLL_S)
            messages = [] if one is None else [one]
        else:
            messages = self.consumer.consume(500, POLL_S)
        for each in messages:
            assert each.error() is None, each.error()
            found.append(
                Got(
                    str(each.topic()),
                    int(each.partition() or 0),
                    int(each.offset() or 0),
                    each.key(),
                    each.value(),
                    tuple(each.headers() or ()),  # type: ignore[arg-type]
                    each.timestamp()[1],
                )
            )
        return found

    def assignment(self) -> set[At]:
        return {(at.topic, at.partition) for at in self.consumer.assignment()}

    def seek(self, at: At, offset: int) -> None:
        self.consumer.seek(TopicPartition(*at, offset))

    def offset_for_time(self, at: At, timestamp_ms: int) -> int | None:
        (found,) = self.consumer.offsets_for_times([TopicPartition(*at, timestamp_ms)], TIMEOUT_S)
        return None if found.offset < 0 else found.offset

    def pause(self, at: At) -> None:
        self.consumer.pause([TopicPartition(*at)])

    def resume(self, at: At) -> None:
        self.consumer.resume([TopicPartition(*at)])

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing was read
                raise

    def close(self) -> None:
        self.consumer.close()


class Confluent(Driver):
    name = "confluent-kafka"
    package = "confluent_kafka"

    def sender(self, bootstrap: str, **settings: Any) -> ConfluentSender:
        return ConfluentSender(bootstrap, settings)

    def member(
        self,
        bootstrap: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        assigned: Collection[At] = (),
        **settings: Any,
    ) -> ConfluentMember:
        common = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        return ConfluentMember(bootstrap, topics, pattern, assigned, common | settings)

    def on_the_loop(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka.aio import AIOProducer

        assert AIOProducer is not None
        raise Absent("its asyncio classes call the others in a pool of threads, and take no headers")

    def iterate(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from confluent_kafka.aio import AIOConsumer

        assert not hasattr(AIOConsumer, "__aiter__")
        raise Absent("AIOConsumer has no __aiter__")

    def json_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        encode = lambda value, context: json.dumps(value).encode()  # noqa: E731
        decode = lambda data, context: json.loads(data)  # noqa: E731
        return {"value.serializer": encode}, {"value.deserializer": decode}

    def numbers(self, bootstrap: str, topic: str) -> float:
        seen: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "statistics.interval.ms": 50,
                "stats_cb": lambda text: seen.append(json.loads(text)["txmsgs"]),
            }
        )
        producer.produce(topic, b"v")
        producer.flush(TIMEOUT_S)
        while not seen or not seen[-1]:
            producer.poll(POLL_S)
        return seen[-1]
