"""Znode layout: each znode owns its path and codec. Paths and JSON are Apache Kafka's (ZooKeeper mode, 3.x).

So Kafka's own tools read our tree, and a tree that Kafka wrote is readable here. Encoders write the newest
versions; decoders also read the older ones that Kafka reads. Unknown fields are ignored.

This module holds the cluster, its controller, topics and configuration. `brokers` and `acls` hold those
subjects, and `notifications` the nodes by which one process notifies others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from barnabas.cluster.znodes.json_codec import (
    INT32_MAX,
    broker_ids,
    from_json,
    int32,
    reading,
    text,
    to_json,
    written,
)
from barnabas.config.dynamic import store
from barnabas.core.errors import InvalidRequest
from barnabas.core.ids import BrokerId, Uuid

NO_CONTROLLER_EPOCH = 0

PARTITION_COUNT_MAX: Final = 100_000
"""More partitions than a node of 1 MB, ZooKeeper's limit, can hold."""


class ClusterIdZnode:
    PATH = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        data = to_json({"version": "1", "id": cluster_id})
        return written(cluster_id, data, ClusterIdZnode.decode)

    @staticmethod
    def decode(data: bytes) -> str:
        with reading("the cluster id"):
            cluster_id = text(from_json(data)["id"])
            if not cluster_id:
                raise ValueError("it is empty")
            return cluster_id


class ControllerZnode:
    """Ephemeral node; the broker that created it is the controller."""

    PATH = "/controller"

    @staticmethod
    def encode(broker_id: int, now_ms: int) -> bytes:
        data = to_json({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})
        return written(BrokerId(broker_id), data, ControllerZnode.decode)

    @staticmethod
    def decode(data: bytes) -> BrokerId:
        with reading("the controller"):
            return BrokerId(int32(from_json(data)["brokerid"]))


class ControllerEpochZnode:
    PATH = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        return written(epoch, str(epoch).encode(), ControllerEpochZnode.decode)

    @staticmethod
    def decode(data: bytes) -> int:
        with reading("the controller epoch"):
            epoch = int32(data)
            if not 0 <= epoch < INT32_MAX:
                raise ValueError(f"no epoch follows {epoch}")
            return epoch


class ReplicaAssignment(NamedTuple):
    """Replicas of a partition, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


Assignment = Mapping[int, ReplicaAssignment]
"""Assignment of one topic, by partition."""


class TopicInfo(NamedTuple):
    topic_id: Uuid | None
    """None in trees written by Kafka before 2.8."""
    assignment: Assignment


class TopicZnode:
    PARENT = "/brokers/topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/brokers/topics/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        return f"/brokers/topics/{topic}/partitions"

    @staticmethod
    def encode(topic_id: Uuid | None, assignment: Assignment) -> bytes:
        _check_assignment(assignment)
        fields: dict[str, Any] = {
            "version": 3,
            "partitions": {str(number): given.replicas for number, given in assignment.items()},
            "adding_replicas": {
                str(number): given.adding_replicas
                for number, given in assignment.items()
                if given.adding_replicas
            },
            "removing_replicas": {
                str(number): given.removing_replicas
                for number, given in assignment.items()
                if given.removing_replicas
            },
        }
        if topic_id is not None:
            fields["topic_id"] = str(topic_id)
        return to_json(fields)

    @staticmethod
    def decode(topic: str, data: bytes) -> TopicInfo:
        with reading(f"topic {topic}"):
            fields = from_json(data)
            topic_id = fields.get("topic_id")
            adding = fields.get("adding_replicas") or {}
            removing = fields.get("removing_replicas") or {}
            assignment = {
                int32(number): ReplicaAssignment(
                    broker_ids(replicas),
                    broker_ids(adding.get(number, [])),
                    broker_ids(removing.get(number, [])),
                )
                for number, replicas in fields["partitions"].items()
            }
            if any(not 0 <= number < PARTITION_COUNT_MAX for number in assignment):
                raise ValueError("a partition number is out of range")
            return TopicInfo(
                None if topic_id is None else Uuid.parse(topic_id), dict(sorted(assignment.items()))
            )


def _check_assignment(assignment: Assignment) -> None:
    """Check the bounds of `TopicZnode.decode`, cheaper than decoding thousands of partitions again."""
    if assignment and not 0 <= min(assignment) <= max(assignment) < PARTITION_COUNT_MAX:
        raise InvalidRequest(f"a topic has partitions 0 to {PARTITION_COUNT_MAX - 1}")
    named: set[int] = set()
    for given in assignment.values():
        named.update(*given)
    if any(not -INT32_MAX - 1 <= each <= INT32_MAX for each in named):
        raise InvalidRequest("a partition is assigned to a broker whose id is out of range")


class PartitionState(NamedTuple):
    """Leader, epoch and ISR of a partition; `state_version` is the znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    state_version: int = 0


