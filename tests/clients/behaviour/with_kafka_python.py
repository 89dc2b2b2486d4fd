"""kafka-python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.partitioner.abc import Partitioner
from kafka.serializer import Deserializer, Serializer
from kafka.structs import OffsetAndMetadata

from tests.clients.behaviour.driver import (
    POLL_S,
    TIMEOUT_S,
    Absent,
    At,
    Driver,
    Got,
    Member,
    Placed,
    Sender,
    underscored,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
NO_SUCH = ("buffer.memory", "group.protocol", "interceptors")


def keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(settings)
    for name in NO_SUCH:
        if name in settings:
            raise Absent(f"no {name}")
    strategy = settings.pop("partition.assignment.strategy", None)
    if strategy is not None:
        settings["partition_assignment_strategy"] = [ASSIGNORS[strategy]]
    if settings.get("compression.type") == "none":
        del settings["compression.type"]
    return underscored(settings)


class PythonSender(Sender):
    def __init__(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, **keywords(settings))
        if "transactional.id" in settings:
            self.producer.init_transactions()

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
            topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
        )

        def wait() -> Placed:
            metadata = future.get(TIMEOUT_S)
            return Placed(metadata.partition, metadata.offset)

        return wait

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def send_offsets(self, offsets: Mapping[At, int], member: Any) -> None:
        named = {TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
        self.producer.send_offsets_to_transaction(named, member.consumer.group_metadata())

    def close(self) -> None:
        self.producer.close()


class PythonMember(Member):
    def __init__(
        self,
        bootstrap: str,
        topics: Collection[str],
        pattern: str | None,
        assigned: Collection[At],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, **keywords(settings))
        if assigned:
            self.consumer.assign([TopicPartition(*at) for at in assigned])
        elif pattern is None:
            # A leader that joins before it has the metadata of the topic assigns nothing, and stays so: in
            # one of a hundred groups, with either broker. It has them when it was asked for them.
            for topic in topics:
                self.consumer.partitions_for_topic(topic)
            self.consumer.subscribe(list(topics), listener=_Listener(self))
        else:
            self.consumer.subscribe(pattern=re.compile(pattern).pattern, listener=_Listener(self))

    def poll(self) -> list[Got]:
        found = self.consumer.poll(timeout_ms=int(POLL_S * 1_000))
        return [
            Got(
                each.topic,
                each.partition,
                each.offset,
                each.key,
                each.value,
                tuple(map(tuple, each.headers)),
                each.timestamp,
            )
            for records in found.values()
            for each in records
        ]

    def assignment(self) -> set[At]:
        return {(at.topic, at.partition) for at in self.consumer.assignment()}

    def seek(self, at: At, offset: int) -> None:
        self.consumer.seek(TopicPartition(*at), offset)

    def offset_for_time(self, at: At, timestamp_ms: int) -> int | None:
        where = TopicPartition(*at)
        found = self.consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else int(found.offset)

    def pause(self, at: At) -> None:
        self.consumer.pause(TopicPartition(*at))

    def resume(self, at: At) -> None:
        self.consumer.resume(TopicPartition(*at))

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned.append({(at.topic, at.partition) for at in assigned})

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revoked.append({(at.topic, at.partition) for at in revoked})


class _Json(Serializer, Deserializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return json.dumps(data).encode()

    def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
        return json.loads(data)


class _Second(Partitioner):  # type: ignore[misc]
    def partition(self, *_: Any) -> int:
        return 2


class KafkaPython(Driver):
    name = "kafka-python"
    package = "kafka"

    def sender(self, bootstrap: str, **settings: Any) -> PythonSender:
        return PythonSender(bootstrap, settings)

    def member(
        self,
        bootstrap: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        assigned: Collection[At] = (),
        **settings: Any,
    ) -> PythonMember:
        common = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        return PythonMember(bootstrap, topics, pattern, assigned, common | settings)

    def partition_by(self) -> dict[str, Any]:
        return {"partitioner": _Second()}

    def json_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"value.serializer": _Json()}, {"value.deserializer": _Json()}

    def numbers(self, bootstrap: str, topic: str) -> float:
        sender = self.sender(bootstrap)
        sender.send(topic, b"v")()
        found = sender.producer.metrics()["producer-metrics"]["record-send-rate"]
        sender.close()
        return float(found)
