"""Notification znodes: sequential nodes that name a change, and requests to the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.cluster.znodes.json_codec import broker_ids, from_json, int32, reading, text, to_json, written
from barnabas.core.ids import TopicPartition


def _partitions_json(partitions: Iterable[TopicPartition]) -> list[dict[str, str | int]]:
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)]


def _partitions(data: bytes) -> set[TopicPartition]:
    return {
        TopicPartition(text(entry["topic"]), int32(entry["partition"]))
        for entry in from_json(data)["partitions"]
    }


class ConfigChangeZnode:
    """A changed configuration; names the entity: `topics/<name>`."""

    PARENT = "/config/changes"
    CREATE_PATH = "/config/changes/config_change_"

    @staticmethod
    def encode(entity_path: str) -> bytes:
        data = to_json({"version": 2, "entity_path": entity_path})
        return written(entity_path, data, ConfigChangeZnode.decode)

    @staticmethod
    def decode(data: bytes) -> str:
        with reading("a configuration change"):
            fields = from_json(data)
            if fields["version"] == 1:
                return f"{fields['entity_type']}/{fields['entity_name']}"
            return str(fields["entity_path"])


class IsrChangeZnode:
    """A leader changed the ISR of these partitions."""

    PARENT = "/isr_change_notification"
    CREATE_PATH = "/isr_change_notification/isr_change_"

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        named = set(partitions)
        data = to_json({"version": 1, "partitions": _partitions_json(named)})
        return written(named, data, IsrChangeZnode.decode)

    @staticmethod
    def decode(data: bytes) -> set[TopicPartition]:
        with reading("an ISR change"):
            return _partitions(data)


class LogDirEventZnode:
    """A log directory of this broker failed."""

    PARENT = "/log_dir_event_notification"
    CREATE_PATH = "/log_dir_event_notification/log_dir_event_"
    FAILURE = 1

    @staticmethod
    def encode(broker_id: int) -> bytes:
        data = to_json({"version": 1, "broker": broker_id, "event": LogDirEventZnode.FAILURE})
        return written(broker_id, data, LogDirEventZnode.decode)

    @staticmethod
    def decode(data: bytes) -> int:
        with reading("a log directory event"):
            return int32(from_json(data)["broker"])


class DeleteTopicsZnode:
    """A topic marked for deletion; the node has no data."""

    PARENT = "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/admin/delete_topics/{topic}"


class ReassignPartitionsZnode:
    PATH = "/admin/reassign_partitions"

    @staticmethod
    def encode(assignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
        entries = [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in assignment.items()
        ]
        given = {topic_partition: tuple(replicas) for topic_partition, replicas in assignment.items()}
        return written(given, to_json({"version": 1, "partitions": entries}), ReassignPartitionsZnode.decode)

    @staticmethod
    def decode(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        with reading("the partition reassignment"):
            return {
                TopicPartition(text(entry["topic"]), int32(entry["partition"])): broker_ids(entry["replicas"])
                for entry in from_json(data)["partitions"]
            }


class PreferredReplicaElectionZnode:
    PATH = "/admin/preferred_replica_election"

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        named = set(partitions)
        data = to_json({"version": 1, "partitions": _partitions_json(named)})
        return written(named, data, PreferredReplicaElectionZnode.decode)

    @staticmethod
    def decode(data: bytes) -> set[TopicPartition]:
        with reading("the preferred replica election"):
            return _partitions(data)