class PartitionStateZnode:
    @staticmethod
    def partition_path(topic: str, partition: int) -> str:
        return f"/brokers/topics/{topic}/partitions/{partition}"

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"/brokers/topics/{topic}/partitions/{partition}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        # Formatted by hand: a topic has thousands of these, written together.
        isr = ",".join(map(str, state.isr))
        recovery = state.leader_recovery_state
        extra = f',"leader_recovery_state":{recovery}' if recovery else ""
        data = (
            f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
            f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]'
            f"{extra}}}"
        ).encode()
        return written(tuple(state[:-1]), data, _read_state)

    @staticmethod
    def decode(data: bytes, state_version: int) -> PartitionState:
        return PartitionState(*_read_state(data), state_version)


@lru_cache(maxsize=1_024)  # thousands of partitions that were led together have the same state
def _read_state(data: bytes) -> tuple[int, int, tuple[int, ...], int, int]:
    """Fields of a `PartitionState` except the version."""
    with reading("a partition state"):
        fields = from_json(data)
        return (
            int32(fields["leader"]),
            _leader_epoch(fields["leader_epoch"]),
            broker_ids(fields["isr"]),
            int32(fields["controller_epoch"]),
            _recovery_state(fields.get("leader_recovery_state", 0)),
        )


def _leader_epoch(value: Any) -> int:
    epoch = int32(value)
    if epoch == INT32_MAX:
        raise ValueError(f"no epoch follows {epoch}")
    return epoch


def _recovery_state(value: Any) -> int:
    if value not in (0, 1):
        raise ValueError(f"leader recovery state {value!r}")
    return int(value)


class ConfigZnode:
    """Configuration of a topic, broker, user, client or address. Names outside `topics` are sanitized.

    Groups and subscriptions to client metrics have settings in versions of Kafka without ZooKeeper; `groups`
    and `client-metrics` are this project's additions.
    """

    TOPICS, BROKERS, GROUPS = store.TOPICS, store.BROKERS, store.GROUPS
    CLIENT_METRICS = store.CLIENT_METRICS
    CLIENTS, USERS, IPS = "clients", "users", "ips"
    TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, GROUPS, CLIENT_METRICS)

    @staticmethod
    def type_path(entity_type: str) -> str:
        return f"/config/{entity_type}"

    @staticmethod
    def path(entity_type: str, entity_name: str) -> str:
        return f"/config/{entity_type}/{entity_name}"

    @staticmethod
    def encode(config: Mapping[str, str]) -> bytes:
        return written(dict(config), to_json({"version": 1, "config": dict(config)}), ConfigZnode.decode)

    @staticmethod
    def decode(data: bytes) -> dict[str, str]:
        if not data:
            return {}
        with reading("a configuration"):
            return {str(key): str(value) for key, value in (from_json(data).get("config") or {}).items()}


def sanitize(name: str) -> str:
    """Percent-encode a principal or client id for a path, as Kafka does. No znode is named . or .., so these
    names are encoded too."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return name if name == store.DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)


class ProducerIdBlock(NamedTuple):
    """Producer ids `first` to `last`, both included, allocated to one broker."""

    broker_id: int
    first: int
    last: int


class ProducerIdBlockZnode:
    PATH = "/latest_producer_id_block"

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        data = to_json(
            {
                "version": 1,
                "broker": block.broker_id,
                "block_start": str(block.first),
                "block_end": str(block.last),
            }
        )
        return written(block, data, ProducerIdBlockZnode.decode)

    @staticmethod
    def decode(data: bytes) -> ProducerIdBlock:
        with reading("the producer id block"):
            fields = from_json(data)
            return ProducerIdBlock(
                int(fields["broker"]), int(fields["block_start"]), int(fields["block_end"])
            )


PERSISTENT_PATHS = (
    "/consumers",
    "/brokers/ids",
    TopicZnode.PARENT,
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    ProducerIdBlockZnode.PATH,
    "/log_dir_event_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    *(ConfigZnode.type_path(entity_type) for entity_type in ConfigZnode.TYPES),
)
"""Paths that a broker creates at startup if they are missing."""
