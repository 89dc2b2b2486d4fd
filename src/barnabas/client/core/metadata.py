"""Metadata cache of a long-lived client: brokers, and leaders with their epochs, by topic name and topic id.

Every Metadata answer of a `ClusterState` goes into its `Metadata`, and stays until a newer one replaces it.
`ClusterState.topics` serves single conversations instead, which forget all of it after a failure.

- A leader epoch never goes back: an answer of a broker that lags behind does not undo a newer leader. A topic
  that was created again has another id, and its epochs begin again.
- Producers and consumers name the topics that they want; `topics_to_ask` is the next request's list. A topic
  that a producer no longer uses expires (`metadata.max.idle.ms`).
- A Produce or Fetch answer that names a new leader updates the cache at once (`update_leader`, KIP-951).
- `version` counts the updates. A wait for fresh metadata is a wait for a larger version.

The shell `client.aio.metadata_updates` sends the requests.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    InvalidReplicationFactor,
    InvalidTopicException,
    KafkaError,
    TopicAuthorizationFailed,
    error_for,
)
from barnabas.core.ids import NO_EPOCH, ZERO_UUID, TopicPartition, Uuid, check_topic_name
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]
    """By partition index."""


class Leader(NamedTuple):
    broker_id: int
    epoch: int


def refused_topic(error_code: int, name: str, live_brokers: int) -> str:
    """Message for a topic that a Metadata answer refuses: the answer itself has only a code."""
    if error_code == InvalidReplicationFactor.code:
        return (
            f"topic {name} cannot be created: the brokers' default.replication.factor is larger than the"
            f" number of live brokers, {live_brokers}"
        )
    if error_code == TopicAuthorizationFailed.code:
        return f"not authorized: DESCRIBE on TOPIC {name}"
    if error_code == InvalidTopicException.code:
        try:
            check_topic_name(name)
        except InvalidTopicException as error:
            return error.message
    return f"topic {name}"


class Metadata:
    def __init__(self) -> None:
        self.version = 0
        self.brokers: dict[int, Endpoint] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, Topic] = {}
        self.names: dict[Uuid, str] = {}
        """Topic names by topic id."""
        self.errors: dict[str, KafkaError] = {}
        """Reason for which a wanted topic is not in `topics`."""
        self.refreshed_ms = -math.inf
        self.wants_all = False
        """True while all topics of the cluster are wanted, for a subscription by pattern."""
        self._wanted: dict[str, float] = {}
        """Wanted topics, with the time at which they expire."""

    # --- questions ---

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def partition_count(self, name: str) -> int:
        """Partitions of a topic; 0 when the topic is not known."""
        topic = self.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Leader of a partition, or None when there is none, or it is not known."""
        found = self.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        row = found.partitions[partition]
        return Leader(row.leader_id, row.leader_epoch) if row.leader_id >= 0 else None

    def has_leaders(self, name: str) -> bool:
        """True when the topic is known, and every partition has a leader."""
        topic = self.topics.get(name)
        return topic is not None and all(each.leader_id >= 0 for each in topic.partitions)

    # --- wishes ---

    def want(self, topic: str, expires_ms: float = math.inf) -> bool:
        """Want a topic, until `expires_ms` on the monotonic clock; True when it is not known yet."""
        self._wanted[topic] = expires_ms
        return topic not in self.topics

    def want_only(self, topics: Iterable[str]) -> None:
        """Want these topics and no others, without expiry. Consumers set their subscription with it."""
        self._wanted = dict.fromkeys(topics, math.inf)
        self._drop_unwanted()

    def topics_to_ask(self, now_ms: float) -> Collection[str] | None:
        """Topics for the next Metadata request: the wanted ones that have not expired, or None for all."""
        if self.wants_all:
            return None
        if any(expires_ms <= now_ms for expires_ms in self._wanted.values()):
            self._wanted = {name: at for name, at in self._wanted.items() if at > now_ms}
            self._drop_unwanted()
        return list(self._wanted)

    def _drop_unwanted(self) -> None:
        if not self.wants_all:
            for name in self.topics.keys() - self._wanted.keys():
                self._remove(name)
            self.errors = {name: error for name, error in self.errors.items() if name in self._wanted}

    # --- news ---

    def update(self, answer: MetadataResponse, now_ms: float, asked: Collection[str] | None) -> None:
        """Take the answer for these topics, or for all of them (None): then topics that it lacks are gone."""
        self.brokers = {row.node_id: Endpoint(row.host, row.port) for row in answer.brokers}
        self.racks = {row.node_id: row.rack for row in answer.brokers}
        if asked is None:
            for gone in self.topics.keys() - {row.name for row in answer.topics if row.name}:
                self._remove(gone)
        for row in answer.topics:
            name = row.name
            if name is None or not (self.wants_all or name in self._wanted):
                continue
            if row.error_code:
                self._remove(name)
                self.errors[name] = error_for(
                    row.error_code, refused_topic(row.error_code, name, len(answer.brokers))
                )
            else:
                self._add(name, row)
        if asked is None or not (self.wants_all or self._wanted.keys() - set(asked)):
            self.refreshed_ms = now_ms
        self.version += 1

    def update_leader(
        self, at: TopicPartition, leader: Leader, endpoints: Mapping[int, Endpoint] | None = None
    ) -> bool:
        """Take the leader that a Produce or Fetch answer names; True when it is news."""
        topic = self.topics.get(at.topic)
        self.brokers.update(endpoints or {})
        if topic is None or at.partition >= len(topic.partitions) or leader.broker_id not in self.brokers:
            return False
        known = topic.partitions[at.partition]
        if leader.epoch <= known.leader_epoch:
            return False
        rows = list(topic.partitions)
        rows[at.partition] = replace(known, leader_id=leader.broker_id, leader_epoch=leader.epoch)
        self.topics[at.topic] = replace(topic, partitions=tuple(rows))
        return True

    def forget_brokers(self) -> None:
        """Forget the brokers: the next request goes to a bootstrap address."""
        self.brokers = {}
        self.racks = {}

    def _add(self, name: str, row: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        topic = topic_of(row)
        if known is not None and known.topic_id == topic.topic_id:
            topic = _without_older_epochs(topic, known)
        else:
            self._remove(name)
        self.topics[name] = topic
        self.errors.pop(name, None)
        if topic.topic_id != ZERO_UUID:
            self.names[topic.topic_id] = name

    def _remove(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            self.names.pop(known.topic_id, None)


def topic_of(row: MetadataResponseTopic) -> Topic:
    assert row.name is not None
    partitions = (
        Partition(
            index=at.partition_index,
            leader_id=at.leader_id,
            leader_epoch=at.leader_epoch,
            replicas=tuple(at.replica_nodes),
            isr=tuple(at.isr_nodes),
            offline=tuple(at.offline_replicas),
            error_code=at.error_code,
        )
        for at in sorted(row.partitions, key=lambda at: at.partition_index)
    )
    return Topic(row.name, row.topic_id or ZERO_UUID, row.is_internal, tuple(partitions))


def _without_older_epochs(topic: Topic, known: Topic) -> Topic:
    """`topic`, with the known row of each partition whose known leader epoch is newer."""
    if all(
        new.leader_epoch == NO_EPOCH or new.leader_epoch >= old.leader_epoch
        for new, old in zip(topic.partitions, known.partitions, strict=False)
    ):
        return topic
    rows = list(topic.partitions)
    for index, (new, old) in enumerate(zip(topic.partitions, known.partitions, strict=False)):
        if NO_EPOCH < new.leader_epoch < old.leader_epoch:
            rows[index] = old
    return replace(topic, partitions=tuple(rows))
